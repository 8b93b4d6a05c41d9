"""A request that is sent twice is carried out once: the header Idempotency-Key.

The first answer is kept for a day and given again. The same key with another body is a mistake of
the caller, and a second try while the first is under way is told to wait.
"""

import time
from collections.abc import Callable, Coroutine
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from aegis.controller import services
from aegis.controller.problems import ProblemError
from aegis.controller.store import Store

KEEP_SECONDS = 86400.0
KEY_CHARACTERS_MAX = 200

_under_way: set[str] = set()

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class OnceRoute(APIRoute):
    """A route whose POST honours Idempotency-Key."""

    def get_route_handler(self) -> Handler:
        """The handler of the route, asked once for each key."""
        handler = super().get_route_handler()

        async def once(request: Request) -> Response:
            key = request.headers.get("idempotency-key", "")
            if not key or request.method != "POST":
                return await handler(request)
            if len(key) > KEY_CHARACTERS_MAX:
                raise ProblemError(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    f"the Idempotency-Key is longer than {KEY_CHARACTERS_MAX} characters",
                )
            return await _once(request, handler, key)

        return once


async def _once(request: Request, handler: Handler, key: str) -> Response:
    store = services.of(request).store
    # A key belongs to whoever sent it: nobody else may read the answer by guessing it.
    caller = request.headers.get("authorization", "")
    owned = sha256(f"{caller}\n{key}".encode()).hexdigest()
    body = await request.body()
    asked = sha256(f"{request.method} {request.url.path}\n".encode() + body).hexdigest()
    if owned in _under_way:
        raise ProblemError(
            HTTPStatus.CONFLICT, "a request with this Idempotency-Key is under way", "wait for it"
        )
    _under_way.add(owned)
    try:
        if (kept := await store.call(_find, store, owned)) is not None:
            return _again(kept, asked)
        answer = await handler(request)
        await store.call(_keep, store, owned, asked, answer.status_code, bytes(answer.body))
        return answer
    finally:
        _under_way.discard(owned)


def _again(kept: tuple[str, int, bytes], asked: str) -> Response:
    request, status, body = kept
    if request != asked:
        raise ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "this Idempotency-Key was used for another request",
            "draw a new key for each request",
        )
    headers = {"idempotency-replayed": "true"}
    return Response(body, status, headers, media_type="application/json")


def _find(store: Store, key: str) -> tuple[str, int, bytes] | None:
    rows = store.rows(
        "SELECT request, status, body FROM answers WHERE key = ? AND at > ?",
        key,
        time.time() - KEEP_SECONDS,
    )
    for request, status, body in rows:
        return str(request), int(str(status)), body if isinstance(body, bytes) else b""
    return None


def _keep(store: Store, key: str, request: str, status: int, body: bytes) -> None:
    now = time.time()
    with store.transaction() as connection:
        connection.execute("DELETE FROM answers WHERE at < ?", (now - KEEP_SECONDS,))
        connection.execute(
            "REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", (key, request, status, body, now)
        )
