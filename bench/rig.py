"""What the measurements stand on: simulated hardware, an agent, a controller, and /proc."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.server import serve

from aegis.wire import Answer, encode
from aegis_agent.simulated import devices, fabric
from aegis_agent.simulated.library import build

START_SECONDS = 60.0


class Controller:
    """Confirms every report, and notes when the faults in it arrived."""

    def __init__(self) -> None:
        self.reports = 0
        self.bytes = 0
        self.devices: dict[str, str] = {}  # name: health
        self.arrived: list[tuple[float, dict[str, Any]]] = []  # perf_counter, fault
        self._news = threading.Condition()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), daemon=True)
        self._thread.start()
        self._ready.wait(START_SECONDS)

    def wait(self, wanted: Callable[[], Any], seconds: float) -> Any:
        """What is wanted as soon as there is any; None after so many seconds."""
        with self._news:
            self._news.wait_for(wanted, seconds)
            return wanted()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serve(self._hear, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._ready.set()
            await self._stop.wait()

    async def _hear(self, connection: Any) -> None:
        async for frame in connection:
            at = time.perf_counter()
            report = json.loads(frame)
            faults = report["faults"]
            with self._news:
                self.reports += 1
                self.bytes += len(frame)
                self.devices = {one["name"]: one["health"] for one in report["report"]["devices"]}
                self.arrived += [(at, spooled["fault"]) for spooled in faults]
                self._news.notify_all()
            answer = Answer(
                epoch=1,
                sent_at=time.time(),
                sequence=report["report"]["sequence"],
                stored=max((one["number"] for one in faults), default=0),
            )
            await connection.send(encode(answer))

    def stop(self) -> None:
        """No more."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)


@dataclass
class Hardware:
    """A node that is not there."""

    folder: Path
    gpus: int
    nics: int
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gpu_folder, self.tree = self.folder / "gpus", self.folder / "sys"
        self.log = self.folder / "kmsg"
        build(self.folder / "rocm")
        devices.init(self.gpu_folder, self.gpus)
        fabric.init(self.tree, "ionic", self.nics)
        os.mkfifo(self.log)  # who waits for it is woken, as by /dev/kmsg
        rocm = str(self.folder / "rocm")
        self.environment = {
            "ROCM_PATH": rocm,
            "ROCM_HOME": rocm,
            "AEGIS_SIM_AMDSMI": str(self.gpu_folder),
        }


class Agent:
    """`aegis agent` over that hardware, and what it and its children use."""

    def __init__(self, hardware: Hardware, controller: Controller, poll_seconds: float) -> None:
        folder = Path(tempfile.mkdtemp(dir=hardware.folder))
        (folder / "token").write_text("bench\n")
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "aegis_agent.main", "--node", "bench"),
                *("--controller", controller.url, "--token-file", str(folder / "token")),
                *("--state-dir", str(folder / "state"), "--socket", str(folder / "socket")),
                *("--sys-root", str(hardware.tree), "--kernel-log", str(hardware.log)),
                *("--fabric", ",".join(f"fab{number}" for number in range(hardware.nics))),
                *("--poll-seconds", str(poll_seconds)),
            ],
            env=os.environ | hardware.environment,
            stderr=self._log,
        )
        wanted = {f"gpu{number}" for number in range(hardware.gpus)}
        wanted |= {f"fab{number}" for number in range(hardware.nics)}

        def all_healthy() -> bool:
            found = {name for name, health in controller.devices.items() if health == "healthy"}
            return wanted <= found

        if not controller.wait(all_healthy, START_SECONDS):
            missing = sorted(wanted - set(controller.devices))
            self.stop()
            raise SystemExit(
                f"the agent did not report every device as healthy; missing: {missing}, "
                f"log: {(folder / 'log').read_text()[-2000:]}"
            )

    def pids(self) -> list[int]:
        """The agent and all below it."""
        found, queue = [], [self.process.pid]
        while queue:
            pid = queue.pop()
            found.append(pid)
            for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    queue += [int(one) for one in tasks.read_text().split()]
        return found

    def cpu_seconds(self) -> float:
        """Used so far by all, to the nanosecond, and by children that have ended."""
        ticks = os.sysconf("SC_CLK_TCK")
        seconds = 0.0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
                after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seconds += (int(after_name[13]) + int(after_name[14])) / ticks
        return seconds

    def footprint(self) -> dict[str, float]:
        """What all of them hold now."""
        total = {"processes": 0, "pss_mb": 0.0, "anonymous_mb": 0.0, "descriptors": 0, "threads": 0}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                for name, field_name in (("pss_mb", "Pss:"), ("anonymous_mb", "Pss_Anon:")):
                    line = next(line for line in rollup if line.startswith(field_name))
                    total[name] += int(line.split()[1]) / 1024
                total["descriptors"] += len(list(Path(f"/proc/{pid}/fd").iterdir()))
                total["threads"] += len(list(Path(f"/proc/{pid}/task").iterdir()))
                total["processes"] += 1
        return {name: round(value, 1) for name, value in total.items()}

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(START_SECONDS)
        finally:
            self.process.kill()
            self._log.close()


@contextlib.contextmanager
def running(hardware: Hardware, poll_seconds: float) -> Iterator[tuple[Agent, Controller]]:
    """An agent that has seen every device."""
    controller = Controller()
    try:
        agent = Agent(hardware, controller, poll_seconds)
        try:
            yield agent, controller
        finally:
            agent.stop()
    finally:
        controller.stop()


def percentiles(seconds: list[float]) -> dict[str, float | int]:
    """In milliseconds."""
    if not seconds:
        return {"events": 0}
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {
        "events": len(ordered),
        "p50_ms": at(0.50),
        "p99_ms": at(0.99),
        "max_ms": at(1.0),
    }
