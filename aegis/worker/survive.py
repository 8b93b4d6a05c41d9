"""Surviving the death of another rank in place.

    @aegis.worker.inplace
    def train():
        dist.init_process_group(...)
        ...

When a rank of the generation is lost, the others leave the function and their process groups, keep
process, memory and device, and wait. The next generation's launcher gives each its place, and the
function is called again, as if it had just been started: it joins, restores and goes on. Whoever
does not get out in time is killed, and another takes its place.

What is outside of the function is made once. What the function restores from a checkpoint may be
outside; anything else that it changes must be made inside. A rank with no checkpoint to go back to
is ended and started anew, unless it has no `Checkpointer`: then the function makes all its state.
"""

import contextlib
import functools
import gc
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from socket import socket
from types import FrameType
from typing import Any, ParamSpec, TypeVar, overload

from aegis.model.job import Tier
from aegis.worker import progress, rank
from aegis.worker.rank import RankOrder

P = ParamSpec("P")
T = TypeVar("T")

_SIGNAL = int(signal.SIGRTMIN) + 8  # SIGUSR1 and SIGUSR2 belong to the script
_MESSAGE_BYTES_MAX = 1 << 20
_ERROR_CHARACTERS = 2000
_BROKEN = (
    "gloo/", "NCCL", "nccl", "RCCL", "Connection closed by peer", "Connection reset by peer",
    "Broken pipe", "Socket Timeout", "timed out after",
)  # fmt: skip


class LeaveRequest(BaseException):
    """Raised in the function when its generation is over; not for the script to catch."""


class NothingToRestoreError(RuntimeError):
    """A survivor that has trained has no checkpoint to go back to: it must start anew."""


@overload
def inplace(function: Callable[P, T]) -> Callable[P, T]: ...
@overload
def inplace(*, seconds: float = ...) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def inplace(function: Any = None, *, seconds: float = 3.0) -> Any:
    """Call the function again in this process after each fault of another rank.

    A rank that is not out of it after so many seconds is killed. Without a launcher it is the
    function and nothing else.
    """
    if function is None:
        return functools.partial(inplace, seconds=seconds)

    @functools.wraps(function)
    def surviving(*arguments: Any, **named: Any) -> Any:
        if rank.channel is None or threading.current_thread() is not threading.main_thread():
            return function(*arguments, **named)
        if not _only:
            progress.current()  # a standby passes its gate here, before anyone else reads its line
            _only.append(_Survivor(rank.channel))
        return _only[0].run(seconds, functools.partial(function, *arguments, **named))

    return surviving


@dataclass
class _Survivor:
    """One process, from generation to generation."""

    channel: socket
    main: int = field(default_factory=threading.get_ident)
    inside: bool = False
    leaving: int = 0  # the generation that is to be left
    generation: int = 0
    restores: bool = False  # the function uses a Checkpointer
    woken: bool = False
    orders: queue.SimpleQueue[RankOrder | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        from aegis.worker import groups  # noqa: PLC0415  it imports torch

        groups.watch()
        signal.signal(_SIGNAL, self._asked)
        threading.Thread(target=self._listen, name="aegis-survive", daemon=True).start()

    def run(self, seconds: float, function: Callable[[], T]) -> T:
        """The function's value, however many generations it takes."""
        from aegis.worker import groups  # noqa: PLC0415

        while True:
            self._enter(seconds)
            try:
                return self._inside(function)
            except LeaveRequest:
                reason = ""
            except Exception as error:
                asked = self.leaving == self.generation
                if not (asked or is_broken(error)) or not self.may_stay:
                    raise
                reason = "".join(traceback.format_exception_only(error))[-_ERROR_CHARACTERS:]
                _clear(error)
            if not self.may_stay:
                os.kill(os.getpid(), signal.SIGKILL)
            groups.release()
            self._tell(event="left", error=reason)
            # What follows takes its time, and the next generation is on its way meanwhile.
            groups.leave()
            gc.collect()  # a wrapped model that is still about would hear of the next one's work
            self._settle(self._next())

    def _inside(self, function: Callable[[], T]) -> T:
        self.inside = True
        try:
            return function()
        finally:
            self.inside = False

    @property
    def may_stay(self) -> bool:
        """Whether there is a state to go back to."""
        return not self.restores or progress.current().progress.checkpoint_step > 0

    def _enter(self, seconds: float) -> None:
        session = progress.current()
        self.generation = session.fence.generation
        loaded = session.loaded

        def note(step: int, found: Tier | None = None) -> None:
            self.restores = True
            if self.woken and step == 0:
                raise NothingToRestoreError(
                    "no checkpoint holds, and this process has trained already: it starts anew"
                )
            loaded(step, found)

        session.loaded = note  # type: ignore[method-assign]
        self._tell(event="survives", seconds=seconds)

    def _tell(self, **news: object) -> None:
        with contextlib.suppress(OSError):
            self.channel.send(json.dumps(news).encode())

    def _next(self) -> RankOrder:
        order = self.orders.get()
        if order is None:
            os._exit(0)
        return order

    def _settle(self, order: RankOrder) -> None:
        """Be this rank from now on."""
        sys.stdout.flush()
        sys.stderr.flush()
        rank.redirect(1, order.stdout)
        rank.redirect(2, order.stderr)
        rank.be_seen(order)
        os.environ.pop("AEGIS_RESUME_FROM", None)
        os.environ.update(order.environment)
        if type(getattr(signal.getsignal(signal.SIGTERM), "__self__", None)).__name__ == (
            "StopRequest"
        ):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the next one takes it over
        progress.forget()
        self.woken = True

    # ── in the thread that hears of the fault while the function is stuck in a collective ──

    def _listen(self) -> None:
        from aegis.worker import groups  # noqa: PLC0415

        while True:
            try:
                message = self.channel.recv(_MESSAGE_BYTES_MAX)
            except OSError:
                message = b""
            if not message:
                self.orders.put(None)
                return
            told = json.loads(message)
            if told.get("op") == "leave":
                self.leaving = told["generation"]
                groups.release()
                signal.pthread_kill(self.main, _SIGNAL)
            else:
                self.orders.put(RankOrder(**told))

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        if self.inside and self.leaving == self.generation:
            self.inside = False
            raise LeaveRequest


_only: list[_Survivor] = []


def is_broken(error: BaseException | None) -> bool:
    """Whether this tells of another rank: a broken group, or something that came of one."""
    while error is not None:
        distributed = type(error).__module__.startswith("torch") and "Dist" in type(error).__name__
        if distributed or (
            isinstance(error, RuntimeError) and any(one in str(error) for one in _BROKEN)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _clear(error: BaseException | None) -> None:
    """Let go of what the function's frames hold: a wrapped model must not hear of a new one."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
