"""A process that the launcher owns, speaks JSON lines with, and starts again when it dies."""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)

_PAUSE_SECONDS_MIN = 0.1
_PAUSE_SECONDS_MAX = 5.0
_HEALTHY_SECONDS = 10.0  # a helper that lived so long starts again without a pause
_END_SECONDS = 5.0
_LINE_BYTES_MAX = 1 << 20


@dataclass
class Helper:
    """One of the launcher's processes. It ends when its standard input closes."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    said: Callable[[dict[str, Any]], None]
    died: Callable[[int], None]
    _process: asyncio.subprocess.Process | None = None
    _closing: bool = False
    _pause: float = _PAUSE_SECONDS_MIN

    async def run(self) -> None:
        """Keep it running until cancelled or closed."""
        clock = asyncio.get_running_loop().time
        while not self._closing:
            begun = clock()
            status = await self._live()
            if not self._closing:
                self.died(status)
            if clock() - begun >= _HEALTHY_SECONDS:
                self._pause = _PAUSE_SECONDS_MIN
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _PAUSE_SECONDS_MAX)

    async def _live(self) -> int:
        """One life of the process; its exit status."""
        command = [sys.executable, "-m", self.module, str(os.getpid()), *self.arguments]
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self.environment,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,  # a terminal's Ctrl-C is the launcher's to answer
        )
        assert process.stdout is not None  # noqa: S101  it was asked for
        while line := await process.stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                _log.warning("A helper said what is no message.", extra={"helper": self.module})
                continue
            self.said(message)
        return await process.wait()

    def tell(self, **message: object) -> None:
        """Ask it for something. What is told to a dead helper is lost, as it is itself."""
        process = self._process
        if process is not None and process.stdin is not None and process.returncode is None:
            process.stdin.write(json.dumps(message).encode() + b"\n")

    async def close(self) -> None:
        """End it: by closing its input, by force if that does not do."""
        self._closing = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
