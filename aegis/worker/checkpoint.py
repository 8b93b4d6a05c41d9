"""Checkpoints that can be trusted: sharded over all ranks, complete or not there, verified.

Saving: every rank copies its share into memory that was taken once, and trains on. Its writer puts
it into a temporary folder and flushes it; sizes and hashes go into a manifest; the folder gets its
name; a marker makes it count. A generation that has been replaced is refused by the fence before
either. Restoring: the newest one whose hashes hold, shared out over the ranks to verify; what does
not hold is named and passed over. All ranks call the same methods in the same order; one group of
their own carries the talk.
"""

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner

from aegis.model.job import RankPhase, RejectedCheckpoint
from aegis.worker import folder as files
from aegis.worker import layout
from aegis.worker.contents import Contents, Stateful
from aegis.worker.fence import FenceError, StaleGenerationError
from aegis.worker.folder import Candidate, Damaged
from aegis.worker.layout import Layout, PlanError
from aegis.worker.progress import Session, current
from aegis.worker.ranks import Ranks
from aegis.worker.saves import Save, Saves, Writer, not_saved, why
from aegis.worker.stage import Stage
from aegis.worker.stop import StopRequest

STOPPED = 128 + signal.SIGTERM  # the exit status of a rank that saved because it was asked to stop

_log = logging.getLogger("aegis.worker")


class Checkpointer:
    """Saves and restores a training run. Make it after `init_process_group`, on every rank."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        model: Any,
        optimizer: Any,
        keep: int = 3,
        **each_rank: Stateful,
    ) -> None:
        """Save into `folder`, by default where the launcher says.

        `optimizer` may be a list of them. Further names (`data=`, `scheduler=`) are objects with a
        state that each rank keeps for itself. The newest `keep` checkpoints stay.
        """
        where = folder or os.environ.get("AEGIS_CHECKPOINT_FOLDER", "")
        if not where:
            raise ValueError(
                "no checkpoint folder: give one, or start with aegis run --checkpoint-folder DIR"
            )
        optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
        self.folder = Path(where)
        self._contents = Contents(model, optimizers, each_rank)
        self._session: Session = current()
        self._ranks = Ranks()
        self._saves = Saves(self.folder, self._ranks, self._session, keep)
        self._number = 0  # of the last save
        self._signature: list[tuple[Any, ...]] = []  # of what the stage is laid out for
        self._stage: Stage | None = None
        self._writer: Writer | None = None
        self._stop = StopRequest(self._session)

    # ── restoring ──

    def latest(self) -> Candidate | None:
        """The newest complete and verified checkpoint; the ones passed over are told."""
        passed_over, found = [], None
        for one in self._ranks.share(lambda: files.candidates(self.folder)):
            if isinstance(one, Damaged):
                passed_over.append(one)
            elif reason := self._verify(one):
                passed_over.append(Damaged(path=one.path, step=one.step, reason=reason))
            else:
                found = one
                break
        self._saves.bad |= {one.path for one in passed_over}
        if self._ranks.rank == 0:
            self._tell(passed_over)
        return found

    def _verify(self, one: Candidate) -> str:
        """What is wrong with it, nothing when it holds; each rank reads its share."""
        names, ranks = sorted(one.files), self._ranks
        reasons = ranks.gather(lambda: files.verify(one, names[ranks.rank :: ranks.size]))
        return next((reason for reason in reasons if reason), "")

    def _tell(self, passed_over: list[Damaged]) -> None:
        self._session.reject(
            [
                RejectedCheckpoint(step=one.step, path=str(one.path), reason=one.reason)
                for one in passed_over
            ]
        )
        for one in passed_over:
            _log.warning(
                "The checkpoint of step %d is passed over: %s (%s).", one.step, one.reason, one.path
            )

    def restore(self) -> int:
        """Go on from the newest verified checkpoint: its step, 0 where there is none."""
        self._saves.settle()
        self._session.enter(RankPhase.LOADING)
        if self._ranks.rank == 0:
            files.sweep(self.folder, self._session.fence)
        found = self.latest()
        if found is None:
            self._session.loaded(0)
            return 0
        self._load(found)
        self._session.committed(found.step, found.marker.at)
        self._session.loaded(found.step)
        return found.step

    def _load(self, found: Candidate) -> None:
        rank, saved_by = self._ranks.rank, found.marker.world_size
        state = self._contents.place(rank, saved_by)
        dcp.load(
            state,
            storage_reader=dcp.FileSystemReader(found.path),
            process_group=self._ranks.group,
            no_dist=self._ranks.group is None,
        )
        self._contents.put(state, rank, saved_by)

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
        self._session.enter(RankPhase.SAVING)
        try:
            self._saves.settle()
            self._take(step)
        except StaleGenerationError:
            raise
        except (OSError, FenceError, PlanError) as error:
            self._saves.last_complete = False
            if self._ranks.rank == 0:
                not_saved(step, why(error, self.folder))
            return False
        finally:
            self._session.enter(RankPhase.TRAINING)
        return True

    def wait(self) -> bool:
        """Wait until no save is under way: whether the last one is complete and on disk."""
        self._saves.settle()
        return bool(self._saves.last_complete)

    def _take(self, step: int) -> None:
        taken_at, begun = time.time(), time.monotonic()
        ranks = self._ranks
        planner = layout.set_up(self._contents.take(ranks.rank), ranks)
        signature = layout.signature(planner)
        trouble = self._saves.prepare(step) if ranks.rank == 0 else None
        troubled, changed = ranks.highest(trouble is not None, signature != self._signature)
        if troubled:
            ranks.share(lambda: _raise(trouble))
        if changed:
            self._signature = []
            self._lay_out(layout.plan(planner, ranks), planner)
            self._signature = signature
        length, objects, writer = self._copy(planner)
        self._number += 1
        save = Save(
            number=self._number,
            step=step,
            taken_at=taken_at,
            stall_seconds=time.monotonic() - begun,
            length=length,
            objects=objects,
            metadata=self._laid_out.metadata if ranks.rank == 0 else b"",
        )
        self._saves.start(save, writer)

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
        self._stage = Stage(planned, len(appended), None)

    def _copy(
        self, planner: DefaultSavePlanner
    ) -> tuple[int, list[list[object]], Writer | OSError]:
        """What only this rank meets becomes its share of the save, so that none waits for it."""
        try:
            assert self._stage is not None  # noqa: S101  it was laid out
            taken = self._stage.take(planner)
            if taken is None:
                self._take_memory(self._stage.layout, planner)
                taken = self._stage.take(planner)
            assert taken is not None  # noqa: S101  there is room for it now
            if self._writer is None or not self._writer.alive:
                self._writer = Writer(self._stage.file)
        except OSError as error:
            return 0, [], error
        return *taken, self._writer


def _raise(error: Exception | None) -> None:
    assert error is not None  # noqa: S101  the first rank has met it
    raise error
