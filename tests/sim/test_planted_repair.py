"""Bugs planted in resets and reboots: each takes one safety line out, and a known seed finds it.

The epoch of an order is not here: a simulated controller takes its connections with it when it
dies, so nothing of it arrives late. `tests/integration/agent/test_helper.py` holds the real helper
to it.
"""

from dataclasses import replace

import pytest

from aegis.core import repair, repair_outcome
from aegis.model import order as orders
from aegis.model.fault import FaultClass, Severity
from aegis.model.incident import Verdict
from aegis.model.node import NodeState
from aegis.sim import helper, mix, setting
from aegis.sim.helper import SimHelper
from aegis.sim.run import run


def memory_fails_everywhere(monkeypatch):
    """Nothing else breaks, no rank dies of it, and the rules always ask for a reset."""
    words = (mix.Word(FaultClass.GPU_ECC_DEFERRED, Severity.ERROR),)
    failing = (mix.Ailment(name="memory", weight=1, words=words, sickens=True),)
    for name in mix.MIXES:
        monkeypatch.setitem(mix.MIXES, name, failing)
    monkeypatch.setattr(setting, "SAVING_LADDERS", ("remedy: reset_domain",))


def looks_take_long(monkeypatch):
    """The same, and a helper's look takes longer than an order is good for."""
    memory_fails_everywhere(monkeypatch)
    monkeypatch.setattr(helper, "LOOK_SECONDS", 90.0)


def nothing_heals(monkeypatch):
    """The same, and what is sick stays sick."""
    memory_fails_everywhere(monkeypatch)
    monkeypatch.setattr(helper, "HEALS", 0.0)


def helpers_hang(monkeypatch):
    """The same, and of an order that a helper took nothing more is heard."""
    memory_fails_everywhere(monkeypatch)
    monkeypatch.setattr(SimHelper, "_obey", lambda *_: None)


def late_is_obeyed(monkeypatch):
    """Neither agent nor helper looks at the time."""
    real = orders.refusal

    def refusal(order, **here):
        return real(replace(order, expires_at=here["now"] + 1.0), **here)

    monkeypatch.setattr(orders, "refusal", refusal)


def ranks_are_hit(monkeypatch):
    """A node is repaired while it is being drained, and the helper does not see who holds it."""
    real = repair.standing

    def standing(node):
        state = real(node)
        return NodeState.QUARANTINED if state is NodeState.DRAINING else state

    monkeypatch.setattr(SimHelper, "_holders", lambda _: False)
    monkeypatch.setattr(repair, "verdicts", lambda _: (_yes(),))
    monkeypatch.setattr(repair, "_is_due", lambda *_: True)
    monkeypatch.setattr(repair, "standing", standing)


def _yes():
    return Verdict(rail="planted", passed=True, text="planted")


def tried_for_ever(monkeypatch):
    """What was tried is not counted."""
    monkeypatch.setattr(repair, "_times", lambda *_: 0)


def believed_at_once(monkeypatch):
    """What was carried out is taken to have helped."""
    monkeypatch.setattr(repair_outcome, "is_whole", lambda *_: True)


def waited_for_ever(monkeypatch):
    """An order of which nothing is heard is never given up."""
    monkeypatch.setattr(repair_outcome, "_is_overdue", lambda *_: False)


def carried_out_twice(monkeypatch):
    """Neither agent nor helper knows what it was told before."""
    real = SimHelper.take

    def take(self, standing, **when):
        self.results.clear()
        self._ended.clear()
        real(self, standing, **when)

    monkeypatch.setattr(SimHelper, "take", take)


def never_begun(monkeypatch):
    """The order stands nowhere."""
    monkeypatch.setattr("aegis.sim.controller.orders", lambda *_: ())
    monkeypatch.setattr(repair_outcome, "_is_overdue", lambda *_: False)


# What is planted: a seed that finds it, and what else has to be so.
PLANTED = {
    "obeys orders that have expired": (8, looks_take_long, late_is_obeyed),
    "hits ranks": (15, memory_fails_everywhere, ranks_are_hit),
    "tries for ever": (8, nothing_heals, tried_for_ever),
    "believes at once": (9, memory_fails_everywhere, believed_at_once),
    "waits for ever": (8, helpers_hang, waited_for_ever),
    "does it twice": (9, memory_fails_everywhere, carried_out_twice),
    "gives no order": (8, memory_fails_everywhere, never_begun),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name, monkeypatch) -> None:
    """Without this line of safety the seed breaks a promise; with it, it keeps them all."""
    seed, mishap, plant = PLANTED[name]
    if mishap is not None:
        mishap(monkeypatch)
    assert run(seed).broken == ""
    plant(monkeypatch)
    assert run(seed).broken
