"""Where this rank's shards are kept beside the checkpoint folder, and which saves are whole there.

Own memory belongs to the launcher and outlives the rank; a peer's memory is on another node, out
of this one's rack and switch where these are known; a local disk where one is named. A save counts
there once a shard of every rank is whole somewhere, whoever holds it.
"""

import json
import os
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aegis.worker import keeper, shelf
from aegis.worker.files import write_durably
from aegis.worker.peers import Keeper
from aegis.worker.progress import Session
from aegis.worker.ranks import Ranks
from aegis.worker.shelf import Entry, Kept

DOMAINS = ("rack", "switch")  # labels of what breaks together
MEMORY = "AEGIS_CHECKPOINT_MEMORY"  # off: nothing stays in memory; own: no copies for peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a rank lives, as it tells the others."""

    node: str
    keeper: tuple[str, int] | None  # where what it keeps can be fetched, and sent
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of a shard, on a node."""

    node: str
    kept: Kept


@dataclass(kw_only=True)
class Whole:
    """A save of which every rank's shard is there."""

    step: int
    generation: int
    epoch: int
    world_size: int
    taken_at: float
    copies: dict[int, list[Copy]] = field(default_factory=dict)  # by rank; the best first

    @property
    def height(self) -> tuple[int, int, int]:
        """What is newer."""
        return (self.step, self.generation, self.epoch)


class Tiers:
    """This rank's node among the others, and what is kept where."""

    def __init__(self, ranks: Ranks, session: Session, local_folder: Path | None) -> None:
        self._ranks, self._session = ranks, session
        page, self._wanted = session.page_path, os.environ.get(MEMORY, "")
        self.memory = None if page is None or self._wanted == "off" else page.parent / "memory"
        self.disk = local_folder
        self.homes: list[Home] = []
        self.token = ""
        self.peer: Keeper | None = None

    @property
    def shelves(self) -> list[Path]:
        """Where shards lie on this node."""
        return [one for one in (self.memory, self.disk) if one is not None]

    @property
    def own(self) -> Path | None:
        """Where this rank's memory has its name."""
        return None if self.memory is None else shelf.own_path(self.memory, self._ranks.rank)

    @property
    def home(self) -> Home:
        """Where this rank lives."""
        return self.homes[self._ranks.rank]

    @property
    def neighbours(self) -> list[int]:
        """The ranks of this node, this one among them."""
        node = self.home.node
        return [rank for rank, home in enumerate(self.homes) if home.node == node]

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks for its node."""
        return self.neighbours[0] == self._ranks.rank

    def describe(self) -> Home:
        """Where this rank lives, for `settle`."""
        name = socket.gethostname() if self.memory is None else f"{self.memory}"
        return Home(
            node=f"{socket.gethostname()}:{name}",
            keeper=None if self._wanted == "own" else _keeper(self.memory),
            labels=dict(
                pair.split("=", 1)
                for pair in os.environ.get("AEGIS_LABELS", "").split(",")
                if "=" in pair
            ),
        )

    def settle(self, homes: list[Home], token: str) -> None:
        """All ranks have told where they live."""
        self.homes, self.token = homes, token
        nodes = {home.node: home for home in homes}
        peer = choose_peer(list(nodes.values()), list(nodes).index(self.home.node))
        self.peer = self.keeper_of(peer) if peer is not None else None
        if self.is_first and self.memory is not None and self.home.keeper is not None:
            shelves = [str(one) for one in self.shelves[1:]]
            told = json.dumps({"token": token, "shelves": shelves})
            write_durably(self.memory / keeper.TOKEN, told)

    def keeper_of(self, home: Home) -> Keeper | None:
        """How to speak to a node's keeper."""
        if home.keeper is None:
            return None
        return Keeper(address=home.keeper[0], port=home.keeper[1], token=self.token)

    def find(self) -> list[Whole]:
        """The saves that are whole in memory or on local disks, the newest first. Together."""
        mine: list[Kept] = []
        if self.is_first:
            mine = [one for place in self.shelves for one in shelf.kept(place)]
        told = self._ranks.gather(lambda: mine)
        copies = [
            Copy(node=home.node, kept=one)
            for home, of_rank in zip(self.homes, told, strict=True)
            for one in of_rank
            if self._reachable(home) and self._is_ours(one.entry)
        ]
        return whole_saves(copies)

    def _reachable(self, home: Home) -> bool:
        return home.keeper is not None or all(one.node == home.node for one in self.homes)

    def _is_ours(self, entry: Entry) -> bool:
        fence = self._session.fence
        return entry.job == fence.job and (entry.generation, entry.epoch) <= fence.height

    def forget(self) -> None:
        """A checkpoint of this generation is complete: older ones leave no memory taken."""
        if self.memory is not None and self.is_first:
            shelf.forget(self.memory, self._session.fence, self.neighbours)


def _keeper(memory: Path | None) -> tuple[str, int] | None:
    if memory is None:
        return None
    try:
        told: dict[str, Any] = json.loads((memory / keeper.ADDRESS).read_text())
        return told["address"], told["port"]
    except (OSError, ValueError, KeyError):
        return None


def choose_peer(nodes: Sequence[Home], mine: int) -> Home | None:
    """Which node is to keep this one's shards: one that does not break together with it.

    Nodes that have the same choice take turns, so that none keeps for all.
    """
    me = nodes[mine]
    others = [one for one in nodes if one.node != me.node and one.keeper is not None]
    if not others:
        return None
    least = min(_shared(me, one) for one in others)
    best = [one for one in others if _shared(me, one) == least]
    alike = [one for one in nodes if _domains(one) == _domains(me)]
    if any(_domains(one) == _domains(me) for one in best):  # nothing tells them apart: the next
        later = [one for one in (*nodes[mine + 1 :], *nodes[:mine]) if one in best]
        return later[0]
    return best[alike.index(me) % len(best)]


def _domains(home: Home) -> tuple[str | None, ...]:
    return tuple(home.labels.get(name) for name in DOMAINS)


def _shared(one: Home, other: Home) -> int:
    """How much breaks both; a rack weighs more than a switch. Unknown counts as apart."""
    pairs = zip(_domains(one), _domains(other), strict=True)
    weights = range(len(DOMAINS), 0, -1)
    return sum(
        weight
        for weight, (mine, yours) in zip(weights, pairs, strict=True)
        if mine is not None and mine == yours
    )


def whole_saves(copies: Sequence[Copy]) -> list[Whole]:
    """Those of which a shard of every rank is there."""
    by_save: dict[Any, dict[int, list[Copy]]] = defaultdict(lambda: defaultdict(list))
    for one in copies:
        by_save[one.kept.entry.save][one.kept.entry.rank].append(one)
    found = []
    for (_, generation, epoch, step, world_size), by_rank in by_save.items():
        if sorted(by_rank) != list(range(world_size)):
            continue
        taken = [one.kept.entry.taken_at for of_rank in by_rank.values() for one in of_rank]
        best = {rank: sorted(by_rank[rank], key=_nearness) for rank in sorted(by_rank)}
        found.append(
            Whole(
                step=step,
                generation=generation,
                epoch=epoch,
                world_size=world_size,
                taken_at=min(taken),
                copies=best,
            )
        )
    return sorted(found, key=lambda one: one.height, reverse=True)


def _nearness(one: Copy) -> int:
    return (shelf.OWN, shelf.PEER, shelf.DISK).index(one.kept.path.parent.name)
