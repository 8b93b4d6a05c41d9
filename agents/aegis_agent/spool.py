"""Faults on their way to the controller, and what is remembered of each device, on disk.

- A fault and the counters that it came from are written in one transaction: after any crash a
  fault is either still to come from the counters, or in the spool.
- Numbers grow for ever. They are the clock in microseconds, or one more than the last where the
  clock went back, so that not even a spool that could not be written uses one twice.
- The controller says up to which number it has stored them; those are forgotten.
- A full or unwritable disk stops nothing: all goes on in memory, `trouble` says so, and `retry`
  brings everything back to disk.
- The number kept is bounded. The least important go first, and are counted; faults of severity
  error and fatal never go.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.wire import SpooledFault

_log = logging.getLogger(__name__)
_FAULT = TypeAdapter(Fault)

FAULTS_MAX = 10_000
_RETRY_SECONDS = 1.0
_BUSY_SECONDS = 1.0
_IMPORTANCE = {Severity.INFO: 1, Severity.WARNING: 2}  # others are never dropped
_TABLES = """
CREATE TABLE IF NOT EXISTS spool (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fault (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS memory (device TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
"""


class SpoolBusyError(Exception):
    """Another agent uses this folder; the sentence says which."""


class Spool:
    """All of it is in memory too, so that reading never waits for the disk."""

    def __init__(self, path: Path | None, faults_max: int = FAULTS_MAX) -> None:
        """Open or create the spool; without a path it is never on disk."""
        self.origin = secrets.token_hex(8)
        self.trouble = ""  # one sentence; empty: everything is on disk
        self.dropped = 0  # since the agent started
        self._path = path
        self._faults_max = faults_max
        self._faults: dict[int, Fault] = {}
        self._memory: dict[str, str] = {}
        self._last_number = 0
        self._database: sqlite3.Connection | None = None
        self._retry_at = 0.0
        self._lock: int | None = None
        if path is not None:
            self._take_lock(path)
            self._open(path)

    def append(self, faults: Sequence[Fault], memory: Mapping[str, str]) -> None:
        """Keep faults, and what is now remembered of the devices they came from."""
        added = {self._next_number(): fault for fault in faults}
        self._faults |= added
        self._memory |= memory
        dropped = self._drop() if len(self._faults) > self._faults_max else []

        def statements(database: sqlite3.Connection) -> None:
            _insert(database, added)
            database.executemany("DELETE FROM fault WHERE number = ?", [(n,) for n in dropped])
            database.executemany("REPLACE INTO memory VALUES (?, ?)", list(memory.items()))

        self._write(statements)

    def remember(self, memory: Mapping[str, str]) -> None:
        """Keep what has changed without a fault."""
        self.append((), memory)

    def recall(self) -> dict[str, str]:
        """What is remembered, by device."""
        return dict(self._memory)

    def erase(self, device: str) -> None:
        """Remember a device no more."""
        self._memory.pop(device, None)
        self._write(lambda database: _run(database, "DELETE FROM memory WHERE device = ?", device))

    def pending(self, limit: int) -> tuple[SpooledFault, ...]:
        """The oldest faults that the controller has not confirmed."""
        numbers = sorted(self._faults)[:limit]
        return tuple(SpooledFault(number=n, fault=self._faults[n]) for n in numbers)

    def __len__(self) -> int:
        return len(self._faults)

    def forget(self, stored: int) -> int:
        """Drop what the controller has stored; how many those were."""
        numbers = [number for number in self._faults if number <= stored]
        for number in numbers:
            del self._faults[number]
        if numbers:
            self._write(
                lambda database: _run(database, "DELETE FROM fault WHERE number <= ?", stored)
            )
        return len(numbers)

    def retry(self) -> bool:
        """Bring everything back to disk if it is not; whether that is so now."""
        if not self.trouble or self._path is None:
            return True
        if time.monotonic() < self._retry_at:
            return False
        self._close_database()
        self.trouble = ""
        self._open(self._path)
        self._write(self._write_all)
        if not self.trouble:
            _log.info("The spool is back on disk.", extra={"faults": len(self._faults)})
        return not self.trouble

    def _write_all(self, database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM fault")
        database.execute("DELETE FROM memory")
        _insert(database, self._faults)
        database.executemany("REPLACE INTO memory VALUES (?, ?)", list(self._memory.items()))

    def close(self) -> None:
        """Everything is on disk already."""
        self._close_database()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # numbers and bounds

    def _next_number(self) -> int:
        self._last_number = max(self._last_number + 1, int(time.time() * 1e6))
        return self._last_number

    def _drop(self) -> list[int]:
        """The least important faults above the limit, the oldest first."""
        droppable = sorted(
            (_importance(fault), number)
            for number, fault in self._faults.items()
            if fault.severity in _IMPORTANCE
        )
        numbers = [number for _, number in droppable[: len(self._faults) - self._faults_max]]
        for number in numbers:
            del self._faults[number]
        self.dropped += len(numbers)
        return numbers

    # the disk

    def _take_lock(self, path: Path) -> None:
        """Two agents with one spool would forget each other's faults."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            self._fail(error)
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise SpoolBusyError(
                f"another agent is using {path.parent}; stop it, or give this one "
                "a folder of its own with --state-dir"
            ) from None

    def _open(self, path: Path) -> None:
        try:
            self._connect(path)
        except sqlite3.OperationalError as error:  # full, unwritable, not there
            self._fail(error)
        except (sqlite3.DatabaseError, ValueError) as error:  # not a database, or not our rows
            self._set_aside(path, error)

    def _connect(self, path: Path) -> None:
        database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        self._database = database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.executescript(_TABLES)
        database.execute("INSERT OR IGNORE INTO spool VALUES ('origin', ?)", (self.origin,))
        (origin,) = database.execute("SELECT value FROM spool WHERE name = 'origin'").fetchone()
        faults = {
            number: _FAULT.validate_json(body)
            for number, body in database.execute("SELECT number, body FROM fault")
        }
        memory = dict(database.execute("SELECT device, body FROM memory").fetchall())
        # On a retry what is in memory is newer than what is on disk.
        if origin != self.origin:
            self.origin = origin
            self._faults = faults | self._faults
            self._memory = memory | self._memory
            self._last_number = max([self._last_number, *faults])

    def _set_aside(self, path: Path, error: Exception) -> None:
        self._close_database()
        aside = path.with_name(f"{path.name}.damaged-{int(time.time())}")
        _log.error(
            "The spool is damaged; it was set aside and a new one begun.",
            extra={"spool": path, "aside": aside, "reason": error},
        )
        try:
            path.replace(aside)
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._connect(path)
        except (OSError, sqlite3.Error) as second:
            self._fail(second)

    def _write(self, statements: Callable[[sqlite3.Connection], None]) -> None:
        """All of it or nothing; while there is trouble, `retry` writes all that is in memory."""
        if self._database is None or self.trouble:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            statements(self._database)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        if not self.trouble:
            _log.error(
                "The spool cannot be written; the agent goes on in memory.",
                extra={"spool": self._path, "reason": error},
            )
        self.trouble = (
            f"{self._path} cannot be written ({error}): faults wait in memory and would be lost "
            "with the agent; free some space or mend the folder's rights"
        )

    def _close_database(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


def _insert(database: sqlite3.Connection, faults: Mapping[int, Fault]) -> None:
    rows = [(number, _FAULT.dump_json(fault).decode()) for number, fault in faults.items()]
    database.executemany("REPLACE INTO fault VALUES (?, ?)", rows)


def _run(database: sqlite3.Connection, statement: str, value: str | int) -> None:
    database.execute(statement, (value,))


def _importance(fault: Fault) -> int:
    if fault.fault_class == FaultClass.GPU_ECC_CORRECTABLE:
        return 0
    return _IMPORTANCE[fault.severity]
