"""`python -m aegis.worker.writer FILE`: sees to a rank's shards while the rank trains on.

It shares the memory that the rank has copied its state into, by the open file FILE. Hashing,
writing, flushing and sending to a peer happen here, so neither the interpreter lock nor a crash of
the rank matters. When the rank is gone it lets the memory count and finishes what it sends, but
writes no more: nobody would commit it. No torch, so that it starts in no time.

    in   {"op": "plan", "metadata"}              base64; of all saves to come
         {"op": "write", "length", "entry", "own", "claim", "disk", "shared", "peer"}
                                                 the memory's first `length` bytes: let them count
                                                 there, write them there and there, send them there;
                                                 null for nowhere
    out  {"event": "written", "size", "hash"} or {"event": "failed", "errno", "reason", "path"}
         {"event": "copied", "seconds"} or {"event": "copied", "reason"}    where a peer was named
"""

import base64
import mmap
import os
import queue
import signal
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import xxhash

from aegis.worker import peers, shelf
from aegis.worker.files import flush_folder
from aegis.worker.lines import Lines
from aegis.worker.peers import Keeper, PeerError
from aegis.worker.shelf import Entry

_BLOCK_BYTES = 1 << 22
_SECTOR_BYTES = 4096
_DIRECT_BYTES_MIN = 1 << 20  # smaller files go through the page cache
_NICE = 5  # training goes before writing
_SECONDS_WITHOUT_HASH_MAX = 600.0


class Writer:
    """The memory, and what is done with it."""

    def __init__(self, memory: memoryview, lines: Lines) -> None:
        self._memory = memory
        self._lines = lines
        self._metadata = b""
        self._orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._gone = threading.Event()  # the rank

    def serve(self) -> None:
        """Do what is asked for until the rank is gone."""
        threading.Thread(target=self._hear, daemon=True).start()
        while (order := self._orders.get()) is not None:
            if order["op"] == "plan":
                self._metadata = base64.b64decode(order["metadata"])
            else:
                self._see_to(order)

    def _hear(self) -> None:
        for order in self._lines:
            self._orders.put(order)
        self._gone.set()
        self._orders.put(None)

    def _see_to(self, order: dict[str, Any]) -> None:
        shard = self._memory[: order["length"]]
        hashed: Future[Entry] = Future()
        sending = None
        if order["peer"] is not None:
            sending = threading.Thread(target=self._send, args=(order, shard, hashed))
            sending.start()
        entry = Entry(**order["entry"])
        entry = shelf.stamped(entry, xxhash.xxh3_128_hexdigest(shard))
        try:
            if order["own"] is not None:
                _check_claim(order)
                self._let_count(Path(order["own"]), entry)
            hashed.set_result(entry)
            self._write_all(order, entry)
        except OSError as error:
            if not hashed.done():
                hashed.set_exception(error)
            self._lines.say(
                "failed", errno=error.errno, reason=error.strerror, path=str(error.filename or "")
            )
        else:
            self._lines.say("written", size=entry.size, hash=entry.hash)
        if sending is not None:
            sending.join()

    def _let_count(self, path: Path, entry: Entry) -> None:
        (path / shelf.METADATA).write_bytes(self._metadata)
        shelf.put(path, entry)

    def _write_all(self, order: dict[str, Any], entry: Entry) -> None:
        if order["disk"] is not None:
            path = Path(order["disk"])
            shelf.withdraw(path)
            self._write(entry.size, path / shelf.SHARD)
            _check_claim(order)
            self._let_count(path, entry)
            shelf.prune_disk(path.parents[1], entry.rank, keep=2)
        if order["shared"] is not None:
            self._write(entry.size, Path(order["shared"]))

    def _write(self, length: int, path: Path) -> None:
        """Put the memory's first bytes into the file, on disk before this returns."""
        path.parent.mkdir(parents=True, exist_ok=True)
        file, step = _open(path, length)
        try:
            for at in range(0, length, _BLOCK_BYTES):
                if self._gone.is_set():
                    raise InterruptedError(0, "the rank is gone", str(path))
                until = min(at + _BLOCK_BYTES, length)
                _put(file, self._memory[at : -(-until // step) * step])
            os.ftruncate(file, length)
            os.fsync(file)
        finally:
            os.close(file)
        flush_folder(path.parent)

    def _send(self, order: dict[str, Any], shard: memoryview, hashed: Future[Entry]) -> None:
        begun = time.monotonic()
        try:
            peers.send(
                Keeper(**order["peer"]),
                order["entry"]["rank"],
                shard,
                self._metadata,
                lambda: hashed.result(_SECONDS_WITHOUT_HASH_MAX),
            )
        except (PeerError, OSError) as error:
            self._lines.say("copied", reason=str(error))
        else:
            self._lines.say("copied", seconds=time.monotonic() - begun)


def _check_claim(order: dict[str, Any]) -> None:
    """The memory may be another rank's by now, where this one's rank is gone."""
    if order["own"] is not None and not shelf.is_claimed(Path(order["own"]), order["claim"]):
        raise InterruptedError(0, "another save has taken the memory", order["own"])


def _open(path: Path, length: int) -> tuple[int, int]:
    """The file, past the page cache where its file system can; in what steps it is written."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if length >= _DIRECT_BYTES_MIN:
        try:
            return os.open(path, flags | os.O_DIRECT, 0o666), _SECTOR_BYTES
        except OSError:  # many network file systems cannot, and tmpfs
            pass
    return os.open(path, flags, 0o666), 1


def _put(file: int, block: memoryview) -> None:
    while block:
        block = block[os.write(file, block) :]


def main() -> int:
    """Be a rank's writer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the rank's to answer; its last save is written
    os.nice(_NICE)
    file = int(sys.argv[1])
    memory = memoryview(mmap.mmap(file, os.fstat(file).st_size, prot=mmap.PROT_READ))
    Writer(memory, Lines()).serve()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
