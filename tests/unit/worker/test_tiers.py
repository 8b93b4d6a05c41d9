"""What is kept where: which saves are whole, who keeps for whom, what a keeper takes and gives."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
import xxhash

from aegis.worker import peers, shelf
from aegis.worker.fence import Fence
from aegis.worker.folder import Candidate, Marker
from aegis.worker.peers import Keeper, PeerError
from aegis.worker.shelf import Entry, Kept
from aegis.worker.suspicion import Suspicion
from aegis.worker.tiers import Copy, Home, choose_peer, whole_saves
from aegis.worker.writing import Order, Writer

SHARD = bytes(range(256)) * 1000


def entry(rank=0, step=10, generation=1, ranks=2, content=SHARD):
    return Entry(
        job="j", generation=generation, epoch=1, step=step, rank=rank, world_size=ranks,
        taken_at=1000.0 + step, size=len(content), hash=xxhash.xxh3_128_hexdigest(content),
    )  # fmt: skip


def lay(path, content=SHARD, **fields):
    """A whole shard in its place."""
    path.mkdir(parents=True, exist_ok=True)
    (path / shelf.SHARD).write_bytes(content)
    (path / shelf.METADATA).write_bytes(b"description")
    shelf.put(path, entry(content=content, **fields))
    return path


def copy(tmp_path, node, tier="own", **fields):
    return Copy(node=node, kept=Kept(path=tmp_path / tier / "rank", entry=entry(**fields)))


def test_a_save_is_whole_once_every_rank_s_shard_is_somewhere(tmp_path) -> None:
    """Of the same step, generation and world size; the nearest copy of each comes first."""
    copies = [
        copy(tmp_path, "n1", "peer", rank=0),
        copy(tmp_path, "n0", rank=0),
        copy(tmp_path, "n1", rank=1),
        copy(tmp_path, "n0", rank=0, step=20),
        copy(tmp_path, "n1", rank=1, step=20, generation=2),
        copy(tmp_path, "n1", rank=1, step=20, ranks=4),
    ]
    [whole] = whole_saves(copies)
    assert whole.height == (10, 1, 1)
    assert [one.node for one in whole.copies[0]] == ["n0", "n1"]
    both = [*copies, copy(tmp_path, "n1", rank=1, step=20)]
    assert [one.step for one in whole_saves(both)] == [20, 10]


def home(name, rack="", switch="", keeper=("h", 1)):
    labels = {"rack": rack, "switch": switch}
    return Home(node=name, keeper=keeper, labels={k: v for k, v in labels.items() if v})


def chosen(nodes):
    found = [choose_peer(nodes, number) for number in range(len(nodes))]
    return [one and one.node for one in found]


def test_the_next_node_keeps_where_nothing_is_known_of_racks() -> None:
    """So each keeps for one."""
    assert chosen([home("a"), home("b"), home("c")]) == ["b", "c", "a"]
    assert chosen([home("a")]) == [None]
    assert chosen([home("a"), home("b", keeper=None)]) == [None, "a"]


def test_a_peer_breaks_apart_from_its_owner() -> None:
    """Another rack and another switch if there are, and nobody keeps for all."""
    nodes = [home("a", "r1"), home("b", "r1"), home("c", "r2"), home("d", "r2")]
    assert chosen(nodes) == ["c", "d", "a", "b"]
    uneven = [home("a", "r1"), home("b", "r1"), home("c", "r1"), home("d", "r2")]
    assert chosen(uneven)[:3] == ["d", "d", "d"]
    one_rack = [home("a", "r1", "s1"), home("b", "r1", "s1"), home("c", "r1", "s2")]
    assert chosen(one_rack) == ["c", "c", "a"]
    assert chosen([home("a", "r1"), home("b", "r1")]) == ["b", "a"]  # better than none


def test_a_shard_that_is_about_to_change_does_not_count(tmp_path) -> None:
    """Nor does one whose entry is damaged."""
    path = lay(shelf.own_path(tmp_path, 0))
    assert [one.entry.rank for one in shelf.kept(tmp_path)] == [0]
    (path / shelf.ENTRY).write_text("{")
    assert shelf.kept(tmp_path) == []
    lay(path)
    shelf.withdraw(path)
    assert shelf.kept(tmp_path) == []


def test_a_writer_that_outlives_its_rank_lets_nothing_count_that_is_another_s(tmp_path) -> None:
    """The next rank has begun to copy into the memory: what it finds there is a mixture."""
    own = shelf.own_path(tmp_path, 0)
    own.mkdir(parents=True)
    with (tmp_path / "memory").open("w+b") as memory:
        memory.write(SHARD)
        memory.truncate(1 << 20)
        with_writer = Writer(memory.fileno(), b"description")
        order = Order(entry=replace(entry(ranks=1), hash=""), own=own, claim="first")
        shelf.claim(own, "first")
        assert with_writer.write(order).hash == entry().hash
        assert shelf.verify(replace(shelf.read(own), path=own)) == "it is missing"  # elsewhere
        shelf.claim(own, "second")
        assert shelf.read(own) is None
        with pytest.raises(OSError, match="another save has taken the memory"):
            with_writer.write(order)
        assert shelf.read(own) is None
        with_writer.close()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: path.write_bytes(SHARD[:-1] + b"?"), "hash differs"),
        (lambda path: path.write_bytes(SHARD[:-1]), "instead of 256000"),
        (lambda path: path.unlink(), "it is missing"),
        (lambda path: path.write_bytes(SHARD + b"room for more"), ""),
    ],
)
def test_a_shard_is_verified(tmp_path, harm, reason) -> None:
    """The memory may be larger than what lies in it."""
    path = lay(shelf.own_path(tmp_path, 0))
    harm(path / shelf.SHARD)
    found = shelf.verify(shelf.read(path))
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_peer_s_shard_goes_where_the_older_one_lies(tmp_path) -> None:
    """The newer stays whole until the next is."""
    first = shelf.peer_path(tmp_path, 3)
    lay(first, rank=3, step=10)
    second = shelf.peer_path(tmp_path, 3)
    assert second != first
    lay(second, rank=3, step=20)
    assert shelf.peer_path(tmp_path, 3) == first


def test_memory_of_older_generations_is_given_back(tmp_path) -> None:
    """Once this one has a checkpoint; what is in use and what is on disk stays."""
    lay(shelf.own_path(tmp_path, 0), generation=2)
    lay(shelf.own_path(tmp_path, 1), generation=1)
    lay(shelf.peer_path(tmp_path, 3), rank=3, generation=1)
    lay(shelf.disk_path(tmp_path, 1, 10), generation=1)
    (shelf.own_path(tmp_path, 7)).mkdir()
    shelf.own_path(tmp_path, 2).mkdir()  # it is being written
    shelf.forget(tmp_path, Fence(job="j", generation=2, epoch=1), [0, 2])
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*"))
    assert left == ["disk/rank-1-step-00000010", "own/rank-0", "own/rank-2"]


def test_the_newest_of_each_rank_stay_on_the_local_disk(tmp_path) -> None:
    """Of one rank, not of its neighbours."""
    for step in (10, 20, 30):
        for rank in (0, 1):
            lay(shelf.disk_path(tmp_path, rank, step), rank=rank, step=step)
    shelf.prune_disk(tmp_path, 0, keep=2)
    found = [(one.entry.rank, one.entry.step) for one in shelf.kept(tmp_path)]
    assert sorted(found) == [(0, 20), (0, 30), (1, 10), (1, 20), (1, 30)]


@pytest.fixture
def keeper(tmp_path):
    """A real one, which knows the token "secret"."""
    folder = tmp_path / "memory"
    process = subprocess.Popen(
        [sys.executable, "-m", "aegis.worker.keeper", str(os.getpid()), "127.0.0.1", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    port = json.loads(process.stdout.readline())["port"]
    disk = str(tmp_path / "disk")
    (folder / "token.json").write_text(json.dumps({"token": "secret", "shelves": [disk]}))
    yield folder, Keeper(address="127.0.0.1", port=port, token="secret")
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_a_keeper_takes_a_shard_and_hands_it_out(tmp_path, keeper) -> None:
    """Bit by bit, to who knows the token; the newest two of a rank."""
    folder, there = keeper
    for step in (10, 20, 30):
        one = entry(rank=5, step=step)
        peers.send(there, 5, memoryview(SHARD), b"description", lambda one=one: one)
    found = sorted(one.entry.step for one in shelf.kept(folder))
    assert found == [20, 30]
    peers.fetch(there, entry(rank=5, step=30), tmp_path / "fetched")
    assert (tmp_path / "fetched" / shelf.SHARD).read_bytes() == SHARD
    assert (tmp_path / "fetched" / shelf.METADATA).read_bytes() == b"description"
    with pytest.raises(PeerError, match="not here any more"):
        peers.fetch(there, entry(rank=5, step=10), tmp_path / "gone")
    stranger = replace(there, token="guessed")
    with pytest.raises(PeerError, match="token"):
        peers.fetch(stranger, entry(rank=5, step=30), tmp_path / "stranger")


def test_a_keeper_hands_out_what_lies_on_the_local_disk(tmp_path, keeper) -> None:
    """It is told where by the ranks, with the token."""
    _, there = keeper
    lay(shelf.disk_path(tmp_path / "disk", 1, 40), rank=1, step=40)
    peers.fetch(there, entry(rank=1, step=40), tmp_path / "fetched")
    assert (tmp_path / "fetched" / shelf.SHARD).read_bytes() == SHARD


def test_a_sender_that_dies_leaves_the_copy_before(keeper) -> None:
    """Half a shard does not count, and the next may be sent."""
    folder, there = keeper
    peers.send(there, 5, memoryview(SHARD), b"", lambda: entry(rank=5, step=10))

    def dies():
        raise PeerError("the rank is gone")

    with pytest.raises(PeerError):
        peers.send(there, 5, memoryview(SHARD), b"", dies)
    assert [one.entry.step for one in shelf.kept(folder)] == [10]
    peers.send(there, 5, memoryview(SHARD), b"", lambda: entry(rank=5, step=20))
    assert max(one.entry.step for one in shelf.kept(folder)) == 20


def test_nobody_is_there(tmp_path) -> None:
    """Said in a sentence."""
    nobody = Keeper(address="127.0.0.1", port=1, token="t")
    with pytest.raises(PeerError, match=r"the keeper at 127\.0\.0\.1 is gone"):
        peers.fetch(nobody, entry(), tmp_path / "none")


def checkpoint(tmp_path, generation, taken_at):
    marker = Marker(
        job="j", generation=generation, epoch=1, step=1, world_size=1, at=taken_at + 5,
        manifest_hash="", taken_at=taken_at,
    )  # fmt: skip
    return Candidate(path=tmp_path, marker=marker, files={})


def test_what_a_broken_device_may_have_computed_is_suspect(tmp_path) -> None:
    """From its last good reading on, and not what later generations have computed."""
    suspicion = Suspicion.told({"AEGIS_SUSPECT": "1000.0:7"})
    assert "20 s after the last good reading" in suspicion.of(checkpoint(tmp_path, 7, 1020.0))
    assert not suspicion.of(checkpoint(tmp_path, 7, 999.0))
    assert not suspicion.of(checkpoint(tmp_path, 8, 1020.0))
    for nothing in ({}, {"AEGIS_SUSPECT": "0.0:0"}, {"AEGIS_SUSPECT": "x"}):
        assert not Suspicion.told(nothing).of(checkpoint(tmp_path, 0, 1020.0))


def test_nodes_of_a_rack_take_turns() -> None:
    """Eight nodes in two racks: each keeps for one."""
    nodes = [home(f"n{number}", f"r{number % 2}") for number in range(8)]
    peers_of = chosen(nodes)
    assert len(set(peers_of)) == 8
    assert all(int(a[1]) % 2 != number % 2 for number, a in enumerate(peers_of))
    assert all(a != b for a, b in pairwise(peers_of))
