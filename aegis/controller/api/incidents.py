"""Incidents: the list, newest first, and each with its story."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query

from aegis.controller.api.access import Here
from aegis.controller.api.paging import Cursor, Limit, page
from aegis.controller.problems import RESPONSES, not_found
from aegis.controller.views import IncidentPage, IncidentView, incident_view
from aegis.model.incident import Incident, IncidentState

router = APIRouter(tags=["incidents"], responses=RESPONSES)


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
    """Incidents, newest first."""
    incidents = here.cluster.incidents
    names = [
        name
        for name, one in incidents.items()
        if _matches(one, state) and node in ("", one.node) and job in ("", one.job)
    ]
    found, following = page(names[::-1], limit, cursor, newest_first=True)
    return IncidentPage(items=tuple(incidents[name] for name in found), next=following)


@router.get("/incidents/{name}")
async def show_incident(name: str, here: Here) -> IncidentView:
    """One incident: evidence, decisions, timeline, seconds by phase, and the story."""
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
