"""When a node of a generation can be relied on to hold none of its ranks any more."""

from aegis.core.cluster import Cluster, at_rest, contact_of, launcher_of
from aegis.core.levels import is_fresh
from aegis.model.job import Job, Member, StopKind
from aegis.model.node import Node, Sender


def is_gone(cluster: Cluster, job: Job, member: Member) -> bool:
    """Whether the member's ranks are over, so that it does not hold up the next generation."""
    node = cluster.nodes[member.node]
    launcher = launcher_of(node, job.spec.name)
    if launcher is None or launcher.launcher != member.launcher:
        return True  # ranks do not outlive their launcher
    if launcher.generation >= job.generation and at_rest(launcher):
        return True
    return is_orphaned(cluster, job, node) or is_fenced(cluster, job, node)


def is_orphaned(cluster: Cluster, job: Job, node: Node) -> bool:
    """Whether the agent speaks and the launcher does not: it is gone, and its ranks with it.

    A launcher that only lost its agent speaks for itself within two seconds. One that did so is not
    missed by its agent before it has come back to it.
    """
    contact, policy = contact_of(node, job.spec.name), cluster.policy
    if contact is None or contact.by is Sender.AGENT:
        return False
    limit = policy.fresh_seconds if contact.by is None else policy.silence_seconds
    return is_fresh(cluster, node) and cluster.contact_seconds(contact) >= limit


def is_fenced(cluster: Cluster, job: Job, node: Node) -> bool:
    """Whether the node is given up: silent, and the job makes no progress anywhere.

    A cut-off node that still trains alone commits nothing: its checkpoints bear an old generation.
    While much of the fleet is silent no node is given up, save one that an operator has drained.
    """
    heard = cluster.silent_since is None or node.held_by not in ("", "aegis")
    return heard and is_silent(cluster, node) and is_stalled(cluster, job)


def is_deserted(cluster: Cluster, job: Job) -> bool:
    """Whether all that the job still waits for hung up, and its ranks elsewhere died of a fault.

    A process that is killed closes its connection; a node that only restarts its agent does so too,
    but then no rank fails on the others. Without those no rank there can complete a step, and what
    it would commit is refused.
    """
    if job.incident is None or job.stop is not StopKind.NOW or cluster.silent_since is not None:
        return False
    if not any(_has_failed(cluster, job, member) for member in job.members):
        return False
    return all(_has_hung_up(cluster, cluster.nodes[name]) for name in job.awaiting)


def _has_failed(cluster: Cluster, job: Job, member: Member) -> bool:
    """Whether it says itself that a rank of this generation failed, and holds none any more."""
    launcher = launcher_of(cluster.nodes[member.node], job.spec.name)
    if launcher is None or launcher.launcher != member.launcher or not at_rest(launcher):
        return False
    return launcher.failure is not None and launcher.failure.generation == job.generation


def _has_hung_up(cluster: Cluster, node: Node) -> bool:
    since = node.hung_up_at
    return since > cluster.hears_since and cluster.now - since >= cluster.policy.hung_up_seconds


def is_silent(cluster: Cluster, node: Node) -> bool:
    """Whether neither agent nor launcher has spoken for too long."""
    return cluster.silent_seconds(node) >= cluster.policy.silence_seconds


def is_stalled(cluster: Cluster, job: Job) -> bool:
    """Whether no rank of the job has completed a step for too long."""
    idle = cluster.now - max(job.progress_at, cluster.hears_since)
    return idle >= cluster.policy.silence_seconds
