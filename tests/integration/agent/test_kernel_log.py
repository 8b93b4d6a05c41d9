"""The kernel log, from a line to what the controller hears."""

import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aegis_agent.simulated import devices

GPU = "0000:c1:00.0"  # no sense finds one there
TIMEOUT = f"amdgpu {GPU}: amdgpu: ring comp_1.0.1 timeout, signaled seq=12049, emitted seq=12050"


class Log:
    """A file in place of /dev/kmsg."""

    def __init__(self, path):
        self.path = path
        self._sequence = 0
        path.touch()

    def say(self, *texts):
        with self.path.open("a") as log:
            for text in texts:
                log.write(f"4,{self._sequence},{int(time.monotonic() * 1e6)},-;{text}\n")
                self._sequence += 1


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "kmsg")


@pytest.fixture
def start(start_agent, log, controller):
    """Starts an agent that follows the log, and waits until it does and has found its GPUs."""

    def started():
        connections, reports = len(controller.headers), len(controller.reports)
        agent = start_agent("--kernel-log", str(log.path))
        controller.wait(
            lambda: (
                len(controller.headers) > connections
                and len(controller.reports) > reports
                and "kernel" in dict(controller.last.sources)
                and controller.device("gpu0")
                and controller.device("gpu0").health == "healthy"
            ),
            "the kernel log as a source, and GPUs",
        )
        return agent

    return started


def of_class(controller, name):
    return [f for _, f in sorted(controller.faults.items()) if f.fault_class == name]


def test_a_line_is_a_fault_at_once_and_its_repetition_an_update(start, log, controller):
    """The line itself is the evidence; 41 more are one more fault."""
    start()
    log.say(TIMEOUT)
    first = controller.wait_fault("gpu.ring.timeout")
    assert (first.severity, first.device, first.count) == ("error", GPU, 1)
    assert (first.simulated, first.evidence[0].source) == (True, "kernel log")
    assert first.evidence[0].text == TIMEOUT
    log.say(*[TIMEOUT] * 41)
    controller.wait(
        lambda: sum(f.count for f in of_class(controller, "gpu.ring.timeout")) == 42, "all 42"
    )
    assert len(of_class(controller, "gpu.ring.timeout")) <= 4
    # ×41 where this machine was so busy that the first one was forgotten meanwhile.
    assert of_class(controller, "gpu.ring.timeout")[-1].evidence[0].text.startswith("×4")


def test_lines_find_their_devices_and_their_meaning(start, log, controller):
    """A GPU that is known, one that is not, a card not used, and registers that are one record."""
    start()
    identity = controller.device("gpu0").identity
    address = identity.split(" ")[0]
    head = f"amdgpu {GPU}: {{7}}[Hardware Error]:"
    log.say(
        TIMEOUT.replace(GPU, address),
        TIMEOUT,
        "mlx5_core 0000:61:00.0 eth9: TX timeout detected",
        f"{head} Accelerator Check Architecture events logged",
        f"{head} ACA[01/01].STATUS=0x9c2040000000011b",
        f"{head} ACA[01/01].IPID=0x0000009600150f00",
    )
    controller.wait(lambda: len(of_class(controller, "gpu.ras.record")) == 2, "the record")
    known, unknown = of_class(controller, "gpu.ring.timeout")
    assert (known.device, known.identity) == ("gpu0", identity)
    assert dict(known.details)["address"] == address
    assert (unknown.device, unknown.severity) == (GPU, "error")
    (card,) = of_class(controller, "nic.tx.timeout")
    assert (card.device, card.severity) == ("eth9", "warning")
    first, update = of_class(controller, "gpu.ras.record")
    assert (first.count, update.count, dict(update.details)["afid"]) == (1, 0, "24")


def test_a_gpu_that_is_being_reset_is_not_lost(start, log, controller, gpus):
    """Others cannot read it meanwhile. If it is not back at the end of the reset, it is lost."""
    start()
    address = controller.device("gpu0").identity.split(" ")[0]
    log.say(f"amdgpu {address}: amdgpu: GPU reset begin!")
    controller.wait_fault("gpu.reset.begin")
    devices.set_lost(gpus, 0, lost=True)
    controller.wait(lambda: controller.device("gpu0").health != "healthy", "a GPU not to be read")
    assert "gpu.lost" not in controller.classes()
    log.say(f"amdgpu {address}: amdgpu: GPU reset(2) succeeded!")
    controller.wait_fault("gpu.lost")
    order = [name for name in controller.classes() if name.startswith(("gpu.reset", "gpu.lost"))]
    assert order.index("gpu.reset.succeeded") < order.index("gpu.lost")


