"""A real agent over a real host, files that stand for one, and a site's own programs."""

import socket

import pytest

from aegis.model.job import JobSpec, LauncherState, RankPhase, RankState
from aegis.model.node import Health
from aegis.wire import encode

AER = "RxErr 0\nBadTLP {count}\nTOTAL_ERR_{kind} {count}\n"


@pytest.fixture
def script(tmp_path):
    def write(name, body):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


def test_a_sites_own_program_is_a_check_of_the_node(start_agent, controller, tmp_path, script):
    """From agent.yaml and from a file dropped beside it, to the controller and back to health."""
    state = tmp_path / "state"
    state.write_text("1")
    mine = script("mine.sh", f'echo "fan 3 stands still"; exit "$(cat {state})"')
    config = tmp_path / "agent.yaml"
    times = "interval_seconds: 1, deadline_seconds: 1"
    config.write_text(f"checks: [{{name: fans, command: [{mine}], severity: error, {times}}}]\n")
    (tmp_path / "checks.d").mkdir()
    line = '{"status": "fault", "device": "gpu1", "class": "gpu.thermal.throttle"}'
    theirs = script("theirs.sh", f"echo '{line}'; exit 1")
    (tmp_path / "checks.d/burn.yaml").write_text(
        f"name: burn\ncommand: [{theirs}]\ninterval_seconds: 1\ndeadline_seconds: 1\n"
    )
    (tmp_path / "checks.d/gone.yaml").write_text("name: gone\ncommand: [/no/such/program]\n")
    start_agent("--config", str(config))
    fault = controller.wait_fault("host.check.failed")
    assert (fault.device, fault.severity, fault.details) == ("host", "error", (("check", "fans"),))
    assert fault.evidence[0].text == "fan 3 stands still"
    assert controller.wait_fault("gpu.thermal.throttle").device == "gpu1"
    device = controller.wait_device("check:gone", Health.UNKNOWN)
    assert device.detail == "host: /no/such/program is not there"
    controller.wait(lambda: len(controller.last.conditions) == 2, "both conditions")
    state.write_text("0")
    controller.wait_device("check:fans", Health.HEALTHY)
    controller.wait(lambda: len(controller.last.conditions) == 1, "the end of one condition")


def test_a_killed_agent_leaves_no_second_fault(start_agent, controller, tmp_path, script):
    """What a check was known to say is remembered with the faults."""
    bad = script("bad.sh", "exit 1")
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"checks: [{{name: a, command: [{bad}], interval_seconds: 1, deadline_seconds: 1}}]\n"
    )
    agent = start_agent("--config", str(config))
    controller.wait(lambda: controller.last.conditions, "the condition")
    agent.process.kill()
    agent.process.wait(30)
    told = controller.classes()
    seen = len(controller.reports)
    start_agent("--config", str(config))
    controller.wait(lambda: len(controller.reports) > seen, "the next agent")
    controller.wait(lambda: controller.device("check:a"), "a run of the check")
    assert controller.last.conditions
    assert controller.classes() == told


def test_a_wrong_check_is_refused_at_the_start(start_agent, tmp_path):
    """One sentence, with the file, the key and the mend; systemd does not try again."""
    config = tmp_path / "agent.yaml"
    config.write_text("checks: [{name: a, command: [x], when: never}]\n")
    agent = start_agent("--config", str(config))
    assert agent.process.wait(30) == 2
    assert "agent.yaml: checks[0].when must be always" in agent.log


def test_what_the_kernel_counts_of_host_and_bus_is_told(start_agent, controller, tmp_path):
    """Through the agent, from files as the kernel has them."""
    root, proc = tmp_path / "sys", tmp_path / "proc"
    card = root / "devices/pci0000:40/0000:40:01.0/0000:41:00.0"
    card.mkdir(parents=True)
    (root / "bus/pci/devices").mkdir(parents=True)
    (root / "bus/pci/devices/0000:41:00.0").symlink_to(card)
    (card / "class").write_text("0x020000\n")
    (card / "aer_dev_fatal").write_text(AER.format(kind="FATAL", count=0))
    proc.mkdir()
    (proc / "meminfo").write_text("MemTotal: 4096000 kB\nMemAvailable: 1024000 kB\n")
    (proc / "vmstat").write_text("oom_kill 4\n")
    config = tmp_path / "agent.yaml"
    config.write_text(f"sys_root: {root}\nproc_root: {proc}\ndisk_paths: [{tmp_path}]\n")
    start_agent("--config", str(config))
    host = controller.wait_device("host", Health.HEALTHY)
    assert dict(host.counters)["memory_available_percent"] == 25
    controller.wait(lambda: "1 of 2 functions" in controller.source("pcie"), "the bus")
    (card / "aer_dev_fatal").write_text(AER.format(kind="FATAL", count=1))
    (proc / "vmstat").write_text("oom_kill 6\n")
    assert controller.wait_fault("host.memory.oom").count == 2
    fault = controller.wait_fault("pcie.aer.fatal")
    assert (fault.device, fault.severity) == ("0000:41:00.0", "warning")


def test_a_clock_that_is_not_the_controllers_is_told(start_agent, controller):
    """Its answers say what time it has."""
    controller.ahead_seconds = 300.0
    start_agent()
    fault = controller.wait_fault("host.clock.skew")
    assert "s behind the controller's" in fault.evidence[0].text
    controller.ahead_seconds = 0.0
    controller.wait(lambda: not controller.last.conditions, "the clocks to agree")


def test_a_check_for_idle_nodes_ends_when_ranks_come(start_agent, controller, tmp_path, script):
    """It is begun again when they are gone."""
    log = tmp_path / "log"
    slow = script("slow.sh", f"echo $$ >>{log}; exec sleep 600")
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"checks: [{{name: rvs, command: [{slow}], when: idle, interval_seconds: 900,"
        " deadline_seconds: 900}]\n"
    )
    agent = start_agent("--config", str(config))
    controller.wait(
        lambda: log.exists() and log.read_text().endswith("\n"), "the check's first run"
    )
    pid = int(log.read_text())
    assert pid in agent.children()
    rank = RankState(rank=0, local_rank=0, pid=1, phase=RankPhase.TRAINING)
    spec = JobSpec(name="llama", nodes=1, ranks_per_node=1)
    state = LauncherState(spec=spec, launcher="l-1", address="127.0.0.1", ranks=(rank,))
    with socket.socket(socket.AF_UNIX) as launcher:
        launcher.connect(str(agent.socket))
        launcher.sendall(encode(state).encode() + b"\n")
        controller.wait(lambda: pid not in agent.children(), "the check to give way")
        waits = "until no ranks are here these wait: rvs"
        controller.wait(lambda: waits in controller.source("checks"), "it to wait")
        assert len(log.read_text().splitlines()) == 1
    controller.wait(lambda: len(log.read_text().splitlines()) == 2, "its second run")
    assert controller.device("check:rvs") is None
