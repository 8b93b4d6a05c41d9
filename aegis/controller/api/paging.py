"""Pages of a list: `limit` and an opaque `cursor`."""

import math
from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated

from fastapi import Query

from aegis.controller.problems import ProblemError
from aegis.model.incident import Incident

LIMIT_MAX = 500

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="how many at most")]
Cursor = Annotated[str, Query(description="`next` of the page before; empty for the first page")]

_Place = tuple[float, str]  # when an incident was last active, and its id
_FIRST: _Place = (math.inf, "")


def page(names: list[str], limit: int, cursor: str) -> tuple[list[str], str | None]:
    """The names after the cursor, and the cursor of the page that follows, if there is one."""
    rest = [name for name in names if name > cursor] if cursor else names
    found = rest[:limit]
    return found, found[-1] if len(rest) > limit else None


def page_by_activity(
    incidents: Iterable[Incident], limit: int, cursor: str
) -> tuple[tuple[Incident, ...], str | None]:
    """The incidents after the cursor, the last active first, and the cursor of the page after.

    Whoever turns pages misses none: one that was active meanwhile has left its place for one that
    has been read already, so the next page begins with it. That it was read before is possible.
    """
    newest, last = _read(cursor)
    listed = sorted(incidents, key=_place)
    moved = [one for one in listed if _place(one) > newest]
    rest = [one for one in reversed(listed) if _place(one) < last]
    found = (*moved, *rest)[:limit]
    if len(moved) + len(rest) <= limit:
        return found, None
    if not cursor:
        newest = _place(found[0])
    places = [_place(one) for one in found]
    newest = max([newest, *places[: len(moved)]])
    last = min([last, *places[len(moved) :]])
    return found, f"{newest[0]!r}:{newest[1]}:{last[0]!r}:{last[1]}"


def _place(incident: Incident) -> _Place:
    return incident.active_at, incident.id


def _read(cursor: str) -> tuple[_Place, _Place]:
    """The newest place of the pages so far, and their last one."""
    if not cursor:
        return _FIRST, _FIRST
    try:
        newest_at, newest, last_at, last = cursor.split(":")
        return (float(newest_at), newest), (float(last_at), last)
    except ValueError:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        detail = f"cursor: {cursor!r} is not the `next` of a page"
        raise ProblemError(status, detail, "begin again without one", "invalid") from None
