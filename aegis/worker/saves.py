"""Saves under way: while a rank trains on, its share is written and the ranks conclude it together.

Each rank has a process that writes (`aegis.worker.writer`) and, while a save is under way, a thread
that waits for it and talks to the other ranks (`aegis.worker.meeting`). The first rank commits when
all have written. There is at most one save under way.
"""

import atexit
import errno
import logging
import os
import queue
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aegis.model.job import RankPhase
from aegis.worker import folder as files
from aegis.worker import layout
from aegis.worker.fence import FenceError, StaleGenerationError, check_fence
from aegis.worker.files import write_bytes_durably
from aegis.worker.folder import Candidate, FileSum, Marker
from aegis.worker.meeting import LostError, Meeting
from aegis.worker.overlap import Rest
from aegis.worker.progress import Session
from aegis.worker.ranks import Ranks
from aegis.worker.tiers import Tiers
from aegis.worker.writing import Order, Writer

_LOOK_SECONDS = 0.02
_FAILED_SECONDS = 0.2  # a launcher waits for this process to end

_log = logging.getLogger("aegis.worker")
_open: weakref.WeakSet["Saves"] = weakref.WeakSet()
_failed = threading.Event()
_hooked: list[Any] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One save, from the copy on."""

    number: int
    step: int
    taken_at: float
    held_seconds: float  # for which the loop stood still in the call
    rest: Rest  # to be copied before anything is written
    order: Order
    metadata: bytes  # on the first rank: where in all shards the tensors lie

    @property
    def stall_seconds(self) -> float:
        """For how long the loop stood still, once all is copied."""
        return self.held_seconds + self.rest.waited_seconds

    @property
    def is_shared(self) -> bool:
        """Whether it goes into the checkpoint folder."""
        return self.order.shared is not None


class Saves:
    """The save under way, and how the last one went."""

    def __init__(
        self, folder: Path, ranks: Ranks, session: Session, tiers: Tiers, keep: int
    ) -> None:
        self.bad: frozenset[Path] = frozenset()  # passed over; they do not count as kept
        self.last_complete: bool | None = None
        self.copy_seconds: float | None = None  # of the last copy to a peer; None: there is none
        self._folder = folder
        self._ranks = ranks
        self._session = session
        self._tiers = tiers
        self._keep = keep
        self._meeting = Meeting(ranks, tiers.token)
        _open.add(self)
        self._copy_trouble = ""
        self._beside = _Beside()
        self._outcome: Future[None] | None = None  # of the save under way
        self._stale: StaleGenerationError | None = None

    def saving_path(self, step: int) -> Path:
        """Where it is written before it has its name."""
        return files.saving_path(self._folder, step, self._session.fence)

    def settle(self) -> None:
        """Wait until none is under way, on all ranks together.

        Raises StaleGenerationError where this one must end, and whatever torch raises once another
        rank is gone: its outcome would be waited for in vain.
        """
        while self._outcome is not None:
            futures.wait([self._outcome], _LOOK_SECONDS)
            [waiting] = self._ranks.highest(not self._outcome.done())
            if not waiting:
                self._outcome = None
        self.check()

    def check(self) -> None:
        """Raise StaleGenerationError once a save has met a newer generation. Costs nothing."""
        if self._stale is not None:
            raise self._stale

    def prepare(self, step: int) -> OSError | FenceError | None:
        """The first rank looks whether a save can succeed at all, before anybody copies."""
        try:
            check_fence(self._folder, self._session.fence)
            self.saving_path(step).mkdir(parents=True, exist_ok=True)
        except (OSError, FenceError) as error:
            return error
        return None

    def discard(self, step: int) -> None:
        """Nothing was copied after all; on the first rank."""
        shutil.rmtree(self.saving_path(step), ignore_errors=True)

    def start(self, save: Save, writer: Writer | OSError) -> None:
        """See to what was copied; an error in the writer's place is this rank's share."""
        self.last_complete = False  # until it is known
        self._outcome = self._beside.do(lambda: self._see_to(save, writer))

    def end(self, *, failed: bool) -> None:
        """The process ends: the last save is waited for, unless the script has failed."""
        if self._outcome is None or self._outcome.done():
            return
        if failed:
            self._meeting.abandoned.set()
            futures.wait([self._outcome], _FAILED_SECONDS)
            return
        self._session.enter(RankPhase.SAVING)
        futures.wait([self._outcome])

    def fork(self) -> None:
        """This is a child process now: the save under way is its parent's."""
        self._outcome = None
        self._beside = _Beside()

    def _see_to(self, save: Save, writer: Writer | OSError) -> None:
        share = self._write(save, writer)
        try:
            shares = self._meeting.gather(save.number, share)
            if shares is None:
                outcome = self._meeting.hear(save.number)
            else:
                outcome = self._conclude(save, shares)
                self._meeting.tell(save.number, outcome)
        except LostError as error:
            outcome = self._look(save, str(error))
        self._note(save, outcome)
        self._meeting.leave(save.number)
        if save.order.peer is not None and isinstance(writer, Writer):
            self._note_copy(writer.copied())

    def _write(self, save: Save, writer: Writer | OSError) -> dict[str, Any]:
        if isinstance(writer, OSError):
            return _trouble(writer)
        try:
            save.rest.copy()
            written = writer.write(save.order)
        except OSError as error:
            return _trouble(error)
        except Exception as error:  # noqa: BLE001  the others wait for this rank's share
            _log.exception("A save has failed in a way that nobody has foreseen")
            return _trouble(OSError(errno.EIO, repr(error)))
        objects = save.order.entry.objects
        return {"size": written.size, "hash": written.hash, "objects": objects}

    def _conclude(self, save: Save, shares: list[dict[str, Any]]) -> dict[str, Any]:
        """On the first rank, once all have written: commit, or clear away."""
        try:
            _check(shares)
            at = self._commit(save, shares).at if save.is_shared else time.time()
        except StaleGenerationError as error:
            outcome = {"stale": str(error)}
        except (OSError, FenceError) as error:
            outcome = {"failed": why(error, self._folder)}
        else:
            return {"at": at}
        self.discard(save.step)
        return outcome

    def _commit(self, save: Save, shares: list[dict[str, Any]]) -> Marker:
        saving = self.saving_path(save.step)
        described = layout.complete(save.metadata, [share["objects"] for share in shares])
        write_bytes_durably(saving / ".metadata", described)
        sums = {
            layout.shard_name(rank): FileSum(size=share["size"], hash=share["hash"])
            for rank, share in enumerate(shares)
        }
        sums[".metadata"] = files.measure(saving / ".metadata")
        marker = files.commit(
            self._folder, save.step, self._session.fence, sums, self._ranks.size,
            taken_at=save.taken_at, stall_seconds=save.stall_seconds,
        )  # fmt: skip
        files.prune(self._folder, newest=save.step, keep=self._keep, bad=self.bad)
        return marker

    def _look(self, save: Save, reason: str) -> dict[str, Any]:
        """The others are gone; whether the first rank has committed can still be seen."""
        fence = self._session.fence
        for one in files.candidates(self._folder):
            if isinstance(one, Candidate) and one.step == save.step and one.marker.of(fence):
                return {"at": one.marker.at}
        return {"failed": f"the other ranks are gone: {reason}"}

    def _note(self, save: Save, outcome: dict[str, Any]) -> None:
        self.last_complete = "at" in outcome
        if self.last_complete:
            durable = outcome["at"] - save.taken_at
            self._session.committed(save.step, outcome["at"], save.stall_seconds, durable)
            if save.is_shared:
                self._tiers.forget()
        elif "stale" in outcome:
            self._stale = StaleGenerationError(outcome["stale"])
        elif self._ranks.rank == 0:
            not_saved(save.step, outcome["failed"])

    def _note_copy(self, copied: dict[str, Any]) -> None:
        """Say once that copies go wrong, and once what else goes wrong later."""
        self.copy_seconds = copied.get("seconds")
        reason = copied.get("reason", "")
        if reason and reason != self._copy_trouble:
            _log.warning(
                "Rank %d has no copy of its shard in a peer's memory: %s. The checkpoint on disk "
                "does not depend on it.",
                self._ranks.rank, reason,
            )  # fmt: skip
        self._copy_trouble = reason


