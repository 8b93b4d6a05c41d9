"""From signals to incidents: one cause, many victims.

A fault is folded into an incident that is about the same thing, and opens one of its own only when
none is. What is known already is never decided twice.
"""

from aegis.core import experience, memory, progress
from aegis.core.act import consider
from aegis.core.cluster import Cluster
from aegis.core.incidents import (
    SEVERITIES,
    announced,
    begin,
    blame,
    cause,
    fold,
    note,
    notice,
    reopen,
    save,
)
from aegis.core.recovery import recovering
from aegis.core.symptoms import order
from aegis.core.windows import mutes
from aegis.model.event import FaultObserved
from aegis.model.fault import Fault, FaultClass
from aegis.model.incident import EntryKind, Incident, IncidentState, Remedy
from aegis.model.job import JobState
from aegis.model.node import Node, NodeState
from aegis.model.record import replace
from aegis.rules import RuleSet

ECHO_SECONDS = 60.0  # a link that is up again explains an incident that closed so shortly before
LOOK_BACK = 200  # closed incidents

LINK = (FaultClass.NIC_LINK_DOWN, FaultClass.NIC_LINK_UP, FaultClass.NIC_LINK_FLAP)
ONE_STORY_SECONDS = 300.0
ONE_INCIDENT_SECONDS = 86400.0
LADDER = list(Remedy)
# A GPU is rarely lost by itself: what broke the path to it is the cause.
CAUSES = {
    FaultClass.GPU_LOST: (
        FaultClass.PCIE_AER_FATAL,
        FaultClass.PCIE_DPC,
        FaultClass.PCIE_LINK_DOWN,
    ),
    FaultClass.GPU_PROBE_STALLED: (FaultClass.GPU_LOST,),
}
DIED = (FaultClass.JOB_WORKER_EXITED, FaultClass.JOB_WORKER_OOM_KILLED)


def receive(cluster: Cluster, rules: RuleSet, event: FaultObserved) -> None:
    """Take a fault from an agent's spool, once."""
    if event.number <= cluster.origins.get(event.origin, 0):
        return
    cluster.origins[event.origin] = event.number
    if event.fault.node not in cluster.nodes:
        cluster.put_node(Node(name=event.fault.node, since=cluster.now, seen_at=cluster.now))
    observe(cluster, rules, event.fault)


def observe(cluster: Cluster, rules: RuleSet, fault: Fault) -> None:
    """Give the fault to the incident it belongs to, or open one and decide about it."""
    home = _home(cluster, fault)
    if home is None:
        # What a running job has reached is read with each tick: a decision wants it as it is now.
        job = cluster.jobs.get(fault.job) if fault.job else cluster.job_on(fault.node)
        if job is not None:
            progress.take(cluster, job)
        memory.see(cluster, fault)
        incident = begin(cluster, fault)
        experience.relapsed(cluster, incident)
        incident = _with_silence(cluster, incident)
        consider(cluster, rules, _with_rejected(cluster, incident, fault))
        return
    if _is_seen(home, fault):
        return
    memory.see(cluster, fault)
    if _is_cause_of(cluster, rules, home, fault):
        consider(cluster, rules, blame(cluster, fold(cluster, home, fault), fault))
        return
    home = _with_rejected(cluster, fold(cluster, home, fault), fault)
    if home.state is IncidentState.CLOSED:
        _go_on_if_more(cluster, rules, home)
    elif fault.fault_class in DIED:
        _blame_the_first(cluster, home, fault)
    elif home.state is IncidentState.OPEN and fault.fault_class is home.fault_class:
        consider(cluster, rules, home)


def _go_on_if_more(cluster: Cluster, rules: RuleSet, incident: Incident) -> None:
    """A closed incident that gathers its kind is reopened once the rules ask for more."""
    done = incident.decisions[-1].remedy if incident.decisions else Remedy.COUNT
    if _remedy_of(cluster, rules, cause(incident)) <= LADDER.index(done):
        return
    was_announced, said = announced(incident), len(cluster.notices)
    consider(cluster, rules, reopen(cluster, incident))
    if was_announced:
        again = notice("incident.reopened", cluster.incidents[incident.id])
        cluster.notices.insert(said, again)


def _home(cluster: Cluster, fault: Fault) -> Incident | None:
    """The incident that the fault is a signal of."""
    same = [one for one in cluster.unresolved_on(fault.node) if _is_same(cluster, one, fault)]
    if same:
        return same[-1]
    if fault.job:
        return _recovery_of(cluster, fault)
    return _drain_of(cluster, fault) or _neighbour_of(cluster, fault) or _echo_of(cluster, fault)


def _is_same(cluster: Cluster, incident: Incident, fault: Fault) -> bool:
    """Whether both are about the same thing: one class, one device, one run of the job."""
    if incident.node != fault.node:
        return False
    if fault.fault_class is FaultClass.NODE_REBOOTED:
        return incident.fault_class in (FaultClass.NODE_REBOOTED, FaultClass.NODE_LOST)
    if incident.state is IncidentState.RECOVERING and _is_anew(cluster, incident, fault):
        return False
    if incident.device != fault.device:
        return False
    linked = fault.fault_class in LINK and incident.fault_class in LINK
    return incident.fault_class is fault.fault_class or linked


def _is_anew(cluster: Cluster, incident: Incident, fault: Fault) -> bool:
    """Whether the same has happened again to what the incident was answered with."""
    if fault.job:
        return True  # `_recovery_of` knows which generation it was
    job = cluster.jobs.get(incident.job or "")
    begun = job is not None and job.generation == incident.generation_after
    return fault.fault_class is FaultClass.NODE_LOST and begun


