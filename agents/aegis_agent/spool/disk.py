"""The spool's file: plain SQLite, three tables, JSON in the rows. Everything here may block."""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from aegis.model.fault import Fault

_log = logging.getLogger(__name__)
_FAULT = TypeAdapter(Fault)
_BUSY_SECONDS = 1.0
_TABLES = """
CREATE TABLE IF NOT EXISTS spool (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fault (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS memory (device TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
"""


class SpoolBusyError(Exception):
    """Another agent uses this folder; the sentence says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What the file holds."""

    origin: str
    faults: Mapping[int, Fault]
    memory: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be written, all of it or nothing."""

    faults: Mapping[int, Fault] = field(default_factory=dict)
    gone: tuple[int, ...] = ()
    memory: Mapping[str, str] = field(default_factory=dict)
    erased: tuple[str, ...] = ()
    whole: bool = False  # nothing else is to be in the file


class Disk:
    """One file, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None
        self._lock: int | None = None

    def lock(self) -> OSError | None:
        """Two agents with one spool would forget each other's faults."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            return error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise SpoolBusyError(
                f"another agent is using {self.path.parent}; stop it, or give this one "
                "a folder of its own with --state-dir"
            ) from None
        return None

    def unlock(self) -> None:
        """Another agent may use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def open(self, origin: str) -> Content | Exception:
        """Open the file, or make it; the origin is that of a new one."""
        self.close()
        try:
            if self._lock is None and (error := self.lock()) is not None:
                return error
            return self._connect(origin)
        except SpoolBusyError as error:
            return error
        except sqlite3.OperationalError as error:  # full, unwritable, not there
            return error
        except (sqlite3.DatabaseError, ValueError) as error:  # not a database, or not our rows
            return self._set_aside(origin, error)

    def _connect(self, origin: str) -> Content:
        database = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._database = database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.executescript(_TABLES)
        database.execute("INSERT OR IGNORE INTO spool VALUES ('origin', ?)", (origin,))
        (known,) = database.execute("SELECT value FROM spool WHERE name = 'origin'").fetchone()
        rows = database.execute("SELECT number, body FROM fault ORDER BY number")
        return Content(
            origin=known,
            faults={number: _FAULT.validate_json(body) for number, body in rows},
            memory=dict(database.execute("SELECT device, body FROM memory").fetchall()),
        )

    def _set_aside(self, origin: str, error: Exception) -> Content | Exception:
        self.close()
        aside = self.path.with_name(f"{self.path.name}.damaged-{int(time.time())}")
        _log.error(
            "The spool is damaged; it was set aside and a new one begun.",
            extra={"spool": self.path, "aside": aside, "reason": error},
        )
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            return self._connect(origin)
        except (OSError, sqlite3.Error) as second:
            return second

    def write(self, change: Change) -> Exception | None:
        """Write a change in one transaction and wait until it is on disk; why it could not be."""
        if self._database is None:
            return sqlite3.OperationalError("it is not open")
        try:
            self._database.execute("BEGIN IMMEDIATE")
            _apply(self._database, change)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            return error
        return None

    def close(self) -> None:
        """Everything is on disk already."""
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


def _apply(database: sqlite3.Connection, change: Change) -> None:
    if change.whole:
        database.execute("DELETE FROM fault")
        database.execute("DELETE FROM memory")
    rows = [(number, _FAULT.dump_json(fault).decode()) for number, fault in change.faults.items()]
    database.executemany("REPLACE INTO fault VALUES (?, ?)", rows)
    database.executemany("DELETE FROM fault WHERE number = ?", [(one,) for one in change.gone])
    database.executemany("REPLACE INTO memory VALUES (?, ?)", list(change.memory.items()))
    database.executemany("DELETE FROM memory WHERE device = ?", [(one,) for one in change.erased])
