"""`python -m aegis.worker.writer FILE`: writes a rank's shards to disk while the rank trains on.

It shares the memory that the rank has copied its state into, by the open file FILE. Hashing,
writing and flushing happen here, so neither the interpreter lock nor a crash of the rank matters.
No torch, so that it starts in no time. It ends when the rank closes its side or is gone.

    in   {"op": "write", "path", "length"}       the memory's first `length` bytes, to this file
    out  {"event": "written", "size", "hash", "seconds"}
         {"event": "failed", "errno", "reason", "path"}
"""

import mmap
import os
import signal
import sys
import time
from pathlib import Path

import xxhash

from aegis.worker.files import flush_folder
from aegis.worker.folder import FileSum
from aegis.worker.lines import Lines

_BLOCK_BYTES = 1 << 22  # hashed and written while it is in the processor's cache
_SECTOR_BYTES = 4096
_DIRECT_BYTES_MIN = 1 << 20  # smaller files go through the page cache
_NICE = 5  # training goes before writing


def write(memory: memoryview, length: int, path: Path) -> FileSum:
    """Put the memory's first bytes into the file, on disk before this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file, step = _open(path, length)
    hashing, at = xxhash.xxh3_128(), 0
    try:
        while at < length:
            until = min(at + _BLOCK_BYTES, length)
            hashing.update(memory[at:until])
            _write_all(file, memory[at : -(-until // step) * step])
            at = until
        os.ftruncate(file, length)
        os.fsync(file)
    finally:
        os.close(file)
    flush_folder(path.parent)
    return FileSum(size=length, hash=hashing.hexdigest())


def _open(path: Path, length: int) -> tuple[int, int]:
    """The file, past the page cache where its file system can; in what steps it is written."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if length >= _DIRECT_BYTES_MIN:
        try:
            return os.open(path, flags | os.O_DIRECT, 0o666), _SECTOR_BYTES
        except OSError:  # many network file systems cannot, and tmpfs
            pass
    return os.open(path, flags, 0o666), 1


def _write_all(file: int, block: memoryview) -> None:
    while block:
        block = block[os.write(file, block) :]


def main() -> int:
    """Write what is asked for until the rank is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            number, signal.SIG_IGN
        )  # the rank's to answer; the last save is still written
    os.nice(_NICE)
    file = int(sys.argv[1])
    memory = memoryview(mmap.mmap(file, os.fstat(file).st_size, prot=mmap.PROT_READ))
    lines = Lines()
    for message in lines:
        begun = time.monotonic()
        try:
            written = write(memory, message["length"], Path(message["path"]))
        except OSError as error:
            lines.say(
                "failed", errno=error.errno, reason=error.strerror, path=str(error.filename or "")
            )
            continue
        seconds = time.monotonic() - begun
        lines.say("written", size=written.size, hash=written.hash, seconds=seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
