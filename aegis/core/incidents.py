"""Opening, noting and closing incidents. The timeline and the headline are kept up here."""

from typing import Any

from aegis.core.cluster import Cluster, holders
from aegis.core.story import headline
from aegis.core.words import FAULTS
from aegis.model.action import Notify
from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.incident import Entry, EntryKind, Incident, IncidentState, Phases, Remedy
from aegis.model.record import replace

ENTRIES_KEPT = 200
FAULTS_KEPT = 20
SEVERITIES = list(Severity)  # from least to most
NOBODY = "nobody"  # is told, by a rule's `notify`


def begin(cluster: Cluster, fault: Fault) -> Incident:
    """Open an incident for a fault that belongs to none."""
    job = cluster.jobs.get(fault.job) if fault.job else cluster.job_on(fault.node)
    incident = Incident(
        id=f"inc-{cluster.next_incident:06d}",
        state=IncidentState.OPEN,
        fault_class=fault.fault_class,
        severity=fault.severity,
        node=fault.node,
        device=fault.device,
        headline="",
        phases=Phases(observed_at=fault.observed_at, opened_at=cluster.now),
        job=job.spec.name if job else fault.job,
        generation_before=job.generation if job and fault.job else 0,
        nodes_before=holders(job) if job and fault.job else (),
        last_step_before=job.step if job and fault.job else 0,
        simulated=fault.simulated,
        faults=(fault,),
        signal_at=cluster.now,
        times=fault.count,
    )
    cluster.next_incident += 1
    node = cluster.nodes[fault.node]
    if fault.job is None and node.incident is None:
        cluster.put_node(replace(node, incident=incident.id))
    return note(cluster, incident, EntryKind.SIGNAL, signal(fault), at=fault.observed_at)


def note(
    cluster: Cluster,
    incident: Incident,
    kind: EntryKind,
    text: str,
    *,
    at: float | None = None,
    **changes: Any,
) -> Incident:
    """Add a line to the timeline, with whatever else changed."""
    entry = Entry(at=cluster.now if at is None else at, kind=kind, text=text)
    entries = (*incident.entries, entry)[-ENTRIES_KEPT:]
    return save(cluster, replace(incident, entries=entries, active_at=cluster.now, **changes))


def save(cluster: Cluster, incident: Incident) -> Incident:
    """Keep the incident, its headline renewed."""
    text = headline(incident)
    if text != incident.headline:
        incident = replace(incident, headline=text)
    cluster.put_incident(incident)
    return incident


def fold(cluster: Cluster, incident: Incident, fault: Fault) -> Incident:
    """Count a further signal of a cause that is known already."""
    worst = max(incident.severity, fault.severity, key=SEVERITIES.index)
    folded = replace(
        incident,
        severity=worst,
        suppressed=incident.suppressed + 1,
        signal_at=cluster.now,
        times=incident.times + (fault.count if fault.fault_class is incident.fault_class else 0),
        faults=_kept((*incident.faults, fault), incident.fault_class),
    )
    return note(cluster, folded, EntryKind.SIGNAL, signal(fault), at=fault.observed_at)


def _kept(faults: tuple[Fault, ...], kind: FaultClass) -> tuple[Fault, ...]:
    """The first, the newest, and always one of the kind that the incident is about."""
    first, *rest = faults
    newest = rest[1 - FAULTS_KEPT :]
    if all(one.fault_class is not kind for one in (first, *newest)):
        about = next(one for one in reversed(rest) if one.fault_class is kind)
        newest = [about, *newest[1:]]
    return (first, *newest)


def blame(cluster: Cluster, incident: Incident, fault: Fault) -> Incident:
    """Name the incident after what explains it; what it was opened for is one of its signals."""
    before = incident.fault_class
    text = f"{fault.fault_class} explains {before}, or asks for more: the incident is about it now"
    return note(
        cluster,
        incident,
        EntryKind.DECISION,
        text,
        fault_class=fault.fault_class,
        times=_times(incident, fault.fault_class),
        severity=max(incident.severity, fault.severity, key=SEVERITIES.index),
    )


def _times(incident: Incident, fault_class: FaultClass) -> int:
    return sum(one.count for one in incident.faults if one.fault_class is fault_class)


def reopen(cluster: Cluster, incident: Incident, text: str = "") -> Incident:
    """What was over is not: the incident goes on instead of another one."""
    node = cluster.nodes[incident.faults[0].node]
    if incident.faults[0].job is None and node.incident is None:
        cluster.put_node(replace(node, incident=incident.id))
    text = text or f"{incident.times} times by now: that asks for more than was done"
    return note(
        cluster,
        incident,
        EntryKind.DECISION,
        text,
        state=IncidentState.OPEN,
        outcome="",
        closed_at=None,
    )


def close(cluster: Cluster, incident: Incident, outcome: str) -> Incident:
    """End an incident with a sentence on what came of it, and let go of what it held."""
    if incident.state is IncidentState.CLOSED:
        return incident
    closed = note(
        cluster,
        incident,
        EntryKind.OUTCOME,
        outcome,
        state=IncidentState.CLOSED,
        outcome=outcome,
        closed_at=cluster.now,
    )
    _let_go(cluster, closed)
    if announced(closed):
        cluster.notices.append(notice("incident.closed", closed))
    return closed


def _let_go(cluster: Cluster, closed: Incident) -> None:
    node = cluster.nodes.get(closed.node or "")
    if node and node.incident == closed.id:
        others = [one.id for one in cluster.unresolved_on(node.name) if _is_of_node(one)]
        cluster.put_node(replace(node, incident=others[-1] if others else None))
    job = cluster.jobs.get(closed.job or "")
    if job and job.incident == closed.id:
        cluster.put_job(replace(job, incident=None))


def _is_of_node(incident: Incident) -> bool:
    return incident.faults[0].job is None


def announced(incident: Incident) -> bool:
    """Whether people were told of it: what is only counted or watched is not worth a page."""
    told = any(one.remedy is not Remedy.COUNT and one.told != NOBODY for one in incident.decisions)
    return told and not incident.follows


def notice(kind: str, incident: Incident) -> Notify:
    """Words to people on how the incident stands."""
    told = incident.decisions[-1].told if incident.decisions else ""
    severity = Severity(told) if told in SEVERITIES else incident.severity
    return Notify(kind=kind, severity=severity, text=incident.headline, incident=incident.id)


def signal(fault: Fault) -> str:
    """A fault as a line of the timeline."""
    text = "; ".join(one.text for one in fault.evidence) or FAULTS[fault.fault_class]
    place = fault.node if fault.device in ("", "host") else f"{fault.node} {fault.device}"
    return f"{fault.fault_class} on {place}: {text}"


def cause(incident: Incident) -> Fault:
    """What the rules are asked about: the newest fault of the incident's class, all counted."""
    kind = incident.fault_class
    newest = next(fault for fault in reversed(incident.faults) if fault.fault_class is kind)
    if newest.severity is incident.severity and newest.count == incident.times:
        return newest
    return replace(newest, severity=incident.severity, count=incident.times)
