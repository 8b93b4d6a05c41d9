"""The event log as JSON lines, so that it can be replayed elsewhere: `aegis rules simulate`."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from aegis.controller.api.access import Here
from aegis.controller.store import DATABASE, unpack

router = APIRouter(tags=["events"])

Since = Annotated[float, Query(ge=0, description="seconds since the Unix epoch; 0: all there is")]


@router.get("/events/export")
async def export_events(here: Here, since: Since = 0.0) -> StreamingResponse:
    """Every event that is kept, oldest first, one JSON object a line.

    `since` leaves nothing out: to know how things stood then, a replay must begin at the beginning.
    The first line says it on, with the number of the oldest event.
    """
    lines = _lines(here.store.folder / DATABASE, since)
    return StreamingResponse(lines, media_type="application/x-ndjson")


def _lines(file: Path, since: float) -> Iterator[bytes]:
    """Read beside the writer, in a thread of the framework's; the log is never held up."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, check_same_thread=False)
    try:
        first = connection.execute("SELECT min(number) FROM events").fetchone()[0] or 0
        head = {"aegis_events": 1, "since": since, "first_number": first}
        yield json.dumps(head).encode() + b"\n"
        rows = connection.execute("SELECT number, body FROM events ORDER BY number")
        for number, body in rows:
            yield b'{"number":%d,' % number + unpack(body)[1:] + b"\n"
    finally:
        connection.close()
