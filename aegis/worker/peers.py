"""Sending a shard to a peer's memory, and fetching one from a keeper. No torch here."""

import contextlib
import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aegis.worker import shelf
from aegis.worker.shelf import Entry

_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS_MAX = 10.0
_BLOCK_BYTES = 1 << 20
_LINE_BYTES_MAX = 1 << 20


class PeerError(Exception):
    """A keeper cannot be reached or does not have it; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Where a node's keeper listens, and what it wants to hear."""

    address: str
    port: int
    token: str


def send(
    keeper: Keeper,
    rank: int,
    shard: memoryview,
    metadata: bytes,
    entry: Callable[[], Entry],
) -> None:
    """Have a peer keep a shard; its entry is asked for last, when its hash is known."""
    with _asked(
        keeper, op="put", rank=rank, length=len(shard), metadata=len(metadata)
    ) as connection:
        connection.sendall(metadata)
        for at in range(0, len(shard), _BLOCK_BYTES):
            connection.sendall(shard[at : at + _BLOCK_BYTES])
        connection.sendall(json.dumps(asdict(entry())).encode() + b"\n")
        _answer(connection)


def fetch(keeper: Keeper, entry: Entry, to: Path) -> None:
    """Put a shard and its metadata into the folder `to`, whole or not at all."""
    to.mkdir(parents=True, exist_ok=True)
    written = to / f".{shelf.SHARD}.{os.getpid()}.new"
    try:
        with (
            _asked(keeper, op="get", rank=entry.rank, save=list(entry.save)) as connection,
            written.open("wb") as file,
        ):
            answer = _answer(connection)
            metadata = bytearray(answer["metadata"])
            _fill(connection, memoryview(metadata))
            (to / shelf.METADATA).write_bytes(metadata)
            _pour(connection, answer["length"], file.write)
        written.rename(to / shelf.SHARD)
    except OSError as error:
        raise PeerError(f"it cannot be kept here: {error.strerror}") from error
    finally:
        written.unlink(missing_ok=True)


@contextlib.contextmanager
def _asked(keeper: Keeper, **order: Any) -> Any:
    """A connection on which the order was given."""
    where = (keeper.address, keeper.port)
    try:
        with socket.create_connection(where, timeout=_CONNECT_SECONDS) as connection:
            connection.settimeout(_SILENCE_SECONDS_MAX)
            line = json.dumps({"token": keeper.token, **order}).encode() + b"\n"
            connection.sendall(line)
            yield connection
    except TimeoutError as error:
        raise PeerError(f"the keeper at {keeper.address} does not answer") from error
    except ConnectionError as error:
        reason = error.strerror or "it hung up"
        raise PeerError(f"the keeper at {keeper.address} is gone: {reason}") from error


def _answer(connection: socket.socket) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)  # what follows the line is not to be read with it
        if not byte or len(line) > _LINE_BYTES_MAX:
            raise ConnectionError
        line += byte
    answer: dict[str, Any] = json.loads(line)
    if "reason" in answer:
        raise PeerError(answer["reason"])
    return answer


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError
        view = view[count:]


def _pour(connection: socket.socket, length: int, write: Callable[[memoryview], int]) -> None:
    block = bytearray(_BLOCK_BYTES)
    while length:
        count = connection.recv_into(block, min(len(block), length))
        if not count:
            raise ConnectionError
        write(memoryview(block)[:count])
        length -= count
