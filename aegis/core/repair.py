"""Resetting and rebooting a node that Aegis has taken out, by orders to its root helper.

    QUARANTINED -> REPAIRING      its rule's ladder goes on, and every rail lets it: an order stands
    REPAIRING -> PROBATION        carried out, and its devices read as healthy
    REPAIRING -> QUARANTINED      it failed, was refused, or nobody answered in time

An order is a level. It stands in every answer to the node until its result is known, so a lost
answer costs nothing; its id keeps a repeated one from doing anything twice.
"""

from aegis.core import experience, memory, modes, returning
from aegis.core.approval import ask, expire, is_forbidden
from aegis.core.cluster import Cluster, standing
from aegis.core.incidents import cause, close, note, reopen
from aegis.core.index import AEGIS
from aegis.core.levels import is_fresh
from aegis.core.nodes import enter
from aegis.core.rails import Request
from aegis.core.repair_outcome import follow, is_sick, is_well, with_recovery
from aegis.core.repair_rails import APPROVABLE, CLEARS, hit, holders, plan, verdicts
from aegis.core.words import REPAIR_VERBS, listed, once_agreed
from aegis.model.incident import (
    Decision,
    DecisionResult,
    EntryKind,
    Incident,
    IncidentState,
    Remedy,
    Verdict,
)
from aegis.model.job import JobState
from aegis.model.memory import Memory
from aegis.model.node import Node, NodeState
from aegis.model.order import Order, Repair, Verb
from aegis.model.policy import Mode
from aegis.model.record import replace
from aegis.rules import Rule, RuleSet, Rung
from aegis.rules.physical import needs_hands

REPAIRS = {Remedy.RESET_DOMAIN: Verb.RESET_DOMAIN, Remedy.REBOOT: Verb.REBOOT}
REPAIRS_KEPT = 20


def orders(cluster: Cluster, node: str) -> tuple[Order, ...]:
    """The orders that stand for a node: one, while it is being repaired.

    A pause takes back what nobody has begun.
    """
    known = cluster.nodes.get(node)
    if known is None or standing(known) is not NodeState.REPAIRING:
        return ()
    if returning.is_validating(known):
        return ()
    if cluster.paused is not None and known.repairs[-1].state is None:
        return ()
    return (replace(known.repairs[-1].order, epoch=cluster.epoch),)


def is_about(cluster: Cluster, incident: Incident) -> bool:
    """Whether the incident goes on with the repair of the node that was taken for it."""
    node = cluster.nodes.get(incident.node or "")
    out = (NodeState.QUARANTINED, NodeState.REPAIRING)
    return node is not None and node.taken_for == incident.id and standing(node) in out


def is_expected(node: Node) -> bool:
    """Whether the node was told to start anew."""
    repairing = standing(node) is NodeState.REPAIRING and not returning.is_validating(node)
    return repairing and node.repairs[-1].order.verb is Verb.REBOOT


def tick(cluster: Cluster, rules: RuleSet) -> None:
    """Look after every node that was taken out and whose repair is not over."""
    for name in cluster.index.in_order(cluster.index.taken_for):
        look(cluster, rules, name)


def look(cluster: Cluster, rules: RuleSet, name: str) -> None:
    """See how a repair stands, or whether one is due."""
    node = cluster.nodes[name]
    incident = cluster.incidents.get(node.taken_for)
    if incident is None or not is_about(cluster, incident):
        return
    if standing(node) is NodeState.REPAIRING:
        follow(cluster, node, incident)
    elif node.held_by == AEGIS and node.state is not NodeState.UNKNOWN:
        _consider(cluster, rules, node, incident)


# Whether it is due, and which.


def _consider(cluster: Cluster, rules: RuleSet, node: Node, incident: Incident) -> None:
    rule = rules.find(incident.decisions[-1].rule)
    if rule is None or not _is_due(cluster, incident) or not is_fresh(cluster, node):
        return
    wanted = _rungs(cluster, rule, incident)
    if not wanted:
        cluster.put_node(replace(node, taken_for=""))
    elif is_well(node, incident):
        text = f"{incident.device} reads as healthy, so nothing is reset"
        over(cluster, incident, f"{text}: `aegis nodes return {node.name}` brings it back")
    elif needs_hands(cause(incident)):
        over(cluster, incident, f"{incident.fault_class} needs hands first: {node.name} waits")
    elif (remedy := _next(cluster, incident, rule, wanted)) is None:
        tried = listed([REPAIR_VERBS[rung.remedy] for rung in wanted])
        text = f"to {tried} has been tried as often as it may; {node.name} stays quarantined"
        over(cluster, incident, f"{text}: people must look")
    elif is_sick(node, incident) and not node.has_helper:
        text = f"no root helper is installed on {node.name}, so nothing is reset or rebooted"
        over(cluster, incident, f"{text}: repair it, then `aegis nodes return {node.name}`")
    elif is_sick(node, incident):
        _decide(cluster, rules, rule, incident, remedy)


