"""The event stream's memory: levels, not edges."""

from aegis.controller import changes as module
from aegis.controller.changes import Changes

N1, N2 = ("node", "n1"), ("node", "n2")


def test_only_the_newest_change_of_each_object_is_told():
    """A client that was away gets each object once."""
    changes = Changes(0)
    changes.note(1, {N1})
    changes.note(2, {N2})
    changes.note(3, {N1})
    assert changes.since(0) == [(2, N2), (3, N1)]
    assert changes.since(2) == [(3, N1)]
    assert changes.since(3) == []


def test_what_was_before_the_beginning_is_not_known():
    """Such a client must fetch everything anew, and so must one from the future."""
    changes = Changes(10)
    changes.note(11, {N1})
    assert changes.knows(10)
    assert changes.knows(11)
    assert not changes.knows(9)
    assert not changes.knows(12)


def test_what_is_forgotten_is_not_known(monkeypatch):
    """The memory is bounded; whoever needs more of it is told so."""
    monkeypatch.setattr(module, "KEPT", 1)
    changes = Changes(0)
    changes.note(1, {N1})
    changes.note(2, {N2})
    assert not changes.knows(0)
    assert changes.knows(1)
