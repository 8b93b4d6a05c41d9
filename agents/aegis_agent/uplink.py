"""The connection to the controller: reports up, answers down, for ever.

A report is the whole state, so nothing is queued: whenever there is a connection, what is true now
is sent, at once when it is urgent and with every heartbeat otherwise. Faults wait in the spool
until an answer confirms them, so any time without a controller costs nothing.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from aegis.model.node import Sender
from aegis.wire import Answer, Report, WireError, decode_as, encode
from aegis_agent.stream import DENIED, HELD, TokenError, open_stream

_log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
_GAP_SECONDS = 0.01  # between two reports: what happens within it is told together
_PAUSE_SECONDS_MIN = 0.2
_PAUSE_SECONDS_MAX = 10.0
_LOST = "The connection to the controller was lost."


@dataclass
class Uplink:
    """Keeps one connection to the controller and speaks over it."""

    controller: str  # "http://127.0.0.1:8500"
    node: str
    boot_id: str  # which tells this machine from another of its name
    token_file: Path | None
    compose: Callable[[], Report]
    ready: Callable[[], Awaitable[None]]  # what a report tells is safe to be told
    heed: Callable[[Answer], None]
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    connected: bool = False
    _urgent: asyncio.Event = field(default_factory=asyncio.Event)
    _standing: str = ""  # the trouble that was logged last

    def urge(self) -> None:
        """Something has changed that must be told now."""
        self._urgent.set()

    async def run(self) -> None:
        """Until cancelled: connect, speak, and connect again."""
        pause = _PAUSE_SECONDS_MIN
        while True:
            try:
                connection = await open_stream(
                    self.controller,
                    self.token_file,
                    node=self.node,
                    sender=Sender.AGENT,
                    speaker=self.boot_id,
                )
                pause = _PAUSE_SECONDS_MIN
                self._connected()
                try:
                    await self._speak(connection)
                finally:
                    await connection.close()
                self._trouble(_LOST, "closed by the controller")
            except (OSError, TimeoutError, WebSocketException, WireError, TokenError) as error:
                self._trouble(*self._explain(error))
            self.connected = False
            # Many agents lose their controller at once; they do not come back at once.
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311  only jitter
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    async def _speak(self, connection: ClientConnection) -> None:
        listening = asyncio.create_task(self._listen(connection))
        try:
            while not listening.done():
                await self.ready()
                self._urgent.clear()
                await connection.send(encode(self.compose()))
                await asyncio.sleep(_GAP_SECONDS)
                urged = asyncio.create_task(self._urgent.wait())
                await asyncio.wait(
                    [listening, urged],
                    timeout=self.heartbeat_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                urged.cancel()
            await listening
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed, WireError):
                await listening

    async def _listen(self, connection: ClientConnection) -> None:
        async for frame in connection:
            self.heed(decode_as(Answer, frame))

    def _connected(self) -> None:
        self.connected, self._standing = True, ""
        _log.info("Connected to the controller.", extra={"controller": self.controller})

    def _trouble(self, sentence: str, reason: str) -> None:
        """Said once for as long as it stands."""
        if reason != self._standing:
            self._standing = reason
            fields = {"controller": self.controller, "reason": reason}
            if self.token_file is not None:
                fields["token_file"] = str(self.token_file)
            _log.warning(sentence, extra=fields)

    def _explain(self, error: Exception) -> tuple[str, str]:
        """One sentence that says what to do, and the reason."""
        mint = f"`aegis nodes token {self.node}`"
        match error:
            case InvalidStatus():
                return self._refusal(error, mint)
            case TokenError():
                return f"The token file cannot be used; {mint} mints a token.", str(error)
            case WireError():
                return "The controller speaks another protocol than this agent.", str(error)
            case ConnectionClosed():
                return _LOST, str(error)
            case _:
                return "The controller cannot be reached; trying on.", str(error) or repr(error)

    def _refusal(self, error: InvalidStatus, mint: str) -> tuple[str, str]:
        status = error.response.status_code
        told = (error.response.body or b"").decode(errors="replace")[:300]
        if status in DENIED:
            sentence = f"The controller refuses this node's token; {mint} mints a new one."
            return sentence, f"HTTP {status}"
        if status == HELD:
            sentence = (
                f"Another machine speaks for {self.node}; trying on. Give each its own --node."
            )
            return sentence, f"HTTP {status}"
        return "The controller refused.", f"HTTP {status} {told}"
