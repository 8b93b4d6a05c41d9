"""What came of an order: followed by the node's own words, believed when its devices read well."""

from dataclasses import replace

from aegis.core import experience, lemons, memory, returning
from aegis.core.cluster import Cluster
from aegis.core.incidents import close, note
from aegis.core.index import AEGIS
from aegis.core.levels import condition_of, is_fresh, is_unhealthy
from aegis.core.nodes import enter
from aegis.core.words import duration
from aegis.model.fault import Severity
from aegis.model.incident import EntryKind, Incident, IncidentState, Remedy
from aegis.model.node import Health, Node, NodeState
from aegis.model.order import OrderState, Repair, Verb

UNDER_WAY = (None, OrderState.WORKING, OrderState.ACCEPTED)
DONE = {Verb.RESET_DOMAIN: "its GPUs were reset", Verb.REBOOT: "it was rebooted"}
REMEDY = {Verb.RESET_DOMAIN: Remedy.RESET_DOMAIN, Verb.REBOOT: Remedy.REBOOT}


def is_sick(node: Node, incident: Incident) -> bool:
    """Whether the node still says so."""
    return condition_of(node, incident) is not None or is_unhealthy(node, incident.device)


def is_well(node: Node, incident: Incident) -> bool:
    """Whether the device reads as healthy; one that is not read is neither."""
    named = [one for one in node.devices if one.name == incident.device]
    well = all(one.health is Health.HEALTHY for one in named) and bool(named)
    return well and condition_of(node, incident) is None


def follow(cluster: Cluster, node: Node, incident: Incident) -> None:
    """Take what the node says of its order, and see whether it has helped."""
    if returning.is_validating(node):
        return
    repair = _heard(cluster, node, incident)
    node = cluster.nodes[node.name]
    match repair.state:
        case OrderState.REFUSED | OrderState.FAILED:
            _failed(cluster, node, repair, f"{_words(repair)}: {repair.text}")
        case OrderState.DONE if returning.after(node, repair.order.id):
            _validated(cluster, node, repair)
        case OrderState.DONE if is_fresh(cluster, node) and is_whole(node, repair):
            _well(cluster, node, repair)
        case OrderState.DONE if _waited(cluster, repair) > cluster.policy.settle_seconds:
            text = f"{DONE[repair.order.verb]}, and {_ailing(node, repair)}"
            _failed(cluster, node, repair, text)
        case _ if _is_overdue(cluster, node, repair):
            waited = duration(cluster.now - repair.given_at)
            _failed(cluster, node, repair, f"{_words(repair)}: no word of it within {waited}")


def _heard(cluster: Cluster, node: Node, incident: Incident) -> Repair:
    """The repair with what is known of it by now."""
    repair = node.repairs[-1]
    order = repair.order
    if repair.state not in UNDER_WAY:
        return repair
    if node.boot_id != order.boot_id:
        rebooted = order.verb is Verb.REBOOT
        state = OrderState.DONE if rebooted else OrderState.FAILED
        text = f"{node.name} has started anew" + ("" if rebooted else " by itself")
    else:
        said = next((one for one in node.order_results if one.id == order.id), None)
        if said is None or said.state is repair.state:
            return repair
        state, text = said.state, said.text
        if said.killed:
            text = f"{text}; killed: {', '.join(said.killed)}"
    done_at = cluster.now if state is OrderState.DONE else None
    repair = replace(repair, state=state, text=text, done_at=done_at)
    _keep(cluster, node, repair)
    note(cluster, incident, EntryKind.PROGRESS, f"{node.name}, order {order.id}: {state}, {text}")
    return repair


def _keep(cluster: Cluster, node: Node, repair: Repair) -> None:
    cluster.put_node(replace(node, repairs=(*node.repairs[:-1], repair)))


def _words(repair: Repair) -> str:
    verb = "reboot" if repair.order.verb is Verb.REBOOT else "reset"
    return f"the {verb} was refused" if repair.state is OrderState.REFUSED else f"the {verb} failed"


def _waited(cluster: Cluster, repair: Repair) -> float:
    return cluster.now - (repair.done_at or repair.given_at)


def _is_overdue(cluster: Cluster, node: Node, repair: Repair) -> bool:
    """Whether there is nothing more to wait for."""
    policy, order = cluster.policy, repair.order
    reboots = order.verb is Verb.REBOOT
    if cluster.now - repair.given_at > (policy.reboot_seconds if reboots else policy.reset_seconds):
        return True
    silent = repair.state is None and is_fresh(cluster, node)
    return silent and cluster.now > order.expires_at + policy.silence_seconds