class _Beside:
    """A thread that waits for work: to start one for each save would hold the loop up.

    It is no pool's: those are waited for when the process ends, also when the script has failed.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None]
        self._orders = queue.SimpleQueue()
        weakref.finalize(self, self._orders.put, None).atexit = False
        work = threading.Thread(target=_work, args=(self._orders,), name="aegis-save", daemon=True)
        work.start()

    def do(self, order: Callable[[], None]) -> Future[None]:
        """Have it done; at most one thing at a time."""
        outcome: Future[None] = Future()
        self._orders.put((outcome, order))
        return outcome


def _work(orders: "queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None]") -> None:
    while (told := orders.get()) is not None:
        outcome, order = told
        try:
            order()
        except Exception:  # noqa: BLE001  the thread is needed for the next one
            _log.exception("A save has failed in a way that nobody has foreseen")
        outcome.set_result(None)
        del told, outcome, order  # what they hold is not to be kept until the next save


def watch_end() -> None:
    """See to the last save when this process ends, and notice whether it ends by an exception."""
    if not _hooked:
        _hooked.append(sys.excepthook)
        sys.excepthook = _note_failure
        atexit.register(_end_all)
        os.register_at_fork(after_in_child=_fork_all)


def _note_failure(*raised: Any) -> None:
    _failed.set()
    _hooked[0](*raised)


def _end_all() -> None:
    for saves in list(_open):
        saves.end(failed=_failed.is_set())


def _fork_all() -> None:
    for saves in list(_open):
        saves.fork()


def _trouble(error: OSError) -> dict[str, Any]:
    """What a rank tells in its share's place."""
    return {"errno": error.errno, "reason": error.strerror, "path": str(error.filename or "")}


def _check(shares: list[dict[str, Any]]) -> None:
    """Raise what the first rank met that could not write its share."""
    for rank, share in enumerate(shares):
        if "errno" in share:
            raise OSError(share["errno"], f"rank {rank}: {share['reason']}", share["path"])


def not_saved(step: int, reason: str) -> None:
    """Say that training goes on without a checkpoint of this step."""
    _log.warning(
        "The checkpoint of step %d was not saved: %s. Training goes on; "
        "the older checkpoints are intact.",
        step, reason,
    )  # fmt: skip


def why(error: Exception, folder: Path) -> str:
    """One sentence: what went wrong, and what to do about it."""
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or _is_full(folder):
            return f"no space is left in {folder}; free some or keep fewer checkpoints"
        if error.strerror and error.filename == "":
            return error.strerror  # of no file
        if error.strerror:
            return f"{error.strerror} ({error.filename or folder})"
    return str(error)


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free == 0
    except OSError:
        return False
