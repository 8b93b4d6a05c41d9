"""The ASGI application: the API under /api/v1, health, metrics, and the dashboard on the rest."""

import re
import uuid
from http import HTTPStatus
from pathlib import Path

import fastapi
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aegis.controller import problems
from aegis.controller.api import (
    agents,
    checkpoints,
    events,
    export,
    forecast,
    health,
    incidents,
    jobs,
    nodes,
    rules,
    system,
    windows,
)
from aegis.controller.metrics import Exposition
from aegis.controller.services import Services

API = "/api/v1"
PARTS = (
    nodes, jobs, checkpoints, incidents, rules, events, export, forecast, windows, system, agents,
)  # fmt: skip
BODY_BYTES_MAX = 1 << 20  # of a request; it is read before its token is looked at
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_NOT_BUILT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Aegis</title>
<h1>The dashboard is not built</h1>
<p>The controller works; its pages are missing from this source tree.
Run <code>make setup</code> there, then load this page again.</p>
<p>The API is at <a href="/api/v1/summary">/api/v1/summary</a>,
its description at <a href="/openapi.json">/openapi.json</a>.</p>
"""


def build(services: Services) -> FastAPI:
    """The application over one running controller."""
    app = FastAPI(
        title="Aegis controller",
        version=services.version,
        summary="Nodes, jobs and incidents of training clusters, and what was decided about them.",
        docs_url=None,  # the framework's pages load scripts from elsewhere
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.services = services
    app.state.exposition = Exposition(services)
    for module in PARTS:
        app.include_router(module.router, prefix=API)
    app.include_router(health.router)
    problems.install(app)
    _serve_dashboard(app, services.static)
    app.add_middleware(Envelope)
    return app


def _serve_dashboard(app: FastAPI, folder: Path) -> None:
    """Whatever is no path of the API is the dashboard's, which finds its page by itself."""

    @app.exception_handler(HTTPException)
    async def elsewhere(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        reads = request.method in ("GET", "HEAD")
        if error.status_code == HTTPStatus.NOT_FOUND and reads and not _is_api(path):
            return _page(folder, path)
        return _problem(request, error)


def _problem(request: Request, error: HTTPException) -> JSONResponse:
    answer = problems.answer(request.scope, problems.of_http(error, request.url.path))
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


def _is_api(path: str) -> bool:
    return path == "/api" or path.startswith("/api/")


def _page(folder: Path, path: str) -> Response:
    """A file of the dashboard, or its first page for every address that is none."""
    index = folder / "index.html"
    if not index.is_file():
        return HTMLResponse(_NOT_BUILT, HTTPStatus.SERVICE_UNAVAILABLE)
    file = (folder / path.lstrip("/")).resolve()
    if file.is_file() and file.is_relative_to(folder.resolve()):
        # The names of built assets hold their hash, so they never change.
        fixed = file.parent.name == "assets"
        age = "public, max-age=31536000, immutable" if fixed else "no-cache"
        return FileResponse(file, headers={"cache-control": age})
    return FileResponse(index, headers={"cache-control": "no-cache"})


class Envelope:
    """Gives each request an id and a limit, and each response that id and the headers of safety."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        taken = 0

        async def measured() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b"")) if scope["type"] == "http" else 0
            if taken > BODY_BYTES_MAX:
                # The framework's own kind: any other it would call an unreadable body.
                raise fastapi.HTTPException(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the request is larger than {BODY_BYTES_MAX} bytes",
                )
            return message

        async def sealed(message: Message) -> None:
            if message["type"].endswith("response.start"):
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, measured, sealed)
