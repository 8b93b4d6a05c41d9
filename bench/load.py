"""What the agent and all its children use while nothing happens, and over many polls."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import timed_library
from rig import Hardware, running

_POLL_SECONDS = 1.0
_FAST_POLL_SECONDS = 0.05  # the shortest that the agent takes
_SAMPLES = 10


def steady(hardware: Hardware, minutes: float, settle_seconds: float) -> dict[str, Any]:
    """Share of one core and memory at rest, the simulator's own share taken off in the open."""
    with running(hardware, _POLL_SECONDS) as (agent, controller):
        time.sleep(settle_seconds)
        reports, began_at, used = controller.reports, time.monotonic(), agent.cpu_seconds()
        time.sleep(60 * minutes)
        seconds, used = time.monotonic() - began_at, agent.cpu_seconds() - used
        found: dict[str, Any] = {
            "seconds": round(seconds, 1),
            "reports": controller.reports - reports,
            "cpu_percent": round(100 * used / seconds, 3),
            **agent.footprint(),
        }
    found["simulator"] = _simulator(hardware, min(60.0, 60 * minutes), settle_seconds)
    found["cpu_percent_without_simulator"] = round(
        found["cpu_percent"] - found["simulator"]["cpu_percent"], 3
    )
    return found


def _simulator(hardware: Hardware, seconds: float, settle_seconds: float) -> dict[str, Any]:
    """The same prober alone, the time inside the C library added up."""
    page = hardware.folder / "timed"
    page.write_bytes(bytes(timed_library.SLOTS * timed_library.SLOT.size))
    prober = subprocess.Popen(
        [
            *(sys.executable, timed_library.__file__, "--poll-seconds", str(_POLL_SECONDS)),
            *("--slow-seconds", "10", "--deadline-seconds", "2"),
        ],
        env=os.environ | hardware.environment | {"AEGIS_BENCH_PAGE": str(page)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    drain = subprocess.Popen(["cat"], stdin=prober.stdout, stdout=subprocess.DEVNULL)
    try:
        time.sleep(settle_seconds)
        calls, nanoseconds = timed_library.totals(page)
        began_at = time.monotonic()
        time.sleep(seconds)
        after = timed_library.totals(page)
        took = time.monotonic() - began_at
    finally:
        prober.kill()
        prober.wait()
        drain.wait()
    if after[0] == calls:
        raise SystemExit("the timed prober made no call; is it still started as the agent does?")
    return {
        "how": "time inside the simulated C library, of the same prober running alone",
        "calls_per_second": round((after[0] - calls) / took, 1),
        "microseconds_per_call": round((after[1] - nanoseconds) / 1000 / (after[0] - calls), 2),
        "cpu_percent": round(100 * (after[1] - nanoseconds) / 1e9 / took, 3),
    }


def growth(hardware: Hardware, polls: int, settle_seconds: float) -> dict[str, Any]:
    """Memory, descriptors and threads over polls back to back."""
    with running(hardware, _FAST_POLL_SECONDS) as (agent, _):
        time.sleep(settle_seconds)
        samples = [agent.footprint()]
        for _ in range(_SAMPLES):
            time.sleep(polls * _FAST_POLL_SECONDS / _SAMPLES)
            samples.append(agent.footprint())
    half = samples[len(samples) // 2 :]
    return {
        "polls": polls,
        "poll_seconds": _FAST_POLL_SECONDS,
        "first": samples[0],
        "last": samples[-1],
        "grown": {name: round(samples[-1][name] - samples[0][name], 1) for name in samples[0]},
        "grown_in_the_second_half": {
            name: round(half[-1][name] - half[0][name], 1) for name in half[0]
        },
        # Its own memory. PSS also moves with how many others share Python's files.
        "anonymous_mb": [sample["anonymous_mb"] for sample in samples],
    }


def machine() -> dict[str, Any]:
    """What was measured on."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": model[0] if model else "unknown",
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }
