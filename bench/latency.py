"""From what happens on the node to the report that tells it, as the controller receives it."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from rig import Agent, Controller, Hardware, percentiles, running

from aegis_agent.simulated import devices, network

_POLL_SECONDS = 1.0
_EVENT_SECONDS = 20.0  # after that it is taken as lost
_KMSG = "/dev/kmsg"


def measure(
    hardware: Hardware, events: int, settle_seconds: float, *, kmsg: bool
) -> dict[str, Any]:
    """Kernel lines, link edges, ECC counts."""
    if kmsg:
        hardware.log.unlink()
        hardware.log.symlink_to(_KMSG)
    with running(hardware, _POLL_SECONDS) as (agent, controller):
        time.sleep(settle_seconds / 3)
        return {
            "bare_process": _bare_process(events),
            "kernel_line": _kernel_lines(hardware, controller, events, kmsg=kmsg),
            "link_edge_simulated": _simulated_edges(hardware, controller, events),
            "ecc_change": _ecc_changes(hardware, controller, events),
            "storm": _storm(hardware, agent, controller),
        }


def _bare_process(events: int) -> dict[str, Any]:
    """The yardstick: how long a process that only waits takes to be woken and to answer here."""
    echo = "import os\nwhile word := os.read(0, 9): os.write(1, word)"
    with subprocess.Popen(
        [sys.executable, "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        took = []
        for _ in range(events):
            time.sleep(random.uniform(0.1, 0.5))
            began_at = time.perf_counter()
            process.stdin.write(b"x\n")
            process.stdout.read(2)
            took.append(time.perf_counter() - began_at)
        process.stdin.close()
    return percentiles(took) | {"through": "two pipes; what a busy machine adds, it adds here too"}


def _kernel_lines(
    hardware: Hardware, controller: Controller, events: int, *, kmsg: bool
) -> dict[str, Any]:
    """A line about another GPU each time, so that none is folded into the one before."""
    took = []
    with hardware.log.open("wb", buffering=0) as log:
        for number in range(events):
            address = f"{0x7000 + number:04x}:01:00.0"
            text = (
                f"amdgpu {address}: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=2"
            )
            line = f"<3>{text}" if kmsg else f"3,{number + 1},{_uptime_us()},-;{text}"
            took += _one(controller, lambda line=line: log.write(f"{line}\n".encode()), address)
    return percentiles(took) | {"through": _KMSG if kmsg else "a FIFO in its place"}


def _simulated_edges(hardware: Hardware, controller: Controller, events: int) -> dict[str, Any]:
    def switch(port: str, *, up: bool) -> None:
        (network.up if up else network.down)(hardware.tree, port)

    return link_edges(controller, events, hardware.nics, switch) | {
        "through": "a simulated tree, read ten times a second; a real link's change is pushed"
    }


def link_edges(
    controller: Controller, events: int, nics: int, switch: Callable[..., None]
) -> dict[str, Any]:
    """Each port in turn, down and up again."""
    took = []
    for number in range(events):
        port = f"fab{number % nics}"
        took += _one(controller, lambda port=port: switch(port, up=False), "nic.link.down", port)
        switch(port, up=True)
        time.sleep(0.3)
    return percentiles(took)


def _ecc_changes(hardware: Hardware, controller: Controller, events: int) -> dict[str, Any]:
    took = []
    for number in range(events):
        gpu = number % hardware.gpus
        counts = (0, 0, 1 + number // hardware.gpus)
        took += _one(
            controller,
            lambda gpu=gpu, counts=counts: devices.set_counts(
                hardware.gpu_folder, gpu, "umc", counts
            ),
            "gpu.ecc.deferred",
            f"gpu{gpu}",
        )
    found = percentiles(took)
    if took:
        found["p99_beyond_one_poll_ms"] = round(found["p99_ms"] - 1000 * _POLL_SECONDS, 2)
    return found


def _one(controller: Controller, happen: Callable[[], Any], *words: str) -> list[float]:
    """Let it happen at any point of a poll; how long until a fault with these words arrived."""
    time.sleep(random.uniform(0.1, 1.1))
    known = len(controller.arrived)

    def arrived() -> float | None:
        for at, fault in controller.arrived[known:]:
            told = f"{fault['fault_class']} {fault['device']} {fault['evidence']}"
            if all(word in told for word in words):
                return at
        return None

    began_at = time.perf_counter()
    happen()
    at = controller.wait(arrived, _EVENT_SECONDS)
    return [] if at is None else [at - began_at]


def _storm(hardware: Hardware, agent: Agent, controller: Controller) -> dict[str, Any]:
    """Ten thousand fault lines at once: what it costs, what arrives, and what is merged."""
    lines = 10_000
    before, reports, known = agent.footprint(), controller.reports, len(controller.arrived)
    used, began_at = agent.cpu_seconds(), time.perf_counter()
    text = "amdgpu 0000:05:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=2"
    with hardware.log.open("wb", buffering=0) as log:
        for number in range(lines):
            if os.path.realpath(hardware.log) == _KMSG:
                break  # the kernel's own log is not to be flooded
            log.write(f"3,{1_000_000 + number},{_uptime_us()},-;{text}\n".encode())
    written = time.perf_counter() - began_at

    def counted() -> int:
        faults = [fault for _, fault in controller.arrived[known:]]
        return sum(fault["count"] for fault in faults if "ring" in str(fault["evidence"]))

    controller.wait(lambda: counted() >= lines, 5.0)
    return {
        "lines": lines,
        "seconds_to_write": round(written, 2),
        "faults_counted_within_5_s": counted(),
        "faults_sent": len(controller.arrived) - known,
        "reports": controller.reports - reports,
        "cpu_seconds": round(agent.cpu_seconds() - used, 2),
        "pss_grown_mb": round(agent.footprint()["pss_mb"] - before["pss_mb"], 1),
    }


def _uptime_us() -> int:
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
