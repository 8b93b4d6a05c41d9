"""Shards that are kept on a node: in its own memory, in a peer's memory, on its local disk.

    SHELF/own/rank-3/                 what rank 3 on this node has copied last
    SHELF/peer/rank-7-0/ rank-7-1/    what rank 7 of another node has sent here, in turn
    SHELF/disk/rank-3-step-00000060/  written to this node's disk
        shard        as in a checkpoint folder
        metadata     where in all shards the tensors lie, pickled by `aegis.worker.layout`
        entry.json   whose shard of which step it is, its size and hash; without it, it is not there
        claim        which save is being copied into this memory, or was last

A shard alone is no checkpoint: one of every rank of the same save is. No torch here.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aegis.worker.fence import Fence
from aegis.worker.files import write_durably
from aegis.worker.folder import measure

ENTRY, SHARD, METADATA, CLAIM = "entry.json", "shard", "metadata", "claim"
OWN, PEER, DISK = "own", "peer", "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One shard, complete where it lies."""

    job: str
    generation: int
    epoch: int
    step: int
    rank: int
    world_size: int
    taken_at: float
    size: int
    hash: str = ""
    objects: Sequence[Sequence[Any]] = ()  # where in it the objects lie that are no tensors

    @property
    def save(self) -> tuple[str, int, int, int, int]:
        """What all shards of one save have in common."""
        return (self.job, self.generation, self.epoch, self.step, self.world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A shard in its place."""

    path: Path  # the folder
    entry: Entry

    @property
    def where(self) -> str:
        """In words."""
        kind = self.path.parent.name
        return {OWN: "in memory", PEER: "in a peer's memory"}.get(kind, "on local disk")


def own_path(shelf: Path, rank: int) -> Path:
    """Where a rank of this node has its memory."""
    return shelf / OWN / f"rank-{rank}"


def disk_path(shelf: Path, rank: int, step: int) -> Path:
    """Where a rank's shard lies on this node's disk."""
    return shelf / DISK / f"rank-{rank}-step-{step:08d}"


def peer_path(shelf: Path, rank: int) -> Path:
    """Where to put what a peer sends: the older of its two places, so that one stays whole."""
    places = [shelf / PEER / f"rank-{rank}-{number}" for number in (0, 1)]
    return min(places, key=lambda place: _height(read(place)))


def _height(kept: Kept | None) -> tuple[int, int, int]:
    entry = kept.entry if kept else None
    return (entry.generation, entry.epoch, entry.step) if entry else (-1, -1, -1)


def put(path: Path, entry: Entry) -> None:
    """The shard is whole: let it count."""
    write_durably(path / ENTRY, json.dumps(asdict(entry)) + "\n")


def withdraw(path: Path) -> None:
    """The shard is about to be overwritten: it does not count until it is whole again."""
    (path / ENTRY).unlink(missing_ok=True)


def claim(path: Path, save: str) -> None:
    """A save begins to be copied in: what an earlier one has left here counts no more."""
    (path / CLAIM).write_text(save)
    withdraw(path)


def is_claimed(path: Path, save: str) -> bool:
    """Whether the memory is still that save's.

    A writer that outlives its rank asks once it knows the hash: had the next rank begun to copy
    before, it would be the hash of a mixture.
    """
    try:
        return (path / CLAIM).read_text() == save
    except OSError:
        return False


def read(path: Path) -> Kept | None:
    """What lies there, if it is whole."""
    try:
        return Kept(path=path, entry=Entry(**json.loads((path / ENTRY).read_text())))
    except (OSError, ValueError, TypeError):
        return None


def kept(shelf: Path) -> list[Kept]:
    """All whole shards on a shelf."""
    found = (read(path.parent) for path in sorted(shelf.glob(f"*/*/{ENTRY}")))
    return [one for one in found if one is not None]


def verify(one: Kept) -> str:
    """What is wrong with a shard; nothing when it is as it was taken."""
    path = one.path / SHARD
    try:
        size = path.stat().st_size
        if size < one.entry.size:
            return f"it has {size} bytes instead of {one.entry.size}"
        found = measure(path, one.entry.size)
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return "" if found.hash == one.entry.hash else "hash differs"


def forget(shelf: Path, fence: Fence, ranks: Iterable[int]) -> None:
    """A checkpoint of this generation is complete: let go of what older ones have left in memory.

    `ranks` are those that live on this node now; another's memory is in nobody's use.
    """
    mine = {own_path(shelf, rank) for rank in ranks}
    for path in [*shelf.glob(f"{OWN}/*"), *shelf.glob(f"{PEER}/*")]:
        one = read(path)
        if one is None:
            abandoned = path.parent.name == OWN and path not in mine
        else:
            abandoned = (one.entry.generation, one.entry.epoch) < fence.height
        if abandoned:
            drop(path)


def prune_disk(shelf: Path, rank: int, keep: int) -> None:
    """Keep the newest of a rank's shards on this node's disk."""
    mine = [one for one in kept(shelf) if one.path.parent.name == DISK and one.entry.rank == rank]
    mine.sort(key=_height, reverse=True)
    for one in mine[max(1, keep) :]:
        drop(one.path)


def drop(path: Path) -> None:
    """The entry goes first: half a shard must not look like a whole one."""
    withdraw(path)
    shutil.rmtree(path, ignore_errors=True)


def stamped(entry: Entry, digest: str) -> Entry:
    """The entry with the hash that was found."""
    return replace(entry, hash=digest)
