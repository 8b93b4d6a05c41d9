"""Checkpoints that can be trusted: sharded over all ranks, complete or not there, verified.

Saving: every rank copies its share into memory that was taken once, and trains on, or trains on and
copies meanwhile (`aegis.worker.overlap`). Its writer puts it into a temporary folder and flushes
it; sizes and hashes go into a manifest; the folder gets its name; a marker makes it count. A
generation that has been replaced is refused by the fence before either. Restoring: the newest one
whose hashes hold, shared out over the ranks to verify; what does not hold is named and passed over.
All ranks call the same methods in the same order; one group of their own carries the talk.
"""

import operator
import os
import secrets
import signal
import time
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import DefaultSavePlanner

from aegis.model.job import RankPhase
from aegis.worker import layout, shelf
from aegis.worker.contents import RANDOM, Contents, Stateful
from aegis.worker.fence import FenceError, StaleGenerationError
from aegis.worker.folder import Candidate
from aegis.worker.layout import Layout, PlanError
from aegis.worker.overlap import Overlap, Rest
from aegis.worker.progress import Session, current
from aegis.worker.ranks import Ranks
from aegis.worker.restoring import Found, Restoring
from aegis.worker.saves import Save, Saves, not_saved, watch_end, why
from aegis.worker.shelf import Entry
from aegis.worker.stage import Stage, Taken
from aegis.worker.stop import StopRequest
from aegis.worker.tiers import Tiers
from aegis.worker.writing import Order, Writer

STOPPED = 128 + signal.SIGTERM  # the exit status of a rank that saved because it was asked to stop


