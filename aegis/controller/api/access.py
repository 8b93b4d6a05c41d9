"""Who asks, and whether they may. Reading is open; whatever changes something needs a token.

All handlers and dependencies are coroutines: they run between two turns of the loop, never beside
one, so that they see the state of one moment without a lock.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from starlette.datastructures import Headers

from aegis.controller import services
from aegis.controller.problems import ProblemError
from aegis.controller.services import Services
from aegis.controller.tokens import Role, Token


def bearer(headers: Headers, found_in: Services) -> Token:
    """The token in the Authorization header. Raises a 401 without one that is known."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED,
            "this needs a token and the request has none",
            "send it as `Authorization: Bearer …`; the command takes --token-file",
        )
    token = found_in.tokens.find(secret.strip())
    if token is None:
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED,
            "the token is not one of this controller's",
            "it was revoked or belongs to another; an admin mints a new one",
        )
    return token


def _require(*roles: Role) -> Callable[[Request], Awaitable[Token]]:
    async def check(request: Request) -> Token:
        token = bearer(request.headers, services.of(request))
        if token.role not in roles:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                f"a token with the role {token.role} may not do this",
                f"use a token with the role {' or '.join(roles)}",
            )
        return token

    return check


async def _here(request: Request) -> Services:
    return services.of(request)


Operator = Annotated[Token, Depends(_require(Role.OPERATOR, Role.ADMIN))]
Admin = Annotated[Token, Depends(_require(Role.ADMIN))]
Here = Annotated[Services, Depends(_here)]
