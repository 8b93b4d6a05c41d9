"""Calls that never return, and calls that crash: each costs one process and hides one GPU."""

import signal

import pytest

from aegis_agent.simulated import devices

OF_A_GPU = ("amdsmi_get_gpu_device_uuid", "amdsmi_get_gpu_ecc_count")
LEFT_OUT = ("amdsmi_get_pcie_info", "amdsmi_get_gpu_bad_page_info", "amdsmi_get_gpu_vram_usage")


def others_stay_fresh(controller):
    controller.wait_fresh("gpu0")
    assert controller.device("gpu0").health == "healthy"


def test_one_hanging_gpu_is_unknown_and_the_others_stay_fresh(seen, controller, gpus):
    """A call that never returns costs one child; the agent goes on."""
    devices.add_fault(gpus, "amdsmi_get_gpu_ecc_count", "1", "hang")
    fault = controller.wait_fault("gpu.probe.stalled")
    assert (fault.device, fault.severity) == ("gpu1", "error")
    assert "did not answer within 2 s" in fault.evidence[0].text
    assert controller.wait_device("gpu1", "unknown").detail == fault.evidence[0].text
    controller.wait_fresh("gpu0")
    assert controller.device("gpu0").health == "healthy"
    assert controller.gpu_conditions() == ["gpu.probe.stalled"]
    devices.clear_faults(gpus)
    controller.wait_device("gpu1", "healthy")
    controller.wait_gpu_conditions()
    assert controller.classes() == ["gpu.probe.stalled"]


def test_a_crash_of_the_library_takes_only_the_child(seen, controller, gpus):
    """abort() in a call: unknown until the next child reads; no other GPU notices."""
    devices.add_fault(gpus, "amdsmi_get_gpu_ecc_count", "0", "crash")
    unknown = controller.wait_device("gpu0", "unknown")
    assert f"died of signal {signal.SIGABRT.value} in amdsmi ecc_count(umc)" in unknown.detail
    controller.wait_fresh("gpu1")
    devices.clear_faults(gpus)
    controller.wait_device("gpu0", "healthy")
    assert seen.process.poll() is None


def test_a_gpu_that_always_crashes_its_reader_is_stalled(seen, controller, gpus):
    """Nothing can be known of it, and someone must look."""
    devices.add_fault(gpus, "amdsmi_get_gpu_ecc_count", "0", "crash")
    assert controller.wait_fault("gpu.probe.stalled").device == "gpu0"


def test_a_library_that_hangs_at_its_start_is_unknown(start_agent, controller, gpus):
    """A wedged device can hang amdsmi_init itself: nobody knows how many GPUs there are."""
    devices.add_fault(gpus, "amdsmi_init", "-1", "hang")
    start_agent()
    device = controller.wait_device("gpu", "unknown")
    assert device.detail.startswith("amdsmi init did not answer within 2 s")
    devices.clear_faults(gpus)
    controller.wait_device("gpu1", "healthy")


@pytest.mark.parametrize("function", OF_A_GPU)
def test_a_gpu_that_hangs_before_the_agent_starts_hides_no_other(
    start_agent, controller, gpus, function
):
    """Each GPU says itself what it is; one that does not is told by its address."""
    devices.add_fault(gpus, function, "1", "hang")
    start_agent()
    assert controller.wait_fault("gpu.probe.stalled").device == "gpu1"
    assert controller.wait_device("gpu1", "unknown").identity.startswith("0000:15:00.0 ")
    controller.wait_device("gpu0", "healthy")
    others_stay_fresh(controller)
    devices.clear_faults(gpus)
    identity = controller.wait_device("gpu1", "healthy").identity
    assert identity == "0000:15:00.0 8bff74a1-0000-1000-80f0-c3a100000001 SIM00000001"
    controller.wait_gpu_conditions()


def test_a_gpu_that_does_not_say_where_it_is_hides_no_other(start_agent, controller, gpus):
    """Discovery itself hangs at one handle: it goes without that one."""
    agent = start_agent()
    controller.wait_device("gpu1", "healthy")
    agent.end()
    devices.add_fault(gpus, "amdsmi_get_gpu_device_bdf", "1", "hang")
    controller.reports.clear()
    start_agent()
    controller.wait_device("gpu0", "healthy")
    assert controller.wait_fault("gpu.probe.stalled").device == "gpu1"
    assert (
        "1 of 2 GPUs do not say which they are" in controller.wait_device("gpu1", "unknown").detail
    )
    assert "gpu.lost" not in controller.classes()
    others_stay_fresh(controller)


def test_a_gpu_never_seen_that_does_not_say_where_it_is_is_one_unknown_gpu(
    start_agent, controller, gpus
):
    """There is one more, and nobody knows which."""
    devices.add_fault(gpus, "amdsmi_get_gpu_device_bdf", "1", "hang")
    start_agent()
    assert "do not say which they are" in controller.wait_device("gpu", "unknown").detail
    controller.wait_device("gpu0", "healthy")
    devices.clear_faults(gpus)
    controller.wait_device("gpu1", "healthy")
    assert controller.device("gpu") is None


@pytest.mark.parametrize("function", LEFT_OUT)
def test_one_slow_call_that_hangs_is_left_out_and_the_rest_is_read(
    seen, controller, gpus, function
):
    """The GPU is stalled, yet its error counters stay fresh; once it answers all is well."""
    devices.add_fault(gpus, function, "1", "hang")
    fault = controller.wait_fault("gpu.probe.stalled")
    assert (fault.device, len(fault.evidence)) == ("gpu1", 1)
    controller.wait_device("gpu1", "unknown")
    controller.wait_fresh("gpu1")
    devices.set_counts(gpus, 1, "gfx", (5, 0, 0))
    assert controller.wait_fault("gpu.ecc.correctable").count == 5
    assert controller.gpu_conditions() == ["gpu.probe.stalled"]
    devices.clear_faults(gpus)
    controller.wait_device("gpu1", "healthy")
    controller.wait_gpu_conditions()
    assert controller.classes().count("gpu.probe.stalled") == 1


def test_two_hanging_gpus_are_two_stalls(start_agent, controller, gpus):
    """Neither waits for the other's deadline, and the third is read."""
    devices.init(gpus, 3)
    agent = start_agent()
    for name in ("gpu0", "gpu1", "gpu2"):
        controller.wait_device(name, "healthy")
    devices.add_fault(gpus, "*", "1", "hang")
    devices.add_fault(gpus, "*", "2", "hang")
    controller.wait_device("gpu1", "unknown")
    controller.wait_device("gpu2", "unknown")
    others_stay_fresh(controller)
    stalls = [f for f in controller.faults.values() if f.fault_class == "gpu.probe.stalled"]
    assert sorted(fault.device for fault in stalls) == ["gpu1", "gpu2"]
    assert agent.process.poll() is None


@pytest.mark.parametrize("function", [*OF_A_GPU, "amdsmi_get_pcie_info"])
def test_a_crash_in_any_call_hides_no_other_gpu(seen, controller, gpus, function):
    """Also in the calls with which a new process begins."""
    devices.add_fault(gpus, "amdsmi_get_gpu_ecc_count", "1", "crash")
    controller.wait_device("gpu1", "unknown")
    devices.clear_faults(gpus)
    devices.add_fault(gpus, function, "1", "crash")
    controller.wait(lambda: "died of signal" in controller.device("gpu1").detail, "the crash")
    others_stay_fresh(controller)
    devices.clear_faults(gpus)
    controller.wait_device("gpu1", "healthy")
    assert seen.process.poll() is None
