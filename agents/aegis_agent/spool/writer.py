"""A thread for what may block: a busy disk takes seconds for what takes a millisecond else."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Writer:
    """Does one piece of work after another, and gives each result back to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a disk that never answers must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do the work in the thread, and then `done` with its result in the loop."""

        def both() -> None:
            result = work()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(done, result)

        self._work.put(both)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def stop(self, seconds: float) -> bool:
        """End after the work that was given; whether it has ended in time."""
        self._work.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()
