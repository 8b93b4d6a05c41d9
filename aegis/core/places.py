"""Which nodes the next generation runs on, in rank order.

Survivors keep their place and a spare takes the place of the one that is lost, so the ranks of the
survivors keep their numbers.
"""

from dataclasses import dataclass

from aegis.core.cluster import Cluster, at_rest, contact_of, launcher_of
from aegis.core.words import counted, duration, listed
from aegis.model.incident import IncidentState
from aegis.model.job import Job, LauncherState, Member
from aegis.model.node import Node, NodeState


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why the job cannot start yet."""

    reason: str


def choose(cluster: Cluster, job: Job) -> tuple[tuple[Member, ...], int] | NoPlace:
    """The members of the next generation and the port of its fresh store, or why not yet."""
    if reason := _must_wait(cluster, job):
        return NoPlace(reason)
    kept = _kept(cluster, job)
    spares = [node.name for node in cluster.spares(job) if node.name not in kept]
    names = [name or (spares.pop(0) if spares else None) for name in kept]
    filled = [name for name in names if name is not None]
    if len(filled) < len(names):
        return NoPlace(_lacking(cluster, job, len(filled)))
    launchers = [_launcher(cluster, job, name) for name in filled]
    members = tuple(
        Member(node=name, launcher=one.launcher, address=one.address)
        for name, one in zip(filled, launchers, strict=True)
    )
    port = launchers[0].store_port
    if not port or (job.members and _is_used(job, launchers[0])):
        return NoPlace(f"{filled[0]} is still opening the store where ranks meet")
    return members, port


def _must_wait(cluster: Cluster, job: Job) -> str:
    """A reason to let a moment pass although there may be nodes enough."""
    if not job.attempts:
        return _gathering(cluster, job)
    if left := _left(cluster, job):
        return f"{left} was given up and is heard again: its ranks are being stopped"
    for member in job.members:
        for incident in cluster.unresolved_on(member.node):
            if incident.state is IncidentState.WATCHING:
                return (
                    f"{member.node} is being watched ({incident.id}); it stays or goes in a moment"
                )
    return ""


def _left(cluster: Cluster, job: Job) -> str:
    """A node that came back, just now, with ranks of a generation that is over."""
    if cluster.now - job.since >= cluster.policy.stop_seconds:
        return ""
    for member in job.members:
        launcher = launcher_of(cluster.nodes[member.node], job.spec.name)
        same = launcher is not None and launcher.launcher == member.launcher
        node = cluster.nodes[member.node]
        silent = node.state is NodeState.UNKNOWN or node.hung_up_at > cluster.hears_since
        if launcher and same and not silent and not at_rest(launcher):
            return member.node
    return ""


def _gathering(cluster: Cluster, job: Job) -> str:
    wanted = job.spec.nodes + job.spec.spares
    there = len(cluster.spares(job))
    waited = cluster.now - max(job.submitted_at, cluster.hears_since)
    if there >= wanted or waited >= cluster.policy.gather_seconds:
        return ""
    limit = duration(cluster.policy.gather_seconds)
    return f"{there} of {wanted} launchers have registered; it starts without spares after {limit}"


def _kept(cluster: Cluster, job: Job) -> list[str | None]:
    """The places in rank order, with the names of those who may stay."""
    if len(job.members) != job.spec.nodes:
        return [None] * job.spec.nodes
    return [
        member.node if _may_stay(cluster, job, cluster.nodes[member.node]) else None
        for member in job.members
    ]


def _may_stay(cluster: Cluster, job: Job, node: Node) -> bool:
    """A suspect node keeps its ranks, but gets no new ones."""
    stays = (NodeState.READY, NodeState.PROBATION, NodeState.SUSPECT)
    other = cluster.job_on(node.name)
    return (
        node.state in stays
        and node.name not in job.excluded
        and (other is None or other.spec.name == job.spec.name)
        and cluster.can_start(node, job)
    )


def _launcher(cluster: Cluster, job: Job, name: str) -> LauncherState:
    launcher = launcher_of(cluster.nodes[name], job.spec.name)
    assert launcher is not None, f"{name} was chosen without a launcher"
    return launcher


def _is_used(job: Job, launcher: LauncherState) -> bool:
    """Whether the store is the one of the generation before: a store serves one generation."""
    return launcher.launcher == job.members[0].launcher and launcher.store_port == job.master_port


def _lacking(cluster: Cluster, job: Job, count: int) -> str:
    name = job.spec.name
    others = [
        f"{node.name} is {node.state}"
        for node in cluster.launched(name)
        if contact_of(node, name) and node.state not in (NodeState.READY, NodeState.PROBATION)
    ]
    others += [f"{one} is excluded" for one in job.excluded]
    why = f" ({listed(others[:4])})" if others else ""
    told = f"needs {counted(job.spec.nodes, 'node')}, {count} can take ranks{why}"
    launched = sum(1 for node in cluster.launched(name) if contact_of(node, name))
    if launched < job.spec.nodes:
        told += f"; its `aegis run` is on {launched} of the fleet's {len(cluster.nodes)}"
    return told
