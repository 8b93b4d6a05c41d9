"""The event log keeps what it has taken, and forgets only what it may."""

from itertools import pairwise

import pytest

from aegis.controller.retention import SNAPSHOTS_KEPT
from aegis.controller.store import InUseError, Snapshot, open_store
from aegis.model.event import Tick
from aegis.wire import decode


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def ticks(*times):
    return [Tick(at=at, agents_seen=tuple(f"node-{n}" for n in range(200))) for at in times]


def snapshot(store, number):
    """After the event of this number, whose time is the same number."""
    body = b"{}" * 400
    store.save_snapshot(
        Snapshot(number=number, at=number, version="1", rules_digest="", body=body, intact=True)
    )


def test_events_come_back_in_order_and_whole(store):
    """Numbers go on without a gap; long bodies are compressed on the way."""
    written = ticks(1.0, 2.0)
    assert store.append(written) == [1, 2]
    assert store.append(ticks(3.0)) == [3]
    assert [decode(body) for _number, _at, _kind, body in store.events_after(0)][:2] == written
    assert [number for number, *_rest in store.events_after(2)] == [3]
    assert store.bytes < 3 * 200 * len("node-100")


def test_a_number_is_never_used_twice(tmp_path):
    """Not even when every event is covered by a snapshot and gone."""
    store = open_store(tmp_path)
    store.append(ticks(1.0, 2.0, 3.0))
    snapshot(store, 2)
    snapshot(store, 3)
    store.retain(before=10.0, bytes_max=0)
    store.close()
    store = open_store(tmp_path)
    assert store.append(ticks(4.0)) == [4]
    store.close()


def test_what_the_older_snapshot_needs_is_kept(store):
    """If the newest is damaged, the one before it and the events after it must be there."""
    store.append(ticks(*range(1, 11)))
    assert store.retain(before=100.0, bytes_max=0) == 0
    snapshot(store, 4)
    assert store.retain(before=100.0, bytes_max=0) == 0
    snapshot(store, 8)
    assert store.retain(before=100.0, bytes_max=0) == 4
    assert store.first_number() == 5
    assert store.oldest_at == 5.0


def test_old_events_go_by_age_and_by_size(store):
    """Whichever limit is reached first; what is left begins at a snapshot."""
    store.append(ticks(*range(1, 11)))
    for number in (2, 4, 6, 8, 10):
        snapshot(store, number)
    assert store.retain(before=5.5, bytes_max=1 << 30) == 4
    assert store.retain(before=5.5, bytes_max=1 << 30) == 0
    assert [one.number for one in store.snapshots()] == [10, 8, 6, 4]
    assert store.retain(before=0.0, bytes_max=store.bytes - 1) == 2
    assert [one.number for one in store.snapshots()] == [10, 8, 6]
    assert store.oldest_at == 7.0


def test_some_older_snapshots_are_kept_so_that_the_log_can_be_cut_at_one(store):
    """Spread over all that is kept, the newest two among them."""
    for number in range(1, 401):
        snapshot(store, number)
    numbers = [one.number for one in store.snapshots()][::-1]
    assert len(numbers) == SNAPSHOTS_KEPT
    assert (numbers[0], numbers[-2:]) == (1, [399, 400])
    gaps = [after - before for before, after in pairwise(numbers)]
    assert max(gaps) < 100


def test_a_damaged_snapshot_is_known_by_its_hash(store):
    """The one before it serves."""
    for number in (1, 2, 3):
        snapshot(store, number)
    with store.transaction() as connection:
        connection.execute("UPDATE snapshots SET body = x'7b' WHERE number = 3")
    found = [(one.number, one.intact) for one in store.snapshots()]
    assert found == [(3, False), (2, True), (1, True)]


def test_a_transaction_that_fails_leaves_nothing(store):
    """All of it or none."""

    def half():
        with store.transaction() as connection:
            connection.execute("REPLACE INTO meta VALUES ('key', 'value')")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert store.meta("key") == ""


def test_a_folder_has_one_owner(store):
    """The second is told who the first is."""
    with pytest.raises(InUseError, match="pid"):
        open_store(store.folder)
