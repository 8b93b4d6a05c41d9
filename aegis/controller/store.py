"""The event log, its snapshots and what else must outlive the process, in one SQLite file.

    events       every event in order; a number is never used twice
    snapshots    the whole state after an event: see `retention`
    quarantine   events that broke a promise: a replay leaves them out
    meta         the epoch, and why the controller is on hold
    tokens, answers   see `tokens` and `api.once`

Only one controller uses a folder: a lock on `controller.lock` says so. All writes go through the
one thread of `call`, so that a slow disk never stops the API from answering.
"""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ParamSpec, TypeVar

from aegis.controller.retention import cut, superfluous
from aegis.model.event import Event
from aegis.wire import encode

P = ParamSpec("P")
T = TypeVar("T")

DATABASE = "aegis.db"
LAYOUT = 1  # of the tables
COMPRESS_BYTES = 400  # a body longer than this is kept compressed

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE events (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL
);
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, version TEXT NOT NULL,
    rules_digest TEXT NOT NULL, sha256 TEXT NOT NULL, body BLOB NOT NULL
);
CREATE TABLE quarantine (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, node TEXT NOT NULL,
    spool TEXT NOT NULL, spool_number INTEGER NOT NULL, reason TEXT NOT NULL,
    released INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, role TEXT NOT NULL, node TEXT NOT NULL,
    name TEXT NOT NULL, created_at REAL NOT NULL
);
CREATE TABLE answers (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, status INTEGER NOT NULL, body BLOB NOT NULL,
    at REAL NOT NULL
);
"""
# What a full or failing disk looks like: the controller waits for it to be mended.
_DISK_TROUBLE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
}


class StoreError(Exception):
    """The store cannot be used; the sentence says what to do."""


class InUseError(StoreError):
    """Another controller has it."""


class CannotWriteError(StoreError):
    """The disk is full or fails. What was asked for has not happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state after event `number`, as JSON."""

    number: int
    at: float
    version: str
    rules_digest: str
    body: bytes
    intact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """An event that is left out of every replay, and whom it came from."""

    number: int
    at: float
    kind: str
    reason: str
    node: str = ""  # of a node's report or fault
    spool: str = ""  # of a fault: where it came from ...
    spool_number: int = 0  # ... and its number there
    released: bool = False  # an operator has lifted the hold that it caused


class Store:
    """The folder of one controller. `open_store` makes one."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.folder = folder
        self._connection = connection
        self._lock = lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self.last_number, self.written = self._newest_number(), 0
        self.bytes, self.oldest_at = 0, 0.0
        self.snapshot_number, self.snapshot_at = self._newest_snapshot()
        self._measure()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one of the methods below in the store's own thread."""
        work = self._thread.submit(function, *args, **kwargs)
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        """Finish what is being written and free the folder."""
        self._thread.shutdown()
        self._connection.close()
        os.close(self._lock)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; on disk when this returns."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_TROUBLE:
                raise CannotWriteError(
                    f"nothing can be written to {self.folder} ({error}): free some space there"
                ) from error
            raise
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    # Events

    def append(self, events: Sequence[Event], meta: dict[str, str] | None = None) -> list[int]:
        """Write events, and what belongs to them, in one transaction; returns their numbers."""
        first = self.last_number + 1
        rows = [
            (number, event.at, type(event).__name__, pack(encode(event).encode()))
            for number, event in enumerate(events, first)
        ]
        with self.transaction() as connection:
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
            connection.executemany("REPLACE INTO meta VALUES (?, ?)", (meta or {}).items())
        self.last_number += len(rows)
        self.written += len(rows)
        self.bytes += sum(len(row[3]) for row in rows)
        if rows and not self.oldest_at:
            self.oldest_at = rows[0][1]
        return [row[0] for row in rows]

    def events_after(self, number: int) -> Iterator[tuple[int, float, str, bytes]]:
        """Number, time, kind and JSON of each event after this one."""
        rows = self._connection.execute(
            "SELECT number, at, kind, body FROM events WHERE number > ? ORDER BY number", (number,)
        )
        for found, at, kind, body in rows:
            yield found, at, kind, unpack(body)

    def first_number(self) -> int:
        """The oldest event that is kept; 0: none."""
        row = self._connection.execute("SELECT min(number) FROM events").fetchone()
        return int(row[0] or 0)

    # Snapshots

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep the state, and drop the snapshots that are no longer needed."""
        body = pack(snapshot.body)
        row = (
            snapshot.number,
            snapshot.at,
            snapshot.version,
            snapshot.rules_digest,
            sha256(snapshot.body).hexdigest(),
            body,
        )
        with self.transaction() as connection:
            connection.execute("REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
            gone = superfluous(self._snapshot_numbers())
            connection.executemany("DELETE FROM snapshots WHERE number = ?", [(n,) for n in gone])
        self.snapshot_number, self.snapshot_at = snapshot.number, snapshot.at

    def snapshots(self) -> Iterator[Snapshot]:
        """Newest first."""
        for wanted in reversed(self._snapshot_numbers()):
            number, at, version, digest, checksum, packed = self._connection.execute(
                "SELECT number, at, version, rules_digest, sha256, body FROM snapshots "
                "WHERE number = ?",
                (wanted,),
            ).fetchone()
            body = unpack_whole(packed, checksum)
            yield Snapshot(
                number=number,
                at=at,
                version=version,
                rules_digest=digest,
                body=body,
                intact=bool(body),
            )

    def _snapshot_numbers(self) -> list[int]:
        rows = self._connection.execute("SELECT number FROM snapshots ORDER BY number")
        return [number for (number,) in rows]

    # Retention

    def retain(self, *, before: float, bytes_max: int) -> int:
        """Forget events that are too old or too many; never one that a snapshot may still need."""
        snapshots = self._connection.execute("SELECT number, at FROM snapshots ORDER BY number")
        events = self._connection.execute("SELECT number, length(body) FROM events ORDER BY number")
        surplus = self.bytes - bytes_max
        last = cut(snapshots.fetchall(), events, before=before, surplus_bytes=surplus)
        events.close()
        with self.transaction() as connection:
            gone = connection.execute("DELETE FROM events WHERE number <= ?", (last,)).rowcount
            connection.execute("DELETE FROM snapshots WHERE number < ?", (last,))
            connection.execute("DELETE FROM quarantine WHERE number <= ? AND released", (last,))
        if gone:
            self._connection.execute("PRAGMA incremental_vacuum").fetchall()
            self._measure()
        return gone

    def _measure(self) -> None:
        row = self._connection.execute("SELECT sum(length(body)), min(at) FROM events").fetchone()
        self.bytes, self.oldest_at = int(row[0] or 0), float(row[1] or 0.0)

    # Quarantine and meta

    def put_in_quarantine(self, event: Quarantined) -> None:
        """Leave the event out of every replay from now on, and come back on hold."""
        with self.transaction() as connection:
            connection.execute(
                "REPLACE INTO quarantine VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                (
                    event.number,
                    event.at,
                    event.kind,
                    event.node,
                    event.spool,
                    event.spool_number,
                    event.reason,
                ),
            )
            hold = f"event {event.number} ({event.kind}) broke a promise: {event.reason}"
            connection.execute("REPLACE INTO meta VALUES ('hold', ?)", (hold,))

    def quarantined(self) -> list[Quarantined]:
        """The events that are left out, oldest first."""
        rows = self._connection.execute(
            "SELECT number, at, kind, node, spool, spool_number, reason, released "
            "FROM quarantine ORDER BY number"
        )
        return [
            Quarantined(
                number=number,
                at=at,
                kind=kind,
                node=node,
                spool=spool,
                spool_number=spool_number,
                reason=reason,
                released=bool(released),
            )
            for number, at, kind, node, spool, spool_number, reason, released in rows
        ]

    def release(self) -> None:
        """Lift the hold; what is in quarantine stays left out."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM meta WHERE key = 'hold'")
            connection.execute("UPDATE quarantine SET released = 1")

    def meta(self, key: str) -> str:
        """What is kept under this name; empty: nothing."""
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """What a query of another module finds."""
        return self._connection.execute(query, values).fetchall()

    def _newest_number(self) -> int:
        row = self._connection.execute(
            "SELECT max(number) FROM "
            "(SELECT number FROM events UNION ALL SELECT number FROM snapshots)"
        ).fetchone()
        return int(row[0] or 0)

    def _newest_snapshot(self) -> tuple[int, float]:
        row = self._connection.execute(
            "SELECT number, at FROM snapshots ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return (int(row[0]), float(row[1])) if row else (0, 0.0)


def open_store(folder: Path) -> Store:
    """Take the folder and open its database. Raises StoreError with a sentence."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(folder)
    except OSError as error:
        raise StoreError(
            f"the data folder {folder} cannot be used ({error.strerror}): "
            "make it writable or choose another with --data"
        ) from error
    try:
        return Store(folder, _connect(folder / DATABASE), lock)
    except sqlite3.Error as error:
        os.close(lock)
        raise StoreError(
            f"the database {folder / DATABASE} cannot be read ({error}): free some space if the "
            "disk is full, or put back a copy, or move it away to begin anew"
        ) from error
    except StoreError:
        os.close(lock)
        raise


def _lock(folder: Path) -> int:
    lock = os.open(folder / "controller.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode().strip()
        os.close(lock)
        raise InUseError(
            f"{folder} is in use by another controller (pid {holder or 'unknown'}): stop that one "
            "first, or give this one its own folder with --data"
        ) from None
    os.ftruncate(lock, 0)
    with contextlib.suppress(OSError):  # the pid is only for the message above
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _connect(file: Path) -> sqlite3.Connection:
    file.touch(mode=0o600)  # the files that SQLite puts beside it get the same mode
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=10)
    layout = connection.execute("PRAGMA user_version").fetchone()[0]
    if layout > LAYOUT:
        connection.close()
        raise StoreError(f"{file} was written by a newer Aegis (layout {layout}): install that one")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")  # acknowledged means on disk
    if not layout:
        connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {LAYOUT}; COMMIT;")
    return connection


def pack(body: bytes) -> bytes:
    """Long JSON compressed; short JSON, which begins with a brace, as it is."""
    return body if len(body) <= COMPRESS_BYTES else zlib.compress(body, 1)


def unpack(body: bytes) -> bytes:
    """The JSON again."""
    return body if body[:1] == b"{" else zlib.decompress(body)


def unpack_whole(body: bytes, checksum: str) -> bytes:
    """The JSON again; empty when it is not what the checksum was taken of."""
    try:
        whole = unpack(body)
    except zlib.error:
        return b""
    return whole if sha256(whole).hexdigest() == checksum else b""
