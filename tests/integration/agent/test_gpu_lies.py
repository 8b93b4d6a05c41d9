"""What amdsmi says that is not so; each lie is told by the simulated library."""

import os
import subprocess
import sys

from aegis_agent.simulated import devices

GONE = (2, 42, 4294967295, 52)  # NOT_SUPPORTED, EIO, ENODEV, ENOENT
NO_PERMISSION = 10
LIVE = ("amdsmi_get_gpu_ecc_count", "amdsmi_get_gpu_vram_usage", "amdsmi_get_gpu_ecc_enabled")


def test_a_total_of_zero_is_no_reading(seen, controller, gpus):
    """Reads of sysfs fail, the total says success and zeros: no health, and no fall of a count."""
    devices.set_counts(gpus, 1, "umc", (3, 0, 0))
    controller.wait_fault("gpu.ecc.correctable")
    for function in LIVE:
        devices.add_fault(gpus, function, "1", "status=12")
    controller.wait(lambda: controller.device("gpu1").health != "healthy", "the end of health")
    assert controller.counters("gpu1")["ecc_correctable"] == 3
    assert "gpu.reset.progress" not in controller.classes()


def test_a_block_without_its_own_count_is_no_loss(start_agent, controller, gpus):
    """UMC answers NOT_SUPPORTED from the start: that feature is not there, the rest is read."""
    devices.hide_block(gpus, 1, "umc")
    start_agent()
    controller.wait_device("gpu1", "healthy")
    devices.set_counts(gpus, 1, "gfx", (0, 1, 0))
    assert controller.wait_fault("gpu.ecc.uncorrectable").device == "gpu1"


def test_a_block_whose_count_is_gone_makes_the_gpu_unknown(seen, controller, gpus):
    """The same answer where the count was read before: it can no longer be vouched for."""
    devices.hide_block(gpus, 1, "umc")
    assert "ecc_count(umc) answered 2" in controller.wait_device("gpu1", "unknown").detail
    assert controller.gpu_conditions() == []


def test_a_lost_gpu_is_listed_with_its_name_and_still_lost(seen, controller, gpus):
    """Count and identities come from a cache: after a restart of its reader, too."""
    devices.set_lost(gpus, 1, lost=True)
    devices.add_fault(gpus, "amdsmi_get_gpu_vram_usage", "1", "crash")
    controller.wait(lambda: "died" in controller.device("gpu1").detail, "a crash of its reader")
    devices.clear_faults(gpus)
    assert controller.wait_fault("gpu.lost").device == "gpu1"
    assert controller.wait_device("gpu1", "unhealthy").identity.endswith("SIM00000001")


def test_a_lost_gpu_that_reads_again_is_healthy(seen, controller, gpus):
    """The same identity answers: the condition ends."""
    devices.set_lost(gpus, 1, lost=True)
    controller.wait_device("gpu1", "unhealthy")
    controller.wait_gpu_conditions("gpu.lost")
    devices.set_lost(gpus, 1, lost=False)
    controller.wait_device("gpu1", "healthy")
    controller.wait_gpu_conditions()
    assert controller.classes().count("gpu.lost") == 1


def test_falling_counts_are_a_reset_and_no_repair(seen, controller, gpus):
    """What shows after the fall was counted since."""
    devices.set_counts(gpus, 0, "umc", (9, 2, 0))
    controller.wait_fault("gpu.ecc.uncorrectable")
    devices.reload_driver(gpus)
    fault = controller.wait_fault("gpu.reset.progress")
    assert "nothing was repaired" in fault.evidence[0].text
    controller.wait_device("gpu0", "healthy")


def test_a_count_of_all_ones_is_no_count(seen, controller, gpus):
    """Four thousand million errors are “not available”, and not zero either."""
    for bits in (32, 64):
        devices.set_counts(gpus, 1, "umc", ((1 << bits) - 1, (1 << bits) - 1, 0))
        assert "ecc_count(umc) gave no value" in controller.wait_device("gpu1", "unknown").detail
        devices.set_counts(gpus, 1, "umc", (0, 0, 0))
        controller.wait_device("gpu1", "healthy")
    assert controller.classes() == []


def test_a_sensor_of_all_ones_is_no_value(seen, controller, gpus):
    """In whatever width it comes, and whatever width its field has."""
    names = ("pcie_width", "pcie_nak_sent", "temp_hotspot_c", "power_w", "throttle_socket")
    absent = {"pcie_width", "pcie_naks_sent", "temp_hotspot_c", "power_w"}
    for bits in (16, 32, 64):
        controller.wait(lambda: absent <= set(controller.counters("gpu1")), "its values")
        for name in names:
            devices.set_not_available(gpus, 1, name, bits)
        controller.wait(lambda: not absent & set(controller.counters("gpu1")), "no values")
        assert controller.counters("gpu1")["temp_memory_c"] == 44
        for name in names:
            devices.set_metric(gpus, 1, name, 16)
    assert controller.device("gpu1").health == "healthy"
    assert controller.classes() == []


