"""Moving a node between its states: out, drained, eased, back."""

from aegis.core import lemons
from aegis.core.cluster import Cluster, at_rest, holders, standing
from aegis.core.incidents import close
from aegis.core.index import AEGIS
from aegis.model.incident import DecisionResult, Incident, IncidentState
from aegis.model.job import Job, JobState
from aegis.model.node import Node, NodeState
from aegis.model.record import replace

TAKEN_KEPT = 50


def enter(cluster: Cluster, node: Node, state: NodeState, reason: str, held_by: str = "") -> None:
    """Change a node's state. One that is silent goes there when it is heard again."""
    if node.state is NodeState.UNKNOWN:
        node = replace(node, state_before_unknown=state, reason=reason, held_by=held_by)
    else:
        since = node.since if node.state is state else cluster.now
        node = replace(node, state=state, since=since, reason=reason, held_by=held_by)
    cluster.put_node(node)


def take_out(cluster: Cluster, name: str, held_by: str, reason: str, incident: str = "") -> None:
    """Cordon and drain; a node without ranks is quarantined at once."""
    node = replace(cluster.nodes[name], taken_for=incident)
    if held_by == AEGIS:
        node = replace(node, taken_at=(*node.taken_at, cluster.now)[-TAKEN_KEPT:])
    enter(cluster, node, NodeState.DRAINING, reason, held_by)
    cluster.lemons = lemons.find(cluster)
    settle(cluster, name)


def settle(cluster: Cluster, name: str) -> None:
    """A draining node whose ranks are gone is drained. That it is silent does not hold it up."""
    node = cluster.nodes[name]
    if standing(node) is not NodeState.DRAINING or holds_ranks(cluster, node):
        return
    enter(cluster, node, NodeState.QUARANTINED, node.reason, node.held_by)
    for incident in cluster.unresolved_on(name):
        if incident.state is IncidentState.OPEN and incident.faults[0].job is None:
            close(cluster, incident, f"{name} was taken out of service by {node.held_by}")
        elif incident.state is IncidentState.RECOVERING and not incident.generation_before:
            close(cluster, incident, f"{name} held no ranks and is quarantined")


def holds_ranks(cluster: Cluster, node: Node) -> bool:
    """Whether ranks are alive on the node, or may be as far as a job's launchers have said.

    The last word of a node that is silent is old: its job alone knows whether it is given up.
    """
    silent = node.state is NodeState.UNKNOWN
    if not silent and any(not at_rest(launcher) for launcher in node.launchers):
        return True
    job = cluster.job_on(node.name)
    return job is not None and (node.name in job.awaiting or node.name in _wanted(job))


def _wanted(job: Job) -> tuple[str, ...]:
    return holders(job) if job.state is not JobState.STOPPING else ()


def suspect(cluster: Cluster, name: str, reason: str) -> bool:
    """A ready node gets no new ranks for now. False: it was not ready."""
    node = cluster.nodes[name]
    if node.state not in (NodeState.READY, NodeState.PROBATION):
        return False
    enter(cluster, node, NodeState.SUSPECT, reason)
    return True


def ease(cluster: Cluster, name: str) -> None:
    """A suspect node that nothing speaks against any more is ready again."""
    node = cluster.nodes[name]
    if node.state is not NodeState.SUSPECT or _is_stuck(cluster, node):
        return
    if not any(_keeps_suspect(one) for one in cluster.unresolved_on(name)):
        enter(cluster, node, NodeState.READY, "")


def _is_stuck(cluster: Cluster, node: Node) -> bool:
    """Whether ranks live on although they were told to stop."""
    job = cluster.job_on(node.name)
    return job is not None and job.state is JobState.STOPPING and node.name in job.awaiting


def _keeps_suspect(incident: Incident) -> bool:
    if incident.state is IncidentState.WATCHING:
        return True
    held = incident.decisions and incident.decisions[-1].result is DecisionResult.BLOCKED
    return incident.state is IncidentState.OPEN and bool(held)
