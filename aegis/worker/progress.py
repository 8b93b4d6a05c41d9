"""A rank's progress, written where its launcher sees it. Without a launcher it goes nowhere.

What a launcher tells its ranks, beside torchrun's variables:

    AEGIS_JOB, AEGIS_GENERATION, AEGIS_EPOCH   who this rank is
    AEGIS_PROGRESS_PAGE                        the page to write on (`aegis.wire.page`)
    AEGIS_CHECKPOINT_FOLDER                    where the job's checkpoints are, empty for nowhere
"""

import contextlib
import json
import math
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aegis.model.job import RankPhase, RejectedCheckpoint, Tier
from aegis.wire import to_jsonable
from aegis.wire.page import PAGE_BYTES, Progress, stop_announced, write
from aegis.worker.fence import Fence


@dataclass
class Session:
    """This process as a rank: who it is, and how far it has come."""

    fence: Fence = field(default_factory=lambda: Fence(job="", generation=0, epoch=0))
    page_path: Path | None = None
    progress: Progress = field(default_factory=Progress)
    _page: memoryview | bytearray = field(default_factory=lambda: bytearray(PAGE_BYTES))
    _count: int = 0

    @property
    def launched(self) -> bool:
        """Whether a launcher watches."""
        return self.page_path is not None

    def step(self, step: int, loss: float | None = None) -> None:
        """So many optimizer steps are completed. A few microseconds; pass the loss as a float."""
        progress, now = self.progress, time.time()
        progress.step = step
        if loss is not None:
            progress.loss = loss = float(loss)
            if progress.bad_loss_step is None and not math.isfinite(loss):
                progress.bad_loss_step, progress.bad_loss = step, loss
        progress.last_step_at = now
        progress.moved_at = time.monotonic()
        if not progress.first_step_at:
            progress.first_step_at = now
            self._settle(step - 1, now)
        progress.phase = RankPhase.TRAINING
        self._write()

    def enter(self, phase: RankPhase) -> None:
        """The rank begins to load, train, save or evaluate."""
        self.progress.phase = phase
        self.progress.moved_at = time.monotonic()
        self._write()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """No steps are expected in here, and how long it takes is learned apart."""
        before = self.progress.phase
        self.enter(RankPhase.EVALUATING)
        try:
            yield
        finally:
            self.enter(before)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """What is done in here is this rank's own work: it waits for no other rank.

        All ranks of a job end a step together, so only this shows which of them is slow.
        """
        begun = time.monotonic()
        try:
            yield
        finally:
            self.progress.own_seconds += time.monotonic() - begun

    def loaded(self, step: int, found: Tier | None = None) -> None:
        """The state is there, restored from this step or made anew for step 0."""
        self.progress.step = max(self.progress.step, step)
        self.progress.resumed_from = found
        self._settle(step, time.time())
        self.enter(RankPhase.TRAINING)

    def committed(self, step: int, at: float, stall: float = 0.0, durable: float = 0.0) -> None:
        """A checkpoint of this step is complete and verified, and what it has cost in seconds."""
        self.progress.checkpoint_step, self.progress.checkpoint_at = step, at
        if durable:
            self.progress.checkpoint_stall_seconds = stall
            self.progress.checkpoint_durable_seconds = durable
        self._write()

    def reject(self, rejected: list[RejectedCheckpoint]) -> None:
        """These checkpoints failed verification; the launcher reads of them beside the page."""
        if self.page_path is None or not rejected:
            return
        told = json.dumps([to_jsonable(one) for one in rejected])
        with contextlib.suppress(OSError):  # a full disk must not keep a rank from its start
            rejected_path(self.page_path).write_text(told)
            self.progress.rejected = len(rejected)
            self._write()

    def stop_announced(self) -> bool:
        """Whether the launcher asks all ranks to save and end."""
        return stop_announced(self._page)

    def _settle(self, step: int, now: float) -> None:
        """When its state was there; a script that does not say so had it at its first step."""
        if self.progress.resumed_step is None:
            self.progress.resumed_step = step
        self.progress.loaded_at = self.progress.loaded_at or now

    def _write(self) -> None:
        self._count += 1
        write(self._page, self._count, self.progress)


def rejected_path(page: Path) -> Path:
    """Where a rank describes the checkpoints it passed over."""
    return page.with_suffix(".rejected.json")


def current() -> Session:
    """This process's session, opened when it is first asked for."""
    if not _opened:
        _opened.append(_open())
    return _opened[0]


def forget() -> None:
    """This process becomes another rank: the next who asks opens that one's session."""
    _opened.clear()


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """Be a rank that its launcher can watch."""
    entered = current()
    if entered.progress.phase is RankPhase.STARTING:
        entered.enter(RankPhase.LOADING)
    yield entered
    entered.enter(RankPhase.ENDING)


def step(step: int, loss: float | None = None) -> None:
    """So many optimizer steps are completed; as `Session.step`."""
    current().step(step, loss)


_opened: list[Session] = []


def _open() -> Session:
    path = os.environ.get("AEGIS_PROGRESS_PAGE", "")
    if not path:
        return Session()
    fence = Fence(
        job=os.environ["AEGIS_JOB"],
        generation=int(os.environ["AEGIS_GENERATION"]),
        epoch=int(os.environ["AEGIS_EPOCH"]),
    )
    with Path(path).open("r+b") as file:
        page = memoryview(mmap.mmap(file.fileno(), PAGE_BYTES))
    return Session(fence=fence, page_path=Path(path), _page=page)
