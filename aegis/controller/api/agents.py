"""The stream of a node: reports in, answers out, pushes when its assignments change.

A connection has one report under way at a time, so a node that sends faster than the log takes is
slowed by its own connection and fills no queue here.
"""

import asyncio
import logging
import time
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from aegis.controller import services
from aegis.controller.api.access import bearer
from aegis.controller.problems import ProblemError, answer
from aegis.controller.services import Services
from aegis.controller.streams import Stream
from aegis.controller.tokens import Role
from aegis.model.node import Sender
from aegis.wire import Answer, Report, WireError, decode_as, encode

log = logging.getLogger(__name__)

router = APIRouter()

SEND_SECONDS = 10.0  # a node that does not take an answer for so long has lost its connection
REPLACED, MALFORMED = 4000, 4001  # close codes


class _MalformedError(Exception):
    """The other side does not speak the protocol; the sentence says what is wrong."""


@router.websocket("/agent/stream")
async def stream(
    socket: WebSocket,
    node: Annotated[str, Query(min_length=1)],
    sender: Sender = Sender.AGENT,
    job: str = "",
    speaker: str = "",
) -> None:
    """One agent, or one launcher whose agent is away."""
    here = services.of(socket)
    try:
        _admit(socket, here, node)
        _see_free(here, node, sender, job, speaker)
    except ProblemError as error:
        await socket.send_denial_response(answer(socket.scope, error))
        return
    await socket.accept()
    entered = here.streams.enter(here.cluster.epoch, node, sender, job, speaker)
    log.info("stream opened: node=%s sender=%s session=%d", node, sender, entered.session)
    try:
        await _serve(socket, here, entered)
    finally:
        if here.streams.leave(entered):
            here.loop.hung_up(node, entered.session)
        log.info("stream ended: node=%s sender=%s session=%d", node, sender, entered.session)


def _admit(socket: WebSocket, here: Services, node: str) -> None:
    token = bearer(socket.headers, here)
    if token.role is not Role.NODE or token.node != node:
        bound = f"of node {token.node}" if token.role is Role.NODE else f"of role {token.role}"
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            f"the token is {bound} and may not speak for {node}",
            f"mint one with `aegis nodes token {node}`",
        )


def _see_free(here: Services, node: str, sender: Sender, job: str, speaker: str) -> None:
    if not here.streams.is_held(node, sender, job, speaker):
        return
    if sender is Sender.AGENT:
        raise ProblemError(
            HTTPStatus.CONFLICT,
            f"another machine speaks for {node}",
            "give each machine a name of its own (--node) and the token of that name",
        )
    raise ProblemError(
        HTTPStatus.CONFLICT,
        f"another launcher of job {job} speaks for {node}",
        "stop it first, or give this one another --job or --node",
    )


async def _serve(socket: WebSocket, here: Services, stream: Stream) -> None:
    """Until the connection ends, is replaced, or says something that is not ours."""
    sending = asyncio.Lock()
    tasks = {
        asyncio.create_task(_receive(socket, here, stream, sending)),
        asyncio.create_task(_push(socket, here, stream, sending)),
        asyncio.create_task(_until_replaced(socket, stream)),
    }
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for task in done:
        error = task.exception()
        if isinstance(error, _MalformedError):
            log.warning("stream refused: node=%s reason=%s", stream.node, error)
            await socket.close(MALFORMED, str(error)[:120])
        elif error and not isinstance(error, WebSocketDisconnect | TimeoutError):
            raise error


async def _receive(
    socket: WebSocket, here: Services, stream: Stream, sending: asyncio.Lock
) -> None:
    while True:  # ends when the connection does
        report = _read(await _text(socket), stream)
        stream.heard_at = time.monotonic()
        await here.loop.report(report, stream.session)
        reply = here.loop.answer(stream.node, sequence=report.report.sequence, spool=report.origin)
        await _send(socket, sending, reply)


async def _push(socket: WebSocket, here: Services, stream: Stream, sending: asyncio.Lock) -> None:
    while True:  # ends when the connection does
        await stream.news.wait()
        stream.news.clear()
        await _send(socket, sending, here.loop.answer(stream.node))


async def _until_replaced(socket: WebSocket, stream: Stream) -> None:
    await stream.replaced.wait()
    await socket.close(REPLACED, "a newer connection of the same sender took its place")


async def _text(socket: WebSocket) -> str:
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    if message.get("text") is None:
        raise _MalformedError("a frame of bytes, expected text")
    return str(message["text"])


def _read(text: str, stream: Stream) -> Report:
    try:
        report = decode_as(Report, text)
    except WireError as error:
        raise _MalformedError(str(error)) from error
    said = report.report
    if said.node != stream.node or said.sender is not stream.sender:
        raise _MalformedError(
            f"a report of {said.node} by its {said.sender} on the stream of {stream.node}"
        )
    if other := next((one.fault.node for one in report.faults if one.fault.node != said.node), ""):
        raise _MalformedError(f"a fault of {other} on the stream of {stream.node}")
    if report.faults and not report.origin:
        raise _MalformedError("faults without the id of their spool")
    return report


async def _send(socket: WebSocket, sending: asyncio.Lock, message: Answer) -> None:
    async with sending, asyncio.timeout(SEND_SECONDS):
        await socket.send_text(encode(message))
