"""Incidents: the list, the last active first, each with its story, and what people say to them."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query

from aegis.controller.api.access import Here, Operator
from aegis.controller.api.once import OnceRoute
from aegis.controller.api.paging import Cursor, Limit, page_by_activity
from aegis.controller.problems import RESPONSES, not_found
from aegis.controller.services import Services
from aegis.controller.tokens import Token
from aegis.controller.views import IncidentPage, IncidentView, Opinion, Reason, incident_view
from aegis.model.event import (
    Event,
    IncidentAcknowledged,
    IncidentApproved,
    IncidentDenied,
    IncidentJudged,
    IncidentNoted,
)
from aegis.model.incident import Incident, IncidentState

router = APIRouter(tags=["incidents"], responses=RESPONSES, route_class=OnceRoute)

_Verb = Callable[..., Event]


class Which(StrEnum):
    """Which incidents to list: all that are not closed, or those in one state."""

    ANY = "any"
    OPEN = "open"
    WATCHING = "watching"
    RECOVERING = "recovering"
    CLOSED = "closed"


State = Annotated[Which, Query(description="`open`: all that are not closed")]


@router.get("/incidents")
async def list_incidents(
    here: Here,
    *,
    state: State = Which.ANY,
    node: str = "",
    job: str = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> IncidentPage:
    """Incidents, those first in which something happened last: a signal, an act, a word, its end.

    One in which something happens while you turn pages comes on the next page, if need be again.
    """
    wanted = [
        one
        for one in here.cluster.incidents.values()
        if _matches(one, state) and node in ("", one.node) and job in ("", one.job)
    ]
    found, following = page_by_activity(wanted, limit, cursor)
    return IncidentPage(items=found, next=following)


@router.get("/incidents/{name}")
async def show_incident(name: str, here: Here) -> IncidentView:
    """One incident: evidence, decisions, timeline, seconds by phase, and the story."""
    return _view(here, name)


@router.post("/incidents/{name}:approve")
async def approve(name: str, body: Reason, here: Here, token: Operator) -> IncidentView:
    """Agree to what Aegis would do about it."""
    return await _say(here, name, IncidentApproved, token, body)


@router.post("/incidents/{name}:deny")
async def deny(name: str, body: Reason, here: Here, token: Operator) -> IncidentView:
    """Forbid what Aegis would do about it."""
    return await _say(here, name, IncidentDenied, token, body)


@router.post("/incidents/{name}:ack")
async def acknowledge(name: str, body: Reason, here: Here, token: Operator) -> IncidentView:
    """Say that you look after it."""
    return await _say(here, name, IncidentAcknowledged, token, body)


@router.post("/incidents/{name}:note")
async def add_note(name: str, body: Reason, here: Here, token: Operator) -> IncidentView:
    """Add a line to its timeline."""
    return await _say(here, name, IncidentNoted, token, body)


@router.post("/incidents/{name}:feedback")
async def give_feedback(name: str, body: Opinion, here: Here, token: Operator) -> IncidentView:
    """Say whether the decision was right."""
    return await _say(here, name, IncidentJudged, token, body, feedback=body.feedback)


async def _say(
    here: Services, name: str, verb: _Verb, token: Token, body: Reason | Opinion, **more: object
) -> IncidentView:
    _view(here, name)
    await here.loop.command(
        lambda at: verb(at=at, incident=name, actor=token.name, reason=body.reason, **more)
    )
    return _view(here, name)


def _view(here: Services, name: str) -> IncidentView:
    incident = here.cluster.incidents.get(name)
    if incident is None:
        raise not_found("incident", name, [])
    return incident_view(incident)


def _matches(incident: Incident, which: Which) -> bool:
    match which:
        case Which.ANY:
            return True
        case Which.OPEN:
            return incident.state is not IncidentState.CLOSED
        case _:
            return incident.state == which.value
