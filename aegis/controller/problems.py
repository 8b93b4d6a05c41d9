"""Errors of the API as problem+json (RFC 9457), each with a sentence and what to do next."""

import logging
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Scope

from aegis.controller.loop import RefusedError
from aegis.controller.store import CannotWriteError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """What went wrong, why, and what to do."""

    type: Annotated[str, Field(examples=["urn:aegis:problem:not-found"])]
    title: str
    status: int
    detail: str
    hint: str
    instance: Annotated[str, Field(description="the request, as in the header X-Request-Id")]


class ProblemError(Exception):
    """Raised by a handler; becomes the answer."""

    def __init__(self, status: HTTPStatus, detail: str, hint: str = "", kind: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint = status, detail, hint
        self.kind = kind or status.phrase.lower().replace(" ", "-")


def answer(scope: Scope, error: ProblemError) -> JSONResponse:
    """The problem as a response."""
    request_id = scope.get("state", {}).get("request_id", "")
    problem = Problem(
        type=f"urn:aegis:problem:{error.kind}",
        title=error.status.phrase,
        status=error.status,
        detail=error.detail,
        hint=error.hint,
        instance=f"urn:aegis:request:{request_id}",
    )
    headers = {"retry-after": "5"} if error.status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    if error.status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(problem.model_dump(), error.status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Let every error of the application be a problem."""

    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> JSONResponse:
        return answer(request.scope, error)

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> JSONResponse:
        return answer(request.scope, ProblemError(HTTPStatus.CONFLICT, str(error), kind="refused"))

    @app.exception_handler(CannotWriteError)
    async def full(request: Request, error: CannotWriteError) -> JSONResponse:
        hint = "nothing was changed; try again once there is space"
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return answer(request.scope, ProblemError(status, str(error), hint, "cannot-write"))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        detail = f"{place}: {first['msg'].lower()}"
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        return answer(request.scope, ProblemError(status, detail, "see /openapi.json", "invalid"))

    @app.exception_handler(Exception)
    async def broken(request: Request, _error: Exception) -> JSONResponse:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        detail = "the controller failed to answer; its log has the reason under this request id"
        return answer(request.scope, ProblemError(status, detail))


def of_http(error: HTTPException, path: str) -> ProblemError:
    """What the framework itself refuses: an unknown path, a method that a path does not have."""
    status = HTTPStatus(error.status_code)
    match status:
        case HTTPStatus.NOT_FOUND:
            return ProblemError(status, f"there is nothing at {path}", "see /openapi.json")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return ProblemError(status, f"{path} does not take this method", "see /openapi.json")
        case _:
            return ProblemError(status, str(error.detail))


def not_found(kind: str, name: str, known: list[str]) -> ProblemError:
    """No such node, job or incident; the hint lists those there are, or how to find them."""
    few = ", ".join(known[:8])
    hint = f"known: {few}" if 0 < len(known) <= 8 else f"list them with `aegis {kind}s`"
    return ProblemError(HTTPStatus.NOT_FOUND, f"there is no {kind} named {name!r}", hint)


RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {"description": "A problem", "content": {MEDIA_TYPE: {}}, "model": Problem}
}
