"""`python -m aegis.worker.keeper LAUNCHER_PID ADDRESS FOLDER`: memory for the shards of peers.

A launcher owns it, so what ranks of other nodes have sent here outlives them and their node. It
says where it listens in FOLDER/keeper.json. Who may speak to it knows the token that the ranks of
the generation have put into FOLDER/token.json, together with the further shelves of this node.

    {"token", "op": "put", "rank", "length", "metadata"}   then the metadata and the shard, then
                                                           one line: the entry, once it is known
    {"token", "op": "get", "rank", "save"}                 answered {"metadata", "length"} and both
                                                           or {"reason"}

Each answer is one line of JSON. No torch here.
"""

import json
import mmap
import os
import socket
import socketserver
import sys
import threading
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from aegis.worker import shelf
from aegis.worker.files import write_durably
from aegis.worker.lifeline import end_with
from aegis.worker.lines import Lines
from aegis.worker.shelf import Entry, Kept

ADDRESS, TOKEN = "keeper.json", "token.json"
_SILENCE_SECONDS_MAX = 30.0
_LINE_BYTES_MAX = 1 << 24


class Keeper(socketserver.ThreadingTCPServer):
    """Serves one node's memory."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: str, folder: Path) -> None:
        self.folder = folder
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.locks: dict[int, threading.Lock] = {}  # by rank: one put at a time
        super().__init__((address, 0), _Visit)

    def shelves(self, token: str) -> list[Path] | None:
        """Where to look for shards; None for who does not know the token."""
        try:
            known = json.loads((self.folder / TOKEN).read_text())
        except (OSError, ValueError):
            return None
        if not token or known["token"] != token:
            return None
        return [self.folder, *(Path(one) for one in known["shelves"])]


class _Visit(socketserver.StreamRequestHandler):
    """One connection, one order."""

    timeout = _SILENCE_SECONDS_MAX
    server: Keeper

    def handle(self) -> None:
        """Answer the order, or hang up on what is none."""
        try:
            order = json.loads(self.rfile.readline(_LINE_BYTES_MAX))
            shelves = self.server.shelves(order["token"])
            if shelves is None:
                self._say(reason="the token is not this generation's")
            elif order["op"] == "put":
                lock = self.server.locks.setdefault(order["rank"], threading.Lock())
                with lock:
                    self._put(order)
            else:
                self._get(order, shelves)
        except (OSError, ValueError, KeyError, TypeError):
            return

    def _say(self, **fields: object) -> None:
        self.wfile.write(json.dumps(fields).encode() + b"\n")

    def _put(self, order: dict[str, Any]) -> None:
        path = shelf.peer_path(self.server.folder, order["rank"])
        shelf.withdraw(path)
        path.mkdir(parents=True, exist_ok=True)
        (path / shelf.METADATA).write_bytes(_exactly(self.rfile, order["metadata"]))
        _receive(self.rfile, path / shelf.SHARD, order["length"])
        entry = Entry(**json.loads(self.rfile.readline(_LINE_BYTES_MAX)))
        shelf.put(path, entry)
        self._say(kept=entry.step)

    def _get(self, order: dict[str, Any], shelves: list[Path]) -> None:
        wanted = tuple(order["save"])
        for one in (one for place in shelves for one in shelf.kept(place)):
            if one.entry.save == wanted and one.entry.rank == order["rank"]:
                self._hand_over(one)
                return
        self._say(reason="it is not here any more")

    def _hand_over(self, one: Kept) -> None:
        metadata = (one.path / shelf.METADATA).read_bytes()
        self._say(metadata=len(metadata), length=one.entry.size)
        self.wfile.write(metadata)
        with (one.path / shelf.SHARD).open("rb") as file:
            self.connection.sendfile(file, 0, one.entry.size)


def _exactly(stream: BufferedIOBase, length: int) -> bytes:
    content = stream.read(length)
    if len(content) != length:
        raise ConnectionError("the other side is gone")
    return content


def _receive(stream: BufferedIOBase, path: Path, length: int) -> None:
    """Into the file, whose memory is used again and again."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(file).st_size < length:
            os.ftruncate(file, length)
            os.posix_fallocate(file, 0, length)
        with mmap.mmap(file, length) as memory, memoryview(memory) as view:
            at = 0
            while at < length:
                with view[at:length] as rest:
                    count = stream.readinto(rest)
                if not count:
                    raise ConnectionError("the other side is gone")
                at += count
    finally:
        os.close(file)


def main() -> int:
    """Serve peers until the launcher closes its side."""
    end_with(int(sys.argv[1]))
    lines, folder = Lines(), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        keeper = Keeper(sys.argv[2], folder)
    except OSError as error:
        lines.say("failed", reason=f"no keeper can listen on {sys.argv[2]}: {error.strerror}")
        return 1
    port = keeper.server_address[1]
    write_durably(folder / ADDRESS, json.dumps({"address": sys.argv[2], "port": port}))
    threading.Thread(target=keeper.serve_forever, daemon=True).start()
    lines.say("listening", port=port)
    for _ in lines:
        pass
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
