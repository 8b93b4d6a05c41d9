"""Disposable processes, one per device: each may hang, crash and be killed without harm.

A parent that has loaded a library, and never calls it, forks a child per device. Each child notes
the call it is in, and since when, in a page it shares with the parent. The parent kills a child
whose call is past its deadline and starts another after a pause that grows. A child that does not
die, stuck in the kernel, is abandoned: its device gets no other while it lives.

Some calls a child can do without. One of those that hung, or crashed its process, is left out for a
time that grows as well: what else there is to read of the device stays fresh.

The first child, number `DISCOVERY`, finds out which devices there are. The agent asks for another
look with a line on our standard input.
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
from dataclasses import dataclass, field
from typing import Any, NoReturn

DISCOVERY = -1
# When the call began (monotonic clock; 0: in none), which it is, and how many polls are done.
_SLOT = struct.Struct("<dqq")
_PAUSE_SECONDS_MIN = 0.5
_PAUSE_SECONDS_MAX = 60.0
_DEATH_SECONDS = 2.0  # a killed child that lives longer is stuck in the kernel
_ALIVE_SECONDS = 5.0
_WITHOUT_SECONDS_MIN = 5.0  # a call that hung is left out for so long, then twice as long, …
_WITHOUT_SECONDS_MAX = 300.0


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
        place = (index + 1) * _SLOT.size  # discovery has the first
        _SLOT.pack_into(self._memory, place, started, self._numbers[call], polls)

    def read(self, index: int) -> tuple[float, str, int]:
        """When the call began, which it is, and how many polls are done."""
        place = (index + 1) * _SLOT.size
        started, call, polls = _SLOT.unpack_from(self._memory, place)
        return started, self._calls[call], polls


@dataclass
class Child:
    """One device's place, and the process in it, if any."""

    index: int
    address: str = ""  # what the child knows its device by
    place: int = 0  # where discovery saw it
    pid: int = 0
    killed_at: float = 0.0
    abandoned: bool = False
    pause_seconds: float = 0.0
    start_at: float = 0.0
    without: dict[str, float] = field(default_factory=dict)  # a call and when to try it again
    patience: dict[str, float] = field(default_factory=dict)  # for how long it was left out last

    def leave_out(self, call: str, now: float) -> None:
        """The call hung or crashed: go without it for a while."""
        before = self.patience.get(call, 0.0)
        if now - self.without.get(call, 0.0) > _WITHOUT_SECONDS_MAX:
            before = 0.0  # it went well for long
        seconds = min(max(_WITHOUT_SECONDS_MIN, 2 * before), _WITHOUT_SECONDS_MAX)
        self.patience[call], self.without[call] = seconds, now + seconds


@dataclass
class Children:
    """Keeps a child for each device until the agent is gone."""

    page: Page
    report: Report
    deadline_seconds: float  # of one call
    be: Callable[[Child], NoReturn]  # what a child does, forked
    optional: frozenset[str] = frozenset()  # the calls that a child can do without

    def __post_init__(self) -> None:
        self._found, self._finder = os.pipe()
        self._children = [Child(index=DISCOVERY)]
        self._alive_at = 0.0

    def found(self, devices: list[tuple[int, str]], hidden: int) -> None:
        """Called in the discovery child: a device at each place and address.

        `hidden` more are there and do not say where.
        """
        os.write(self._finder, json.dumps([devices, hidden]).encode())

    def has_devices(self) -> bool:
        """Whether discovery has succeeded before."""
        return any(child.index != DISCOVERY for child in self._children)

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
            if 0 not in ready:
                continue
            if not os.read(0, 256):
                self._end()
                return 0
            self._discover_again()

    def _discover_again(self) -> None:
        if all(child.index != DISCOVERY for child in self._children):
            self._children.append(Child(index=DISCOVERY))

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
            if call in self.optional:
                child.leave_out(call, now)

    def _stalled(self, child: Child, call: str, seconds: float) -> None:
        if self._is_of_no_account(child, call):
            return
        self.report(
            "stalled",
            index=child.index,
            at=time.time(),
            call=call,
            seconds=round(seconds, 1),
            abandoned=child.abandoned,
        )

    def _is_of_no_account(self, child: Child, call: str) -> bool:
        """A discovery that goes on at once without the call, or a later one beside good readers."""
        return child.index == DISCOVERY and (call in self.optional or self.has_devices())

    def _reap(self, child: Child, now: float) -> bool:
        """Whether the child has ended; if so, when there will be another."""
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if not pid:
            return False
        code = os.waitstatus_to_exitcode(status)
        _, call, polls = self.page.read(child.index)
        another_look = child.index == DISCOVERY and self.has_devices()
        if code < 0 and not child.killed_at:
            if not self._is_of_no_account(child, call):
                self.report("died", index=child.index, at=time.time(), call=call, signal=-code)
            if call in self.optional:
                child.leave_out(call, now)
        child.pid = 0
        # One that had been reading well is replaced soon; one that keeps failing waits longer.
        before = 0.0 if polls else child.pause_seconds
        child.pause_seconds = min(max(_PAUSE_SECONDS_MIN, before * 2), _PAUSE_SECONDS_MAX)
        child.start_at = now + child.pause_seconds
        if child.index == DISCOVERY and code == 0:
            self._take_found()
        elif another_look:
            self._children.remove(child)
        return True

    def _take_found(self) -> None:
        """A child for each device that has none; who has one keeps it, listed or not."""
        devices, hidden = json.loads(os.read(self._found, 65536))
        known = {child.address: child for child in self._children if child.index != DISCOVERY}
        for place, address in devices:
            child = known.setdefault(address, Child(index=len(known), address=address))
            child.place = place
        self._children = list(known.values())
        listed = {known[address].index: address for _, address in devices}
        self.report("found", at=time.time(), addresses=listed, hidden=hidden)

    def _end(self) -> None:
        for child in self._children:
            if child.pid:
                os.kill(child.pid, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)
