"""Disposable processes, one per device: each may hang, crash and be killed without harm.

A parent that has loaded a library, and never calls it, forks a child per device. Each child notes
the call it is in, and since when, in a page it shares with the parent. The parent kills a child
whose call is past its deadline and starts another after a pause that grows. A child that does not
die, stuck in the kernel, is abandoned: its device gets no other while it lives.

The first child, number `DISCOVERY`, finds out which devices there are.
"""

import ctypes
import json
import mmap
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

DISCOVERY = -1
# When the call began (monotonic clock; 0: in none), which it is, and how many polls are done.
_SLOT = struct.Struct("<dqq")
_PAUSE_SECONDS_MIN = 0.5
_PAUSE_SECONDS_MAX = 60.0
_DEATH_SECONDS = 2.0  # a killed child that lives longer is stuck in the kernel
_ALIVE_SECONDS = 5.0


class Report:
    """Lines to the agent, each written at once: all processes share one pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, kind: str, **fields: Any) -> None:
        """One line of JSON; shorter than a page, so that lines never mix."""
        line = json.dumps({"type": kind, **fields}, separators=(",", ":")) + "\n"
        try:
            os.write(self._descriptor, line.encode())
        except BrokenPipeError:  # the agent is gone
            os._exit(0)


class Page:
    """Which call each child is in: memory that parent and children share."""

    def __init__(self, calls: list[str]) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._calls = calls
        self._numbers = {call: number for number, call in enumerate(calls)}

    def write(self, index: int, started: float, call: str, polls: int) -> None:
        """Note that a call began, or with `started=0.0` that it ended."""
        place = max(index, 0) * _SLOT.size  # discovery is alone and uses the first
        _SLOT.pack_into(self._memory, place, started, self._numbers[call], polls)

    def read(self, index: int) -> tuple[float, str, int]:
        """When the call began, which it is, and how many polls are done."""
        place = max(index, 0) * _SLOT.size
        started, call, polls = _SLOT.unpack_from(self._memory, place)
        return started, self._calls[call], polls


@dataclass
class Child:
    """One device's place, and the process in it, if any."""

    index: int
    address: str = ""  # what the child knows its device by
    pid: int = 0
    killed_at: float = 0.0
    abandoned: bool = False
    pause_seconds: float = 0.0
    start_at: float = 0.0


@dataclass
class Children:
    """Keeps a child for each device until the agent is gone."""

    page: Page
    report: Report
    deadline_seconds: float  # of one call
    be: Callable[[Child], NoReturn]  # what a child does, forked

    def __post_init__(self) -> None:
        self._found, self._finder = os.pipe()
        self._children = [Child(index=DISCOVERY)]
        self._alive_at = 0.0

    def found(self, addresses: list[str]) -> None:
        """Called in the discovery child before it exits with 0: there is a device at each."""
        os.write(self._finder, " ".join(addresses).encode())

    def run(self) -> int:
        """Until the agent closes the pipe to our standard input."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a child's end wakes the loop
        pause = min(0.5, self.deadline_seconds / 4)
        while True:
            self._tick(time.monotonic())
            ready, _, _ = select.select([0, reader], [], [], pause)
            if reader in ready:
                os.read(reader, 256)
            if 0 in ready and not os.read(0, 256):
                self._end()
                return 0

    def _tick(self, now: float) -> None:
        for child in list(self._children):
            if child.pid and not self._reap(child, now):
                self._watch(child, now)
            if not child.pid and now >= child.start_at:
                self._start(child, now)
        if now - self._alive_at >= _ALIVE_SECONDS:
            self._alive_at = now
            self.report("alive")

    def _start(self, child: Child, now: float) -> None:
        self.page.write(child.index, now, "start", 0)
        parent = os.getpid()
        child.killed_at, child.abandoned = 0.0, False
        child.pid = os.fork()
        if child.pid:
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with_parent(parent)
        self.be(child)

    def _watch(self, child: Child, now: float) -> None:
        """Kill what is past its deadline; give up on what does not die of it."""
        started, call, _ = self.page.read(child.index)
        if child.killed_at:
            if not child.abandoned and now - child.killed_at > _DEATH_SECONDS:
                child.abandoned = True
                self._stalled(child, call, now - started)
        elif started and now - started > self.deadline_seconds:
            os.kill(child.pid, signal.SIGKILL)
            child.killed_at = now
            self._stalled(child, call, now - started)

    def _stalled(self, child: Child, call: str, seconds: float) -> None:
        self.report(
            "stalled",
            index=child.index,
            at=time.time(),
            call=call,
            seconds=round(seconds, 1),
            abandoned=child.abandoned,
        )

    def _reap(self, child: Child, now: float) -> bool:
        """Whether the child has ended; if so, when there will be another."""
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if not pid:
            return False
        code = os.waitstatus_to_exitcode(status)
        _, call, polls = self.page.read(child.index)
        if code < 0 and not child.killed_at:
            self.report("died", index=child.index, at=time.time(), call=call, signal=-code)
        child.pid = 0
        # One that had been reading well is replaced soon; one that keeps failing waits longer.
        before = 0.0 if polls else child.pause_seconds
        child.pause_seconds = min(max(_PAUSE_SECONDS_MIN, before * 2), _PAUSE_SECONDS_MAX)
        child.start_at = now + child.pause_seconds
        if child.index == DISCOVERY and code == 0:
            found = os.read(self._found, 65536).decode().split()
            self._children = [
                Child(index=index, address=address) for index, address in enumerate(found)
            ]
        return True

    def _end(self) -> None:
        for child in self._children:
            if child.pid:
                os.kill(child.pid, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)
