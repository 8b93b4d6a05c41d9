"""The spool: what waits and what is remembered, in memory at once and on disk soon.

- A fault and the counters that it came from are written in one transaction: after any crash a
  fault is either still to come from the counters, or in the spool.
- Numbers grow for ever. They are the clock in microseconds, or one more than the last where the
  clock went back, so that not even a spool that could not be written uses one twice.
- The controller says up to which number it has stored them; those are forgotten.
- After `start` a thread writes, and what came meanwhile is written together. A report waits for
  what it tells to be on disk, so that after a crash nothing is told twice, but only so long
  (`settled`): a slow disk must not keep a fault from being told.
- A full or unwritable disk stops nothing: all goes on in memory, `trouble` says so, and `retry`
  brings everything back to disk.
- The number kept is bounded, see `waiting`.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from aegis.model.fault import Fault
from aegis.model.node import Suppressed
from aegis.wire import SpooledFault
from aegis_agent.spool.disk import Change, Content, Disk
from aegis_agent.spool.waiting import Waiting
from aegis_agent.spool.writer import Writer

T = TypeVar("T")
_log = logging.getLogger(__name__)
FAULTS_MAX = 10_000
SETTLE_SECONDS = 0.2  # of a report; a disk that is well needs a hundredth of it
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 5.0


@dataclass(slots=True)
class _Unwritten:
    """What differs between memory and disk."""

    numbers: set[int] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    whole: bool = False

    def __bool__(self) -> bool:
        return self.whole or bool(self.numbers or self.keys)


class Spool:
    """All of it is in memory, so that reading never waits for the disk."""

    def __init__(self, path: Path | None, faults_max: int = FAULTS_MAX) -> None:
        """Open or create the spool; without a path it is never on disk."""
        self.origin = secrets.token_hex(8)
        self.trouble = ""  # one sentence; empty: everything is on disk, or on its way
        self._waiting = Waiting(faults_max=faults_max)
        self._memory: dict[str, str] = {}
        self._last_number = 0
        self._disk = Disk(path) if path is not None else None
        self._writer: Writer | None = None  # None: writes are made at once
        self._unwritten = _Unwritten()
        self._busy = False  # the writer works
        self._changes = self._submitted = self._durable = 0  # made, given to the disk, on it
        self._wake = asyncio.Event()  # something came back from the disk
        self._retry_at = 0.0
        if self._disk is not None:
            if (error := self._disk.lock()) is not None:
                self._fail(error)
            else:
                self._opened(self._disk.open(self.origin))

    # what waits, and what is remembered

    def append(self, faults: Sequence[Fault], memory: Mapping[str, str]) -> list[Fault]:
        """Keep faults, and what is now remembered of the devices they came from.

        Gives back those that wait on their own: the others were merged with one that waits.
        """
        alone = []
        for fault in faults:
            number = self._next_number()
            place = self._waiting.add(number, fault)
            self._unwritten.numbers.add(place)
            if place == number:
                alone.append(fault)
        self._unwritten.numbers.update(self._waiting.drop())
        self._memory |= memory
        self._unwritten.keys.update(memory)
        self._changed()
        return alone

    def remember(self, memory: Mapping[str, str]) -> None:
        """Keep what has changed without a fault."""
        self.append((), memory)

    def recall(self) -> dict[str, str]:
        """What is remembered, by device."""
        return dict(self._memory)

    def erase(self, device: str) -> None:
        """Remember a device no more."""
        self._memory.pop(device, None)
        self._unwritten.keys.add(device)
        self._changed()

    def pending(self, limit: int) -> tuple[SpooledFault, ...]:
        """The oldest faults that the controller has not confirmed."""
        return self._waiting.pending(limit)

    def __len__(self) -> int:
        return len(self._waiting)

    def forget(self, stored: int) -> int:
        """Drop what the controller has stored; how many those were."""
        numbers = self._waiting.forget(stored)
        if numbers:
            self._unwritten.numbers.update(numbers)
            self._changed()
        return len(numbers)

    @property
    def dropped(self) -> int:
        """How many faults a full spool has dropped since the agent started."""
        return self._waiting.dropped

    def suppressed(self) -> tuple[Suppressed, ...]:
        """What was merged and dropped since then, by class."""
        return self._waiting.suppressed()

    def _next_number(self) -> int:
        self._last_number = max(self._last_number + 1, int(time.time() * 1e6))
        return self._last_number

    # the disk

    def start(self) -> None:
        """From now on a thread writes. Called in the event loop that uses the spool."""
        if self._disk is not None:
            self._writer = Writer(asyncio.get_running_loop())

    async def settled(self, seconds: float = SETTLE_SECONDS) -> None:
        """Wait until what was told so far is on disk, but not for longer."""
        goal = self._changes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._durable < goal and self._writer is not None and not self.trouble:
                    await self._wake.wait()

    def retry(self) -> bool:
        """Bring everything back to disk if it is not; whether that is so now."""
        if not self.trouble or self._disk is None:
            return True
        if time.monotonic() >= self._retry_at and not self._busy:
            disk, origin = self._disk, self.origin
            self._do(lambda: disk.open(origin), self._opened)
        return not self.trouble

    def close(self) -> None:
        """Write what is left and let another agent use the folder."""
        if self._disk is None:
            return
        if self._writer is not None and not self._writer.stop(_CLOSE_SECONDS):
            return  # it is stuck in the disk, and so would this be
        self._writer, self._busy = None, False
        # What the thread was given last has not been heard of: once more does no harm.
        self._unwritten.whole = self._unwritten.whole or self._durable < self._submitted
        if self._unwritten and not self.trouble:
            self._write()
        self._disk.close()
        self._disk.unlock()
        self._disk = None

    def _changed(self) -> None:
        self._changes += 1
        if len(self._unwritten.numbers) > 2 * self._waiting.faults_max:
            self._unwritten = _Unwritten(whole=True)  # the disk hangs, and this would grow
        if not self._busy and not self.trouble:
            self._write()

    def _write(self) -> None:
        """Write all that differs; while there is trouble, `retry` does."""
        if self._disk is None:
            return
        change, self._unwritten = self._take(), _Unwritten()
        self._submitted = self._changes
        disk = self._disk
        self._do(lambda: disk.write(change), self._written)

    def _take(self) -> Change:
        """What differs, as it is now: what came and went meanwhile is never written."""
        left = self._unwritten
        if left.whole:
            return Change(faults=self._waiting.all(), memory=dict(self._memory), whole=True)
        faults = {number: self._waiting.get(number) for number in left.numbers}
        memory = {key: self._memory.get(key) for key in left.keys}
        return Change(
            faults={number: fault for number, fault in faults.items() if fault is not None},
            gone=tuple(number for number, fault in faults.items() if fault is None),
            memory={key: body for key, body in memory.items() if body is not None},
            erased=tuple(key for key, body in memory.items() if body is None),
        )

    def _do(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """What may block: in the thread, or at once while there is none."""
        if self._writer is None:
            done(work())
            return

        def back(result: T) -> None:
            self._busy = False
            done(result)
            self._wake.set()  # whoever waits now looks again
            self._wake.clear()
            if self._unwritten and not self._busy and not self.trouble:
                self._write()

        self._busy = True
        self._writer.submit(work, back)

    def _written(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._durable = self._submitted
        if self.trouble:
            self.trouble = ""
            _log.info("The spool is back on disk.", extra={"faults": len(self._waiting)})

    def _opened(self, found: Content | Exception) -> None:
        if isinstance(found, Exception):
            self._fail(found)
            return
        # After trouble, what is in memory is newer than what is on disk.
        if found.origin != self.origin:
            self.origin = found.origin
            self._waiting.load(found.faults)
            self._memory = {**found.memory, **self._memory}
            self._last_number = max([self._last_number, *found.faults])
        if self.trouble:
            self._unwritten.whole = True
            self._write()

    def _fail(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._unwritten = _Unwritten(whole=True)
        path = self._disk.path if self._disk is not None else None
        if not self.trouble:
            _log.error(
                "The spool cannot be written; the agent goes on in memory.",
                extra={"spool": path, "reason": error},
            )
        self.trouble = (
            f"{path} cannot be written ({error}): faults wait in memory and would be lost "
            "with the agent; free some space or mend the folder's rights"
        )
