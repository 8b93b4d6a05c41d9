"""Remembering what a node showed and what was tried on it, so that rules can count over time.

It is bounded: the newest of a node, and none older than a week.
"""

from collections.abc import Iterable, Mapping

from aegis.core.cluster import Cluster
from aegis.model.fault import Fault
from aegis.model.incident import DecisionResult, Incident, Remedy
from aegis.model.memory import KEPT_SECONDS, Attempt, Memory, Seen
from aegis.model.record import replace
from aegis.rules import Match, Scope

SEEN_MAX = 200
TRIED_MAX = 50
BURST_SECONDS = 1.0  # faults alike that come so close together are kept as one with their count


def see(cluster: Cluster, fault: Fault) -> None:
    """Keep that a fault was shown."""
    before = cluster.memories.get(fault.node, Memory())
    one = Seen(
        at=min(fault.observed_at, cluster.now),
        fault_class=fault.fault_class,
        device=fault.device,
        count=fault.count,
        job=_job_of(cluster, fault),
        severity=fault.severity,
    )
    last = before.seen[-1] if before.seen else None
    if last and _are_one(last, one):
        kept = (*before.seen[:-1], replace(one, count=last.count + one.count))
    else:
        since = cluster.now - KEPT_SECONDS
        kept = tuple(old for old in (*before.seen, one)[-SEEN_MAX:] if old.at > since)
    cluster.memories[fault.node] = replace(before, seen=kept)


def _job_of(cluster: Cluster, fault: Fault) -> str:
    """The job that the fault is of, or whose ranks it hit."""
    job = None if fault.job else cluster.job_on(fault.node)
    return fault.job or (job.spec.name if job else "")


def _are_one(last: Seen, one: Seen) -> bool:
    alike = replace(last, at=one.at, count=one.count) == one
    return alike and 0.0 <= one.at - last.at < BURST_SECONDS


def tried(cluster: Cluster, incident: Incident, remedy: Remedy) -> None:
    """Keep that a remedy is being carried out, where it is for something that blames the node."""
    if incident.faults[0].is_victim:
        return
    node = incident.node or ""
    before, since = cluster.memories.get(node, Memory()), cluster.now - KEPT_SECONDS
    one = Attempt(
        at=cluster.now,
        fault_class=incident.fault_class,
        device=incident.device,
        remedy=remedy,
        incident=incident.id,
        job=incident.job or "",
    )
    kept = tuple(old for old in (*before.tried, one)[-TRIED_MAX:] if old.at > since)
    cluster.memories[node] = replace(before, tried=kept)


def untried(cluster: Cluster, incident: Incident, remedy: Remedy) -> None:
    """Forget the newest such attempt: it was refused, so nothing was tried."""
    node = incident.node or ""
    before = cluster.memories.get(node, Memory())
    mine = [one for one in before.tried if (one.incident, one.remedy) == (incident.id, remedy)]
    if mine:
        kept = tuple(one for one in before.tried if one is not mine[-1])
        cluster.memories[node] = replace(before, tried=kept)


def blamed(cluster: Cluster, before: Incident, incident: Incident) -> None:
    """What was tried for the incident counts where it is now known to belong."""
    if not before.decisions or before.decisions[-1].result is not DecisionResult.ACTED:
        return
    remedy = before.decisions[-1].remedy
    untried(cluster, before, remedy)
    tried(cluster, incident, remedy)


class Known:
    """What the cluster knows now that a rule may ask about, for faults of one node."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        known = cluster.nodes.get(node)
        self.cluster = cluster
        self.labels: Mapping[str, str] = dict(known.labels) if known else {}  # of the node

    def seen(self, match: Match, fault: Fault, seconds: float) -> int | None:
        """How many faults of the match's classes came in this time, among those of its scope."""
        names = self._nodes(match.scope, fault)
        if names is None:
            return None
        since = self.cluster.now - seconds
        classes = match.classes or (fault.fault_class,)
        mine = replace(fault, job=_job_of(self.cluster, fault))
        found = sum(
            one.count
            for name in names
            for one in self.cluster.memories.get(name, Memory()).seen
            if one.at > since
            and one.fault_class in classes
            and (not match.severities or one.severity in match.severities)
            and _is_in(match.scope, mine, one)
        )
        return max(found, min(fault.count, 1))

    def _nodes(self, scope: Scope, fault: Fault) -> Iterable[str] | None:
        """The nodes among which to count; None: that cannot be known."""
        cluster = self.cluster
        match scope:
            case Scope.JOB:
                return list(cluster.memories) if _job_of(cluster, fault) else None
            case Scope.RACK | Scope.SWITCH:
                place = self.labels.get(scope)
                if place is None:
                    return None
                mine = (scope.value, place)
                return [
                    name
                    for name in cluster.memories
                    if name in cluster.nodes and mine in cluster.nodes[name].labels
                ]
            case _:
                return [fault.node]


def _is_in(scope: Scope, fault: Fault, one: Seen) -> bool:
    match scope:
        case Scope.DEVICE | Scope.GPU | Scope.NIC:
            return one.device == fault.device
        case Scope.RESET_DOMAIN:
            return one.device.startswith("gpu")
        case Scope.JOB:
            return one.job == fault.job
        case _:
            return True
