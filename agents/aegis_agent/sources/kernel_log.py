"""The kernel log, from wherever it may be read, as lines with the time when each happened.

- /dev/kmsg, or what stands in its place; else the journal; else nothing, and `source` says why and
  what to do. It is tried again and again: rights may be given later.
- A position is where reading stopped. With it a restart neither misses nor repeats a line, and
  lines of another boot are never seen: both sources are asked for this boot only.
- The kernel stamps lines with its own clock since boot, which stands still while the machine sleeps
  (CLOCK_MONOTONIC, not CLOCK_BOOTTIME) and drifts against all others. A line that was waited for
  happened just now: from it the drift is known for those that were not.
"""

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from aegis_agent.probes.kernel.line import Line, parse_line
from aegis_agent.sources import journal
from aegis_agent.sources.journal import JournalError
from aegis_agent.sources.kmsg import KMSG, Kmsg, readable

_RECORDS_PER_TURN = 200  # then others have their turn
_RECORDS_PER_LOOK = 100_000
_POLL_SECONDS = 0.02  # of a file that stands in the log's place: nobody pushes
_RETRY_SECONDS = 10.0
WHAT_TO_DO = (
    "give the agent the capability CAP_SYSLOG, set the sysctl kernel.dmesg_restrict to 0, or add "
    "its user to the group systemd-journal"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where reading stopped, in whichever source."""

    boot_id: str = ""
    sequence: int = -1  # of /dev/kmsg
    offset: int = 0  # of a file in its place
    cursor: str = ""  # of the journal
    drift: float = 0.0  # what the kernel's stamps lack to the monotonic clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some lines in their order, and where they end."""

    lines: tuple[tuple[Line, float], ...]  # with when each happened, seconds since boot
    position: Position
    caught_up: bool  # the end of the log was reached, now or before


Take = Callable[[Batch], None]
Lines: TypeAlias = list[tuple[Line, float]]


class KernelLog:
    """One node's kernel log. Without a path it is not read."""

    def __init__(
        self,
        path: Path | None,
        boot_id: str,
        position: Position | None,
        journalctl: str = "journalctl",
    ) -> None:
        self.lost = 0  # records that were overwritten before they could be read
        self.simulated = False  # not the kernel's own
        self.readable: bool | None = None  # None: not yet known
        self._path = path
        self._boot_id = boot_id.replace("-", "")  # as the journal writes it
        self._journalctl = journalctl
        self._expects = position is not None
        known = position if position and position.boot_id == boot_id else None
        self._position = known or Position(boot_id=boot_id)
        self._caught_up = False
        self._text = "" if path else "not read: this node is simulated"

    def source(self) -> str:
        """What is read, and how many records were lost; or why nothing is."""
        if not self.lost:
            return self._text
        records = "record was" if self.lost == 1 else "records were"
        return f"{self._text}; {self.lost} {records} overwritten before they could be read"

    async def watch(self, take: Take) -> None:
        """Give what is there and what comes, until cancelled."""
        while self._path is not None:
            try:
                kmsg = _open(self._path, self._position.offset)
            except OSError as error:
                await self._without_kmsg(error, take)
            else:
                await self._watch_kmsg(kmsg, take)
            await asyncio.sleep(_RETRY_SECONDS)

    async def look(self) -> Batch:
        """All that the log holds of this boot."""
        self._expects = False
        lines: Lines = []
        if self._path is not None:
            try:
                lines = self._look_kmsg(_open(self._path, 0))
            except OSError as error:
                lines = await self._look_journal(error)
        return Batch(lines=tuple(lines), position=self._position, caught_up=True)

    # /dev/kmsg

    def _opened(self, kmsg: Kmsg) -> None:
        self.readable, self.simulated = True, not kmsg.is_device
        self._text = f"{self._path}, in place of {KMSG}" if self.simulated else str(KMSG)

    async def _watch_kmsg(self, kmsg: Kmsg, take: Take) -> None:
        self._opened(kmsg)
        try:
            while True:
                waited = self._caught_up and kmsg.drained
                batch = self._turn(kmsg, waited=waited)
                if batch.lines or batch.caught_up != waited:
                    take(batch)
                if not kmsg.drained:
                    await asyncio.sleep(0)
                elif kmsg.can_be_waited_for:
                    await readable(kmsg.fileno())
                else:
                    await asyncio.sleep(_POLL_SECONDS)
        except OSError as error:
            self.readable = False
            self._text = f"{self._path} failed ({error.strerror}) and is opened again"
        finally:
            kmsg.close()

    def _turn(self, kmsg: Kmsg, *, waited: bool) -> Batch:
        records = kmsg.read(_RECORDS_PER_TURN)
        lines = self._timed(kmsg, records, waited=waited)
        self._caught_up = self._caught_up or kmsg.drained
        self._position = replace(self._position, offset=kmsg.offset)
        return Batch(lines=tuple(lines), position=self._position, caught_up=self._caught_up)

    def _look_kmsg(self, kmsg: Kmsg) -> Lines:
        self._opened(kmsg)
        try:
            return self._timed(kmsg, kmsg.read(_RECORDS_PER_LOOK), waited=False)
        finally:
            kmsg.close()

    def _timed(self, kmsg: Kmsg, records: Iterable[str], *, waited: bool) -> Lines:
        """The lines that are new. `waited`: the first of them was written just now."""
        now = time.monotonic()
        sequence, drift = self._position.sequence, self._position.drift
        lines: Lines = []
        for record in records:
            line = parse_line(record)
            if line.sequence is not None:
                if kmsg.is_device and line.sequence <= sequence:
                    continue  # read before the agent was restarted
                if line.sequence > sequence + 1 and (sequence >= 0 or self._expects):
                    self.lost += line.sequence - sequence - 1
                sequence, self._expects = line.sequence, False
            happened = now
            if line.uptime is not None and kmsg.is_device:
                drift = now - line.uptime if waited and not lines else drift
                happened = min(now, line.uptime + drift)
            elif line.uptime is not None and not self._caught_up:
                happened = min(now, line.uptime)  # stamps of a stand-in may be anything
            lines.append((line, happened))
        self._position = replace(self._position, sequence=sequence, drift=drift)
        return lines

    # the journal

    async def _look_journal(self, error: OSError, lines_max: int = _RECORDS_PER_LOOK) -> Lines:
        """The newest of its lines; none, and why, where it may not be read either."""
        if self._path != KMSG:  # what stands in the log's place has no journal
            self.readable = False
            self._text = f"not read: {self._path} cannot be opened ({error.strerror})"
            return []
        try:
            entries = await journal.read(self._journalctl, lines_max)
        except JournalError as second:
            self._unreadable(error, second)
            return []
        self._reads_journal(error)
        return self._timed_entries(entries)

    async def _without_kmsg(self, error: OSError, take: Take) -> None:
        if not await self._look_journal(error, 1):
            return
        # What is there when we begin comes at once; what comes later is news.
        begun_at = time.time()
        following = journal.follow(self._journalctl, self._position.cursor)
        async with contextlib.aclosing(following):
            async for entries in following:
                lines = self._timed_entries(entries)
                cursor = next(filter(None, map(journal.cursor_of, reversed(entries))), "")
                self._position = replace(self._position, cursor=cursor or self._position.cursor)
                newest = lines[-1][0].at if lines else None
                self._caught_up = self._caught_up or (newest is not None and newest >= begun_at)
                take(Batch(lines=tuple(lines), position=self._position, caught_up=self._caught_up))
        self._text = f"{self._journalctl} ended and is started again"

    def _timed_entries(self, entries: list[str]) -> Lines:
        now, clock = time.monotonic(), time.time()
        lines = []
        for entry in entries:
            line = parse_line(entry)
            if line.boot_id and self._boot_id and line.boot_id != self._boot_id:
                continue
            age = max(0.0, clock - line.at) if line.at is not None else 0.0
            lines.append((line, now - age))
        return lines

    def _reads_journal(self, error: OSError) -> None:
        self.readable = True
        self._text = f"{self._journalctl}, because {KMSG} cannot be read ({error.strerror})"

    def _unreadable(self, error: OSError, second: JournalError) -> None:
        self.readable = False
        self._text = (
            f"not read: neither {self._path} ({error.strerror}) nor the journal ({second}) may be "
            f"read; {WHAT_TO_DO}"
        )


def _open(path: Path, offset: int) -> Kmsg:
    """Raises OSError, also where a container has something else under the log's name."""
    kmsg = Kmsg(path, offset)
    if path == KMSG and not kmsg.is_device:
        kmsg.close()
        raise OSError(errno.ENODEV, "it is not the kernel's log, as in many containers")
    return kmsg
