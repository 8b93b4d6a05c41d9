"""The agent's end of a GPU prober: starts it, reads its lines, starts it again when it dies.

The agent itself never calls amdsmi or NVML, so nothing that a library does can stop it.
"""

import asyncio
import contextlib
import json
import logging
import sys
import time
from typing import Any, Protocol

from aegis_agent.sources.gpu_news import DEADLINE_SECONDS

_log = logging.getLogger(__name__)

GPU_MODULE = "aegis_agent.sources.gpu"
_SLOW_SECONDS_MAX, _SLOW_POLLS = 10.0, 10  # between two looks at what changes slowly
_QUIET_SECONDS = 30.0  # the prober says something every five
_PAUSE_SECONDS_MAX = 60.0


class Translate(Protocol):
    """Makes news of a prober's lines."""

    def __call__(self, line: dict[str, Any]) -> None:
        """Take one line."""

    def ended(self, reason: str) -> bool:
        """The prober is gone. True if it had said why."""


def slow_seconds(poll_seconds: float) -> float:
    """Between two looks at what changes slowly."""
    return min(_SLOW_SECONDS_MAX, _SLOW_POLLS * poll_seconds)


class Prober:
    """Runs a prober for as long as the agent lives, and tells what it says."""

    def __init__(
        self, poll_seconds: float, translate: Translate, module: str = GPU_MODULE, *flags: str
    ) -> None:
        self._poll_seconds = poll_seconds
        self._translate = translate
        self._module = module
        self._flags = flags
        self._stdin: asyncio.StreamWriter | None = None

    def look_again(self) -> None:
        """Find out anew which GPUs there are: one of them was missing."""
        if self._stdin is not None:
            self._stdin.write(b"look\n")

    async def run(self) -> None:
        """Until cancelled."""
        pause = 1.0
        while True:
            started_at = time.monotonic()
            reason = await self._run_once()
            if time.monotonic() - started_at > _PAUSE_SECONDS_MAX:
                pause = 1.0
            if not self._translate.ended(reason):
                _log.warning(
                    "The GPU prober ended; it will be started again.",
                    extra={"reason": reason, "in_seconds": pause},
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    async def _run_once(self) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", self._module),
            *("--poll-seconds", str(self._poll_seconds)),
            *("--slow-seconds", str(slow_seconds(self._poll_seconds))),
            *("--deadline-seconds", str(DEADLINE_SECONDS)),
            *self._flags,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._stdin = process.stdin
        try:
            return await self._read(process)
        finally:
            self._stdin = None
            # Its children end with it; itself it may be stuck in the library's load.
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None  # noqa: S101  it was asked for
        while True:
            try:
                # Not wait_for: before Python 3.12 that may swallow a cancellation.
                async with asyncio.timeout(_QUIET_SECONDS):
                    line = await process.stdout.readline()
            except TimeoutError:
                return f"it said nothing for {_QUIET_SECONDS:.0f} s"
            if not line:
                return f"it exited with {await process.wait()}"
            self._translate(json.loads(line))