def _recovery_of(cluster: Cluster, fault: Fault) -> Incident | None:
    """While a job is stopping, its further failures belong to what it is stopping for."""
    job = cluster.jobs.get(fault.job or "")
    if job is None:
        return None
    if fault.fault_class is FaultClass.JOB_CHECKPOINT_CORRUPT:
        found = [one for one in recovering(cluster, job.spec.name) if one.generation_after]
        return found[-1] if found else None
    if job.state is not JobState.STOPPING or job.incident is None:
        return None
    incident = cluster.incidents.get(job.incident)
    return incident if incident and incident.state is IncidentState.RECOVERING else None


def _drain_of(cluster: Cluster, fault: Fault) -> Incident | None:
    """A node that is on its way out is not decided about again."""
    node = cluster.nodes[fault.node]
    if node.state not in (NodeState.DRAINING, NodeState.QUARANTINED, NodeState.REPAIRING):
        return None
    return next(
        (one for one in cluster.unresolved_on(node.name) if one.state is IncidentState.RECOVERING),
        None,
    )


def _neighbour_of(cluster: Cluster, fault: Fault) -> Incident | None:
    """What else the same device shows while its incident is open belongs to one story."""
    found = [
        one
        for one in cluster.unresolved_on(fault.node)
        if one.device == fault.device
        and fault.device not in ("", "host")
        and not one.faults[0].job
        and fault.observed_at - one.phases.observed_at <= ONE_STORY_SECONDS
    ]
    return found[-1] if found else None


def _is_cause_of(cluster: Cluster, rules: RuleSet, incident: Incident, fault: Fault) -> bool:
    """Whether the new signal explains the incident, or asks for more than it was opened for."""
    if fault.job or incident.faults[0].job or fault.fault_class is incident.fault_class:
        return False
    if incident.state not in (IncidentState.OPEN, IncidentState.WATCHING):
        return False
    if incident.device != fault.device:
        return False
    if fault.fault_class in CAUSES.get(incident.fault_class, ()):
        return True
    return _remedy_of(cluster, rules, fault) > _remedy_of(cluster, rules, cause(incident))


def _remedy_of(cluster: Cluster, rules: RuleSet, fault: Fault) -> int:
    """How far the rules go for the fault, from least to most disruptive."""
    rule = rules.first_match(fault, memory.Known(cluster, fault.node))
    return LADDER.index(rule.remedy if rule else Remedy.NOTIFY)


def _echo_of(cluster: Cluster, fault: Fault) -> Incident | None:
    """A closed incident that still gathers its kind: counted and told ones, links that came back.

    A fault with the count 0 did not come again: more is known of the one that was told before.
    """
    for incident in cluster.newest_on(fault.node, LOOK_BACK):
        if incident.closed_at is None or not _is_same(cluster, incident, fault):
            continue
        if fault.fault_class is FaultClass.NIC_LINK_UP:
            if cluster.now - incident.closed_at <= ECHO_SECONDS:
                return incident
        elif (_is_told(incident, fault) or not fault.count) and _is_recent(cluster, incident):
            return incident
    return None


def _is_told(incident: Incident, fault: Fault) -> bool:
    """Whether counting it or telling people was all that was asked for, and is again.

    What is worse now than it was then is another story.
    """
    newest = incident.decisions[-1] if incident.decisions else None
    was_told = newest is not None and newest.remedy in (Remedy.COUNT, Remedy.NOTIFY)
    is_worse = SEVERITIES.index(fault.severity) > SEVERITIES.index(incident.severity)
    return was_told and not is_worse


def _is_recent(cluster: Cluster, incident: Incident) -> bool:
    """Whether the incident is still the same story: no long pause, and not for ever."""
    pause = cluster.now - max(incident.closed_at or 0.0, incident.signal_at)
    lasted = cluster.now - incident.phases.opened_at
    return pause <= cluster.policy.event_ttl_seconds and lasted <= ONE_INCIDENT_SECONDS


def _is_seen(incident: Incident, fault: Fault) -> bool:
    """Whether a level was turned into this very fault before: they are read again and again."""
    return fault.job is not None and any(
        (one.fault_class, one.node, one.device) == (fault.fault_class, fault.node, fault.device)
        for one in incident.faults
    )


def _with_silence(cluster: Cluster, incident: Incident) -> Incident:
    """Why nobody is told of it stands in the incident."""
    if (window := mutes(cluster, incident)) is None:
        return incident
    text = f"nobody is told: {window.kind} {window.id} by {window.actor}: {window.reason}"
    return note(cluster, incident, EntryKind.HUMAN, text)


def _with_rejected(cluster: Cluster, incident: Incident, fault: Fault) -> Incident:
    """An incident names the checkpoints that could not be used."""
    if fault.fault_class is not FaultClass.JOB_CHECKPOINT_CORRUPT:
        return incident
    texts = (*incident.rejected_checkpoints, *(one.text for one in fault.evidence))
    return save(cluster, replace(incident, rejected_checkpoints=texts))


def _blame_the_first(cluster: Cluster, incident: Incident, fault: Fault) -> None:
    """Ranks die of each other's death: the first that failed names the incident."""
    if incident.fault_class not in DIED or order(fault) >= order(incident.faults[0]):
        return
    named = replace(
        incident,
        fault_class=fault.fault_class,
        node=fault.node,
        device=fault.device,
        faults=(fault, *(one for one in incident.faults if one != fault)),
        phases=replace(incident.phases, observed_at=fault.observed_at),
    )
    memory.blamed(cluster, incident, save(cluster, named))
