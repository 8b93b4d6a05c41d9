"""Carrying out decisions: an incident is considered, decided, and acted on where the rails let it.

WATCHING -> CLOSED      cleared within its hold-down
WATCHING -> OPEN        lasted: decided
OPEN -> RECOVERING      acted
OPEN -> OPEN            held by a rail or a mode; looked at again with every tick
OPEN -> CLOSED          counted, told, cleared, or too old to act on
RECOVERING -> CLOSED    every new rank has completed a step (see `recovery`)
"""

from aegis.core import doubt, experience, hangs, memory, recover, repair
from aegis.core.approval import ask, expire
from aegis.core.cluster import Cluster, holders
from aegis.core.decide import DRAINS, decide, is_same_answer, is_worn_out, rule_for
from aegis.core.incidents import announced, cause, close, note, notice, save
from aegis.core.index import AEGIS
from aegis.core.levels import condition_of, is_fresh, is_live, is_unhealthy
from aegis.core.nodes import ease, suspect, take_out
from aegis.core.rails import TRAINING, event_ttl
from aegis.core.recovery import recovering
from aegis.core.repair import REPAIRS
from aegis.core.story import held_back
from aegis.core.words import counted, duration
from aegis.model.fault import FaultClass
from aegis.model.incident import (
    Decision,
    DecisionResult,
    EntryKind,
    Incident,
    IncidentState,
    Remedy,
)
from aegis.model.job import Job, StopKind
from aegis.model.node import NodeState
from aegis.model.record import replace
from aegis.rules import Rule, RuleSet

SAME_OUTAGE_SECONDS = 60.0


def consider(cluster: Cluster, rules: RuleSet, incident: Incident) -> None:
    """Watch the incident a while if its rule says so, else decide and act."""
    rule = rule_for(cluster, rules, incident)
    if rule.waits and not incident.decisions:
        if incident.state is not IncidentState.WATCHING:
            _watch(cluster, rule, incident)
        elif _is_unseen(cluster, incident):
            _close_idle(cluster, incident, "the node fell silent before it was seen to last")
        elif _has_cleared(cluster, incident):
            _cleared_in_time(cluster, rule, incident)
        elif _has_lasted(cluster, rule, incident):
            _decide(cluster, rules, incident, rule)
        return
    _decide(cluster, rules, incident, rule)


def reconsider(cluster: Cluster, rules: RuleSet, incident: Incident) -> None:
    """Look again at what is watched or held: levels, rails and time may have changed."""
    match incident.state:
        case IncidentState.WATCHING:
            consider(cluster, rules, incident)
        case IncidentState.OPEN if repair.is_about(cluster, incident):
            repair.look(cluster, rules, incident.faults[0].node)
        case IncidentState.OPEN:
            _look_again(cluster, rules, expire(cluster, incident))
        case IncidentState.RECOVERING | IncidentState.CLOSED:
            pass


def _look_again(cluster: Cluster, rules: RuleSet, incident: Incident) -> None:
    node = cluster.nodes[incident.faults[0].node]
    live = is_live(cluster, incident)
    if incident.faults[0].job and _is_past(cluster, incident):
        _close_idle(cluster, incident, f"job {incident.job} has left that generation behind")
        return
    if hangs.is_over(cluster, incident):
        lasted = duration(cluster.now - incident.phases.observed_at)
        _close_idle(cluster, incident, f"the ranks went on by themselves after {lasted}")
        return
    if _is_lasting(incident) and not live:
        lasted = duration(cluster.now - incident.phases.observed_at)
        _close_idle(cluster, incident, f"over after {lasted}; nothing was done")
        return
    if live or is_unhealthy(node, incident.device) or incident.faults[0].job:
        _decide(cluster, rules, incident)
        return
    age = cluster.now - cause(incident).observed_at
    if age > event_ttl(cluster.policy, incident):
        why = held_back(incident.decisions[-1])
        _close_idle(cluster, incident, f"{why}; by now it is too old to act on")
        return
    _decide(cluster, rules, incident)


def _close_idle(cluster: Cluster, incident: Incident, outcome: str) -> None:
    close(cluster, incident, outcome)
    ease(cluster, incident.faults[0].node)


# Holding down: only what lasts is acted on.


def _watch(cluster: Cluster, rule: Rule, incident: Incident) -> None:
    limit = duration(hold_down(cluster, rule))
    note(
        cluster,
        incident,
        EntryKind.DECISION,
        f"rule {rule.id} waits {limit} to see whether it lasts",
        state=IncidentState.WATCHING,
    )
    reason = f"{incident.id}: {incident.fault_class} on {incident.device} is being watched"
    suspect(cluster, incident.faults[0].node, reason)


def hold_down(cluster: Cluster, rule: Rule) -> float:
    """How long a condition must last before this rule decides."""
    if rule.hold_down_seconds is None:
        return cluster.policy.hold_down_seconds
    return rule.hold_down_seconds


