"""Pages of a list: `limit` and an opaque `cursor`."""

from typing import Annotated

from fastapi import Query

LIMIT_MAX = 500

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="how many at most")]
Cursor = Annotated[str, Query(description="`next` of the page before; empty for the first page")]


def page(
    names: list[str], limit: int, cursor: str, *, newest_first: bool = False
) -> tuple[list[str], str | None]:
    """The names after the cursor, and the cursor of the page that follows, if there is one."""
    rest = names
    if cursor:
        rest = [name for name in names if (name < cursor if newest_first else name > cursor)]
    found = rest[:limit]
    return found, found[-1] if len(rest) > limit else None
