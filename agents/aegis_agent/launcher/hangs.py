"""Telling the controller of ranks that have come to a halt. It kills nothing.

What is told is a level with its evidence: the stacks of all ranks here. The controller has the
words of every node, names the rank that stands out, and decides; then its order to stop comes.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from aegis.model.job import Hang, HangCause, RankView
from aegis_agent.launcher import process
from aegis_agent.launcher.generation import Generation
from aegis_agent.launcher.hang import Pace, Seen, Verdict, Watch
from aegis_agent.launcher.inspection import Sight, flights, inspect

_log = logging.getLogger(__name__)

_FRESH_SECONDS = 5.0  # stacks so young are not taken again before a kill


class Hangs:
    """Watches one generation after the other."""

    def __init__(
        self, *, floor_seconds: float, observes_only: bool, changed: Callable[[], None]
    ) -> None:
        self._observes_only = observes_only
        self._changed = changed
        self._watch = Watch(pace=Pace(floor_seconds=floor_seconds))
        self._generation: Generation | None = None
        self._earlier: dict[int, Sight] = {}
        self._looked_at = 0.0  # when stacks were last taken
        self._task: asyncio.Task[None] | None = None

    def look(self, generation: Generation) -> None:
        """Look at the ranks; their pages have just been read."""
        if generation is not self._generation:
            self._generation = generation
            self._earlier = {}
            self._watch.begin()
        if generation.stopping or generation.failure is not None:
            return
        ranks = [
            Seen(local_rank=rank.local_rank, state=process.state(rank.pid), progress=rank.progress)
            for rank in generation.ranks
            if rank.pid and rank.status is None
        ]
        verdict = self._watch.look(ranks, time.monotonic())
        if self._task is None or self._task.done():
            self._heed(generation, verdict)

    def _heed(self, generation: Generation, verdict: Verdict | None) -> None:
        told = generation.hang
        if verdict is None:
            self._earlier = {}
            if told is not None:
                self._goes_on(generation, told)
        elif verdict.early:
            if told is None and not self._earlier:
                self._task = asyncio.create_task(self._look_early(generation))
        elif told is None or told.cause is not verdict.cause:
            self._task = asyncio.create_task(self._tell(generation, verdict))

    def _goes_on(self, generation: Generation, told: Hang) -> None:
        """It was no hang: pauses of this length are this job's way."""
        generation.hang = None
        if told.cause is HangCause.SILENT:
            self._watch.paused(max(view.silent_seconds for view in told.ranks))
        _log.info("generation %d: the ranks go on by themselves", generation.number)
        self._changed()

    async def _look_early(self, generation: Generation) -> None:
        self._earlier = await inspect(generation.ranks)

    async def _tell(self, generation: Generation, verdict: Verdict) -> None:
        sights, _ = await asyncio.gather(inspect(generation.ranks), flights(generation.ranks))
        self._looked_at = now = time.monotonic()
        views = tuple(
            self._view(generation, local_rank, sight, now) for local_rank, sight in sights.items()
        )
        if generation.stopping or generation.failure is not None or not views:
            return
        generation.hang = Hang(
            generation=generation.number,
            cause=verdict.cause,
            at=time.time(),
            limit_seconds=verdict.limit_seconds,
            step_seconds=self._watch.pace.step_seconds,
            observed=self._observes_only,
            ranks=views,
            folder=str(generation.folder),
        )
        _log.warning(
            "generation %d: %s; stacks of all ranks are in %s%s",
            generation.number, _words(generation.hang), generation.folder,
            "; hang detection is off: nothing is done" if self._observes_only else "",
        )  # fmt: skip
        self._changed()

    def _view(self, generation: Generation, local_rank: int, sight: Sight, now: float) -> RankView:
        rank, earlier = generation.ranks[local_rank], self._earlier.get(local_rank)
        return RankView(
            rank=rank.rank,
            phase=rank.progress.phase,
            step=rank.progress.step,
            state=sight.state,
            silent_seconds=self._watch.silent_seconds(rank.progress, now),
            kernel=sight.kernel,
            stack=sight.stack,
            moves=earlier is not None and earlier.stack != sight.stack,
            text=sight.text,
        )

    async def take_stacks(self, generation: Generation) -> None:
        """Take the stacks of what is about to be killed, unless that was done just now."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        if time.monotonic() - self._looked_at >= _FRESH_SECONDS:
            await inspect(generation.ranks)


def _words(hang: Hang) -> str:
    stopped = [view for view in hang.ranks if view.state == process.STOPPED]
    if hang.cause is HangCause.STOPPED and stopped:
        names = ", ".join(str(view.rank) for view in stopped)
        return f"rank {names} is stopped by a signal (state T)"
    if hang.cause is HangCause.UNINTERRUPTIBLE:
        stuck = [str(view.rank) for view in hang.ranks if view.state == process.UNINTERRUPTIBLE]
        return f"rank {', '.join(stuck)} waits in the kernel (state D)"
    silent = max(view.silent_seconds for view in hang.ranks)
    return f"no step for {silent:.1f} s where steps take {hang.step_seconds:.3g} s"
