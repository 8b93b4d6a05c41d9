"""Incident and rules in, decision out. No state is changed here.

The first rule that matches names the remedy; the rails say whether it may be done. The decision
carries all of it: the rule, each rail's verdict, what was not chosen and why, what would change it.
"""

from dataclasses import replace

from aegis.core import experience, ladder, modes
from aegis.core.approval import is_forbidden
from aegis.core.cluster import Cluster, standing
from aegis.core.incidents import cause
from aegis.core.memory import Known
from aegis.core.rails import TRAINING, Request, verdicts
from aegis.core.words import REMEDIES, listed, once_agreed
from aegis.model.fault import Fault, FaultClass
from aegis.model.incident import Alternative, Decision, DecisionResult, Incident, Remedy, Verdict
from aegis.model.job import Job
from aegis.model.node import NodeState
from aegis.model.policy import Mode
from aegis.rules import Rule, RuleSet
from aegis.rules.rule import Told, Verify

# What takes a node away; a reset and a reboot begin with that.
DRAINS = (Remedy.DRAIN_NOW, Remedy.DRAIN_SAVING, Remedy.RESET_DOMAIN, Remedy.REBOOT)
APPROVABLE = {"mode", "domain"}  # rails that a person's word passes
GONE = (NodeState.DRAINING, NodeState.QUARANTINED, NodeState.REPAIRING)
NO_RULE = Rule(id="", title="no rule", classes=(), remedy=Remedy.NOTIFY)


def rule_for(cluster: Cluster, rules: RuleSet, incident: Incident) -> Rule:
    """The first rule that matches."""
    fault = cause(incident)
    return rules.first_match(fault, Known(cluster, fault.node)) or NO_RULE


def decide(
    cluster: Cluster, rules: RuleSet, incident: Incident, rule: Rule | None = None
) -> Decision:
    """What the rule (None: look it up) comes to, on its ladder and within the rails."""
    fault = cause(incident)
    rule = rule or rule_for(cluster, rules, incident)
    step = ladder.choose(cluster, rule, incident, fault)
    decision = _by(cluster, rules, _on(rule, step.remedy), incident, step.why)
    below = step.below or _without_the_node(fault, decision)
    if below is None or decision.result is DecisionResult.ACTED:
        return decision
    # The job stands still meanwhile: what may be done is better than what ought to be.
    why = f"{step.why or f'to {REMEDIES[step.remedy]} is called for'}, and that may not be done"
    lower = _by(cluster, rules, _on(rule, below), incident, why)
    asked = decision.result is DecisionResult.NEEDS_APPROVAL
    done = lower.result is DecisionResult.ACTED or (is_worn_out(lower) and not asked)
    return lower if done else decision


def is_worn_out(decision: Decision) -> bool:
    """Whether nothing but the restarts already made keeps Aegis from making one more."""
    refused = {one.rail for one in decision.verdicts if not one.passed}
    return (
        decision.result is DecisionResult.BLOCKED
        and "restarts" in refused
        and not refused & {"pause", "silence"}
    )


def _without_the_node(fault: Fault, decision: Decision) -> Remedy | None:
    """A lost node takes no ranks anyway: limits on nodes out do not keep its job from going on."""
    lost = fault.fault_class is FaultClass.NODE_LOST and decision.remedy in DRAINS
    return Remedy.RESTART if lost and decision.result is DecisionResult.BLOCKED else None


def _own(given: str, usual: str) -> str:
    """What the rule says for itself; empty where it says what is usual."""
    return "" if given == usual else str(given)


def _on(rule: Rule, remedy: Remedy) -> Rule:
    return rule if rule.remedy is remedy else replace(rule, remedy=remedy)


def _by(cluster: Cluster, rules: RuleSet, rule: Rule, incident: Incident, why: str) -> Decision:
    """What the rule's remedy comes to."""
    if rule.remedy in (Remedy.COUNT, Remedy.NOTIFY) or _has_nothing_to_do(cluster, rule, incident):
        return _nothing(cluster, rules, rule, incident, why)
    fault = cause(incident)
    request = _request(cluster, rule, incident, fault)
    said = verdicts(request)
    result = _result(request, said)
    return Decision(
        at=cluster.now,
        rule=rule.id,
        rules_digest=rules.digest,
        remedy=rule.remedy,
        mode=request.mode,
        result=result,
        reason=_reason(request, rule, result, said, why),
        verdicts=said,
        alternatives=_alternatives(rule.remedy, incident.fault_class),
        clears_when=_clears_when(request, result, said),
        told=_own(rule.notify, Told.SEVERITY),
        verify=_own(rule.verify, Verify.POLICY),
    )


