"""The newest checkpoint that is complete and whole, wherever it lies, and loading it.

Memory, local disks and the checkpoint folder are looked at together, the newest first and memory
before disk. What does not hold, or was marked suspect, is named and passed over. Torch's own
loading shares it out anew where the ranks have become more or fewer.
"""

import logging
import os
import warnings
from pathlib import Path
from traceback import StackSummary
from typing import Any

from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.api import CheckpointException

from aegis.model.job import RejectedCheckpoint, Tier
from aegis.worker import assemble, shelf
from aegis.worker import folder as files
from aegis.worker.contents import Contents
from aegis.worker.folder import Candidate, Damaged
from aegis.worker.peers import PeerError
from aegis.worker.progress import Session
from aegis.worker.ranks import Ranks
from aegis.worker.suspicion import Suspicion
from aegis.worker.tiers import Tiers, Whole

Found = Candidate | Whole

_log = logging.getLogger("aegis.worker")


class Restoring:
    """What can be restored, and the objects to restore into."""

    def __init__(
        self, folder: Path, contents: Contents, ranks: Ranks, session: Session, tiers: Tiers
    ) -> None:
        self.passed_over: list[Damaged] = []
        self._folder = folder
        self._contents = contents
        self._ranks = ranks
        self._session = session
        self._tiers = tiers
        self._suspicion = Suspicion.told(os.environ)

    def restore(self) -> Found | None:
        """Load the newest one that can be loaded, and say which."""
        self.passed_over.clear()
        if self._ranks.rank == 0:
            files.sweep(self._folder, self._session.fence)
        while (found := self.latest()) is not None:
            try:
                self._load(found)
            except (CheckpointException, PeerError) as error:
                if isinstance(found, Candidate):
                    raise
                self._pass_over(_damaged(found, f"it cannot be read: {_first(error)}"))
                continue
            break
        return found

    def tier_of(self, found: Found) -> Tier:
        """Where this rank had its shard of it from; one that saved none speaks of the first's."""
        if isinstance(found, Candidate):
            return Tier.FOLDER
        first = next(iter(found.copies.values()))
        copy = found.copies.get(self._ranks.rank, first)[0]
        kind = copy.kept.path.parent.name
        if kind == shelf.OWN and copy.node == self._tiers.home.node:
            return Tier.MEMORY
        return Tier.DISK if kind == shelf.DISK else Tier.PEER

    def latest(self) -> Found | None:
        """The newest complete and verified one; those passed over are told. Together."""
        before = len(self.passed_over)
        found = self._search()
        if self._ranks.rank == 0 and len(self.passed_over) > before:
            self._tell(self.passed_over[before:])
        return found

    def _search(self) -> Found | None:
        known = {(one.path, one.step) for one in self.passed_over}
        lying: list[Candidate | Damaged | Whole] = [
            *self._tiers.find(),
            *self._ranks.share(lambda: files.candidates(self._folder)),
        ]
        for one in sorted(lying, key=_height, reverse=True):
            if isinstance(one, Whole):
                known_bad = (_path(one), one.step) in known
            else:
                known_bad = (one.path, one.step) in known
            if not known_bad and (found := self._judge(one)) is not None:
                return found
        return None

    def _judge(self, one: Candidate | Damaged | Whole) -> Found | None:
        """This one, if it holds; otherwise it is passed over."""
        if isinstance(one, Damaged):
            self._pass_over(one)
            return None
        reason = self._suspicion.of(one)
        if reason and isinstance(one, Candidate) and self._ranks.rank == 0:
            files.mark_suspect(one.path, reason)
        reason = reason or (
            self._verify_whole(one) if isinstance(one, Whole) else self._verify(one)
        )
        if reason:
            self._pass_over(_damaged(one, reason))
            return None
        return one

    def _verify(self, one: Candidate) -> str:
        """What is wrong with it, nothing when it holds; each rank reads its share."""
        names, ranks = sorted(one.files), self._ranks
        reasons = ranks.gather(lambda: files.verify(one, names[ranks.rank :: ranks.size]))
        return next((reason for reason in reasons if reason), "")

    def _verify_whole(self, one: Whole) -> str:
        """The same of shards here and there; a bad copy gives way to another of the same shard."""
        while bad := assemble.verify(one, self._tiers, self._ranks):
            for rank, *_ in bad:
                one.copies[rank].pop(0)
            lost = [reason for rank, _, _, reason in bad if not one.copies[rank]]
            if lost:
                return lost[0]
            for _, node, path, reason in bad if self._ranks.rank == 0 else ():
                _log.warning(
                    "Step %d: %s (%s on %s); another copy is used.", one.step, reason, path, node
                )
        return ""

    def _load(self, found: Found) -> None:
        if isinstance(found, Candidate):
            self._read(FileSystemReader(found.path), found.marker.world_size)
            return
        with assemble.assembled(found, self._tiers, self._ranks) as reader:
            self._read(reader, found.world_size)

    def _read(self, reader: FileSystemReader, saved_by: int) -> None:
        rank = self._ranks.rank
        state = self._contents.place(rank, saved_by)
        self._agree(_load_alone(state, reader))
        self._contents.put(state, rank, saved_by)

    def _agree(self, failed: CheckpointException | None) -> None:
        """Raise what any rank has met, on all of them."""
        [troubled] = self._ranks.highest(failed is not None)
        if troubled:
            reasons = self._ranks.gather(lambda: "" if failed is None else _first(failed))
            met = {
                rank: (OSError(reason), StackSummary())
                for rank, reason in enumerate(reasons)
                if reason
            }
            raise CheckpointException("load", met) from failed

    def _pass_over(self, one: Damaged) -> None:
        self.passed_over.append(one)

    def _tell(self, passed_over: list[Damaged]) -> None:
        self._session.reject(
            [
                RejectedCheckpoint(step=one.step, path=str(one.path), reason=one.reason)
                for one in self.passed_over
            ]
        )
        for one in passed_over:
            _log.warning(
                "The checkpoint of step %d is passed over: %s (%s).", one.step, one.reason, one.path
            )


def _load_alone(state: dict[str, Any], reader: FileSystemReader) -> CheckpointException | None:
    """Read into the state what this rank needs of it, or say what is in the way.

    Each rank's plan follows from the checkpoint's description and its own tensors. Torch would have
    the first rank gather all plans and deal out the same again, which takes longer than to read.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            dcp.load(state, storage_reader=reader, no_dist=True)
        except CheckpointException as error:
            return error
    return None


def _height(one: Candidate | Damaged | Whole) -> tuple[int, int, int, bool]:
    if isinstance(one, Damaged):
        return (one.step, 0, 0, False)
    if isinstance(one, Candidate):
        return (one.step, one.marker.generation, one.marker.epoch, False)
    return (*one.height, True)


def _path(one: Whole) -> Path:
    """Where its first copy lay when it was found: enough to know it again by."""
    first = next(iter(one.copies.values()))
    return first[0].kept.path if first else Path()


def _damaged(one: Found, reason: str) -> Damaged:
    path = one.path if isinstance(one, Candidate) else _path(one)
    return Damaged(path=path, step=one.step, reason=reason)


def _first(error: CheckpointException | PeerError) -> str:
    """What the first rank met that could not read."""
    if isinstance(error, CheckpointException) and error.failures:
        return str(error.failures[min(error.failures)][0])
    return str(error)