def _is_lasting(incident: Incident) -> bool:
    """Whether the incident is about a level that nodes report for as long as it lasts."""
    lasting = (FaultClass.NIC_LINK_DOWN, FaultClass.NODE_LOST)
    told = incident.decisions and incident.decisions[-1].result is DecisionResult.NOTHING
    return incident.fault_class in lasting or bool(told)


def _is_past(cluster: Cluster, incident: Incident) -> bool:
    """Whether the job has gone on, by whatever else made it, from what failed then."""
    job = cluster.jobs.get(incident.job or "")
    return job is None or job.generation != incident.generation_before or job.state not in TRAINING


def _is_unseen(cluster: Cluster, incident: Incident) -> bool:
    """Whether the node has fallen silent: what still lasts when it is back opens another."""
    return cluster.nodes[incident.faults[0].node].state is NodeState.UNKNOWN


def _has_cleared(cluster: Cluster, incident: Incident) -> bool:
    """Whether the agent has spoken since, and no longer of this."""
    node = cluster.nodes[incident.faults[0].node]
    spoken = node.agent_seen_at > incident.phases.opened_at
    return spoken and condition_of(node, incident) is None


def _has_lasted(cluster: Cluster, rule: Rule, incident: Incident) -> bool:
    """Whether it has lasted as the rule wants, by what the agent has said since."""
    node = cluster.nodes[incident.faults[0].node]
    condition = condition_of(node, incident)
    if condition is None or not is_fresh(cluster, node):
        return False
    # It may have cleared and come back in between: both times are the node's own clock.
    later = max(0.0, condition.since - incident.phases.observed_at)
    waited = node.agent_seen_at - incident.phases.opened_at - later
    return waited >= hold_down(cluster, rule)


def _cleared_in_time(cluster: Cluster, rule: Rule, incident: Incident) -> None:
    ups = [one.observed_at for one in incident.faults if one.fault_class is FaultClass.NIC_LINK_UP]
    end = max(ups) if ups else cluster.now
    lasted, limit = max(0.0, end - incident.phases.observed_at), hold_down(cluster, rule)
    # It may have lasted while nobody could tell us, and be over by the time it was looked at.
    shorter = f", shorter than the hold-down of {duration(limit)}" if lasted < limit else ""
    text = f"cleared after {duration(lasted)}{shorter}; nothing was done"
    _close_idle(cluster, incident, text)


# Deciding and acting.


def _decide(cluster: Cluster, rules: RuleSet, incident: Incident, rule: Rule | None = None) -> None:
    decision = decide(cluster, rules, incident, rule)
    if incident.decisions and is_same_answer(incident.decisions[-1], decision):
        return
    was_announced, said = announced(incident), len(cluster.notices)
    incident = note(
        cluster,
        incident,
        EntryKind.DECISION,
        decision.reason,
        state=IncidentState.OPEN,
        decisions=(*incident.decisions, decision),
        phases=replace(incident.phases, decided_at=cluster.now),
    )
    if (leader := _leader(cluster, incident)) != incident.follows:
        incident = save(cluster, replace(incident, follows=leader))
    _carry_out(cluster, incident, decision)
    if announced(incident) and not was_announced:
        # Ahead of what acting has given to say: one that is closed at once was opened before.
        cluster.notices.insert(said, notice("incident.opened", cluster.incidents[incident.id]))


def _carry_out(cluster: Cluster, incident: Incident, decision: Decision) -> None:
    match decision.result:
        case DecisionResult.ACTED if decision.remedy in DRAINS:
            _drain(cluster, incident, decision)
            _remember(cluster, incident.id, decision.remedy)
        case DecisionResult.ACTED:
            _restart(cluster, incident)
            _remember(cluster, incident.id, decision.remedy)
        case DecisionResult.NOTHING:
            _do_nothing(cluster, incident, decision)
        case DecisionResult.BLOCKED if is_worn_out(decision):
            _give_up(cluster, incident)
        case DecisionResult.BLOCKED if _is_refused(decision, "ttl") and not is_live(
            cluster, incident
        ):
            _close_idle(cluster, incident, f"nothing was done: {decision.reason}")
        case DecisionResult.BLOCKED:
            _suspect(cluster, incident)
        case DecisionResult.NEEDS_APPROVAL:
            ask(cluster, incident, decision.remedy)
            ease(cluster, incident.faults[0].node)
        case DecisionResult.WOULD_ACT:
            ease(cluster, incident.faults[0].node)


def _remember(cluster: Cluster, name: str, remedy: Remedy) -> None:
    """What is being tried counts: for the next such incident, and for the fleet's experience."""
    if remedy in REPAIRS:  # which begin with a drain: `repair` counts the rest
        remedy = Remedy.DRAIN_NOW
    experience.acted(cluster, cluster.incidents[name], remedy)
    memory.tried(cluster, cluster.incidents[name], remedy)


def _do_nothing(cluster: Cluster, incident: Incident, decision: Decision) -> None:
    if is_live(cluster, incident):
        ease(cluster, incident.faults[0].node)
        return
    outcomes = {
        Remedy.COUNT: "counted; no act is called for",
        Remedy.NOTIFY: "people were told; no act is called for",
        Remedy.RESTART: _no_restart(cluster, incident),
    }
    gone = "the node was out of service already; nothing was to be done"
    _close_idle(cluster, incident, outcomes.get(decision.remedy, gone))