def is_same_answer(before: Decision, after: Decision) -> bool:
    """Whether a new look gave nothing new: figures in the verdicts may differ."""
    return _answer(before) == _answer(after)


def _answer(decision: Decision) -> tuple[object, ...]:
    refused = tuple(one.rail for one in decision.verdicts if not one.passed)
    return (decision.rule, decision.remedy, decision.mode, decision.result, refused)


def _request(cluster: Cluster, rule: Rule, incident: Incident, fault: Fault) -> Request:
    job = cluster.jobs.get(fault.job) if fault.job else cluster.job_on(fault.node)
    return Request(
        cluster=cluster,
        incident=incident,
        fault=fault,
        node=cluster.nodes[fault.node],
        job=job,
        mode=modes.granted(cluster, rule, rule.remedy, cluster.nodes[fault.node]),
        remedy=rule.remedy,
        guard=rule.guard,
    )


def _has_nothing_to_do(cluster: Cluster, rule: Rule, incident: Incident) -> bool:
    """A restart where no rank is left to train, a drain of what is out already."""
    fault = incident.faults[0]
    if rule.remedy in DRAINS:
        return standing(cluster.nodes[fault.node]) in GONE
    job = cluster.job_on(fault.node)
    if fault.job is not None:
        return False
    return job is None or job.state not in TRAINING or _is_since(job, fault)


def _is_since(job: Job, fault: Fault) -> bool:
    """Whether the job's ranks were all started after the node had rebooted, for another reason."""
    rebooted = fault.fault_class is FaultClass.NODE_REBOOTED
    return rebooted and bool(job.attempts) and job.attempts[-1].started_at >= fault.observed_at


def _why_none(cluster: Cluster, incident: Incident) -> str:
    job = cluster.job_on(incident.faults[0].node)
    if job is None:
        return "the node holds no ranks"
    if job.state in TRAINING:
        return f"job {job.spec.name} was started since"
    return "its ranks are being stopped already"


def _nothing(
    cluster: Cluster, rules: RuleSet, rule: Rule, incident: Incident, why: str
) -> Decision:
    if rule is NO_RULE:
        reason = f"no rule speaks of {incident.fault_class}, so Aegis only tells people"
    elif rule.remedy is Remedy.RESTART:
        reason = f"rule {rule.id} asks for a restart, and {_why_none(cluster, incident)}"
    elif rule.remedy in DRAINS:
        state = standing(cluster.nodes[incident.faults[0].node])
        reason = f"rule {rule.id} asks to {REMEDIES[rule.remedy]}, and the node is {state} already"
    else:
        more = f" ({why})" if why else ""
        reason = f"rule {rule.id} asks to {REMEDIES[rule.remedy]}{more}; no act is called for"
    return Decision(
        at=cluster.now,
        rule=rule.id,
        rules_digest=rules.digest,
        remedy=rule.remedy,
        mode=modes.granted(cluster, rule, rule.remedy, cluster.nodes.get(incident.node or "")),
        result=DecisionResult.NOTHING,
        reason=reason,
        alternatives=_alternatives(rule.remedy, incident.fault_class),
        told=_own(rule.notify, Told.SEVERITY),
    )


def _result(request: Request, said: tuple[Verdict, ...]) -> DecisionResult:
    match request.mode:
        case Mode.OBSERVE | Mode.NOTIFY:
            return DecisionResult.WOULD_ACT
        case Mode.APPROVE | Mode.ENFORCE:
            refused = [one.rail for one in said if not one.passed]
            if not refused:
                return DecisionResult.ACTED
            is_denied = is_forbidden(request.incident, request.remedy)
            asks = set(refused) <= APPROVABLE and not is_denied
            return DecisionResult.NEEDS_APPROVAL if asks else DecisionResult.BLOCKED


