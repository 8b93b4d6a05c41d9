"""`python -m aegis.worker.parent LAUNCHER_PID [MODULE,… FOLDER]`: forks ranks already imported.

Importing torch and what a training script needs of it takes seconds; a fork takes milliseconds. So
this process imports all of it once, and the user's modules where it is told to, touches no device,
starts no thread, and forks a rank whenever its launcher asks. Where it is asked to, it keeps
standbys that have run the script ahead (`aegis.worker.standby`), and a rank is one of those. It
tells of each start and each end at once, and ends a rank's children with it.

    in   {"op": "start", "generation", "local_rank", "kind", "target", "arguments", "environment",
          "folder", "stdout", "stderr"}
         {"op": "signal", "number"}               to all ranks; SIGKILL goes to their groups
         {"op": "leave"}                          ranks that can stay leave, the others are killed
         {"op": "release"}                        end those that have left
         {"op": "standbys", "count", …}           keep so many (`StandbyOrder`), until a rank starts
    out  {"event": "ready", "threads"}
         {"event": "started", "generation", "local_rank", "pid", "at", "source"}
         {"event": "exited", "generation", "local_rank", "pid", "status", "at"}   as waitpid says
         {"event": "left", "generation", "local_rank", "at", "error"}   it keeps its process
         {"event": "refused", "generation", "local_rank", "reason"}   it could not be forked
         {"event": "standbys", "ready"}           so many wait at the gate
         {"event": "standby_failed", "reason"}    one ended before it was a rank
         {"event": "unfit", "module", "reason"}   this module cannot be imported here; it ends
         {"event": "failed", "reason"}            it cannot work here at all, and ends
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aegis.worker import rank, standby
from aegis.worker.lifeline import end_with
from aegis.worker.lines import Lines
from aegis.worker.pool import Child, Standbys, make_channel
from aegis.worker.rank import RankOrder
from aegis.worker.standby import StandbyOrder
from aegis.worker.sweeper import Sweeper, end_group

# What a script that trains and checkpoints would import itself, most of the time of a cold start.
_IMPORTED = (
    "torch",
    "torch.distributed",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.nn.parallel",
    "torch.optim",
    "torch._dynamo",  # the first optimizer step imports it
    "numpy",
    "aegis.worker.checkpoint",
)
# What torch imports when it first saves, loads or profiles; not each version has each of them.
_IMPORTED_LATE = (
    "torch.distributed.checkpoint._fsspec_filesystem",
    "torch.utils.serialization",
    "torch.profiler._cupti_monitor",
)
_LOOK_SECONDS = 5.0
_UNUSED_SECONDS = 30.0  # a device is not held for a generation that does not come
_MESSAGE_BYTES_MAX = 1 << 16

Part = Callable[[], int]


@dataclass
class Parent:
    """The living children and the launcher's lines. In a forked child nothing of it is open."""

    lines: Lines
    sweeper: Sweeper
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, Child] = field(default_factory=dict)  # by pidfd
    standbys: Standbys = field(init=False)
    _forked: Part | None = None  # in a child: what it is to be

    def __post_init__(self) -> None:
        self.standbys = Standbys(self.children, self._fork_standby, self.lines.say)

    def serve(self) -> Part | None:
        """Obey until the launcher is gone: None. In a forked child: what it is to be."""
        self.selector.register(self.lines, selectors.EVENT_READ, self._hear_launcher)
        while not self._is_child():
            for key, _ in self.selector.select(self._patience()):
                if not key.data():
                    self._end_all()
                    return None
                if self._is_child():
                    break
            else:
                for child in [*self.standbys.overdue(), *self._overstayed()]:
                    self._signal_one(child, signal.SIGKILL)
        return self._forked

    def _patience(self) -> float:
        """How long nothing needs to be looked at."""
        due = [child.leave_by for child in self.children.values() if child.leave_by]
        return max(0.0, min([_LOOK_SECONDS, *(at - time.monotonic() for at in due)]))

    def _overstayed(self) -> list[Child]:
        """Ranks that have not left in time, and those that have and were given no other place."""
        now = time.monotonic()
        late = [one for one in self.children.values() if one.leave_by and one.leave_by <= now]
        for child in late:
            child.leave_by = 0.0
        idle = [one for one in self.children.values() if one.left_at]
        return late + [one for one in idle if now - one.left_at > _UNUSED_SECONDS]

    def _is_child(self) -> bool:
        return self._forked is not None

    def _hear_launcher(self) -> bool:
        messages = self.lines.take()
        for message in messages or ():
            self._obey(message)
            if self._is_child():
                break
        return messages is not None

    def _obey(self, message: dict[str, Any]) -> None:
        match message.pop("op"):
            case "start":
                self.standbys.hold()
                self._start(RankOrder(**message))
            case "signal":
                self._signal(message["number"])
            case "leave":
                for child in self._ranks():
                    if not child.leave():
                        self._signal_one(child, signal.SIGKILL)
            case "release":
                for child in self.children.values():
                    if child.left_at:
                        self._signal_one(child, signal.SIGKILL)
            case "standbys":
                count = message.pop("count")
                self.standbys.want(StandbyOrder(**message), count)
            case _:
                pass

    # ── from order to process ──

    def _start(self, order: RankOrder) -> None:
        """Give a survivor or a standby its place, or fork a rank."""
        child, source = self._survivor(order), "survivor"
        if child is None:
            child, source = self.standbys.take(order), "standby"
        if child is None:
            child, source = self._fork(order, partial(_be_rank, order), is_rank=True), "fork"
        if child is None:
            return
        self._say_of(child, "started", pid=child.pid, at=time.time(), source=source)

    def _survivor(self, order: RankOrder) -> Child | None:
        """The process that had this place before, if it has left and waits."""
        for child in self.children.values():
            its = child.order.local_rank == order.local_rank
            if child.left_at and its and child.become(order):
                return child
        return None

    def _ranks(self) -> list[Child]:
        """Those that hold a rank."""
        return [one for one in self.children.values() if one.is_rank and not one.left_at]

    def _fork_standby(self, order: StandbyOrder, begun: RankOrder) -> None:
        self._fork(begun, partial(standby.run, order, begun), is_rank=False)

    def _fork(
        self, order: RankOrder, part: Callable[[socket.socket], int], *, is_rank: bool
    ) -> Child | None:
        """The child, in the parent; None where there is none, and in the child itself."""
        parent = os.getpid()
        mine, its = make_channel()
        try:
            pid = os.fork()
        except OSError as error:
            self._refuse(order, f"no process could be forked: {error.strerror}", is_rank=is_rank)
            mine.close()
            its.close()
            return None
        if pid == 0:
            mine.close()
            self._let_go()
            rank.detach(order, parent)
            self._forked = partial(part, its)
            return None
        its.close()
        self.sweeper.watch(pid)
        child = Child(pid, os.pidfd_open(pid), mine, order, is_rank)
        self.children[child.pidfd] = child
        self.selector.register(child.pidfd, selectors.EVENT_READ, partial(self._reap, child))
        self.selector.register(mine, selectors.EVENT_READ, partial(self._hear_child, child))
        return child

    def _refuse(self, order: RankOrder, reason: str, *, is_rank: bool) -> None:
        if is_rank:
            where = {"generation": order.generation, "local_rank": order.local_rank}
            self.lines.say("refused", reason=reason, **where)
        else:
            self.lines.say("standby_failed", reason=reason)

    # ── what children do ──

    def _hear_child(self, child: Child) -> bool:
        try:
            message = child.channel.recv(_MESSAGE_BYTES_MAX)
        except OSError:
            message = b""
        if not message:  # it has become a program, or is about to be gone
            self.selector.unregister(child.channel)
            return True
        told = json.loads(message)
        match told["event"]:
            case "at_gate":
                self.standbys.at_gate(child)
            case "survives":
                child.survives = told["seconds"]
            case "left":
                child.leave_by, child.left_at = 0.0, time.monotonic()
                self._say_of(child, "left", at=time.time(), error=told["error"])
            case _:
                pass
        return True

    def _reap(self, child: Child) -> bool:
        """A child has ended: end its group while its number is still its own, then tell."""
        end_group(child.pid)
        _, status = os.waitpid(child.pid, 0)
        at = time.time()
        self.selector.unregister(child.pidfd)
        with contextlib.suppress(KeyError):
            self.selector.unregister(child.channel)
        child.channel.close()
        os.close(child.pidfd)
        del self.children[child.pidfd]
        self.sweeper.forget(child.pid)
        code = os.waitstatus_to_exitcode(status)
        if not child.is_rank:
            self.standbys.ended(child, code)
            return True
        self._say_of(child, "exited", pid=child.pid, status=code, at=at)
        return True

    def _say_of(self, child: Child, event: str, **news: object) -> None:
        order = child.order
        self.lines.say(event, generation=order.generation, local_rank=order.local_rank, **news)

    def _signal(self, number: int) -> None:
        """Those that wait for a place hear of nothing but the end."""
        for child in self._ranks():
            self._signal_one(child, number)

    def _signal_one(self, child: Child, number: int) -> None:
        # A graceful signal is for the rank only: a data loader that ends first would look like a
        # failure. A rank that was forked just now has no group of its own yet.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, number)
        if number == signal.SIGKILL:
            end_group(child.pid)

    def _end_all(self) -> None:
        self.standbys.close()
        for child in list(self.children.values()):
            self._signal_one(child, signal.SIGKILL)
        for child in list(self.children.values()):
            self._reap(child)

    def _let_go(self) -> None:
        """In the child: close what only the parent needs."""
        self.selector.close()
        for child in self.children.values():
            os.close(child.pidfd)
            child.channel.close()
        self.children.clear()
        self.sweeper.close()
        self.lines.close()


