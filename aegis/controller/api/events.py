"""The event stream: what changes, as it changes, as server-sent events.

    hello              once: {"event", "epoch", "version"}
    node.updated       the whole node
    job.updated        the whole job
    incident.updated   the whole incident, as /incidents/{id} answers
    resync             too much was missed: fetch the lists anew, then go on from here

The id of each is the number of the event in the log. A client that comes back with Last-Event-ID
(or ?since=) gets what changed since; without it, what changes from now on. Objects are whole, so of
several changes only the newest is sent.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from aegis.controller.api.access import Here
from aegis.controller.changes import Name
from aegis.controller.services import Services
from aegis.controller.views import incident_view
from aegis.wire import to_jsonable

router = APIRouter(tags=["events"])

BREATH_SECONDS = 0.1  # between two bursts to one client, so that changes pile up and merge

LastEventId = Annotated[str, Header(description="the id of the last event that was received")]
Since = Annotated[int | None, Query(ge=0, description="the same, for who cannot send headers")]


@router.get("/events", response_class=EventSourceResponse)
async def stream(
    here: Here, last_event_id: LastEventId = "", since: Since = None
) -> AsyncIterator[ServerSentEvent]:
    """What changes, as it changes. The framework sends a comment every 15 s of silence."""
    here.event_clients += 1
    try:
        async for event in _stream(here, int(last_event_id) if last_event_id.isdigit() else since):
            yield event
    finally:
        here.event_clients -= 1


async def _stream(here: Services, since: int | None) -> AsyncIterator[ServerSentEvent]:
    changes = here.changes
    now = changes.number
    hello = {"event": now, "epoch": here.cluster.epoch, "version": here.version}
    # Its id is what the client already has: whoever is cut off right after it misses nothing.
    place = now if since is None or not changes.knows(since) else since
    yield _event("hello", place, hello)
    if since is not None and not changes.knows(since):
        yield _event("resync", now, {"event": now})
    while not changes.closed:
        for number, name in changes.since(place):
            # Later changes of the same object may have come meanwhile: they will be sent too.
            yield _event(f"{name[0]}.updated", number, _object(here, name))
            place = max(place, number)
        await changes.wait(place)
        await asyncio.sleep(BREATH_SECONDS)
        if not changes.knows(place):
            place = changes.number
            yield _event("resync", place, {"event": place})


def _object(here: Services, name: Name) -> Any:
    """The whole object as it is now; only its id when it was forgotten."""
    kind, key = name
    match kind:
        case "node":
            found: object = here.cluster.nodes.get(key)
        case "job":
            found = here.cluster.jobs.get(key)
        case _:
            incident = here.cluster.incidents.get(key)
            found = incident_view(incident) if incident else None
    return to_jsonable(found) if found is not None else {"id": key}


def _event(kind: str, number: int, content: Any) -> ServerSentEvent:
    data = json.dumps(content, separators=(",", ":"))
    return ServerSentEvent(raw_data=data, event=kind, id=str(number))