def test_every_answer_of_a_gpu_that_is_gone(seen, controller, gpus):
    """Whatever its calls answer now, they answered well before."""
    for times, status in enumerate(GONE, 1):
        devices.add_fault(gpus, "amdsmi_get_gpu_ecc_count", "1", f"status={status}")
        devices.add_fault(gpus, "amdsmi_get_gpu_vram_usage", "1", f"status={status}")
        controller.wait_device("gpu1", "unhealthy")
        controller.wait(lambda times=times: controller.classes().count("gpu.lost") == times, "loss")
        devices.clear_faults(gpus)
        controller.wait_device("gpu1", "healthy")


def test_no_permission_is_no_loss(seen, controller, gpus):
    """EACCES is a matter of rights: nothing is known."""
    devices.add_fault(gpus, "amdsmi_get_gpu_ecc_count", "1", f"status={NO_PERMISSION}")
    devices.add_fault(gpus, "amdsmi_get_gpu_vram_usage", "1", f"status={NO_PERMISSION}")
    assert "answered 10" in controller.wait_device("gpu1", "unknown").detail
    for _ in range(5):
        controller.wait_fresh("gpu1")
    assert controller.gpu_conditions() == []


RESERVED_PAGES = """
import amdsmi
amdsmi.amdsmi_init()
amdsmi.amdsmi_get_gpu_memory_reserved_pages(amdsmi.amdsmi_get_processor_handles()[1])
"""


def test_a_call_that_its_package_cannot_answer_is_not_the_one_that_is_made(
    seen, environment, controller, gpus
):
    """The list of reserved pages is a TypeError once there is one; that of bad pages is a list."""
    devices.add_bad_page(gpus, 1, 0x1000)
    told = subprocess.run(
        [sys.executable, "-c", RESERVED_PAGES],
        env=os.environ | environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert "TypeError" in told.stderr
    assert controller.wait_fault("gpu.memory.bad_page").device == "gpu1"
    controller.wait_fresh("gpu1")
    assert controller.counters("gpu1")["bad_pages"] == 1


def test_handles_in_another_order_are_the_same_gpus(start_agent, controller, gpus):
    """The order changes between starts; the name stays with the GPU."""
    devices.init(gpus, 3)
    agent = start_agent()
    before = {name: controller.wait_device(name, "healthy").identity for name in ("gpu0", "gpu2")}
    agent.end()
    devices.set_order(gpus, [2, 1, 0])
    devices.set_counts(gpus, 2, "umc", (0, 1, 0))
    controller.reports.clear()
    start_agent()
    assert controller.wait_fault("gpu.ecc.uncorrectable").device == "gpu2"
    assert controller.device("gpu2").identity == before["gpu2"]
    assert controller.wait_device("gpu0", "healthy").identity == before["gpu0"]


def test_a_list_without_any_gpu_is_unknown_where_there_were_some(start_agent, controller, gpus):
    """0 handles: as beside another library of the same make. Not none, and not lost."""
    agent = start_agent()
    controller.wait_device("gpu1", "healthy")
    agent.end()
    (gpus / "gpu0").rename(gpus / "away0")
    (gpus / "gpu1").rename(gpus / "away1")
    controller.reports.clear()
    start_agent()
    assert controller.wait_device("gpu1", "unknown").detail == "amdsmi lists no GPU"
    (gpus / "away0").rename(gpus / "gpu0")
    (gpus / "away1").rename(gpus / "gpu1")
    controller.wait_device("gpu1", "healthy")
    assert "gpu.lost" not in controller.classes()


def test_a_gpu_missing_from_the_list_is_looked_for_again(start_agent, controller, gpus):
    """The driver found it again: it is read without a restart of the agent."""
    agent = start_agent()
    controller.wait_device("gpu1", "healthy")
    agent.end()
    devices.set_order(gpus, [0])
    controller.reports.clear()
    start_agent()
    assert controller.wait_fault("gpu.lost").device == "gpu1"
    devices.set_order(gpus, [0, 1])
    controller.wait(lambda: controller.device("gpu1").health == "healthy", "its return", 60.0)
    controller.wait_gpu_conditions()


def test_a_driver_that_is_not_loaded_says_so(start_agent, controller, gpus):
    """34 is no GPU's fault."""
    devices.set_driver(gpus, loaded=False)
    start_agent()
    assert "driver is not loaded" in controller.wait_device("gpu", "unknown").detail
