"""The way to the controller's stream: its address, this node's token, one open WebSocket.

Whoever speaks for a node opens it here: its agent, and a launcher whose agent is away.
"""

from pathlib import Path
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect

from aegis.model.node import Sender

HELD = 409  # the answer while another speaks in this place
DENIED = (401, 403)  # the answers to a token that the controller does not take
_ANSWER_BYTES_MAX = 8 << 20
_OPEN_SECONDS = 5.0
_PING_SECONDS = 5.0


class TokenError(Exception):
    """The token file is of no use: "is empty", "cannot be read: …"."""


async def open_stream(
    controller: str,
    token_file: Path | None,
    *,
    node: str,
    sender: Sender,
    job: str = "",
    speaker: str,
) -> ClientConnection:
    """Connect to the controller at this address, "http://HOST:PORT", as this node.

    `speaker` tells this one from another in its place: a launcher's id among those of its job, an
    agent's boot id among machines of one name.

    Raises TokenError, OSError, TimeoutError or websockets' WebSocketException.
    """
    names = {"node": node, "sender": sender.value, "job": job, "speaker": speaker}
    names = {name: value for name, value in names.items() if value}
    return await connect(
        f"{_websocket_address(controller)}/api/v1/agent/stream?{urlencode(names)}",
        additional_headers=_credentials(token_file),
        open_timeout=_OPEN_SECONDS,
        ping_interval=_PING_SECONDS,
        ping_timeout=2 * _PING_SECONDS,
        close_timeout=1,
        max_size=_ANSWER_BYTES_MAX,
        compression=None,
        proxy=None,
    )


def _credentials(token_file: Path | None) -> dict[str, str]:
    """Read each time: a token may be put there, or changed, while the program runs."""
    if token_file is None:
        return {}
    try:
        token = token_file.read_text().strip()
    except OSError as error:
        raise TokenError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TokenError("holds no token") from error
    if not token:
        raise TokenError("is empty")
    if not (token.isascii() and token.isprintable()):
        raise TokenError("holds no token")
    return {"Authorization": f"Bearer {token}"}


def _websocket_address(controller: str) -> str:
    scheme, _, rest = controller.rstrip("/").partition("://")
    return f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{rest}"
