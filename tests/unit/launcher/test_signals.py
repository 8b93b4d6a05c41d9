"""Losses that are none or leap, and time that is a rank's own."""

import math

from aegis.model.job import SignalKind
from aegis.wire.page import Progress
from aegis_agent.launcher.signals import OWN_STEPS, SPIKE_LOOKS, Signals


def steps(signals, losses, begin=1):
    for step, loss in enumerate(losses, begin):
        signals.look([(0, Progress(step=step, loss=loss))], at=7.0)


def test_a_loss_that_is_no_number_is_said_in_words_and_once() -> None:
    """With the last one that was a number."""
    signals = Signals()
    steps(signals, [2.5, 2.4])
    bad = Progress(step=3, loss=math.nan, bad_loss_step=3, bad_loss=math.nan)
    for _ in range(2):
        signals.look([(0, bad)], at=7.0)
    (found,) = signals.found
    assert found.kind is SignalKind.LOSS_NAN
    assert found.text == "the loss of rank 0 became NaN at step 3"
    assert (found.before, found.after) == ("2.4", "NaN")
    signals.look([(1, Progress(step=9, bad_loss_step=9, bad_loss=-math.inf))], at=7.0)
    assert signals.found[1].text == "the loss of rank 1 became -inf at step 9"


def test_what_ails_all_ranks_is_said_once() -> None:
    """The first of each kind; the next of a kind is known to the controller only."""
    signals = Signals()
    bad = Progress(step=3, loss=math.nan, bad_loss_step=3, bad_loss=math.nan)
    signals.look([(0, bad), (1, bad)], at=7.0)
    assert signals.untold() == ["the loss of rank 0 became NaN at step 3"]
    signals.look([(2, bad)], at=7.0)
    assert signals.untold() == []


def test_a_spike_lasts_some_looks_and_is_far_from_usual() -> None:
    """One odd step is none, and neither is a noisy loss."""
    noisy = [2.0 + 0.3 * (step % 5) for step in range(60)]
    signals = Signals()
    steps(signals, [*noisy, 9.0, 2.1, 9.0, 2.2])
    assert not signals.found
    steps(signals, [9.0] * SPIKE_LOOKS, begin=100)
    (found,) = signals.found
    assert found.kind is SignalKind.LOSS_SPIKE
    assert "is 9 at step 102" in found.text


def test_the_own_time_of_a_step_is_a_mean_over_the_newest() -> None:
    """None where the script times nothing."""
    signals = Signals()
    own = {}
    for step in range(1, 3 * OWN_STEPS):
        pages = [
            (0, Progress(step=step, own_seconds=0.5 * step)),
            (1, Progress(step=step)),
        ]
        own = signals.look(pages, at=1.0)
    assert own == {0: 0.5, 1: 0.0}
