"""When ranks count as stuck: learned from their steps, told by their state."""

import pytest

from aegis.model.job import HangCause, RankPhase
from aegis.wire.page import Progress
from aegis_agent.launcher.hang import KERNEL_SECONDS, UNKNOWN_SECONDS, Pace, Seen, Watch

LOOK = 0.05


class Ranks:
    """Two ranks that a test drives, looked at every 50 ms."""

    def __init__(self, floor=5.0):
        self.watch = Watch(pace=Pace(floor_seconds=floor))
        self.now = 1000.0
        self.states = ["S", "S"]
        self.pages = [Progress(), Progress()]

    def enter(self, phase, *ranks):
        for rank in ranks or (0, 1):
            page = self.pages[rank]
            self.pages[rank] = Progress(
                phase=phase, step=page.step, first_step_at=page.first_step_at, moved_at=self.now
            )

    def step(self, *ranks):
        for rank in ranks or (0, 1):
            self.pages[rank] = Progress(
                phase=RankPhase.TRAINING,
                step=self.pages[rank].step + 1,
                first_step_at=1.0,
                moved_at=self.now,
            )

    def look(self):
        seen = [
            Seen(local_rank=rank, state=self.states[rank], progress=self.pages[rank])
            for rank in (0, 1)
        ]
        return self.watch.look(seen, self.now)

    def wait(self, seconds):
        """Time passes; the first verdict that is no early one, and after how long it came."""
        until, begun = self.now + seconds, self.now
        while self.now < until:
            self.now += LOOK
            verdict = self.look()
            if verdict is not None and not verdict.early:
                return verdict, self.now - begun
        return None, seconds

    def train(self, steps=20, seconds=0.1):
        for _ in range(steps):
            self.wait(seconds)
            self.step()
        self.look()


@pytest.fixture
def ranks():
    made = Ranks()
    made.enter(RankPhase.LOADING)
    made.look()
    return made


def test_silence_is_measured_against_the_floor_and_the_steps_seen(ranks) -> None:
    """Quick steps: the floor. Slow ones: five times the median."""
    ranks.train(seconds=0.1)
    verdict, waited = ranks.wait(60)
    assert verdict.cause is HangCause.SILENT
    assert 4.9 < waited < 5.2
    slow = Ranks()
    slow.enter(RankPhase.LOADING)
    slow.train(seconds=3.0)
    verdict, waited = slow.wait(60)
    assert 14.5 < waited < 15.5


def test_a_long_step_among_many_teaches_nothing(ranks) -> None:
    """The median is not moved by it."""
    ranks.train(seconds=0.1)
    ranks.wait(4.5)
    ranks.step()
    ranks.train(seconds=0.1)
    assert ranks.watch.pace.step_seconds == pytest.approx(0.1, abs=0.06)


def test_a_script_that_reports_nothing_is_never_taken_for_stuck() -> None:
    """Without a word from the rank there is no pace."""
    assert Ranks().wait(7200)[0] is None


def test_the_first_step_may_take_its_time(ranks) -> None:
    """It compiles, meets the others, reads its data; but not for ever."""
    ranks.enter(RankPhase.TRAINING)
    verdict, waited = ranks.wait(2 * UNKNOWN_SECONDS)
    assert verdict.cause is HangCause.SILENT
    assert waited >= UNKNOWN_SECONDS


@pytest.mark.parametrize("phase", [RankPhase.SAVING, RankPhase.EVALUATING])
def test_what_is_no_step_has_a_budget_of_its_own(ranks, phase) -> None:
    """Learned apart, also for the ranks that wait for the one that saves."""
    ranks.train()
    ranks.enter(phase, 0)
    assert ranks.wait(30)[0] is None
    ranks.enter(RankPhase.TRAINING, 0)
    ranks.step()
    ranks.train()
    ranks.enter(phase, 0)
    verdict, waited = ranks.wait(1000)
    assert verdict is not None
    assert 149 < waited < 152


def test_after_training_nothing_is_expected(ranks) -> None:
    """A script may export and clean up for as long as it likes."""
    ranks.train()
    ranks.enter(RankPhase.ENDING)
    assert ranks.wait(7200)[0] is None


def test_a_stopped_process_is_seen_at_once(ranks) -> None:
    """At the second look, without any pace."""
    ranks.states[1] = "T"
    verdict, waited = ranks.wait(10)
    assert verdict.cause is HangCause.STOPPED
    assert waited < 3 * LOOK


def test_a_debugger_is_no_stop(ranks) -> None:
    """It has another letter."""
    ranks.states[1] = "t"
    assert ranks.wait(4)[0] is None


def test_a_process_that_the_kernel_holds(ranks) -> None:
    """State D for long, without a step; short waits for a disk are daily bread."""
    ranks.train(seconds=20.0)
    ranks.states[0] = "D"
    assert ranks.wait(KERNEL_SECONDS - 1)[0] is None
    ranks.states[0] = "S"
    ranks.wait(0.1)
    ranks.states[0] = "D"
    verdict, waited = ranks.wait(60)
    assert verdict.cause is HangCause.UNINTERRUPTIBLE
    assert waited >= KERNEL_SECONDS


def test_a_launcher_that_was_stopped_itself_blames_nobody(ranks) -> None:
    """Suspended together, both wake up together."""
    ranks.train()
    ranks.now += 3600
    ranks.states = ["T", "T"]
    assert ranks.look() is None
    ranks.states = ["S", "S"]
    assert ranks.wait(4)[0] is None


def test_a_pause_that_passed_is_learned(ranks) -> None:
    """Where nothing was killed for it, the next of its kind is expected."""
    ranks.train()
    ranks.watch.paused(20.0)
    assert ranks.wait(39)[0] is None


def test_the_first_look_comes_before_the_limit(ranks) -> None:
    """Two stacks some time apart show who moves."""
    ranks.train()
    ranks.now += LOOK
    while (verdict := ranks.look()) is None:
        ranks.now += LOOK
    assert verdict.early