def _reason(
    request: Request, rule: Rule, result: DecisionResult, said: tuple[Verdict, ...], why: str
) -> str:
    incident = request.incident
    asks = f"rule {rule.id} asks to {REMEDIES[rule.remedy]}" + (f" ({why})" if why else "")
    refused = [f"{one.rail} ({one.text})" for one in said if not one.passed]
    others = [one for one in said if not one.passed and one.rail != "mode"]
    match result:
        case DecisionResult.ACTED:
            known = experience.words(request.cluster, incident.fault_class, rule.remedy)
            return f"{asks}, and every rail lets it" + (f"; {known}" if known else "")
        case DecisionResult.WOULD_ACT:
            held = f"; besides, it would be held by {listed([o.rail for o in others])}"
            return f"{asks}; the mode only lets Aegis say so{held if others else ''}"
        case DecisionResult.NEEDS_APPROVAL:
            return f"{asks}, once {_agreed(request)}"
        case DecisionResult.BLOCKED | DecisionResult.NOTHING:
            return f"{asks}; held by {listed(refused)}"


_OTHERS: dict[Remedy, tuple[tuple[Remedy, str], ...]] = {
    Remedy.COUNT: ((Remedy.DRAIN_SAVING, "no work is lost or at risk"),),
    Remedy.NOTIFY: ((Remedy.DRAIN_SAVING, "it is not the node's work that is at risk"),),
    Remedy.RESTART: (
        (Remedy.DRAIN_NOW, "the end of a rank alone does not blame its node"),
        (Remedy.NOTIFY, "the other ranks wait for the lost one and would never come on"),
    ),
    Remedy.DRAIN_SAVING: (
        (Remedy.RESTART, "the ranks would be back on the same device"),
        (Remedy.DRAIN_NOW, "the work so far is good and worth saving"),
    ),
    Remedy.DRAIN_NOW: (
        (Remedy.RESTART, "the ranks would be back on the same device"),
        (Remedy.DRAIN_SAVING, "a save could keep what the fault has spoilt, with good hashes"),
    ),
    Remedy.RESET_DOMAIN: (
        (Remedy.RESTART, "the ranks would be back on the same device"),
        (Remedy.REBOOT, "a reset of its GPUs takes less away"),
    ),
    Remedy.REBOOT: ((Remedy.RESTART, "the ranks would be back on the same device"),),
}


def _alternatives(remedy: Remedy, fault_class: FaultClass) -> tuple[Alternative, ...]:
    others = _OTHERS[remedy]
    if remedy is Remedy.RESTART and fault_class in (FaultClass.NODE_LOST, FaultClass.NODE_REBOOTED):
        others = ((Remedy.DRAIN_NOW, "nothing says that the node is sick once it is back"),)
    return tuple(Alternative(remedy=other, reason=why) for other, why in others)


_CLEARS = {
    "mode": "the mode is raised (`aegis rules mode`, or the policy's)",
    "pause": "somebody resumes automation (`aegis resume`)",
    "window": "the maintenance is over (`aegis windows`)",
    "fleet": "most of the fleet is heard again",
    "silence": "the node stays silent and its job does not come on",
    "ttl": "the device shows the fault again",
    "upstream": "the links of the others are up again and its own is not",
    "hold": "its holder uncordons or returns the node",
    "cooldown": "the node's cooldown is over",
    "domain": "a person agrees (`aegis incidents approve`)",
    "breaker": "nodes that Aegis took out are returned (`aegis nodes return`)",
    "budget": "the window of the node budget has moved on",
    "spare": "a spare registers",
    "spare_floor": "one more spare registers",
    "restarts": "the job is submitted again",
}


def _agreed(request: Request) -> str:
    must = once_agreed(request.cluster.policy.approvals_needed)
    return f"{must}: `aegis incidents approve {request.incident.id}`"


def _clears_when(request: Request, result: DecisionResult, said: tuple[Verdict, ...]) -> str:
    if result is DecisionResult.ACTED:
        return ""
    if result is DecisionResult.NEEDS_APPROVAL:
        return _agreed(request)
    return " and ".join(_CLEARS[one.rail] for one in said if not one.passed)
