"""Records of /dev/kmsg, without waiting; or of a FIFO or a file that stands in its place.

The device gives one record a read. EPIPE: the kernel has overwritten records that were not read
yet; EINVAL: a record is larger than the buffer and skipped. Both leave a gap in the sequence
numbers, by which lost records are counted.
"""

import asyncio
import errno
import os
import stat
from pathlib import Path

KMSG = Path("/dev/kmsg")
_KMSG_NUMBER = os.makedev(1, 11)
_RECORD_BYTES_MAX = 8192  # the kernel's own limit
_CHUNK_BYTES = 65536
_LINE_BYTES_MAX = 1 << 20  # a stand-in without line ends is not kept whole
_OVERRUNS_PER_READ_MAX = 16  # the kernel writes faster than anybody reads


class Kmsg:
    """Opened at its oldest record; a file at the offset where reading stopped."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """Raises OSError, which says why it may not be read."""
        status = path.stat()
        kind = status.st_mode
        self.is_device = stat.S_ISCHR(kind) and status.st_rdev == _KMSG_NUMBER
        self.can_be_waited_for = self.is_device or stat.S_ISFIFO(kind)
        self._is_file = stat.S_ISREG(kind)
        self.offset = offset  # of a file: what was read of it
        self.drained = False  # the last read reached the end
        self._rest = b""
        # Held open for writing by ourselves, a FIFO does not end when its writer goes.
        flags = os.O_RDWR if stat.S_ISFIFO(kind) else os.O_RDONLY
        self._descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Where news can be waited for."""
        return self._descriptor

    def close(self) -> None:
        """No more reading."""
        os.close(self._descriptor)

    def read(self, records_max: int) -> list[str]:
        """The next records; fewer than asked for at the end."""
        return self._read_device(records_max) if self.is_device else self._read_stream(records_max)

    def _read_device(self, records_max: int) -> list[str]:
        records: list[str] = []
        overruns = 0
        self.drained = False
        while len(records) < records_max and overruns < _OVERRUNS_PER_READ_MAX:
            try:
                record = os.read(self._descriptor, _RECORD_BYTES_MAX)
            except BlockingIOError:
                self.drained = True
                break
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EINVAL):
                    raise
                overruns += 1
                continue
            records.append(record.decode("utf-8", "replace"))
        return records

    def _read_stream(self, records_max: int) -> list[str]:
        """Lines that are whole; those that begin with a space belong to the record before."""
        if self._is_file and os.fstat(self._descriptor).st_size < self.offset:
            self.offset, self._rest = 0, b""  # it was begun anew
        while self._rest.count(b"\n") < records_max and len(self._rest) < _LINE_BYTES_MAX:
            chunk = self._chunk()
            if not chunk:
                break
            self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        taken = lines[:records_max]
        self.drained = len(taken) == len(lines)
        self._rest = b"\n".join([*lines[records_max:], rest])
        if self.drained and len(rest) >= _LINE_BYTES_MAX:
            self._rest = b""
            self.offset += len(rest)
        self.offset += sum(len(line) + 1 for line in taken)
        return _records(taken)

    def _chunk(self) -> bytes:
        try:
            if self._is_file:
                return os.pread(self._descriptor, _CHUNK_BYTES, self.offset + len(self._rest))
            return os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return b""


def _records(lines: list[bytes]) -> list[str]:
    records: list[str] = []
    for line in lines:
        text = line.decode("utf-8", "replace")
        if text.startswith(" ") and records:
            records[-1] += "\n" + text
        elif text.strip():
            records.append(text)
    return records


async def readable(descriptor: int) -> None:
    """Wait for news, or for the end."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
