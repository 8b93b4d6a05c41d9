"""NVIDIA GPUs through the unmodified nvidia-ml-py over the simulated library."""

import signal
import subprocess
import sys
import time

import pytest

from aegis_agent.simulated import devices, nvidia
from aegis_agent.simulated.library import build_nvml

pytest.importorskip("pynvml")


@pytest.fixture(scope="session")
def nvml(tmp_path_factory):
    """A folder for LD_LIBRARY_PATH with the simulated library."""
    return build_nvml(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture
def gpus(tmp_path):
    """Two simulated GPUs."""
    folder = tmp_path / "nvidia"
    nvidia.init(folder, 2)
    return folder


@pytest.fixture
def environment(nvml, gpus, tmp_path):
    nowhere = str(tmp_path / "no-rocm")
    return {
        "LD_LIBRARY_PATH": str(nvml),
        "AEGIS_SIM_NVML": str(gpus),
        "ROCM_PATH": nowhere,
        "ROCM_HOME": nowhere,
    }


@pytest.fixture
def seen(start_agent, controller):
    """An agent that has read both GPUs."""
    agent = start_agent()
    controller.wait_device("gpu0", "healthy")
    controller.wait_device("gpu1", "healthy")
    return agent


def wait_fresh(controller, name):
    """The device is read anew."""
    before = controller.device(name).read_at
    controller.wait(lambda: controller.device(name).read_at > before, f"{name} read anew")


def test_an_uncorrectable_error_arrives_with_its_evidence(seen, controller, gpus):
    """From the file through NVML and the spool to the controller; a driver reload clears it."""
    nvidia.set_errors(gpus, 1, "dram", (0, 1, 0, 1))
    fault = controller.wait_fault("gpu.ecc.uncorrectable")
    assert (fault.node, fault.device, fault.severity, fault.count) == ("n1", "gpu1", "error", 1)
    assert fault.simulated
    assert fault.identity.split() == [
        "0000:2d:00.0", "GPU-5a3c1e0f-7b21-4c0d-9e88-000000000001", "SIM0000000001",
    ]  # fmt: skip
    assert fault.evidence[0].source == "NVML memory_error_counter(dram)"
    controller.wait_device("gpu1", "unhealthy")
    nvidia.reload_driver(gpus)
    controller.wait_device("gpu1", "healthy")
    assert controller.classes() == ["gpu.ecc.uncorrectable", "gpu.reset.progress"]


def test_the_report_says_what_reads_the_gpus_and_what_they_are(seen, controller, nvml):
    """Package, library, driver; model and sensors of each GPU."""
    assert controller.last.simulated
    text = controller.source("nvidia")
    assert text.startswith("nvidia-ml-py ")
    assert f"simulated library {nvml}/libnvidia-ml.so.1 12.570.0, driver 570.124.06" in text
    device = controller.device("gpu0")
    assert dict(device.facts)["model"] == "NVIDIA H100 80GB HBM3"
    assert dict(device.counters)["temperature_c"] == 41
    assert dict(device.counters)["pcie_width"] == 16


def test_one_hanging_gpu_is_unknown_and_the_others_stay_fresh(seen, controller, gpus):
    """A call that never returns costs one child; the agent goes on."""
    devices.add_fault(gpus, "nvmlDeviceGetFieldValues", "1", "hang")
    fault = controller.wait_fault("gpu.probe.stalled")
    assert (fault.device, fault.severity) == ("gpu1", "error")
    assert "did not answer within 2 s" in fault.evidence[0].text
    controller.wait_device("gpu1", "unknown")
    wait_fresh(controller, "gpu0")
    assert controller.device("gpu0").health == "healthy"
    devices.clear_faults(gpus)
    controller.wait_device("gpu1", "healthy")
    controller.wait(lambda: not controller.last.conditions, "the end of the condition")
    assert controller.classes() == ["gpu.probe.stalled"]
    assert seen.process.poll() is None


def test_a_crash_of_the_library_takes_only_the_child(seen, controller, gpus):
    """abort() in a call: unknown until the next child reads; no other GPU notices."""
    devices.add_fault(gpus, "nvmlDeviceGetMemoryErrorCounter", "0", "crash")
    unknown = controller.wait_device("gpu0", "unknown")
    told = f"died of signal {signal.SIGABRT.value} in NVML memory_error_counter(dram)"
    assert told in unknown.detail
    wait_fresh(controller, "gpu1")
    devices.clear_faults(gpus)
    controller.wait_device("gpu0", "healthy")
    assert seen.process.poll() is None


def test_a_lost_gpu_is_lost_and_comes_back(seen, controller, gpus):
    """NVML_ERROR_GPU_IS_LOST."""
    nvidia.set_lost(gpus, 1, lost=True)
    fault = controller.wait_fault("gpu.lost")
    assert (fault.device, fault.severity) == ("gpu1", "fatal")
    assert "fallen off the bus" in fault.evidence[0].text
    controller.wait_device("gpu1", "unhealthy")
    assert [c.fault_class for c in controller.last.conditions] == ["gpu.lost"]
    wait_fresh(controller, "gpu0")
    nvidia.set_lost(gpus, 1, lost=False)
    controller.wait_device("gpu1", "healthy")
    assert controller.classes() == ["gpu.lost"]


def test_a_gpu_that_was_lost_while_the_agent_was_away_is_lost(seen, start_agent, controller, gpus):
    """It gives no handle to a process that asks anew, so it is not listed."""
    seen.end()
    nvidia.set_lost(gpus, 1, lost=True)
    start_agent()
    assert controller.wait_fault("gpu.lost").device == "gpu1"
    controller.wait_device("gpu0", "healthy")


@pytest.fixture
def bus(tmp_path):
    """A sysfs tree with a third GPU on it, which NVML does not list."""
    device = tmp_path / "sys/bus/pci/devices/0000:e4:00.0"
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    device.mkdir(parents=True)
    driver.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (device / "driver").symlink_to(driver)
    return tmp_path / "sys"


def test_a_gpu_on_the_bus_that_nvml_does_not_list_could_not_be_started(
    start_agent, controller, gpus, bus
):
    """Seven of eight at boot is a fault, though all seven are well. Once listed it has its name."""
    start_agent("--sys-root", str(bus))
    fault = controller.wait_fault("gpu.init.failed")
    assert (fault.device, fault.severity) == ("gpu2", "fatal")
    controller.wait_device("gpu2", "unhealthy")
    controller.wait_device("gpu1", "healthy")


def test_a_gpu_that_the_driver_was_told_to_leave_alone_is_no_fault(
    start_agent, controller, gpus, bus
):
    """Someone has excluded it on purpose."""
    devices.put(gpus / "excluded", "00000000:E4:00.0")
    start_agent("--sys-root", str(bus))
    controller.wait_device("gpu1", "healthy")
    wait_fresh(controller, "gpu1")
    assert controller.device("gpu2") is None
    assert controller.classes() == []


def test_beside_amds_driver_the_gpus_have_names_of_their_own(start_agent, controller, bus):
    """`gpu0` is AMD's there."""
    (bus / "module/amdgpu").mkdir(parents=True)
    start_agent("--sys-root", str(bus))
    controller.wait_device("nvgpu0", "healthy")
    controller.wait_device("nvgpu1", "healthy")
    controller.wait_device("nvgpu2", "unhealthy")


def test_remapped_rows_throttling_and_links_are_told(seen, controller, gpus):
    """Each in the words of the vocabulary."""
    nvidia.set_value(gpus, 0, "remapped_uncorrectable", 1)
    nvidia.set_value(gpus, 0, "remapped_pending", 1)
    assert controller.wait_fault("gpu.memory.bad_page").severity == "warning"
    nvidia.set_value(gpus, 0, "remapped_failure", 1)
    assert controller.wait_fault("gpu.memory.bad_page_threshold").severity == "fatal"
    nvidia.set_value(gpus, 1, "clocks_event_reasons", 0x40)
    assert controller.wait_fault("gpu.thermal.throttle").device == "gpu1"
    nvidia.set_link(gpus, 1, 3, (1, 12, 0, 0))
    fault = controller.wait_fault("gpu.xgmi.error")
    assert (fault.device, fault.severity, fault.count) == ("gpu1", "warning", 12)


def test_an_xid_is_heard_within_the_poll_where_events_are_asked_for(
    start_agent, controller, gpus, tmp_path
):
    """Opt-in: where the kernel log can be read, it says the same and more."""
    config = tmp_path / "agent.yaml"
    config.write_text("nvidia_events: true\npoll_seconds: 30\n")
    start_agent("--config", str(config), "--poll-seconds", "30")
    controller.wait_device("gpu0", "healthy")
    controller.wait_device("gpu1", "healthy")
    nvidia.add_xid(gpus, 1, 79)
    fault = controller.wait_fault("gpu.lost")
    assert (fault.device, dict(fault.details)["xid"]) == ("gpu1", "79")


def test_an_xid_line_of_the_kernel_log_names_the_gpu(start_agent, controller, tmp_path):
    """`PCI:0000:2d:00` is gpu1; the process and NVIDIA's action are details."""
    log = tmp_path / "kmsg"
    log.touch()
    start_agent("--kernel-log", str(log))
    controller.wait_device("gpu1", "healthy")
    controller.wait(lambda: "kernel" in dict(controller.last.sources), "the kernel log as a source")
    text = "NVRM: Xid (PCI:0000:2d:00): 31, pid=1896, name=python3, Ch 0000000b, MMU Fault"
    with log.open("a") as lines:
        lines.write(f"4,1,{int(time.monotonic() * 1e6)},-;{text}\n")
    fault = controller.wait_fault("gpu.vm.fault")
    assert (fault.device, fault.severity) == ("gpu1", "warning")
    told = {"xid": "31", "pid": "1896", "process": "python3", "action": "RESTART_APP"}
    assert dict(fault.details).items() >= told.items()


def test_without_the_driver_the_gpus_are_unknown_and_appear_with_it(start_agent, controller, gpus):
    """The hardware is there, its driver is not: unknown with the reason, not none or healthy."""
    nvidia.set_driver(gpus, "absent")
    start_agent()
    assert "driver is not loaded" in controller.wait_device("nvidia", "unknown").detail
    nvidia.set_driver(gpus, "570.124.06")
    controller.wait_device("gpu0", "healthy")
    assert controller.device("nvidia") is None


def test_without_the_library_the_reason_is_said(start_agent, controller, environment):
    """libnvidia-ml.so.1 comes with the driver."""
    start_agent(environment=environment | {"LD_LIBRARY_PATH": ""})
    assert "libnvidia-ml.so.1" in controller.wait_device("nvidia", "unknown").detail


def test_a_node_without_nvidia_pays_nothing(start_agent, controller, environment):
    """No process, no word in the report."""
    agent = start_agent(environment=environment | {"AEGIS_SIM_NVML": ""})
    controller.wait(lambda: controller.last.sequence > 3, "a few reports")
    assert "nvidia" not in dict(controller.last.sources)
    commands = [
        subprocess.run(["cat", f"/proc/{pid}/cmdline"], check=False, capture_output=True).stdout
        for pid in agent.children()
    ]
    assert not any(b"aegis_agent.sources.nvml" in command for command in commands)


def test_the_simulator_works_from_the_command_line(tmp_path):
    """As a person tries it."""
    folder = tmp_path / "gpus"
    for words in (
        ["init", folder, 1],
        ["value", folder, 0, "temperature_c", 90],
        ["xid", folder, 0, 13],
    ):
        command = [sys.executable, "-m", "aegis_agent.simulated", "nvml", *map(str, words)]
        assert subprocess.run(command, check=False).returncode == 0
    assert "temperature_c 90" in (folder / "gpu0" / "values").read_text()
    command = [sys.executable, "-m", "aegis_agent.simulated", "nvml", "xid", str(folder), "7", "13"]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "has no gpu7; lay it out with" in refused.stderr
