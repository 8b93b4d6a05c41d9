"""The gate at which a standby waits: where a script first asks for what only a rank can know.

That is a rank's own variable in the environment, a process group, a device, a fork of itself, or a
look into the checkpoint folder. What is the same for every rank of the job is there from the start
and holds nobody up. Once the gate is passed nothing of it is in the way.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aegis.worker.rank import RankOrder

_LOOKED_AT = ("open", "os.listdir", "os.scandir")


@dataclass
class Gate:
    """Closed until `wait` has returned; then open for ever."""

    is_gated: Callable[[str], bool]  # whether only a rank has this variable
    folders: tuple[str, ...]  # that nobody looks into before
    ask: Callable[[], RankOrder]  # for a place, and wait for it
    settle: Callable[[RankOrder], None]  # take it
    passed: bool = False
    _lock: Any = field(default_factory=threading.RLock)
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Hold up whoever asks from now on."""
        _gates.append(self)
        os.environ.__class__ = _Environment
        self._undo.append(lambda: setattr(os.environ, "__class__", _PLAIN))
        os.register_at_fork(before=self.wait)
        if self.folders:
            sys.addaudithook(self._audit)
            self._hold(os, "stat", by_path=True)
        for module, name in (
            ("torch.distributed", "init_process_group"),
            ("torch.distributed.distributed_c10d", "init_process_group"),
            ("torch.cuda", "_lazy_init"),
        ):
            if module in sys.modules:
                self._hold(sys.modules[module], name)

    def wait(self) -> None:
        """Wait here until this process has its place."""
        if self.passed:
            return
        with self._lock:
            if not self.passed:
                order = self.ask()
                self.open()
                self.settle(order)

    def open(self) -> None:
        """Let everything through."""
        self.passed = True
        while self._undo:
            self._undo.pop()()

    def _hold(self, module: Any, name: str, *, by_path: bool = False) -> None:
        """Put the gate before a function; whoever has kept the held one gets the plain one."""
        plain = getattr(module, name)

        @functools.wraps(plain)
        def held(*arguments: Any, **named: Any) -> Any:
            if not by_path or (arguments and self._is_looked_into(arguments[0])):
                self.wait()
            return plain(*arguments, **named)

        setattr(module, name, held)
        self._undo.append(lambda: setattr(module, name, plain))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.passed or event not in _LOOKED_AT:
            return
        if arguments and self._is_looked_into(arguments[0]):
            self.wait()

    def _is_looked_into(self, path: object) -> bool:
        if self.passed or not isinstance(path, str | bytes | os.PathLike):
            return False
        there = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  it asks the disk for nothing
        return any(there == one or there.startswith(f"{one}/") for one in self.folders)


_PLAIN: Any = type(os.environ)
_gates: list[Gate] = []


def _ask(name: object) -> None:
    if isinstance(name, str) and _gates[-1].is_gated(name):
        _gates[-1].wait()


class _Environment(_PLAIN):  # type: ignore[misc]
    """`os.environ` of a process that is no rank yet; it is the plain one again once it is."""

    def __getitem__(self, key: str) -> str:
        _ask(key)
        return str(_PLAIN.__getitem__(self, key))

    def __setitem__(self, key: str, value: str) -> None:
        _ask(key)
        _PLAIN.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        _ask(key)
        _PLAIN.__delitem__(self, key)

    def __iter__(self) -> Iterator[str]:
        _gates[-1].wait()
        return iter(os.environ)