def _is_due(cluster: Cluster, incident: Incident) -> bool:
    """Whether the job has gone on without the node, or cannot: it waits for nodes."""
    if incident.state is not IncidentState.RECOVERING:
        return True
    job = cluster.jobs.get(incident.job or "")
    return job is not None and job.state is JobState.WAITING


def _rungs(cluster: Cluster, rule: Rule, incident: Incident) -> list[Rung]:
    """The resets and reboots to which the ladder leads from what was done last."""
    acted = [one.remedy for one in incident.decisions if one.result is DecisionResult.ACTED]
    order = list(Remedy)
    found: list[Rung] = []
    for rung in rule.ladder:
        if not acted or order.index(rung.remedy) < order.index(acted[-1]):
            continue
        if rung.remedy in REPAIRS:
            found.append(rung)
        elif rung.attempts is None or _times(cluster, rule, incident, rung) < rung.attempts:
            return []  # the drain itself is what the rule has in mind, again
    return found


def _next(cluster: Cluster, incident: Incident, rule: Rule, wanted: list[Rung]) -> Remedy | None:
    """The lowest rung that was not tried as often as it may."""
    for rung in wanted:
        limit = rung.attempts or cluster.policy.repairs_max
        if _times(cluster, rule, incident, rung) < limit:
            return rung.remedy
    return None


def _times(cluster: Cluster, rule: Rule, incident: Incident, rung: Rung) -> int:
    """How often it was tried on this device in the rung's time, for this incident too."""
    since = cluster.now - rung.within_seconds
    return sum(
        one.at > since
        and one.remedy is rung.remedy
        and one.device == incident.device
        and one.fault_class in rule.classes
        for one in cluster.memories.get(incident.node or "", Memory()).tried
    )


# Deciding, and giving the order.


def _decide(
    cluster: Cluster, rules: RuleSet, rule: Rule, incident: Incident, remedy: Remedy
) -> None:
    node = cluster.nodes[incident.faults[0].node]
    if incident.state is IncidentState.OPEN:
        incident = expire(cluster, incident)
    request = Request(
        cluster=cluster,
        incident=incident,
        fault=cause(incident),
        node=node,
        job=None,
        mode=modes.granted(cluster, rule, remedy, node),
        remedy=remedy,
        guard=rule.guard,
    )
    decision = _decision(request, rules, rule)
    acted = decision.result is DecisionResult.ACTED
    if not acted and (_is_known(incident, decision) or _is_recovering(incident)):
        return
    if incident.state is IncidentState.CLOSED:
        text = f"{node.name} is out, and {incident.device} still reads as unhealthy"
        incident = reopen(cluster, incident, text)
    decisions = (*incident.decisions, decision)
    incident = note(cluster, incident, EntryKind.DECISION, decision.reason, decisions=decisions)
    if acted:
        _give(request, incident)
    elif decision.result is DecisionResult.NEEDS_APPROVAL:
        ask(cluster, incident, remedy)


def _is_recovering(incident: Incident) -> bool:
    """Whether a job's recovery has the word: what is only held back is decided after it."""
    return incident.state is IncidentState.RECOVERING


def _is_known(incident: Incident, decision: Decision) -> bool:
    before, asked = incident.decisions[-1], incident.approval
    if asked and (asked.agreed or asked.consented) and not set(decision.plan) <= set(before.plan):
        return False  # who agreed did not know of this
    return _answer(before) == _answer(decision) and incident.state is IncidentState.OPEN


def _answer(decision: Decision) -> tuple[object, ...]:
    refused = tuple(one.rail for one in decision.verdicts if not one.passed)
    return decision.rule, decision.remedy, decision.mode, decision.result, refused


