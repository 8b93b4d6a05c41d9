"""`python -m aegis.worker.parent LAUNCHER_PID`: forks ranks that need not import torch any more.

Importing torch and what a training script needs of it takes seconds; a fork takes milliseconds. So
this process imports all of it once, touches no device, starts no thread, and forks a rank whenever
its launcher asks. It tells of each start and each end at once, and ends a rank's children with it.

    in   {"op": "start", "generation", "local_rank", "kind", "target", "arguments", "environment",
          "folder", "stdout", "stderr"}
         {"op": "signal", "number"}               to all ranks; SIGKILL goes to their groups
    out  {"event": "ready", "threads"}
         {"event": "started", "generation", "local_rank", "pid", "at"}
         {"event": "exited", "generation", "local_rank", "pid", "status", "at"}   as waitpid says
         {"event": "refused", "generation", "local_rank", "reason"}   it could not be forked
         {"event": "failed", "reason"}            it cannot work here at all, and ends
"""

import contextlib
import gc
import importlib
import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aegis.worker import rank
from aegis.worker.lifeline import end_with
from aegis.worker.lines import Lines
from aegis.worker.rank import RankOrder
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


@dataclass(frozen=True, slots=True)
class _Child:
    generation: int
    local_rank: int
    pid: int
    pidfd: int


@dataclass
class Parent:
    """The living ranks and the launcher's lines. In a forked child nothing of it is left open."""

    lines: Lines
    sweeper: Sweeper
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, _Child] = field(default_factory=dict)  # by pidfd

    def serve(self) -> RankOrder | None:
        """Obey until the launcher is gone: None. In a forked child: the rank it is to become."""
        self.selector.register(self.lines, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is not self.lines:
                    self._reap(self.children[key.fd])
                    continue
                messages = self.lines.take()
                if messages is None:
                    self._end_all()
                    return None
                for message in messages:
                    if (order := self._obey(message)) is not None:
                        return order

    def _obey(self, message: dict[str, Any]) -> RankOrder | None:
        match message.pop("op"):
            case "start":
                return self._fork(RankOrder(**message))
            case "signal":
                self._signal(message["number"])
            case _:
                pass
        return None

    def _fork(self, order: RankOrder) -> RankOrder | None:
        parent = os.getpid()
        where = {"generation": order.generation, "local_rank": order.local_rank}
        try:
            pid = os.fork()
        except OSError as error:
            self.lines.say(
                "refused", reason=f"no process could be forked: {error.strerror}", **where
            )
            return None
        if pid == 0:
            self._let_go()
            rank.detach(order, parent)
            return order
        self.sweeper.watch(pid)
        child = _Child(order.generation, order.local_rank, pid, os.pidfd_open(pid))
        self.children[child.pidfd] = child
        self.selector.register(child.pidfd, selectors.EVENT_READ)
        self.lines.say("started", pid=pid, at=time.time(), **where)
        return None

    def _reap(self, child: _Child) -> None:
        """A rank has ended: end its group while its number is still its own, then tell."""
        end_group(child.pid)
        _, status = os.waitpid(child.pid, 0)
        at = time.time()
        self.selector.unregister(child.pidfd)
        os.close(child.pidfd)
        del self.children[child.pidfd]
        self.sweeper.forget(child.pid)
        self.lines.say(
            "exited",
            generation=child.generation,
            local_rank=child.local_rank,
            pid=child.pid,
            status=os.waitstatus_to_exitcode(status),
            at=at,
        )

    def _signal(self, number: int) -> None:
        for child in self.children.values():
            # A graceful signal is for the rank only: a data loader that ends first would look like
            # a failure. A rank that was forked just now has no group of its own yet.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, number)
            if number == signal.SIGKILL:
                end_group(child.pid)

    def _end_all(self) -> None:
        self._signal(signal.SIGKILL)
        for child in list(self.children.values()):
            self._reap(child)

    def _let_go(self) -> None:
        """In the child: close what only the parent needs."""
        self.selector.close()
        for pidfd in self.children:
            os.close(pidfd)
        self.children.clear()
        self.sweeper.close()
        self.lines.close()


def main() -> int:
    """Serve the launcher; in a child that it forks, be a rank."""
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
    # What is never collected is never written to, so ranks go on sharing its memory.
    gc.collect()
    gc.freeze()
    lines.say("ready", threads=len(list(Path("/proc/self/task").iterdir())))
    order = Parent(lines, sweeper).serve()
    if order is None:
        return 0
    return rank.run(order)


if __name__ == "__main__":
    raise SystemExit(main())