def test_what_was_there_before_the_first_start_is_no_news(start, log, controller):
    """It may long be mended. What comes later is told."""
    log.say(TIMEOUT.replace("comp_1.0.1", "before"), f"amdgpu {GPU}: amdgpu: GPU reset begin!")
    start()
    log.say(TIMEOUT)
    controller.wait_fault("gpu.ring.timeout")
    assert controller.classes() == ["gpu.ring.timeout"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_was_away_reads_on_where_it_stopped(start, log, controller, number):
    """What it told is not told again; what it missed is told with its own time."""
    agent = start()
    log.say(TIMEOUT)
    controller.wait_fault("gpu.ring.timeout")
    agent.end(number)
    missed_at = time.time()
    log.say("{7}[Hardware Error]: event severity: fatal")
    time.sleep(1.0)  # the two clocks of this story must differ
    again_at = time.time()
    start()
    missed = controller.wait_fault("host.apei.fatal")
    assert missed.device == "host"
    assert missed_at - 0.5 < missed.observed_at < again_at - 0.3
    assert sum(fault.count for fault in of_class(controller, "gpu.ring.timeout")) == 1


def test_killed_at_any_moment_nothing_is_lost_or_told_twice(start, log, controller):
    """A burst on forty GPUs, the agent killed again and again in the middle of it."""
    start().end(signal.SIGKILL)
    agent = start()
    lines = [TIMEOUT.replace("c1:", f"{number:02x}:") for number in range(40)]
    for round_number in range(4):
        log.say(*lines)
        time.sleep(0.05 * round_number)
        agent.end(signal.SIGKILL)
        agent = start()
    controller.wait(
        lambda: sum(f.count for f in of_class(controller, "gpu.ring.timeout")) >= 160, "all 160"
    )
    counts = {}
    for fault in of_class(controller, "gpu.ring.timeout"):
        counts[fault.device] = counts.get(fault.device, 0) + fault.count
    assert set(counts.values()) == {4}


def test_a_reset_is_followed_over_a_restart(start, log, controller):
    """Begun before the agent was killed, ended after: how long it took is known."""
    agent = start()
    log.say(f"amdgpu {GPU}: amdgpu: GPU reset begin!")
    controller.wait_fault("gpu.reset.begin")
    agent.end(signal.SIGKILL)
    start()
    log.say(f"amdgpu {GPU}: amdgpu: GPU reset(2) succeeded!")
    ended = controller.wait_fault("gpu.reset.succeeded")
    assert float(dict(ended.details)["seconds"]) >= 0


def test_a_storm_leaves_the_agent_responsive(start, log, controller):
    """A hundred thousand ordinary lines with a fault among them; reports go on meanwhile."""
    start()
    ordinary = [f"usb 1-1: new high-speed USB device number {number}" for number in range(50_000)]
    log.say(*ordinary, TIMEOUT, *ordinary)
    controller.wait_fault("gpu.ring.timeout")
    assert controller.classes() == ["gpu.ring.timeout"]


def test_a_fifo_stands_in_too(start_agent, controller, tmp_path):
    """Writers come and go."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    start_agent("--kernel-log", str(path))
    controller.wait(lambda: "kernel" in dict(controller.last.sources), "the source")
    for ring in ("sdma0", "sdma1"):
        path.write_text(f"4,1,1000000,-;{TIMEOUT.replace('comp_1.0.1', ring)}\n")
    controller.wait(
        lambda: sum(f.count for f in of_class(controller, "gpu.ring.timeout")) == 2, "both"
    )


def test_a_log_that_cannot_be_read_is_unknown(start_agent, controller, tmp_path):
    """Not healthy, and it is said why."""
    start_agent("--kernel-log", str(tmp_path / "nothing"))
    device = controller.wait_device("kernel-log", "unknown")
    assert "No such file" in device.detail
    assert controller.source("kernel") == device.detail


def test_a_simulated_node_does_not_read_this_machines_log(start_agent, controller):
    """Its GPUs are not those that the lines are about."""
    start_agent()
    controller.wait(lambda: "kernel" in dict(controller.last.sources), "the source")
    assert controller.source("kernel") == "not read: this node is simulated"


# ── the kernel's own ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def kmsg():
    path = Path("/dev/kmsg")
    if os.geteuid() != 0 or not path.exists() or not stat.S_ISCHR(path.stat().st_mode):
        pytest.skip("lines are written to /dev/kmsg: needs root, and a kernel log")

    def say(text):
        with path.open("w") as log:
            log.write(text + "\n")

    return say


@pytest.mark.root
def test_a_line_of_the_kernels_own_log(start_agent, controller, kmsg):
    """Written by root as the driver would, read on by the next agent, told once."""
    ours = f"{secrets.token_hex(2)}:c1:00.0"  # others may be writing there too
    line = TIMEOUT.replace(GPU, ours)
    flags = ("--kernel-log", "/dev/kmsg")
    agent = start_agent(*flags)
    controller.wait(lambda: dict(controller.last.sources).get("kernel") == "/dev/kmsg", "source")

    def told(name):
        return [fault for fault in of_class(controller, name) if fault.device == ours]

    kmsg(line)
    controller.wait(lambda: told("gpu.ring.timeout"), "the line")
    (fault,) = told("gpu.ring.timeout")
    assert (fault.evidence[0].text, fault.simulated) == (line, False)
    assert abs(time.time() - fault.observed_at) < 10.0
    agent.end(signal.SIGKILL)
    kmsg(f"amdgpu {ours}: amdgpu: VRAM is lost due to GPU reset!")
    start_agent(*flags)
    controller.wait(lambda: told("gpu.memory.vram_lost"), "what was written meanwhile")
    assert sum(one.count for one in told("gpu.ring.timeout")) == 1


LOOK = """
import asyncio
from pathlib import Path
from aegis_agent.sources.kernel_log import KernelLog
log = KernelLog(Path("/dev/kmsg"), "", None, journalctl="/nowhere/journalctl")
lines = asyncio.run(log.look()).lines
print(bool(lines), log.source())
"""


@pytest.mark.root
@pytest.mark.parametrize("capability", ["+syslog", "-all"])
def test_the_units_one_capability_is_enough_and_needed(kmsg, capability):
    """What aegis-agent.service gives its user; without it, it is said what to do."""
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed (util-linux)")
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "1":
        pytest.skip("kernel.dmesg_restrict is 0: everybody reads the log here")
    done = subprocess.run(
        [
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            *(f"--inh-caps={capability}", f"--ambient-caps={capability}"),
            *(sys.executable, "-c", LOOK),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"another user cannot run this Python: {done.stderr[-200:]}")
    if capability == "+syslog":
        assert done.stdout == "True /dev/kmsg\n"
    else:
        assert done.stdout.startswith("False not read: neither /dev/kmsg (Operation not permitted)")
        assert "CAP_SYSLOG" in done.stdout
