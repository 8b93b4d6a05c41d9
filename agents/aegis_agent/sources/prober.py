"""The agent's end of the GPU prober: starts it, reads its lines, starts it again when it dies.

The agent itself never calls amdsmi, so nothing that the library does can stop it.
"""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import GpuReading, Silence

_log = logging.getLogger(__name__)

DEADLINE_SECONDS = 2.0  # of one call
SLOW_SECONDS = 10.0  # between two looks at what changes seldom
_QUIET_SECONDS = 30.0  # the prober says something every five
_PAUSE_SECONDS_MAX = 60.0
_DEATHS_STALLED = 3  # in a row: the GPU cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLibrary:
    """What reads the GPUs."""

    text: str  # one sentence: package, library, driver, with their versions
    simulated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusUnavailable:
    """No GPU can be read, and why. `expected` where there should be some."""

    at: float
    reason: str
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusListed:
    """All GPUs in amdsmi's order, each as "BDF UUID serial"."""

    at: float
    identities: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRead:
    """One GPU was read."""

    identity: str
    reading: GpuReading


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSilent:
    """One GPU was not read; without an identity: none of them."""

    identity: str | None
    silence: Silence


GpuNews: TypeAlias = GpuLibrary | GpusUnavailable | GpusListed | GpuRead | GpuSilent


class Prober:
    """Runs the prober for as long as the agent lives, and tells what it says."""

    def __init__(self, poll_seconds: float, tell: Callable[[GpuNews], None]) -> None:
        self._poll_seconds = poll_seconds
        self._translate = _Translator(tell)

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
            *("-m", "aegis_agent.sources.gpu"),
            *("--poll-seconds", str(self._poll_seconds)),
            *("--slow-seconds", str(SLOW_SECONDS)),
            *("--deadline-seconds", str(DEADLINE_SECONDS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            return await self._read(process)
        finally:
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


class _Translator:
    """The prober's lines as news. It knows GPUs by number, the agent by identity."""

    def __init__(self, tell: Callable[[GpuNews], None]) -> None:
        self._tell = tell
        self._identities: dict[int, str] = {}
        self._deaths: Counter[int] = Counter()  # in a row, by number
        self._unavailable = False  # and it was said why

    def __call__(self, line: dict[str, Any]) -> None:
        match line["type"]:
            case "library":
                self._tell(_library(line))
            case "unavailable":
                self._unavailable = True
                self._tell(
                    GpusUnavailable(at=time.time(), reason=line["reason"], expected=line["gpus"])
                )
            case "gpu":
                self._listed(line)
            case "reading":
                self._deaths[line["index"]] = 0
                self._tell(GpuRead(identity=self._identities[line["index"]], reading=_read(line)))
            case "stalled" | "died" | "failed":
                self._silent(line)

    def ended(self, reason: str) -> bool:
        """The prober is gone: nothing is read until the next one. True if it had said why."""
        said, self._unavailable = self._unavailable, False
        self._identities.clear()
        if not said:
            silence = Silence(at=time.time(), reason=f"the GPU prober ended: {reason}")
            self._tell(GpuSilent(identity=None, silence=silence))
        return said

    def _listed(self, line: dict[str, Any]) -> None:
        index = line["index"]
        self._unavailable = False
        self._identities[index] = " ".join((line["bdf"], line["uuid"], line["serial"]))
        if index == line["count"] - 1:
            listed = tuple(self._identities[number] for number in range(line["count"]))
            self._tell(GpusListed(at=time.time(), identities=listed))

    def _silent(self, line: dict[str, Any]) -> None:
        index, kind = line["index"], line["type"]
        stalled = kind == "stalled"
        if kind == "died":
            self._deaths[index] += 1
            stalled = self._deaths[index] >= _DEATHS_STALLED
        silence = Silence(
            at=line["at"],
            reason=_reason(line),
            stalled=stalled,
            source=f"amdsmi {line['call']}" if "call" in line else "amdsmi",
        )
        self._tell(GpuSilent(identity=self._identities.get(index), silence=silence))


def _library(line: dict[str, Any]) -> GpuLibrary:
    kind = "simulated library" if line["simulated"] else "library"
    text = (
        f"amdsmi {line['package']} ({line['package_path']}) over the {kind} {line['path']} "
        f"{line['version']}, driver {line.get('driver', 'unknown')}"
    )
    return GpuLibrary(text=text, simulated=line["simulated"])


def _read(line: dict[str, Any]) -> GpuReading:
    counts = {
        block: EccCounts(correctable=correctable, uncorrectable=uncorrectable, deferred=deferred)
        for block, (correctable, uncorrectable, deferred) in line["ecc"].items()
    }
    worked = {f"ecc_count({block})" for block in counts if block != "all"}
    return GpuReading(
        at=line["at"],
        ecc=counts,
        failed=line["failed"],
        worked=frozenset(worked | {"vram_usage"} if line["vram"] else worked),
        bad_pages=line.get("pages"),
        bad_page_threshold=line.get("threshold"),
    )


def _reason(line: dict[str, Any]) -> str:
    match line["type"]:
        case "stalled" if line["abandoned"]:
            return (
                f"amdsmi {line['call']} has not answered for {line['seconds']} s and its process "
                "cannot be killed: it is stuck in the kernel, and was abandoned"
            )
        case "stalled":
            return (
                f"amdsmi {line['call']} did not answer within {DEADLINE_SECONDS:.0f} s; "
                "its process was ended and will be started again"
            )
        case "died":
            return (
                f"the process that reads it died of signal {line['signal']} in amdsmi "
                f"{line['call']} and will be started again"
            )
        case _:
            return str(line["reason"])
