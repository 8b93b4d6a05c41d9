"""Loading from shards that lie here and there: what is near is read in place, the rest is fetched.

A folder is put together that looks like a checkpoint folder: links to this node's shards, and the
description. A shard of another node is fetched when something in it is needed, once for a node.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner

from aegis.worker import layout, peers, shelf
from aegis.worker.peers import PeerError
from aegis.worker.ranks import Ranks
from aegis.worker.tiers import Copy, Tiers, Whole


def verify(whole: Whole, tiers: Tiers, ranks: Ranks) -> list[tuple[int, str, str, str]]:
    """Have each node's ranks look at what lies there: rank, node, path and reason of bad shards."""
    mine = [
        (rank, one)
        for rank, copies in whole.copies.items()
        for one in copies[:1]
        if one.node == tiers.home.node
    ]
    neighbours = tiers.neighbours
    share = mine[neighbours.index(ranks.rank) :: len(neighbours)]
    told = ranks.gather(
        lambda: [
            (rank, one.node, str(one.kept.path), f"shard of rank {rank} {one.kept.where}: {reason}")
            for rank, one in share
            if (reason := shelf.verify(one.kept))
        ]
    )
    return [bad for of_rank in told for bad in of_rank]


@contextlib.contextmanager
def assembled(whole: Whole, tiers: Tiers, ranks: Ranks) -> Iterator[FileSystemReader]:
    """A reader of the save, for all ranks together."""
    place = tiers.memory or Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="load-", dir=place))
    fetched = place / "fetched"
    try:
        far: dict[str, Copy] = {}
        for rank, copies in whole.copies.items():
            one, name = copies[0], layout.shard_name(rank)
            if one.node == tiers.home.node:
                (folder / name).symlink_to(one.kept.path / shelf.SHARD)
            else:
                far[name] = one
        described = layout.complete(_metadata(whole, tiers, ranks), _objects(whole))
        (folder / ".metadata").write_bytes(described)
        yield _Reader(folder, far, fetched, tiers)
        ranks.highest(0)  # all have read what they need
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if tiers.is_first:
            shutil.rmtree(fetched, ignore_errors=True)


def _objects(whole: Whole) -> list[Any]:
    return [copies[0].kept.entry.objects for _, copies in sorted(whole.copies.items())]


def _metadata(whole: Whole, tiers: Tiers, ranks: Ranks) -> bytes:
    """It lies with each shard; the first rank of a node that has one reads it for all."""
    one = whole.copies[0][0]
    source = next(rank for rank, home in enumerate(tiers.homes) if home.node == one.node)
    content = b""
    if ranks.rank == source:
        with contextlib.suppress(OSError):
            content = (one.kept.path / shelf.METADATA).read_bytes()
    content = ranks.spread(content, source)
    if not content:
        raise PeerError("its description is missing")
    return content


class _Reader(FileSystemReader):  # type: ignore[misc]  # torch is not typed here
    """Reads from the folder, and fetches into it what is missing."""

    def __init__(self, folder: Path, far: Mapping[str, Copy], fetched: Path, tiers: Tiers) -> None:
        super().__init__(folder)
        self._folder, self._far, self._fetched, self._tiers = folder, far, fetched, tiers

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Any:
        """As its base, once all is there."""
        needed = {self.storage_data[item.storage_index].relative_path for item in plan.items}
        for name in sorted(needed & set(self._far)):
            self._bring(name, self._far[name])
        return super().read_data(plan, planner)

    def _bring(self, name: str, one: Copy) -> None:
        link = self._folder / name
        if link.is_symlink():
            return
        to = self._fetched / name
        to.mkdir(parents=True, exist_ok=True)
        with (to / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (to / shelf.SHARD).exists():
                self._fetch(one, to)
        link.symlink_to(to / shelf.SHARD)

    def _fetch(self, one: Copy, to: Path) -> None:
        home = next(home for home in self._tiers.homes if home.node == one.node)
        asked = self._tiers.keeper_of(home)
        if asked is None:
            raise PeerError("the node that keeps it has no keeper")
        peers.fetch(asked, one.kept.entry, to)
        if reason := shelf.verify(shelf.Kept(path=to, entry=one.kept.entry)):
            os.unlink(to / shelf.SHARD)  # noqa: PTH108  the next to try fetches anew
            raise PeerError(f"what was fetched of it is damaged: {reason}")
