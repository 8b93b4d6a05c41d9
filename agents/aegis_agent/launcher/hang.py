"""Whether the ranks of a node have come to a halt. Pure: looks in, verdict out.

A stopped process shows at once in its state. Silence is measured against what steps have taken so
far: a rank that has completed no step for five times the median, and for at least the floor, is
overdue. The first step, loading, saving and evaluating have budgets of their own. A script that
reports nothing has no pace, and its silence says nothing.
"""

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from aegis.model.job import HangCause, RankPhase
from aegis.wire.page import Progress
from aegis_agent.launcher.process import STOPPED, UNINTERRUPTIBLE

TIMES = 5.0  # a step may take so many times the median
UNKNOWN_SECONDS = 1800.0  # for what has not been seen yet, and for all before the first step
APART_SECONDS = 60.0  # for saving and evaluating, at least
KERNEL_SECONDS = 10.0  # in state D without a step
STOPPED_LOOKS = 2  # a process may be stopped for a moment by whoever looks at it
EARLY = 0.8  # of the limit: a first look, to see later whether the rank moves
AWAY_SECONDS = 1.0  # a launcher that has not looked for so long was itself stopped
STEPS_LEAST, STEPS_KEPT, SPELLS_KEPT = 3, 256, 8

_APART = (RankPhase.SAVING, RankPhase.EVALUATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One rank at one look."""

    local_rank: int
    state: str  # the kernel's letter for its process
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is wrong, or nearly."""

    cause: HangCause
    limit_seconds: float
    early: bool = False  # not yet over the limit


@dataclass
class Pace:
    """What this job's steps, saves and evaluations take. It outlives a generation."""

    floor_seconds: float
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    spells: dict[RankPhase, deque[float]] = field(default_factory=dict)
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=SPELLS_KEPT))

    @property
    def step_seconds(self) -> float:
        """The median step; 0 while too few were seen."""
        return statistics.median(self.steps) if len(self.steps) >= STEPS_LEAST else 0.0

    def spell(self, phase: RankPhase, seconds: float) -> None:
        """A rank has left this phase."""
        self.spells.setdefault(phase, deque(maxlen=SPELLS_KEPT)).append(seconds)

    def limit_seconds(self, progress: Progress) -> float | None:
        """How long a rank may be silent where it is now; None: for ever."""
        phase = progress.phase
        if phase in _APART:
            seen = self.spells.get(phase)
            least = max(APART_SECONDS, self.floor_seconds)
            return max(TIMES * max(seen), least) if seen else max(UNKNOWN_SECONDS, least)
        if phase is RankPhase.TRAINING and progress.first_step_at and self.step_seconds:
            longest = max(self.pauses, default=0.0)  # which passed by itself, and may come again
            return max(TIMES * self.step_seconds, self.floor_seconds, 2 * longest)
        if phase in (RankPhase.ENDING, RankPhase.EXITED) or not progress.moved_at:
            return None
        return max(UNKNOWN_SECONDS, self.floor_seconds)


@dataclass
class _Past:
    """What is remembered of a rank between two looks."""

    progress: Progress = field(default_factory=Progress)
    stopped_looks: int = 0
    kernel_since: float | None = None


@dataclass
class Watch:
    """The looks at one generation's ranks."""

    pace: Pace
    past: dict[int, _Past] = field(default_factory=dict)
    looked_at: float = 0.0
    awake_at: float = 0.0  # silence before this was the launcher's own

    def begin(self) -> None:
        """Other ranks come; the pace stays."""
        self.past.clear()

    def look(self, ranks: Iterable[Seen], now: float) -> Verdict | None:
        """Learn from what has moved, and judge what has not."""
        ranks = list(ranks)
        if now - self.looked_at > AWAY_SECONDS:
            self.awake_at = now
            for past in self.past.values():
                past.stopped_looks, past.kernel_since = 0, None
        self.looked_at = now
        for rank in ranks:
            self._learn(rank, now)
        return self._acute(ranks, now) or self._silent(ranks, now)

    def silent_seconds(self, progress: Progress, now: float) -> float:
        """How long a rank has not moved, as far as the launcher can tell."""
        return max(0.0, now - max(progress.moved_at, self.awake_at))

    def paused(self, seconds: float) -> None:
        """What was taken for a halt went on by itself after so long."""
        self.pace.pauses.append(seconds)

    def _learn(self, rank: Seen, now: float) -> None:
        past, progress = self.past.setdefault(rank.local_rank, _Past()), rank.progress
        before, past.progress = past.progress, progress
        past.stopped_looks = past.stopped_looks + 1 if rank.state == STOPPED else 0
        moved = progress.moved_at != before.moved_at
        if rank.state != UNINTERRUPTIBLE or moved:
            past.kernel_since = None
        elif past.kernel_since is None:
            past.kernel_since = now
        if not moved or not before.moved_at:
            return
        took = progress.moved_at - before.moved_at
        if before.phase is not progress.phase:
            if before.phase in _APART:
                self.pace.spell(before.phase, took)
        elif progress.step > before.step and before.first_step_at:
            self.pace.steps.append(took / (progress.step - before.step))

    def _acute(self, ranks: list[Seen], now: float) -> Verdict | None:
        for rank in ranks:
            past = self.past[rank.local_rank]
            if past.stopped_looks >= STOPPED_LOOKS:
                return Verdict(cause=HangCause.STOPPED, limit_seconds=0.0)
            since = past.kernel_since
            if since is not None and now - since >= KERNEL_SECONDS:
                return Verdict(cause=HangCause.UNINTERRUPTIBLE, limit_seconds=KERNEL_SECONDS)
        return None

    def _silent(self, ranks: list[Seen], now: float) -> Verdict | None:
        """The rank that is closest to its limit; none while one is in a phase of its own.

        The others may be waiting for a rank that saves or evaluates.
        """
        worst: tuple[float, float] | None = None  # how far, and its limit
        for rank in ranks:
            limit = self.pace.limit_seconds(rank.progress)
            if limit is None:
                continue
            share = self.silent_seconds(rank.progress, now) / limit
            if rank.progress.phase in _APART and share < 1:
                return None
            worst = max(worst or (0.0, limit), (share, limit))
        if worst is None or worst[0] < EARLY:
            return None
        share, limit = worst
        return Verdict(cause=HangCause.SILENT, limit_seconds=limit, early=share < 1)
