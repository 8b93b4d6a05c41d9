"""The memory that a save is taken into: allocated once, shared with the process that writes it.

It is a file in memory that is laid out as the rank's shard (`aegis.worker.layout`), so that a save
copies each tensor to its place and nothing else. In a launcher's memory folder it has a name and
outlives the rank; elsewhere it has none and goes with the processes that hold it.
"""

import ctypes
import errno
import logging
import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint import DefaultSavePlanner

from aegis.worker import shelf
from aegis.worker.layout import Layout, Slot, objects_of
from aegis.worker.overlap import Overlap, Pair, Rest, copying, key_of

_MEMORY = Path("/dev/shm")  # noqa: S108  files there are private to the process that opened them
_SLACK_BYTES = 1 << 20  # objects that are no tensors may grow by so much, or to twice their size
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: have the pages before the first save needs them

_log = logging.getLogger("aegis.worker")


@dataclass(frozen=True, slots=True)
class Taken:
    """What a save has copied, and what it has still to copy."""

    length: int  # of the shard, in bytes
    objects: list[list[object]]  # the places of what is no tensor
    rest: Rest


class Stage:
    """A rank's shard in memory."""

    def __init__(self, layout: Layout, objects_bytes: int, path: Path | None) -> None:
        """Take the memory for this layout; `path` is the folder where it is to have its name."""
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
            shelf.claim(path, "")
            path /= shelf.SHARD
        room = layout.tensors_bytes + 2 * objects_bytes + _SLACK_BYTES
        self.capacity_bytes = -(-room // mmap.PAGESIZE) * mmap.PAGESIZE
        with copying:
            self.file = _take(self.capacity_bytes, path)
        self._let_go = weakref.finalize(self, os.close, self.file)
        self.layout = layout
        self._memory = mmap.mmap(self.file, self.capacity_bytes)
        _populate(self._memory)
        with torch.inference_mode(mode=False):  # also where the script is in it just now
            self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
            self._places = [self._place(slot) for slot in layout.slots]
        self._pinned = False

    def _place(self, slot: Slot) -> torch.Tensor:
        """Write what surrounds the tensor's numbers; where the numbers go."""
        numbers_at = slot.offset + slot.data_at
        after = numbers_at + slot.data_bytes
        self._memory[slot.offset : numbers_at] = slot.stream[: slot.data_at]
        self._memory[after : slot.offset + slot.length] = slot.stream[slot.data_at :]
        return self._bytes[numbers_at:after].view(slot.dtype).view(slot.shape)

    def take(self, planner: DefaultSavePlanner, overlap: Overlap | None = None) -> Taken | None:
        """Copy the state in, all but what `overlap` lets wait; None: too little room."""
        appended, places = objects_of(self.layout, planner)
        length = self.layout.tensors_bytes + len(appended)
        if length > self.capacity_bytes:
            return None
        sources = [planner.resolve_data(slot.item).detach() for slot in self.layout.slots]
        self._pin(sources)
        later = overlap.later() if overlap is not None else frozenset()
        rest, devices = [], set()
        for slot, place, source in zip(self.layout.slots, self._places, sources, strict=True):
            if later and key_of(source) in later:
                rest.append(Pair(slot.item.index.fqn, place, source))
                continue
            place.copy_(source, non_blocking=True)
            if source.is_cuda:
                devices.add(source.device)
        self._memory[self.layout.tensors_bytes : length] = appended
        waiting = Rest(rest, overlap)
        for device in devices - waiting.devices:  # whose streams see to these, too
            torch.cuda.synchronize(device)
        return Taken(length, places, waiting)

    def _pin(self, sources: list[torch.Tensor]) -> None:
        """Let a device copy into it directly, the first time that one is to."""
        if self._pinned or not any(source.is_cuda for source in sources):
            return
        self._pinned = True
        pointer, size = self._bytes.data_ptr(), self.capacity_bytes
        status = torch.cuda.cudart().cudaHostRegister(pointer, size, 0)
        if int(status) != 0:
            _log.warning(
                "The memory for checkpoints could not be pinned (status %d): copies out of the "
                "device take longer. `ulimit -l` says how much may be locked.", int(status),
            )  # fmt: skip

    def close(self) -> None:
        """Let go of the memory; what has a name keeps it."""
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._bytes.data_ptr())
        self._places.clear()
        del self._bytes
        self._let_go()


def _take(size: int, path: Path | None) -> int:
    """An open file of this size, in memory where there is room."""
    try:
        return _allocate(path, _MEMORY, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOENT, errno.EACCES, errno.EROFS):
            raise
        elsewhere = Path(tempfile.gettempdir())
        _log.warning(
            "%d MB of memory for checkpoints cannot be had in %s (%s); a file in %s takes its "
            "place, which makes saves slower. Give /dev/shm more room (--shm-size of a container).",
            size >> 20, path.parent if path else _MEMORY, error.strerror, elsewhere,
        )  # fmt: skip
        return _allocate(None, elsewhere, size)


def _allocate(path: Path | None, folder: Path, size: int) -> int:
    if path is None:
        file, name = tempfile.mkstemp(prefix="aegis-stage-", dir=folder)
        Path(name).unlink()
    else:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, max(size, os.fstat(file).st_size))
        os.posix_fallocate(file, 0, size)
    except OSError:
        os.close(file)
        if path is not None:
            path.unlink(missing_ok=True)
        raise
    return file


def _populate(memory: mmap.mmap) -> None:
    """Map all pages now; a kernel before 5.14 maps them at the first save instead."""
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(len(memory)), _POPULATE_WRITE)
