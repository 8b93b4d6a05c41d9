"""A folder whose entries change: the kernel says so, nobody has to look.

The kernel's own /sys tells nothing this way; trees that are files, as simulated ones, do.
"""

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

_CREATE, _DELETE, _MOVED_FROM, _MOVED_TO = 0x100, 0x200, 0x40, 0x80
_BYTES_MAX = 4096


class FolderWatch:
    """Says when an entry of the folder came, went, or was replaced."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError where it cannot be watched."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")
        mask = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
        if libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask) < 0:
            code = ctypes.get_errno()
            self.close()
            raise OSError(code, f"{folder} cannot be watched")
        self._event = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._ready)

    def _ready(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, _BYTES_MAX)
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until something changed, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def close(self) -> None:
        """Watch no more."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