def _be_rank(order: RankOrder, channel: socket.socket) -> int:
    rank.channel = channel
    rank.be_seen(order)
    return rank.run(order)


def _preload(lines: Lines, modules: Sequence[str], folder: str) -> bool:
    """Import the user's modules; whether this process may still be forked."""
    sys.path.insert(0, folder)
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001  whatever a module raises, it is not preloaded
            lines.say("unfit", module=name, reason=f"{type(error).__name__}: {error}")
            return False
        if reason := _unforkable():
            lines.say("unfit", module=name, reason=reason)
            return False
    return True


def _unforkable() -> str:
    if _threads() > 1:
        return "importing it starts a thread, which no forked rank would have"
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "importing it takes a device, which no forked rank could use"
    return ""


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def main() -> int:
    """Serve the launcher; in a child that it forks, be what that is to be."""
    end_with(int(sys.argv[1]))
    # A terminal's Ctrl-C is the launcher's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines, sweeper = Lines(), Sweeper()
    try:
        for name in _IMPORTED:
            importlib.import_module(name)
    except ImportError as error:
        lines.say("failed", reason=f"{name}: {error}")
        return 1
    for name in _IMPORTED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    modules = sys.argv[2].split(",") if len(sys.argv) > 3 else []
    if modules and not _preload(lines, modules, sys.argv[3]):
        os._exit(1)  # whatever threads they have started
    # What is never collected is never written to, so ranks go on sharing its memory.
    gc.collect()
    gc.freeze()
    lines.say("ready", threads=_threads())
    part = Parent(lines, sweeper).serve()
    return 0 if part is None else part()


if __name__ == "__main__":
    raise SystemExit(main())
