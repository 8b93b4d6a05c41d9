"""What a launcher notices of ranks that go on: losses that are no numbers or leap, own time.

Pure. It tells people; nothing is restarted for it.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from aegis.model.job import RankSignal, SignalKind
from aegis.wire.page import Progress, in_words

SPIKE_TIMES = 2.0  # the median of lately
SPIKE_SPREADS = 10.0  # and so many times its usual distance from it
SPIKE_LOOKS = 3  # in a row: one odd step is none
LOSSES_KEPT, LOSSES_LEAST = 200, 30
OWN_STEPS = 10  # of which a rank's own time is the mean
SIGNALS_MAX = 8


@dataclass
class Losses:
    """The losses of one rank, as far as looks have shown them."""

    seen: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES_KEPT))
    step: int = 0
    high: int = 0  # looks in a row that were far above the rest

    def leaps(self, progress: Progress) -> bool:
        """Take the newest loss in; whether it makes a spike."""
        loss = progress.loss
        if loss is None or progress.step == self.step or in_words(loss):
            return False
        self.step = progress.step
        if len(self.seen) >= LOSSES_LEAST and loss > self.limit():
            self.high += 1  # and it is no measure of what is usual
            return self.high == SPIKE_LOOKS
        self.high = 0
        self.seen.append(loss)
        return False

    def usual(self) -> float:
        """The median of lately."""
        return statistics.median(self.seen)

    def limit(self) -> float:
        """What is above this is far from usual."""
        usual = self.usual()
        spread = statistics.median(abs(one - usual) for one in self.seen)
        return usual + max((SPIKE_TIMES - 1) * abs(usual), SPIKE_SPREADS * spread)


@dataclass
class OwnTime:
    """A rank's own time for a step, over the last few steps."""

    step: int = 0
    seconds: float = 0.0
    lately: float = 0.0

    def look(self, progress: Progress) -> float:
        """The mean of the newest steps; 0 where the script times nothing."""
        steps = progress.step - self.step
        if steps < 0 or not self.step:
            self.step, self.seconds = progress.step, progress.own_seconds
        elif steps >= OWN_STEPS:
            self.lately = (progress.own_seconds - self.seconds) / steps
            self.step, self.seconds = progress.step, progress.own_seconds
        return self.lately


@dataclass
class Signals:
    """What one generation's ranks on this node have shown."""

    found: tuple[RankSignal, ...] = ()
    losses: dict[int, Losses] = field(default_factory=dict)
    own: dict[int, OwnTime] = field(default_factory=dict)
    told: int = 0

    def look(self, pages: Sequence[tuple[int, Progress]], at: float) -> dict[int, float]:
        """Read every rank's page; the own time of each. Signals are kept in `found`."""
        for rank, progress in pages:
            losses = self.losses.setdefault(rank, Losses())
            if progress.bad_loss_step is not None:
                self._bad(rank, progress, losses, at)
            elif losses.leaps(progress):
                self._spike(rank, progress, losses, at)
        return {
            rank: self.own.setdefault(rank, OwnTime()).look(progress) for rank, progress in pages
        }

    def untold(self) -> list[str]:
        """What is to be said now, of each kind only the first: what ails one rank soon ails all."""
        kinds = {one.kind for one in self.found[: self.told]}
        new = self.found[self.told :]
        self.told = len(self.found)
        return list({one.kind: one.text for one in reversed(new) if one.kind not in kinds}.values())

    def _bad(self, rank: int, progress: Progress, losses: Losses, at: float) -> None:
        if self._has(SignalKind.LOSS_NAN, rank):
            return
        word, step = in_words(progress.bad_loss), progress.bad_loss_step or 0
        before = f"{losses.seen[-1]:.4g}" if losses.seen else ""
        self._add(
            RankSignal(
                kind=SignalKind.LOSS_NAN, rank=rank, step=step, at=at,
                text=f"the loss of rank {rank} became {word} at step {step}",
                before=before, after=word,
            )
        )  # fmt: skip

    def _spike(self, rank: int, progress: Progress, losses: Losses, at: float) -> None:
        if self._has(SignalKind.LOSS_SPIKE, rank):
            return
        before, after = f"{losses.usual():.4g}", f"{progress.loss:.4g}"
        text = (
            f"the loss of rank {rank} is {after} at step {progress.step}, where {before} is usual"
        )
        self._add(
            RankSignal(
                kind=SignalKind.LOSS_SPIKE, rank=rank, step=progress.step, at=at,
                text=text, before=before, after=after,
            )
        )  # fmt: skip

    def _has(self, kind: SignalKind, rank: int) -> bool:
        return any(one.kind is kind and one.rank == rank for one in self.found)

    def _add(self, signal: RankSignal) -> None:
        if len(self.found) < SIGNALS_MAX:
            self.found = (*self.found, signal)
