"""The children of the ranks' parent: ranks, and standbys on their way to the gate or waiting there.

Standbys are made one after the other, so that making them takes no more than one core from ranks
that train. One that fails is told of; after a few in a row no more are made until it is asked for
again. Whoever needs a rank gets a standby that waits, or none and forks.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from aegis.worker import standby
from aegis.worker.rank import RankOrder
from aegis.worker.standby import StandbyOrder

_GATE_SECONDS = 300.0  # a script that trains before it asks for its rank must not go on for ever
_FAILURES_MAX = 3


@dataclass(slots=True)
class Child:
    """One forked process and the line to it."""

    pid: int
    pidfd: int
    channel: socket.socket
    order: RankOrder  # a standby's: how it began
    is_rank: bool
    waiting: bool = False  # at the gate
    survives: float = 0.0  # seconds for it to leave a generation and stay; 0: it ends with it
    leave_by: float = 0.0  # when it is killed unless it has left; 0: it was not asked to
    left_at: float = 0.0  # since when it holds no rank and waits for one
    forked_at: float = field(default_factory=time.monotonic)

    def become(self, order: RankOrder) -> bool:
        """Give it its place; whether it is still there to take it."""
        try:
            self.channel.send(json.dumps(asdict(order)).encode())
        except OSError:
            return False
        self.order, self.is_rank, self.waiting = order, True, False
        self.leave_by = self.left_at = 0.0
        return True

    def leave(self) -> bool:
        """Ask it to leave its generation; False where it is to be killed instead."""
        if self.leave_by:
            return True  # it was asked before, and has no more time for being asked again
        if not self.survives or is_stopped(self.pid):
            return False
        message = {"op": "leave", "generation": self.order.generation}
        try:
            self.channel.send(json.dumps(message).encode())
        except OSError:
            return False
        self.leave_by = time.monotonic() + self.survives
        return True


@dataclass
class Standbys:
    """How many standbys there are to be, and what became of them. `fork` makes one."""

    children: dict[int, Child]
    fork: Callable[[StandbyOrder, RankOrder], None]
    say: Callable[..., None]
    order: StandbyOrder | None = None
    _wanted: int = 0
    _made: int = 0
    _failures: int = 0
    _told: int = 0

    def want(self, order: StandbyOrder, count: int) -> None:
        """So many standbys are to wait from now on."""
        self.order, self._wanted, self._failures = order, count, 0
        self.make()

    def hold(self) -> None:
        """Make no more: a generation starts, and its ranks need the machine."""
        self._wanted = 0

    def close(self) -> None:
        """No more are made, and the end of those that wait is no failure."""
        self.order = None

    def make(self) -> None:
        """Make the next one, unless one is on its way or there are enough."""
        self._tell_number()
        mine = list(self._all())
        busy = any(not child.waiting for child in mine)
        if self.order is None or busy or len(mine) >= self._wanted:
            return
        if self._failures >= _FAILURES_MAX:
            return
        self._made += 1
        self.fork(self.order, self.order.begin(self._made))

    def at_gate(self, child: Child) -> None:
        """It waits there now."""
        child.waiting = True
        self._failures = 0
        self.make()

    def take(self, order: RankOrder) -> Child | None:
        """A standby that has become this rank; None where there is none that could."""
        if self.order is None or not self.order.fits(order):
            return None
        for child in self._all():
            if child.waiting and child.become(order):
                self._tell_number()
                return child
        return None

    def ended(self, child: Child, status: int) -> None:
        """It is gone and never was a rank."""
        if self.order is None:
            return
        self._failures += 1
        how = f"killed by signal {-status}" if status < 0 else f"exit code {status}"
        self.say("standby_failed", reason=standby.last_words(child.order) or how)
        standby.sweep(child.order)
        self.make()

    def overdue(self) -> list[Child]:
        """Those that should have been at the gate long since; no more are made like them."""
        late = [
            child
            for child in self._all()
            if not child.waiting and time.monotonic() - child.forked_at > _GATE_SECONDS
        ]
        if late:
            self._failures = _FAILURES_MAX
            self.say("standby_failed", reason=f"it asked for no rank in {_GATE_SECONDS:.0f} s")
        return late

    def _all(self) -> Iterable[Child]:
        return [child for child in self.children.values() if not child.is_rank]

    def _tell_number(self) -> None:
        number = sum(child.waiting for child in self._all())
        if number != self._told:
            self._told = number
            self.say("standbys", ready=number)


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped: it can do nothing, and hears of nothing but SIGKILL."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"


def make_channel() -> tuple[socket.socket, socket.socket]:
    """The parent's and the child's end: whole messages, closed when a child becomes a program."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (mine, its):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        os.set_inheritable(end.fileno(), False)
    return mine, its
