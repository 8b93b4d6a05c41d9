"""How full file systems are, asked in a child each: a network file system may never answer.

A child that is past its deadline is killed. One that does not die of it is stuck in the kernel:
its file system is not asked again while it lives.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from aegis_agent.probes.disk import DiskSample

DEADLINE_SECONDS = 5.0
_DEATH_SECONDS = 1.0
# Block size, blocks, free blocks, those that users may have, inodes, free inodes, and its identity.
_ASK = ("stat", "--file-system", "--format", "%S %b %f %a %c %d %i", "--")


@dataclass
class Disks:
    """The file systems of some paths."""

    paths: Sequence[str]
    deadline_seconds: float = DEADLINE_SECONDS
    ask: Sequence[str] = _ASK
    _stuck: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def read(self) -> list[DiskSample]:
        """Each once; a file system that several paths are on is told of the first of them."""
        answers = await asyncio.gather(*(self._read(path) for path in self.paths))
        samples, seen = [], set()
        for sample, identity in answers:
            if not identity or identity not in seen:
                samples.append(sample)
            seen.add(identity)
        return samples

    async def _read(self, path: str) -> tuple[DiskSample, str]:
        silent = f"{path} does not answer within {self.deadline_seconds:g} s"
        stuck = self._stuck.get(path)
        if stuck is not None and stuck.returncode is None:
            return DiskSample(at=time.time(), path=path, trouble=silent), ""
        self._stuck.pop(path, None)
        try:
            child = await asyncio.create_subprocess_exec(
                *(*self.ask, path),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            )
        except OSError as error:
            trouble = f"{path} cannot be asked: {self.ask[0]}: {error.strerror}"
            return DiskSample(at=time.time(), path=path, trouble=trouble), ""
        try:
            async with asyncio.timeout(self.deadline_seconds):
                out, err = await child.communicate()
        except TimeoutError:
            return DiskSample(at=time.time(), path=path, trouble=silent), ""
        finally:
            await self._end(path, child)
        return _sample(path, out.decode(errors="replace"), err.decode(errors="replace"))

    async def _end(self, path: str, child: asyncio.subprocess.Process) -> None:
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        try:
            async with asyncio.timeout(_DEATH_SECONDS):
                await child.wait()
        except TimeoutError:
            self._stuck[path] = child


def _sample(path: str, out: str, err: str) -> tuple[DiskSample, str]:
    at = time.time()
    try:
        *numbers, identity = out.split()
        size, blocks, free, usable, inodes, inodes_free = map(int, numbers)
    except ValueError:
        reason = " ".join(err.split()).rpartition(": ")[2] or "no answer that can be read"
        trouble = f"{path} cannot be read: {reason}"
        missing = reason == os.strerror(errno.ENOENT)
        return DiskSample(at=at, path=path, trouble=trouble, missing=missing), ""
    sample = DiskSample(
        at=at,
        path=path,
        used=(blocks - free) * size,
        free=usable * size,
        inodes=inodes,
        inodes_free=inodes_free,
    )
    return sample, f"{identity} {blocks}"