def is_whole(node: Node, repair: Repair) -> bool:
    """Whether every device that was there is read and healthy, and nothing else is wrong."""
    return not _ailing(node, repair)


def _ailing(node: Node, repair: Repair) -> str:
    """What still speaks against the node; empty when nothing does."""
    for one in node.conditions:
        if one.severity in (Severity.ERROR, Severity.FATAL):
            return f"it still reports {one.fault_class} on {one.device}"
    used = [one for one in node.devices if one.used]
    for device in used:
        if device.health is Health.UNHEALTHY:
            detail = f" ({device.detail})" if device.detail else ""
            return f"{device.name} still reads as unhealthy{detail}"
    healthy = {one.identity or one.name for one in used if one.health is Health.HEALTHY}
    named = {one.name for one in used if one.health is Health.HEALTHY}
    missing = [one for one in repair.order.devices if one not in healthy]
    if missing:
        return f"{missing[0].split()[0]} does not read as healthy"
    if repair.order.identity and repair.order.device not in named:
        return f"{repair.order.device} does not read as healthy"
    return ""


def _failed(cluster: Cluster, node: Node, repair: Repair, text: str) -> None:
    """The node is where it was. What was refused is not asked for again, nor what helped."""
    incident = cluster.incidents[repair.order.incident]
    refused = repair.state is OrderState.REFUSED
    ended = replace(repair, ended_at=cluster.now, text=repair.text or text)
    _keep(cluster, node, ended)
    if refused:
        memory.untried(cluster, incident, REMEDY[repair.order.verb])
        experience.refused(cluster, incident, REMEDY[repair.order.verb])
    final = refused or returning.after(node, repair.order.id) is not None
    taken_for = "" if final else node.taken_for
    node = replace(cluster.nodes[node.name], taken_for=taken_for)
    enter(cluster, node, NodeState.QUARANTINED, f"{incident.id}: {text}", AEGIS)
    if final and incident.state is IncidentState.OPEN:
        outcome = with_recovery(incident, f"{node.name} stays quarantined: {text}")
        close(cluster, incident, outcome)
    else:
        note(cluster, incident, EntryKind.PROGRESS, text)


def _well(cluster: Cluster, node: Node, repair: Repair) -> None:
    """What was wrong is gone; the node is looked at closely before it comes back."""
    order, depth = repair.order, returning.asked(cluster, node)
    reason = f"{order.incident}: {DONE[order.verb]}"
    if returning.begin(cluster, node.name, depth, AEGIS, reason, repair=order.id):
        incident = cluster.incidents[order.incident]
        text = f"{DONE[order.verb]}, and its devices read as healthy: {depth} validation begins"
        note(cluster, incident, EntryKind.PROGRESS, text)
    else:
        _helped(cluster, node, repair)


def _validated(cluster: Cluster, node: Node, repair: Repair) -> None:
    """The validation that followed the repair has ended."""
    known = returning.after(node, repair.order.id)
    assert known is not None, f"{node.name} was not validated"
    if known.state not in returning.GOOD:
        text = f"{DONE[repair.order.verb]}, and {returning.words(known)}: {known.text}"
        _failed(cluster, node, repair, text)
        return
    told = f"{node.name} was validated: {known.text}"
    note(cluster, cluster.incidents[repair.order.incident], EntryKind.PROGRESS, told)
    _helped(cluster, node, repair)


def _helped(cluster: Cluster, node: Node, repair: Repair) -> None:
    """The node is well again: it comes back, as a spare first."""
    incident = cluster.incidents[repair.order.incident]
    _keep(cluster, node, replace(repair, ended_at=cluster.now, helped=True))
    experience.repaired(cluster, incident, REMEDY[repair.order.verb])
    experience.returned(cluster, node)
    node = replace(cluster.nodes[node.name], taken_for="")
    text = f"{DONE[repair.order.verb]}, and its devices read as healthy"
    if cluster.policy.probation_seconds > 0:
        enter(cluster, node, NodeState.PROBATION, f"{incident.id}: {text}")
    else:
        enter(cluster, node, NodeState.READY, "")
    cluster.lemons = lemons.find(cluster)
    outcome = f"{node.name} is back: {text}"
    if incident.state is IncidentState.OPEN:
        close(cluster, incident, with_recovery(incident, outcome))
    else:
        note(cluster, incident, EntryKind.OUTCOME, outcome)


def with_recovery(incident: Incident, text: str) -> str:
    """What came of the job stays the first thing that the outcome says."""
    before = [one.text for one in incident.entries if one.kind is EntryKind.OUTCOME]
    if not before or not incident.nodes_after:
        return text
    return f"{before[-1].removesuffix(f'; {incident.node} is quarantined')}; {text}"