def _no_restart(cluster: Cluster, incident: Incident) -> str:
    if cluster.job_on(incident.faults[0].node) is None:
        return "the node held no ranks; nothing was to be done"
    return "its ranks were being stopped already; nothing more was to be done"


def _is_refused(decision: Decision, rail: str) -> bool:
    return any(one.rail == rail and not one.passed for one in decision.verdicts)


def _leader(cluster: Cluster, incident: Incident) -> str:
    """The incident by which people were told of the switch that this one is a victim of."""
    if not _is_upstream(incident):
        return ""
    since = incident.phases.opened_at - SAME_OUTAGE_SECONDS
    others = [
        one.id
        for one in cluster.unresolved()
        if one.id != incident.id
        and not one.follows
        and one.phases.opened_at >= since
        and _is_upstream(one)
    ]
    return others[0] if others else ""


def _is_upstream(incident: Incident) -> bool:
    return bool(incident.decisions) and _is_refused(incident.decisions[-1], "upstream")


def _suspect(cluster: Cluster, incident: Incident) -> None:
    """A node that ought to be taken out, and may not be, gets no new ranks."""
    if incident.faults[0].job is None:
        reason = f"{incident.id}: {incident.decisions[-1].reason}"
        suspect(cluster, incident.faults[0].node, reason)


def _job_of(cluster: Cluster, incident: Incident) -> Job | None:
    fault = incident.faults[0]
    if fault.job:
        return cluster.jobs.get(fault.job)
    return cluster.job_on(fault.node)


def _drain(cluster: Cluster, incident: Incident, decision: Decision) -> None:
    """Take the node out; the job goes on elsewhere."""
    name = incident.faults[0].node
    reason = f"{incident.id}: {incident.fault_class} on {incident.device}"
    incident = note(
        cluster,
        incident,
        EntryKind.ACTION,
        f"{name} is cordoned and drained",
        state=IncidentState.RECOVERING,
    )
    job = _job_of(cluster, incident)
    if job is not None:
        incident = _begin(cluster, incident, job)
        kind = StopKind.SAVING if decision.remedy is Remedy.DRAIN_SAVING else StopKind.NOW
        if kind is StopKind.NOW:
            doubt.cast(cluster, job, incident)
        recover.stop(cluster, cluster.jobs[job.spec.name], kind, reason, incident.id)
    take_out(cluster, name, AEGIS, reason, incident.id)


def _restart(cluster: Cluster, incident: Incident) -> None:
    """Stop the job's ranks; the next generation starts when the last of them is gone."""
    job = _job_of(cluster, incident)
    assert job is not None, f"{incident.id} restarts no job"
    ease(cluster, incident.faults[0].node)
    incident = note(
        cluster,
        incident,
        EntryKind.ACTION,
        f"job {job.spec.name} is restarted from its newest verified checkpoint",
        state=IncidentState.RECOVERING,
    )
    incident = _begin(cluster, incident, job)
    job = recover.count_restart(cluster, job)
    reason = f"{incident.id}: {incident.fault_class} on {incident.node} {incident.device}"
    recover.stop(cluster, job, StopKind.NOW, reason, incident.id)


def _give_up(cluster: Cluster, incident: Incident) -> None:
    """Restarting has not helped: stop what is left and say so."""
    job = _job_of(cluster, incident)
    assert job is not None, f"{incident.id} gives up no job"
    incident = _begin(cluster, incident, job)
    reason = f"{counted(job.restarts_without_progress, 'restart')} without progress"
    if not job.spec.restarts_max:
        reason = "its ranks ended, and it was started with no restart allowed"
    note(
        cluster,
        incident,
        EntryKind.ACTION,
        f"job {job.spec.name} is given up: {reason}",
        state=IncidentState.RECOVERING,
    )
    recover.give_up(cluster, job, reason, incident.id)


def _begin(cluster: Cluster, incident: Incident, job: Job) -> Incident:
    """Write down what the job was before, and take over what others had begun."""
    for other in recovering(cluster, job.spec.name):
        if other.id != incident.id:
            _supersede(cluster, other, incident, job)
    return note(
        cluster,
        incident,
        EntryKind.PROGRESS,
        f"job {job.spec.name} is at step {job.step}, generation {job.generation}",
        job=job.spec.name,
        nodes_before=holders(job),
        generation_before=job.generation,
        last_step_before=job.step,
    )


def _supersede(cluster: Cluster, other: Incident, incident: Incident, job: Job) -> None:
    """One cause, many victims: what the new incident explains or undoes is over."""
    if other.generation_after and other.generation_after == job.generation:
        text = f"generation {job.generation} ended before it was mended; {incident.id} goes on"
        close(cluster, other, text)
    elif other.faults[0].job and other.node == incident.node and not incident.faults[0].job:
        close(
            cluster, other, f"explained by {incident.id}, {incident.fault_class} on the same node"
        )