def _decision(request: Request, rules: RuleSet, rule: Rule) -> Decision:
    said = verdicts(request)
    result = _result(request, said)
    return Decision(
        at=request.cluster.now,
        rule=rule.id,
        rules_digest=rules.digest,
        remedy=request.remedy,
        mode=request.mode,
        result=result,
        reason=_reason(request, rule, result, said),
        verdicts=said,
        clears_when=_clears_when(request, result, said),
        plan=plan(request),
    )


def _result(request: Request, said: tuple[Verdict, ...]) -> DecisionResult:
    if request.mode in (Mode.OBSERVE, Mode.NOTIFY):
        return DecisionResult.WOULD_ACT
    refused = {one.rail for one in said if not one.passed}
    if not refused:
        return DecisionResult.ACTED
    asks = refused <= APPROVABLE and not is_forbidden(request.incident, request.remedy)
    return DecisionResult.NEEDS_APPROVAL if asks else DecisionResult.BLOCKED


def _reason(request: Request, rule: Rule, result: DecisionResult, said: tuple[Verdict, ...]) -> str:
    verb = "reboot" if request.remedy is Remedy.REBOOT else "reset the GPUs of"
    asks = f"rule {rule.id} asks to {verb} {request.node.name}"
    refused = [f"{one.rail} ({one.text})" for one in said if not one.passed]
    match result:
        case DecisionResult.ACTED:
            known = experience.words(request.cluster, request.incident.fault_class, request.remedy)
            return f"{asks}, and every rail lets it" + (f"; {known}" if known else "")
        case DecisionResult.WOULD_ACT:
            return f"{asks}; the mode only lets Aegis say so"
        case DecisionResult.NEEDS_APPROVAL:
            return f"{asks}, once {_agreed(request)}"
        case DecisionResult.BLOCKED | DecisionResult.NOTHING:
            return f"{asks}; held by {listed(refused)}"


def _agreed(request: Request) -> str:
    must = once_agreed(request.cluster.policy.approvals_needed)
    return f"{must}: `aegis incidents approve {request.incident.id}`"


def _clears_when(request: Request, result: DecisionResult, said: tuple[Verdict, ...]) -> str:
    if result is DecisionResult.ACTED:
        return ""
    if result is DecisionResult.NEEDS_APPROVAL:
        return _agreed(request)
    return " and ".join(CLEARS[one.rail] for one in said if not one.passed)


def _give(request: Request, incident: Incident) -> None:
    """From now on the order stands in every answer to the node."""
    cluster, node, remedy = request.cluster, request.node, request.remedy
    gpus = hit(node, incident.device, remedy)
    device = next((one for one in node.devices if one.name == incident.device), None)
    number = 1 + sum(one.order.incident == incident.id for one in node.repairs)
    order = Order(
        id=f"{incident.id}/{number}@{cluster.now:.0f}",
        verb=REPAIRS[remedy],
        node=node.name,
        boot_id=node.boot_id,
        epoch=cluster.epoch,
        incident=incident.id,
        expires_at=cluster.now + cluster.policy.order_seconds,
        reason=f"{incident.fault_class} on {incident.device}",
        fault_class=incident.fault_class,
        device=incident.device,
        identity=device.identity if device else "",
        devices=tuple(one.identity or one.name for one in gpus),
        processes=tuple(one.pid for one in holders(gpus)),
    )
    repairs = (*node.repairs, Repair(order=order, given_at=cluster.now))[-REPAIRS_KEPT:]
    reason = f"{incident.id}: {order.reason}"
    enter(cluster, replace(node, repairs=repairs), NodeState.REPAIRING, reason, AEGIS)
    text = f"{node.name} is told to {REPAIR_VERBS[remedy]} (order {order.id})"
    # What people agreed to is done with this: another attempt is another question.
    incident = note(cluster, incident, EntryKind.ACTION, text, approval=None)
    experience.ordered(cluster, incident, remedy)
    memory.tried(cluster, incident, remedy)


def over(cluster: Cluster, incident: Incident, text: str) -> None:
    """Aegis repairs nothing more for this incident; the node stays where it is."""
    node = cluster.nodes[incident.faults[0].node]
    cluster.put_node(replace(node, taken_for=""))
    if incident.state is IncidentState.OPEN:
        close(cluster, incident, with_recovery(incident, text))
    else:
        note(cluster, incident, EntryKind.PROGRESS, text)
