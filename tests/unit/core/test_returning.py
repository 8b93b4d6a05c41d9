"""Bringing a node back: when it is validated, how long that may take, and what ends it."""

from dataclasses import replace

import pytest

from aegis.core import repair, returning
from aegis.core.operate import refusal
from aegis.model import event as ev
from aegis.model.node import NodeState
from aegis.model.policy import Policy
from aegis.model.validation import (
    Depth,
    Step,
    StepState,
    ValidationResult,
    ValidationState,
)


def drained(fleet, node="n3"):
    fleet.say(node, boot_id="b1", validates=True)
    fleet.apply(ev.NodeDrained(at=fleet.at, node=node, actor="alice", reason="a module"))


def give_back(fleet, validate=None, node="n3"):
    event = ev.NodeReturned(
        at=fleet.at, node=node, actor="alice", reason="exchanged", validate=validate
    )
    assert refusal(fleet.cluster, event) is None
    fleet.apply(event)
    return fleet.cluster.nodes[node]


def answer(fleet, state, text="", steps=(), boot_id="b1"):
    (order,) = returning.orders(fleet.cluster, "n3")
    result = ValidationResult(
        id=order.id, depth=order.depth, state=state, text=text, at=fleet.at, steps=steps
    )
    fleet.say("n3", boot_id=boot_id, validates=True, validation_results=(result,))
    return fleet.cluster.nodes["n3"]


def test_the_order_names_node_boot_epoch_and_end(fleet) -> None:
    """All that the agent holds it against; a full one has longer."""
    drained(fleet)
    node = give_back(fleet)
    (order,) = returning.orders(fleet.cluster, "n3")
    assert (node.state, node.held_by) == (NodeState.REPAIRING, "alice")
    assert (order.node, order.boot_id, order.epoch, order.depth) == ("n3", "b1", 1, Depth.LIGHT)
    assert order.expires_at - fleet.cluster.now == Policy().validate_light_seconds
    assert repair.orders(fleet.cluster, "n3") == ()
    assert not repair.is_expected(node)
    fleet.apply(ev.ControllerStarted(at=fleet.at, epoch=7, version="test"))
    assert returning.orders(fleet.cluster, "n3")[0].epoch == 7


def test_a_full_one_may_take_longer(fleet) -> None:
    """As the policy says."""
    drained(fleet)
    give_back(fleet, Depth.FULL)
    (order,) = returning.orders(fleet.cluster, "n3")
    assert order.expires_at - fleet.cluster.now == Policy().validate_full_seconds


@pytest.mark.parametrize(
    ("state", "then"),
    [
        (ValidationState.WORKING, NodeState.REPAIRING),
        (ValidationState.PASSED, NodeState.READY),
        (ValidationState.UNKNOWN, NodeState.READY),
        (ValidationState.FAILED, NodeState.QUARANTINED),
        (ValidationState.ABORTED, NodeState.QUARANTINED),
    ],
)
def test_what_it_came_to_decides(fleet, state, then) -> None:
    """Its steps are kept with the node, and the order stands no longer."""
    drained(fleet)
    give_back(fleet)
    step = Step(name="all-reduce", state=StepState.PASS, text="every sum was right")
    node = answer(fleet, state, "so it came", (step,))
    last = node.validations[-1]
    assert (node.state, last.state, last.steps) == (then, state, (step,))
    ended = state is not ValidationState.WORKING
    assert (last.ended_at is not None) is ended
    assert bool(returning.orders(fleet.cluster, "n3")) is not ended


def test_a_controller_that_was_away_listens_before_it_gives_up(fleet) -> None:
    """The result may be on its way; what never comes is no pass."""
    drained(fleet)
    give_back(fleet)
    policy = fleet.cluster.policy
    fleet.at += policy.validate_light_seconds + policy.silence_seconds + 5
    fleet.apply(ev.ControllerStarted(at=fleet.at, epoch=2, version="test"))
    fleet.apply(ev.Tick(at=fleet.at + 1, agents_seen=("n3",)))
    assert fleet.cluster.nodes["n3"].state is NodeState.REPAIRING
    later = fleet.at + policy.silence_seconds + 2
    fleet.apply(ev.Tick(at=later, agents_seen=("n1", "n2", "n3")))
    node = fleet.cluster.nodes["n3"]
    assert node.state is NodeState.QUARANTINED
    assert node.reason.startswith("its light validation did not end: no word of its end within")


def test_one_that_was_skipped_is_over(fleet) -> None:
    """A later repair of the node is not taken for it."""
    drained(fleet)
    give_back(fleet)
    node = give_back(fleet, Depth.NONE)
    assert node.state is NodeState.READY
    assert node.validations[-1].state is ValidationState.ABORTED
    assert node.validations[-1].ended_at is not None
    assert not returning.is_validating(replace(node, state=NodeState.REPAIRING))


def test_the_policy_may_ask_for_none(fleet) -> None:
    """A site that validates by other means."""
    fleet.apply(
        ev.PolicyChanged(
            at=fleet.at,
            policy=replace(fleet.cluster.policy, validate_on_return=Depth.NONE),
            actor="test",
        )
    )
    drained(fleet)
    assert give_back(fleet).state is NodeState.READY


def test_an_answer_to_another_order_is_none(fleet) -> None:
    """The agent may still tell of the one before."""
    drained(fleet)
    give_back(fleet)
    stale = ValidationResult(
        id="validate/n3@1.000",
        depth=Depth.LIGHT,
        state=ValidationState.PASSED,
        text="",
        at=fleet.at,
    )
    fleet.say("n3", boot_id="b1", validates=True, validation_results=(stale,))
    assert fleet.cluster.nodes["n3"].state is NodeState.REPAIRING
