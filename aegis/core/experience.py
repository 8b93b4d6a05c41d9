"""Learning from what was done: counted as it happens, used in words beside each decision."""

from collections.abc import Mapping

from aegis.core.cluster import Cluster
from aegis.core.words import counted
from aegis.model.experience import Experience, Tried
from aegis.model.fault import FaultClass
from aegis.model.incident import Decision, DecisionResult, Incident, Remedy
from aegis.model.node import Node, NodeState
from aegis.model.record import replace

RELAPSE_SECONDS = 86400.0
GAP_SECONDS_MAX = 60.0  # a controller that was away has counted nothing meanwhile
LOOK_BACK = 200  # closed incidents
_SERVING = (NodeState.READY, NodeState.SUSPECT, NodeState.PROBATION)
_DRAINS = (Remedy.DRAIN_NOW, Remedy.DRAIN_SAVING)


def pass_time(cluster: Cluster) -> None:
    """Count the time for which nodes could have failed."""
    known = cluster.experience
    gap = cluster.now - known.counted_at if known.counted_at else 0.0
    serving = len(cluster.nodes) - len(cluster.index.resting)
    grown = serving * gap if gap <= GAP_SECONDS_MAX else 0.0
    cluster.experience = replace(
        known, node_seconds=known.node_seconds + grown, counted_at=cluster.now
    )


def acted(cluster: Cluster, incident: Incident, remedy: Remedy) -> None:
    """A remedy is being used."""
    known, kind = cluster.experience, incident.fault_class
    tried = _tried(known, kind, remedy)
    known = _with(known, kind, remedy, replace(tried, times=tried.times + 1))
    if remedy in _DRAINS or kind is FaultClass.NODE_LOST:
        known = replace(known, node_failures=_one_more(known.node_failures, kind))
    if incident.job or incident.faults[0].job:
        known = replace(known, job_failures=_one_more(known.job_failures, kind))
    cluster.experience = known


def helped(cluster: Cluster, incident: Incident) -> None:
    """The job has come on after it."""
    known = cluster.experience
    decision = _acted(incident)
    if decision is not None:
        tried = _tried(known, incident.fault_class, decision.remedy)
        more = replace(tried, helped=min(tried.times, tried.helped + 1))
        known = _with(known, incident.fault_class, decision.remedy, more)
    if incident.phases.first_step_at is not None:
        took = max(0.0, incident.phases.first_step_at - incident.phases.observed_at)
        known = replace(
            known,
            restart_count=known.restart_count + 1,
            restart_seconds=known.restart_seconds + took,
        )
    cluster.experience = known


def ordered(cluster: Cluster, incident: Incident, remedy: Remedy) -> None:
    """A node that was drained before is being reset or rebooted."""
    kind = incident.fault_class
    tried = _tried(cluster.experience, kind, remedy)
    more = replace(tried, times=tried.times + 1)
    cluster.experience = _with(cluster.experience, kind, remedy, more)


def refused(cluster: Cluster, incident: Incident, remedy: Remedy) -> None:
    """It was ordered and not done, so it says nothing about what helps."""
    kind = incident.fault_class
    tried = _tried(cluster.experience, kind, remedy)
    less = replace(tried, times=max(0, tried.times - 1), helped=min(tried.helped, tried.times - 1))
    if tried.times:
        cluster.experience = _with(cluster.experience, kind, remedy, less)


def repaired(cluster: Cluster, incident: Incident, remedy: Remedy) -> None:
    """Its devices read as healthy afterwards."""
    kind = incident.fault_class
    tried = _tried(cluster.experience, kind, remedy)
    more = replace(tried, helped=min(tried.times, tried.helped + 1))
    cluster.experience = _with(cluster.experience, kind, remedy, more)


def relapsed(cluster: Cluster, incident: Incident) -> None:
    """The same device shows the same again: what was done a short while ago has not helped."""
    for before in cluster.newest_on(incident.node or "", LOOK_BACK):
        if before.id == incident.id or before.closed_at is None:
            continue
        if cluster.now - before.closed_at > RELAPSE_SECONDS:
            return
        if not _is_same_device(before, incident):
            continue
        decision = _acted(before)
        if decision is not None and before.phases.first_step_at is not None:
            known = cluster.experience
            tried = _tried(known, before.fault_class, decision.remedy)
            less = replace(tried, helped=max(0, tried.helped - 1))
            cluster.experience = _with(known, before.fault_class, decision.remedy, less)
        return


def returned(cluster: Cluster, node: Node) -> None:
    """A node that Aegis had taken is back."""
    if node.taken_at and node.held_by:
        known = cluster.experience
        cluster.experience = replace(
            known,
            repairs=known.repairs + 1,
            repair_seconds=known.repair_seconds + max(0.0, cluster.now - node.taken_at[-1]),
        )


def words(cluster: Cluster, fault_class: FaultClass, remedy: Remedy) -> str:
    """What is known of the remedy; empty while nothing is."""
    tried = _tried(cluster.experience, fault_class, remedy)
    if not tried.times:
        return ""
    return f"it helped in {tried.helped} of {counted(tried.times, 'such case')} here"


def _is_same_device(before: Incident, incident: Incident) -> bool:
    return (before.fault_class, before.node, before.device) == (
        incident.fault_class,
        incident.node,
        incident.device,
    )


def _acted(incident: Incident) -> Decision | None:
    found = [one for one in incident.decisions if one.result is DecisionResult.ACTED]
    return found[-1] if found else None


def _tried(known: Experience, fault_class: FaultClass, remedy: Remedy) -> Tried:
    return known.remedies.get(f"{fault_class} {remedy}", Tried())


def _with(known: Experience, fault_class: FaultClass, remedy: Remedy, tried: Tried) -> Experience:
    return replace(known, remedies={**known.remedies, f"{fault_class} {remedy}": tried})


def _one_more(counts: Mapping[str, int], fault_class: FaultClass) -> dict[str, int]:
    name = fault_class.value
    return {**counts, name: counts.get(name, 0) + 1}
