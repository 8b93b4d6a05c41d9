"""Bringing a node back to service: it is validated first, and then serves as a spare first.

    out -> REPAIRING          a person returns it, or its repair is over: its agent looks
    REPAIRING -> PROBATION    nothing that the agent looked at speaks against it
    REPAIRING -> QUARANTINED  a step failed, or the validation did not come to its end

Where an agent cannot validate, that is said and the node comes back as before. What could not be
told keeps no node out; it is said as well.

The order is a level, like those to the root helper: it stands in every answer until it has ended.
"""

from dataclasses import replace

from aegis.core import experience, lemons
from aegis.core.cluster import Cluster, standing
from aegis.core.incidents import close
from aegis.core.nodes import enter, holds_ranks
from aegis.core.words import duration, listed
from aegis.model.action import Notify
from aegis.model.fault import Severity
from aegis.model.incident import IncidentState
from aegis.model.node import Health, Node, NodeState
from aegis.model.validation import (
    Depth,
    Validation,
    ValidationOrder,
    ValidationState,
)

KEPT = 5
GOOD = (ValidationState.PASSED, ValidationState.UNKNOWN)


def is_validating(node: Node) -> bool:
    """Whether an order to validate stands."""
    known = node.validations[-1] if node.validations else None
    return known is not None and known.ended_at is None and standing(node) is NodeState.REPAIRING


def orders(cluster: Cluster, name: str) -> tuple[ValidationOrder, ...]:
    """The orders to validate that stand for a node: one at most."""
    node = cluster.nodes.get(name)
    if node is None or not is_validating(node):
        return ()
    return (replace(node.validations[-1].order, epoch=cluster.epoch),)


def after(node: Node, repair: str) -> Validation | None:
    """The validation that followed this order to the helper."""
    return next((one for one in node.validations if one.repair == repair), None)


def begin(
    cluster: Cluster, name: str, depth: Depth, actor: str, reason: str, *, repair: str = ""
) -> bool:
    """From now on the order stands in every answer to the node. False: nothing can validate it."""
    node = cluster.nodes[name]
    if depth is Depth.NONE or not node.validates:
        return False
    policy = cluster.policy
    full = depth is Depth.FULL
    seconds = policy.validate_full_seconds if full else policy.validate_light_seconds
    order = ValidationOrder(
        id=f"validate/{name}@{cluster.now:.3f}",
        node=name,
        boot_id=node.boot_id,
        epoch=cluster.epoch,
        depth=depth,
        expires_at=cluster.now + seconds,
        reason=reason,
    )
    given = Validation(order=order, given_at=cluster.now, actor=actor, reason=reason, repair=repair)
    validations = (*node.validations, given)[-KEPT:]
    taken_for = node.taken_for if repair else ""
    node = replace(node, validations=validations, taken_for=taken_for)
    text = f"{depth} validation before it serves again: {reason}"
    enter(cluster, node, NodeState.REPAIRING, text, actor)
    return True


def asked(cluster: Cluster, node: Node) -> Depth:
    """How closely to look: as the policy asks, or more where the rule that took it out does."""
    usual = cluster.policy.validate_on_return
    if usual is Depth.NONE:
        return usual  # a site that wants none
    taken_at = node.taken_at[-1] if node.taken_at else cluster.now
    rules = [
        Depth(decision.verify)
        for incident in cluster.incidents.values()
        if incident.node == node.name
        for decision in incident.decisions
        if decision.verify and decision.at >= taken_at
    ]
    return max([usual, *rules], key=list(Depth).index)


def put_back(cluster: Cluster, name: str, depth: Depth | None, actor: str, reason: str) -> None:
    """A person returns the node."""
    node = cluster.nodes[name]
    if is_validating(node):
        text = f"{actor} did not wait for its end"
        known = replace(node.validations[-1], state=ValidationState.ABORTED, text=text)
        _keep(cluster, node, replace(known, ended_at=cluster.now))
    wanted = asked(cluster, node) if depth is None else depth
    at_work = holds_ranks(cluster, cluster.nodes[name])
    if not at_work and begin(cluster, name, wanted, actor, reason):
        return
    doubt = ""
    if at_work and wanted is not Depth.NONE:
        doubt = "; not validated, since ranks are at work on it"
    elif wanted is not Depth.NONE:
        doubt = "; not validated, since its agent watches no GPU that it could try"
    elif depth is Depth.NONE:
        doubt = "; not validated, as asked"
    _back(cluster, name, actor, reason, doubt)


