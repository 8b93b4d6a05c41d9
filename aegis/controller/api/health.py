"""For machines that watch the controller: alive, ready, metrics. They go by the status code."""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from aegis.controller.api.access import Here

router = APIRouter(tags=["health"])


@router.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """Whether the process answers at all; says nothing of what it depends on."""
    return "ok"


@router.get("/readyz", response_class=PlainTextResponse)
async def readyz(here: Here, response: Response, verbose: str | None = None) -> str:
    """Whether it can do its work; `?verbose` says what is wrong."""
    checks = here.checks()
    bad = [f"{name}: {trouble}" for name, trouble in checks.items() if trouble]
    if bad:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    if verbose is None:
        return "; ".join(bad) or "ok"
    lines = [f"[-] {name}: {bad}" if bad else f"[+] {name}: ok" for name, bad in checks.items()]
    return "\n".join([*lines, "not ready" if bad else "ready", ""])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus metrics; docs/reference/metrics.md lists them."""
    body, content_type = request.app.state.exposition.text(request.headers.get("accept", ""))
    return Response(body, media_type=content_type)
