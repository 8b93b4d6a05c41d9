"""Checkpoints that can be trusted: sharded over all ranks, complete or not there, verified.

Saving: every rank writes its share with torch.distributed.checkpoint into a temporary folder and
flushes it; sizes and hashes go into a manifest; the folder gets its name; a marker makes it count.
A generation that has been replaced is refused by the fence before either. Restoring: the newest
one whose hashes hold, shared out over the ranks to verify; what does not hold is named and passed
over. All ranks call the same methods in the same order; one group of their own carries the talk.
"""

import errno
import logging
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from aegis.model.job import RankPhase, RejectedCheckpoint
from aegis.worker import folder as files
from aegis.worker.contents import Contents, Stateful
from aegis.worker.fence import FenceError, StaleGenerationError
from aegis.worker.folder import Candidate, Damaged, FileSum, Marker
from aegis.worker.progress import Session, current
from aegis.worker.ranks import Ranks
from aegis.worker.stop import StopRequest

STOPPED = 128 + signal.SIGTERM  # the exit status of a rank that saved because it was asked to stop

_log = logging.getLogger("aegis.worker")


class SaveFailedError(Exception):
    """A checkpoint was not saved; training can go on without it."""


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
        self._keep = keep
        self._session: Session = current()
        self._ranks = Ranks()
        self._bad: frozenset[Path] = frozenset()
        self._stop = StopRequest(self._session)

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
        self._bad |= {one.path for one in passed_over}
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

    def save_every(self, steps: int, step: int) -> bool:
        """Save when the step is a multiple of `steps` (0: never), or when asked to stop."""
        stopping = self._stop.due(step)
        saved = (stopping or (steps > 0 and step % steps == 0)) and self.save(step)
        if stopping:
            raise SystemExit(STOPPED)
        return saved

    def save(self, step: int) -> bool:
        """Save what there is after this step; whether it is complete and on disk.

        A save that fails, for want of space say, harms neither training nor older checkpoints.
        Raises StaleGenerationError once a newer generation of the job has begun.
        """
        self._session.enter(RankPhase.SAVING)
        try:
            marker = self._save(step)
        except SaveFailedError as error:
            if self._ranks.rank == 0:
                _log.warning(
                    "The checkpoint of step %d was not saved: %s. Training goes on; "
                    "the older checkpoints are intact.",
                    step, error,
                )  # fmt: skip
            return False
        finally:
            self._session.enter(RankPhase.TRAINING)
        self._session.committed(step, marker.at)
        return True

    def _save(self, step: int) -> Marker:
        saving = files.saving_path(self.folder, step, self._session.fence)
        try:
            self._write(saving)
            sums = self._ranks.gather(lambda: self._measure(saving))
            return self._ranks.share(lambda: self._commit(step, sums))
        except StaleGenerationError:
            self._discard(saving)
            raise
        except (CheckpointException, OSError, FenceError) as error:
            reason = self._ranks.share(partial(_why, error, self.folder))
            self._discard(saving)
            raise SaveFailedError(reason) from error

    def _discard(self, saving: Path) -> None:
        """All ranks have finished with it, one way or the other."""
        if self._ranks.rank == 0:
            shutil.rmtree(saving, ignore_errors=True)

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

    def _write(self, saving: Path) -> None:
        writer = dcp.FileSystemWriter(saving, single_file_per_rank=True, sync_files=True)
        dcp.save(
            self._contents.take(self._ranks.rank),
            storage_writer=writer,
            process_group=self._ranks.group,
            no_dist=self._ranks.group is None,
        )

    def _measure(self, saving: Path) -> dict[str, FileSum]:
        """Size and hash of what this rank wrote, read back from where it went."""
        mine = [*saving.glob(f"__{self._ranks.rank}_*.distcp")]
        if self._ranks.rank == 0:
            mine.append(saving / ".metadata")
        return {path.name: files.measure(path) for path in mine}

    def _commit(self, step: int, sums: list[dict[str, FileSum]]) -> Marker:
        whole = {name: one for part in sums for name, one in part.items()}
        marker = files.commit(self.folder, step, self._session.fence, whole, self._ranks.size)
        files.prune(self.folder, newest=step, keep=self._keep, bad=self._bad)
        return marker


def _why(error: Exception, folder: Path) -> str:
    """One sentence: what went wrong, and what to do about it."""
    rank, cause = _first(error)
    where = f"rank {rank}: " if rank is not None else ""
    if _is_full(cause, folder):
        return f"{where}no space is left in {folder}; free some or keep fewer checkpoints"
    if isinstance(cause, OSError) and cause.strerror:
        return f"{where}{cause.strerror} ({cause.filename or folder})"
    return f"{where}{cause}"


def _first(error: BaseException) -> tuple[int | None, BaseException]:
    """The rank that failed first and what it met."""
    if isinstance(error, CheckpointException) and error.failures:
        rank = min(error.failures)
        return rank, error.failures[rank][0]
    return None, error


def _is_full(cause: BaseException | None, folder: Path) -> bool:
    """Torch's own writer says something else when the disk is full, with the reason beneath."""
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        cause = cause.__cause__ or cause.__context__
    try:
        return shutil.disk_usage(folder).free == 0
    except OSError:
        return False