class Checkpointer:
    """Saves and restores a training run. Make it after `init_process_group`, on every rank."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        model: Any,
        optimizer: Any,
        keep: int = 3,
        local_folder: str | os.PathLike[str] | None = None,
        shared_every: int = 1,
        overlap: bool = False,
        **each_rank: Stateful,
    ) -> None:
        """Save into `folder`, by default where the launcher says.

        `optimizer` may be a list of them. Further names (`data=`, `scheduler=`) are objects with a
        state that each rank keeps for itself. The newest `keep` checkpoints stay.

        Under a launcher the last save also stays in the node's memory, and in a peer's where there
        is another node. `local_folder`, on a disk of each node's own ($AEGIS_LOCAL_FOLDER), keeps
        each rank's shards of the last two saves; then only every `shared_every`-th save need go
        into `folder`.

        With `overlap` a save returns before parameters and optimizer states are copied: that goes
        on beside the next forward and backward pass, and the optimizer's step waits for it. Say so
        where nothing but `optimizer.step()` changes them; a save that meets another change fails.
        """
        where = folder or os.environ.get("AEGIS_CHECKPOINT_FOLDER", "")
        if not where:
            raise ValueError(
                "no checkpoint folder: give one, or start with aegis run --checkpoint-folder DIR"
            )
        if keep < 1 or shared_every < 1:
            raise ValueError(f"keep={keep}, shared_every={shared_every}: 1 is the least of each")
        if RANDOM in each_rank:
            raise ValueError(f"{RANDOM}= is taken: random states are kept anyway; use another name")
        optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
        self.folder = Path(where)
        self._contents = Contents(model, optimizers, each_rank)
        self._session: Session = current()
        self._ranks = Ranks()
        local = local_folder or os.environ.get("AEGIS_LOCAL_FOLDER", "")
        self._tiers = Tiers(self._ranks, self._session, Path(local) if local else None)
        self._shared_every = shared_every if local else 1
        self._meet()
        self._saves = Saves(self.folder, self._ranks, self._session, self._tiers, keep)
        self._restoring = Restoring(
            self.folder, self._contents, self._ranks, self._session, self._tiers
        )
        self._number = 0  # of the last save
        self._signature: list[tuple[Any, ...]] = []  # of what the stage is laid out for
        self._stage: Stage | None = None
        self._writer: Writer | None = None
        self._overlap = Overlap(optimizers) if overlap else None
        self._stop = StopRequest(self._session)
        watch_end()

    def _meet(self) -> None:
        """All ranks tell where they live; the first draws what they alone know."""
        token = secrets.token_hex(16)
        told = self._ranks.gather(lambda: (self._tiers.describe(), token))
        self._tiers.settle([home for home, _ in told], told[0][1])

    # ── restoring ──

    def latest(self) -> Found | None:
        """The newest complete and verified checkpoint; the ones passed over are told."""
        return self._restoring.latest()

    def restore(self) -> int:
        """Go on from the newest verified checkpoint: its step, 0 where there is none."""
        self._saves.settle()
        self._session.enter(RankPhase.LOADING)
        found = self._restoring.restore()
        self._saves.bad |= {one.path for one in self._restoring.passed_over}
        if found is None:
            self._session.loaded(0)
            return 0
        at = found.marker.at if isinstance(found, Candidate) else found.taken_at
        self._session.committed(found.step, at)
        self._session.loaded(found.step, self._restoring.tier_of(found))
        return found.step

    # ── saving ──

    def save_every(self, steps: int, step: int) -> bool:
        """Save when the step is a multiple of `steps` (0: never), or when asked to stop."""
        self._saves.check()
        stopping = self._stop.due(step)
        saved = (stopping or (steps > 0 and step % steps == 0)) and self.save(step)
        if stopping:
            self.wait()
            raise SystemExit(STOPPED)
        return saved

    def save(self, step: int) -> bool:
        """Take what there is after this step; it is written while training goes on.

        Returns once the state is copied, or False where it is clear already that it cannot be
        saved; `wait` says whether it is complete. A save that fails, for want of space say, harms
        neither training nor older checkpoints. At most one is under way: this waits for the one
        before. Raises StaleGenerationError once a newer generation of the job has begun.
        """
        step = _whole(step)
        self._session.enter(RankPhase.SAVING)
        try:
            self._saves.settle()
            self._take(step)
        except StaleGenerationError:
            raise
        except (OSError, FenceError, PlanError) as error:
            self._saves.last_complete = False
            if self._ranks.rank == 0:
                self._saves.discard(step)
                not_saved(step, why(error, self.folder))
            return False
        finally:
            self._session.enter(RankPhase.TRAINING)
        return True

    def wait(self) -> bool:
        """Wait until no save is under way: whether the last one is complete and on disk."""
        before = self._session.progress.phase
        self._session.enter(RankPhase.SAVING)
        try:
            self._saves.settle()
        finally:
            self._session.enter(before)
        return bool(self._saves.last_complete)

    @property
    def copy_seconds(self) -> float | None:
        """How long the last copy to a peer's memory took; None where there is none."""
        return self._saves.copy_seconds

    def _take(self, step: int) -> None:
        taken_at, begun = time.time(), time.monotonic()
        ranks = self._ranks
        planner = layout.set_up(self._contents.take(ranks.rank), ranks)
        signature = layout.signature(planner)
        trouble = None
        if ranks.rank == 0 and (self._number + 1) % self._shared_every == 0:
            trouble = self._saves.prepare(step)
        troubled, changed = ranks.highest(trouble is not None, signature != self._signature)
        if troubled:
            ranks.share(lambda: _raise(trouble))
        if changed:
            self._signature = []
            self._lay_out(layout.plan(planner, ranks), planner)
            self._signature = signature
        self._number += 1
        taken, writer = self._copy(planner)
        order = self._order(step, taken_at, taken)
        stall = time.monotonic() - begun
        metadata = self._laid_out.metadata if ranks.rank == 0 else b""
        save = Save(
            number=self._number, step=step, taken_at=taken_at, held_seconds=stall, rest=taken.rest,
            order=order, metadata=metadata,
        )  # fmt: skip
        try:
            if self._overlap is not None:
                self._overlap.rest = taken.rest
            self._saves.start(save, writer)
        except BaseException:  # a signal's, say: nobody copies, so nobody may wait for it
            taken.rest.give_up()
            raise

    def _order(self, step: int, taken_at: float, taken: Taken) -> Order:
        """What the writer is to do."""
        fence, rank, tiers = self._session.fence, self._ranks.rank, self._tiers
        shared = None
        if self._number % self._shared_every == 0:
            shared = self._saves.saving_path(step) / layout.shard_name(rank)
        entry = Entry(
            job=fence.job, generation=fence.generation, epoch=fence.epoch, step=step, rank=rank,
            world_size=self._ranks.size, taken_at=taken_at, size=taken.length,
            objects=taken.objects,
        )  # fmt: skip
        disk = None if tiers.disk is None else shelf.disk_path(tiers.disk, rank, step)
        return Order(
            entry=entry, own=tiers.own, claim=self._claim(), disk=disk, shared=shared,
            peer=tiers.peer,
        )  # fmt: skip

    def _claim(self) -> str:
        """What only the save that is being taken says of its memory."""
        return f"{self._tiers.token}-{self._number}"

    @property
    def _laid_out(self) -> Layout:
        assert self._stage is not None  # noqa: S101  a save begins with it
        return self._stage.layout

    def _lay_out(self, planned: Layout, planner: DefaultSavePlanner) -> None:
        """Take memory for the layout; where one rank cannot, none does."""
        self._ranks.gather(lambda: self._take_memory(planned, planner))

    def _take_memory(self, planned: Layout, planner: DefaultSavePlanner) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None
        self._writer = None
        appended, _ = layout.objects_of(planned, planner)
        self._stage = Stage(planned, len(appended), self._tiers.own)

    def _copy(self, planner: DefaultSavePlanner) -> tuple[Taken, Writer | OSError]:
        """What only this rank meets becomes its share of the save, so that none waits for it."""
        try:
            assert self._stage is not None  # noqa: S101  it was laid out
            if self._tiers.own is not None:
                shelf.claim(self._tiers.own, self._claim())
            taken = self._stage.take(planner, self._overlap)
            if taken is None:
                self._take_memory(self._stage.layout, planner)
                taken = self._stage.take(planner, self._overlap)
            assert taken is not None  # noqa: S101  there is room for it now
            if self._writer is None or not self._writer.alive:
                self._writer = Writer(self._stage.file, self._stage.layout.metadata)
        except OSError as error:
            return Taken(0, [], Rest([])), error
        return taken, self._writer


def _whole(step: int) -> int:
    """A plain int, also of numpy's and torch's. Raises TypeError, ValueError."""
    try:
        number = operator.index(step)
    except TypeError:
        raise TypeError(f"step is {step!r}: give a whole number") from None
    if number < 0:
        raise ValueError(f"step is {number}: 0 is the least")
    return number


def _raise(error: Exception | None) -> None:
    assert error is not None  # noqa: S101  the first rank has met it
    raise error
