"""What must hold after every event. Checked in production too: wrong is worse than down."""

from aegis.core.cluster import Cluster, holders
from aegis.core.incidents import ENTRIES_KEPT, FAULTS_KEPT
from aegis.core.index import Index
from aegis.core.rails import TRAINING
from aegis.model.incident import DecisionResult, Incident, IncidentState
from aegis.model.job import Job, JobState
from aegis.model.node import Node, NodeState

_GONE = (NodeState.DRAINING, NodeState.QUARANTINED, NodeState.REPAIRING)


def check(cluster: Cluster) -> None:
    """Raise AssertionError naming the first broken promise."""
    for job in cluster.jobs.values():
        _check_job(cluster, job)
    for node in cluster.nodes.values():
        _check_node(cluster, node)
    for incident in cluster.incidents.values():
        _check_incident(cluster, incident)
    _check_index(cluster)


def check_touched(cluster: Cluster) -> None:
    """The same for what the last event changed."""
    for kind, name in cluster.touched:
        if kind == "job" and name in cluster.jobs:
            _check_job(cluster, cluster.jobs[name])
        elif kind == "node":
            _check_node(cluster, cluster.nodes[name])
        elif kind == "incident" and name in cluster.incidents:
            _check_incident(cluster, cluster.incidents[name])


def _check_index(cluster: Cluster) -> None:
    """What is found by the index is what is there."""
    kept, made = cluster.index, Index.of(cluster.nodes, cluster.jobs, cluster.incidents)
    assert kept == made, "the index does not say what is there"
    heard = [cluster.nodes[name].seen_at for name in kept.heard]
    assert heard == sorted(heard), "the index does not know who is silent for longest"
    taken = [cluster.nodes[name].taken_at[-1] for name in kept.taken]
    assert taken == sorted(taken), "the index does not know who was taken last"


def _check_job(cluster: Cluster, job: Job) -> None:
    name = job.spec.name
    nodes = {member.node for member in job.members}
    assert len(nodes) == len(job.members), f"{name} holds a node twice"
    for node in holders(job):
        held = cluster.index.held[node]
        assert len(held) == 1, f"{' and '.join(held)} share {node}"
    assert nodes <= cluster.nodes.keys(), f"{name} holds a node nobody knows"
    assert job.awaiting <= nodes, f"{name} awaits a node that it does not hold"
    if job.state not in (JobState.STARTING, JobState.STOPPING):
        assert not job.awaiting, f"{name} is {job.state} and awaits an answer"
    if job.state in TRAINING:
        assert len(nodes) == job.spec.nodes, f"{name} has the wrong number of nodes"
        assert job.generation > 0, f"{name} trains in no generation"
        for node in nodes & cluster.index.resting:
            _check_may_hold(cluster.nodes[node], name)
    limit = max(1, job.spec.restarts_max)
    assert job.restarts_without_progress <= limit, f"{name} was restarted too often"
    if job.incident is not None:
        assert job.incident in cluster.open_incidents, f"{name} answers a closed incident"


def _check_may_hold(node: Node, job: str) -> None:
    state = node.state_before_unknown if node.state is NodeState.UNKNOWN else node.state
    assert state not in _GONE, f"{job} trains on {node.name}, which is {state}"


def _check_node(cluster: Cluster, node: Node) -> None:
    job = cluster.job_on(node.name)
    if job and job.state in TRAINING:
        _check_may_hold(node, "a job")
    contacts = [(one.job, one.launcher) for one in node.contacts]
    launchers = [(one.spec.name, one.launcher) for one in node.launchers]
    assert contacts == launchers, f"{node.name} has launchers that were never heard"
    if node.incident is not None:
        assert node.incident in cluster.open_incidents, f"{node.name} names a closed incident"


def _check_incident(cluster: Cluster, incident: Incident) -> None:
    name = incident.id
    closed = incident.state is IncidentState.CLOSED
    assert closed is (name not in cluster.open_incidents), f"{name} is misfiled"
    assert closed is (incident.closed_at is not None), f"{name} closed without its time"
    assert closed is bool(incident.outcome), f"{name} closed without an outcome"
    kinds = {fault.fault_class for fault in incident.faults}
    assert incident.fault_class in kinds, f"{name} holds no fault of its own class"
    assert len(incident.faults) <= FAULTS_KEPT, f"{name} keeps too many faults"
    assert len(incident.entries) <= ENTRIES_KEPT, f"{name} keeps too many entries"
    if incident.state is IncidentState.WATCHING:
        assert not incident.decisions, f"{name} is watched and decided"
    if incident.state is IncidentState.RECOVERING:
        results = (DecisionResult.ACTED, DecisionResult.BLOCKED)
        assert incident.decisions[-1].result in results, f"{name} recovers undecided"
