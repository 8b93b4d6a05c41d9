"""amdsmi's pushed events, listened to by a process that a site asks for."""

import os
import signal
from pathlib import Path

import pytest

from aegis_agent.simulated import devices


@pytest.fixture
def listening(start_agent, controller, tmp_path):
    """An agent that listens to events."""
    config = tmp_path / "agent.yaml"
    config.write_text("gpu_events: true\n")
    agent = start_agent("--config", str(config))
    controller.wait_device("gpu1", "healthy")
    wait_listening(controller)
    return agent


def wait_listening(controller):
    controller.wait(
        lambda: "2 GPUs are listened to" in dict(controller.last.sources).get("gpu-events", ""),
        "the listener",
    )


def listener(agent):
    return next(
        pid for pid in agent.children()
        if b"gpu_events" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )  # fmt: skip


def test_an_event_is_a_fault_by_its_name(listening, controller, gpus):
    """A storm of them is told at once and then folded; what is no fault is none."""
    devices.push_event(gpus, 1, "MIGRATE_START", "pid 7")
    for number in range(5):
        devices.push_event(gpus, 1, "VMFAULT", f"pid {number}")
    fault = controller.wait_fault("gpu.vm.fault")
    assert (fault.device, fault.severity) == ("gpu1", "warning")
    assert fault.evidence[0].source == "amdsmi event VMFAULT"
    assert fault.simulated
    devices.push_event(gpus, 0, "GPU_PRE_RESET", "mode1")
    assert controller.wait_fault("gpu.reset.begin").device == "gpu0"
    devices.push_event(gpus, 0, "GPU_POST_RESET")
    controller.wait_fault("gpu.reset.succeeded")
    assert controller.classes().count("gpu.vm.fault") == 1


def test_a_listener_that_a_reset_kills_listens_again(listening, controller, gpus):
    """It is a process of the GPU; what reads the GPUs is not and goes on."""
    os.kill(listener(listening), signal.SIGKILL)
    controller.wait(
        lambda: "the listener ended" in dict(controller.last.sources)["gpu-events"], "its end"
    )
    controller.wait_fresh("gpu1")
    wait_listening(controller)
    devices.push_event(gpus, 1, "THERMAL_THROTTLE")
    assert controller.wait_fault("gpu.thermal.throttle").device == "gpu1"


def test_nobody_listens_unasked(seen):
    """The listener holds /dev/kfd."""
    with pytest.raises(StopIteration):
        listener(seen)