def tick(cluster: Cluster) -> None:
    """Look after every node that is being validated."""
    for name in cluster.index.in_order(cluster.index.resting):
        if standing(cluster.nodes[name]) is NodeState.REPAIRING:
            look(cluster, name)


def look(cluster: Cluster, name: str) -> None:
    """See how a validation stands."""
    node = cluster.nodes[name]
    if not is_validating(node):
        return
    known = _heard(node)
    if known != node.validations[-1]:
        _keep(cluster, node, known)
    if known.state in (*GOOD, ValidationState.FAILED, ValidationState.ABORTED):
        _end(cluster, name, known)
    elif _is_overdue(cluster, known):
        waited = duration(cluster.now - known.given_at)
        text = f"no word of its end within {waited}"
        _end(cluster, name, replace(known, state=ValidationState.ABORTED, text=text))


def _heard(node: Node) -> Validation:
    """The validation with what is known of it by now."""
    known = node.validations[-1]
    if node.boot_id != known.order.boot_id:
        text = f"{node.name} started anew in the middle of it"
        return replace(known, state=ValidationState.ABORTED, text=text)
    said = next((one for one in node.validation_results if one.id == known.order.id), None)
    if said is None:
        return known
    return replace(known, state=said.state, text=said.text, steps=said.steps)


def _keep(cluster: Cluster, node: Node, validation: Validation) -> None:
    cluster.put_node(replace(node, validations=(*node.validations[:-1], validation)))


def _is_overdue(cluster: Cluster, known: Validation) -> bool:
    """Whether nothing more is to be expected; a controller that was away listens first."""
    since = max(known.order.expires_at, cluster.hears_since)
    return cluster.now > since + cluster.policy.silence_seconds


def _end(cluster: Cluster, name: str, known: Validation) -> None:
    """The node serves again, or stays out. One that follows a repair is that one's to decide."""
    node = cluster.nodes[name]
    if known.state in GOOD and (trouble := ailment(node)):
        known = replace(known, state=ValidationState.FAILED, text=trouble)
    known = replace(known, ended_at=cluster.now)
    _keep(cluster, node, known)
    if known.repair:
        return
    if known.state in GOOD:
        more = f"; {known.order.depth} validation: {known.text}"
        _back(cluster, name, known.actor, known.reason, more)
        return
    text = f"{words(known)}: {known.text}"
    enter(cluster, cluster.nodes[name], NodeState.QUARANTINED, text, known.actor)
    told = f"{name} is not back, and stays quarantined: {text}"
    notice = Notify(kind="node.validation.failed", severity=Severity.ERROR, text=told)
    cluster.notices.append(notice)


def words(known: Validation) -> str:
    """How it ended, in words."""
    how = "failed" if known.state is ValidationState.FAILED else "did not end"
    return f"its {known.order.depth} validation {how}"


def _back(cluster: Cluster, name: str, actor: str, reason: str, more: str) -> None:
    for incident in cluster.unresolved_on(name):
        if incident.faults[0].job is None and incident.state is not IncidentState.RECOVERING:
            close(cluster, incident, f"{actor} returned {name}: {reason}")
    experience.returned(cluster, cluster.nodes[name])
    cluster.lemons = lemons.find(cluster)
    if cluster.policy.probation_seconds > 0:
        text = f"returned by {actor}: {reason}{more}"
        enter(cluster, cluster.nodes[name], NodeState.PROBATION, text)
    else:
        enter(cluster, cluster.nodes[name], NodeState.READY, "")


def ailment(node: Node) -> str:
    """What the node still reports against itself; empty when nothing."""
    live = [
        f"{one.fault_class} on {one.device}"
        for one in node.conditions
        if one.severity in (Severity.ERROR, Severity.FATAL)
    ]
    if live:
        return f"{node.name} still reports {listed(live)}: repair it first"
    sick = [one for one in node.devices if one.used and one.health is Health.UNHEALTHY]
    if sick:
        detail = f" ({sick[0].detail})" if sick[0].detail else ""
        names = listed([one.name for one in sick])
        return f"{names} on {node.name} reads as unhealthy{detail}: repair it first"
    return ""
