"""The processes that read the devices: deadlines, deaths, and what cannot be killed."""

import os
import signal
import time

import pytest

from aegis_agent.sources import children as module
from aegis_agent.sources.children import Child, Children, Page


class Told(list):
    """What would have been reported."""

    def __call__(self, kind, **fields):
        self.append((kind, fields))

    def of(self, kind):
        return [fields for told, fields in self if told == kind]


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def stuck(told):
    """One device whose child hangs in a call."""
    page = Page(["start", "ecc_count(umc)"])

    def hang(child):
        page.write(child.index, time.monotonic(), "ecc_count(umc)", 0)
        while True:
            time.sleep(60)

    children = Children(page=page, report=told, deadline_seconds=0.2, be=hang)
    children._children = [Child(index=0, address="0000:05:00.0")]
    yield children
    for child in children._children:
        if child.pid:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


def tick_until(children, condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come"
        children._tick(time.monotonic())
        time.sleep(0.01)


def test_a_call_past_its_deadline_costs_the_child_and_is_told(stuck, told):
    """The stalled call is named; another child is started after a pause."""
    tick_until(stuck, lambda: told.of("stalled"))
    (stall,) = told.of("stalled")
    assert (stall["index"], stall["call"], stall["abandoned"]) == (0, "ecc_count(umc)", False)
    first = stuck._children[0].pid
    tick_until(stuck, lambda: stuck._children[0].pid not in (0, first))
    assert told.of("died") == []  # we ended it; it did not die


def test_a_child_that_does_not_die_is_abandoned_and_gets_no_successor(stuck, told, monkeypatch):
    """In D state a process survives SIGKILL; a second one would hang beside it."""
    monkeypatch.setattr(module, "_DEATH_SECONDS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "kill", lambda *_: None)
        tick_until(stuck, lambda: len(told.of("stalled")) == 2)
        pid = stuck._children[0].pid
        for _ in range(50):
            stuck._tick(time.monotonic())
    assert [stall["abandoned"] for stall in told.of("stalled")] == [False, True]
    assert stuck._children[0].pid == pid


def test_the_pause_grows_with_each_failure(stuck, told):
    """A GPU that hangs for ever costs a fork a minute in the end."""
    stuck.deadline_seconds = 3600.0  # it dies of our signal, however slow this machine is
    child = stuck._children[0]
    pauses = []
    for _ in range(9):
        child.start_at = 0.0
        tick_until(stuck, lambda: child.pid)
        os.kill(child.pid, signal.SIGKILL)
        tick_until(stuck, lambda: not child.pid)
        pauses.append(child.pause_seconds)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert [death["signal"] for death in told.of("died")] == [signal.SIGKILL] * 9
