"""The connection to the controller: reports up, answers down, for ever.

A report is the whole state, so nothing is queued: whenever there is a connection, what is true now
is sent, at once when it is urgent and with every heartbeat otherwise. Faults wait in the spool
until an answer confirms them, so any time without a controller costs nothing.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from aegis.wire import Answer, Report, WireError, decode_as, encode

_log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
_PAUSE_SECONDS_MIN = 0.2
_PAUSE_SECONDS_MAX = 10.0
_OPEN_SECONDS = 5.0
_PING_SECONDS = 5.0
_ANSWER_BYTES_MAX = 8 << 20
_DENIED = (401, 403)
_LOST = "The connection to the controller was lost."


class _TokenError(Exception):
    """The token file cannot be read or is empty."""


@dataclass
class Uplink:
    """Keeps one connection to the controller and speaks over it."""

    controller: str  # "http://127.0.0.1:8500"
    node: str
    token_file: Path | None
    compose: Callable[[], Report]
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
                connection = await self._connect()
                pause = _PAUSE_SECONDS_MIN
                self._connected()
                try:
                    await self._speak(connection)
                finally:
                    await connection.close()
                self._trouble(_LOST, "closed by the controller")
            except (OSError, TimeoutError, WebSocketException, WireError, _TokenError) as error:
                self._trouble(*self._explain(error))
            self.connected = False
            # Many agents lose their controller at once; they do not come back at once.
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311  only jitter
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    async def _connect(self) -> ClientConnection:
        query = urlencode({"node": self.node, "sender": "agent"})
        return await connect(
            f"{websocket_address(self.controller)}/api/v1/agent/stream?{query}",
            additional_headers=self._credentials(),
            open_timeout=_OPEN_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=2 * _PING_SECONDS,
            close_timeout=1,
            max_size=_ANSWER_BYTES_MAX,
            compression=None,
            proxy=None,
        )

    def _credentials(self) -> dict[str, str]:
        """Read each time: a token may be put there, or changed, while the agent runs."""
        if self.token_file is None:
            return {}
        try:
            token = self.token_file.read_text().strip()
        except OSError as error:
            raise _TokenError(f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise _TokenError("holds no token") from error
        if not token:
            raise _TokenError("is empty")
        if not (token.isascii() and token.isprintable()):
            raise _TokenError("holds no token")
        return {"Authorization": f"Bearer {token}"}

    async def _speak(self, connection: ClientConnection) -> None:
        listening = asyncio.create_task(self._listen(connection))
        try:
            while not listening.done():
                self._urgent.clear()
                await connection.send(encode(self.compose()))
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
            case InvalidStatus() if error.response.status_code in _DENIED:
                sentence = f"The controller refuses this node's token; {mint} mints a new one."
                return sentence, f"HTTP {error.response.status_code}"
            case InvalidStatus():
                told = (error.response.body or b"").decode(errors="replace")[:300]
                return "The controller refused.", f"HTTP {error.response.status_code} {told}"
            case _TokenError():
                return f"The token file cannot be used; {mint} mints a token.", str(error)
            case WireError():
                return "The controller speaks another protocol than this agent.", str(error)
            case ConnectionClosed():
                return _LOST, str(error)
            case _:
                return "The controller cannot be reached; trying on.", str(error) or repr(error)


def websocket_address(controller: str) -> str:
    """The controller's address for WebSockets."""
    scheme, _, rest = controller.rstrip("/").partition("://")
    return f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{rest}"
