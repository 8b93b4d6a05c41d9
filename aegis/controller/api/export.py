"""The event log as JSON lines, so that it can be replayed elsewhere: `aegis rules simulate`."""

import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from aegis.controller.api.access import Here
from aegis.controller.store import DATABASE, unpack, unpack_whole

router = APIRouter(tags=["events"])

Since = Annotated[float, Query(ge=0, description="seconds since the Unix epoch; 0: all there is")]

ROWS = 500  # read at once: a reader that is slow keeps no transaction open


@router.get("/events/export")
async def export_events(here: Here, since: Since = 0.0) -> StreamingResponse:
    """Every event since then that is kept, oldest first, one JSON object a line.

    To know how things stood then, a replay must begin at the beginning of the log or at a snapshot:
    so it begins somewhat earlier. The first line says whether that is known; a snapshot is the
    second. What was set aside, since it broke a promise, is left out here too.
    """
    found = lines(here.store.folder / DATABASE, since)
    return StreamingResponse(found, media_type="application/x-ndjson")


def lines(file: Path, since: float) -> Iterator[bytes]:
    """The log; read beside the writer, in a thread of the framework's; the log is never held up."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, check_same_thread=False)
    try:
        first = connection.execute("SELECT min(number) FROM events").fetchone()[0] or 0
        number, state = _beginning(connection, first, since)
        is_whole = bool(state) or first == 1
        head = {"aegis_events": 1, "since": since, "first_number": first, "is_whole": is_whole}
        yield json.dumps(head).encode() + b"\n"
        if state:
            yield b'{"aegis_state":%d,' % number + state[1:] + b"\n"
        while rows := connection.execute(
            "SELECT number, body FROM events WHERE number > ? "
            "AND number NOT IN (SELECT number FROM quarantine) ORDER BY number LIMIT ?",
            (number, ROWS),
        ).fetchall():
            number = rows[-1][0]
            for one, body in rows:
                yield b'{"number":%d,' % one + unpack(body)[1:] + b"\n"
    finally:
        connection.close()


def _beginning(connection: sqlite3.Connection, first: int, since: float) -> tuple[int, bytes]:
    """The newest snapshot before `since`, and its number; neither: the log's own beginning."""
    query = "SELECT number, sha256, body FROM snapshots WHERE number >= ? AND at <= ? ORDER BY "
    found = connection.execute(query + "number DESC", (first - 1, since)).fetchall()
    if not found and first != 1:
        found = connection.execute(query + "number", (first - 1, math.inf)).fetchall()
    for number, checksum, body in found:
        if state := unpack_whole(body, checksum):
            return number, state
    return 0, b""
