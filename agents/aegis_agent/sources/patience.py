"""Blocking reads beside the loop: one that hangs costs a thread, and nobody waits for it.

A card whose firmware is wedged holds up whoever reads its counters, a minute or for ever, where no
signal reaches. Threads are daemons: such a one does not keep the agent from ending.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class StuckError(Exception):
    """The read is past its deadline, or the one before has not ended yet."""


class Patience:
    """Runs one read per key at a time."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._busy: set[str] = set()

    async def read(self, key: str, function: Callable[..., T], *arguments: Any) -> T:
        """What the function gives, or StuckError."""
        if key in self._busy:
            raise StuckError(key)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._busy.add(key)

        def work() -> None:
            settle: Callable[[], None]
            try:
                settle = functools.partial(answer.set_result, function(*arguments))
            except Exception as error:  # noqa: BLE001  it is raised where it is awaited
                settle = functools.partial(answer.set_exception, error)
            self._busy.discard(key)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, answer, settle)

        threading.Thread(target=work, name=f"read {key}", daemon=True).start()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await answer
        except TimeoutError as error:
            raise StuckError(key) from error


def _settle(answer: "asyncio.Future[Any]", settle: Callable[[], None]) -> None:
    if not answer.done():
        settle()
