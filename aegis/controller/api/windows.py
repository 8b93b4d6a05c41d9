"""Maintenance and silences: announced, listed, ended."""

import difflib
import fnmatch
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter

from aegis.controller.api.access import Here, Operator
from aegis.controller.api.once import OnceRoute
from aegis.controller.problems import RESPONSES, ProblemError, not_found
from aegis.controller.views import Reason
from aegis.model.event import WindowEnded, WindowSet
from aegis.model.fault import FaultClass
from aegis.model.window import Window, WindowKind

router = APIRouter(tags=["windows"], responses=RESPONSES, route_class=OnceRoute)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRequest:
    """A window to be set. Times are Unix times in seconds; without a start it begins now."""

    kind: WindowKind
    reason: str
    ends_at: float
    starts_at: float = 0.0
    node: str = "*"
    fault_class: str = "*"
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPage:
    """All windows that are open or still to come, the next to end first."""

    items: tuple[Window, ...]
    next: str | None = None


@router.get("/windows")
async def list_windows(here: Here) -> WindowPage:
    """All windows that are open or still to come."""
    found = sorted(here.cluster.windows.values(), key=lambda one: one.ends_at)
    return WindowPage(items=tuple(found))


@router.post("/windows")
async def set_window(body: WindowRequest, here: Here, token: Operator) -> Window:
    """Announce maintenance, or ask for silence."""
    _refuse_unknown(body.fault_class)
    before = set(here.cluster.windows)
    await here.loop.command(
        lambda at: WindowSet(
            at=at,
            kind=body.kind,
            starts_at=body.starts_at or at,
            ends_at=body.ends_at,
            actor=token.name,
            reason=body.reason,
            node=body.node,
            fault_class=body.fault_class,
            labels=body.labels,
        )
    )
    (made,) = [one for name, one in here.cluster.windows.items() if name not in before]
    return made


def _refuse_unknown(wanted: str) -> None:
    """A window that fits no class of faults would silence nothing, and nobody would notice."""
    classes = [one.value for one in FaultClass]
    if fnmatch.filter(classes, wanted):
        return
    close = difflib.get_close_matches(wanted, classes, n=1)
    raise ProblemError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"no class of faults fits {wanted!r}",
        f"did you mean {close[0]!r}?" if close else "`aegis faults` lists them",
    )


@router.post("/windows/{name}:end")
async def end_window(name: str, body: Reason, here: Here, token: Operator) -> WindowPage:
    """End a window before its time."""
    if name not in here.cluster.windows:
        raise not_found("window", name, sorted(here.cluster.windows))
    await here.loop.command(
        lambda at: WindowEnded(at=at, window=name, actor=token.name, reason=body.reason)
    )
    return await list_windows(here)
