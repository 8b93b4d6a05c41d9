"""What is looked at slowly, from the simulated sensor to the report."""

import json
import os
import subprocess
import sys

from aegis_agent.simulated import devices


def test_a_gpu_says_what_it_is(seen, controller):
    """Model, firmware, driver, partition: what a repair may have changed."""
    controller.wait(lambda: controller.device("gpu1").facts, "its facts")
    assert dict(controller.device("gpu1").facts) == {
        "model": "AMD Instinct MI300X",
        "asic_serial": "0x8BF0C3A100000001",
        "vbios": "022.040.003.041.000001",
        "smu_firmware": "00.85.131.00",
        "ras_firmware": "1B.36.02.11",
        "driver": "6.16.6-simulated",
        "partition": "SPX/NPS1",
        "vram_mb": "196592",
        "hive": "5001",
    }


def test_a_narrow_link_is_degraded_until_it_is_whole(seen, controller, gpus):
    """Half the lanes: a warning, and the GPU works on."""
    devices.set_metric(gpus, 1, "pcie_width", 8)
    fault = controller.wait_fault("pcie.link.degraded")
    assert (fault.device, fault.severity) == ("gpu1", "warning")
    assert fault.evidence[0].text == "its PCIe link runs at x8 at 32 GT/s, it can do x16 at 32 GT/s"
    assert dict(fault.details)["width"] == "8"
    controller.wait_gpu_conditions("pcie.link.degraded")
    assert controller.device("gpu1").health == "healthy"
    devices.set_metric(gpus, 1, "pcie_width", 16)
    controller.wait_gpu_conditions()


def test_many_naks_are_a_degraded_link(seen, controller, gpus):
    """More than a hundred within the hour; those from before the agent are none."""
    controller.wait(lambda: "pcie_naks_sent" in controller.counters("gpu0"), "a survey")
    devices.set_metric(gpus, 0, "pcie_nak_sent", 150)
    fault = controller.wait_fault("pcie.link.degraded")
    assert (fault.device, dict(fault.details)["errors"]) == ("gpu0", "150")


def test_throttled_by_heat_is_told_and_by_power_is_not(seen, controller, gpus):
    """The power limit is how a GPU is run."""
    devices.set_throttle(gpus, 0, "power", 60)
    controller.wait(
        lambda: controller.counters("gpu0").get("throttled_power_percent", 0) > 40, "power"
    )
    devices.set_throttle(gpus, 1, "hbm", 50)
    fault = controller.wait_fault("gpu.thermal.throttle")
    assert (fault.device, fault.severity) == ("gpu1", "warning")
    assert "throttled by the memory's temperature" in fault.evidence[0].text
    assert controller.classes() == ["gpu.thermal.throttle"]
    devices.set_throttle(gpus, 1, "hbm", 0)
    controller.wait_gpu_conditions()


def test_a_temperature_at_its_limit_is_told(seen, controller, gpus):
    """Also without a word about throttling."""
    devices.set_metric(gpus, 1, "temp_hotspot_c", 103)
    fault = controller.wait_fault("gpu.thermal.throttle")
    assert fault.evidence[0].text == "its hotspot is at 103 °C, 100 °C is critical"


def test_an_xgmi_link_that_is_down_is_told(start_agent, controller, gpus):
    """Beside others that are up."""
    devices.init(gpus, 4)
    start_agent()
    controller.wait_surveyed("gpu3")
    devices.set_xgmi_link(gpus, 3, 2, "down")
    fault = controller.wait_fault("gpu.xgmi.error")
    assert (fault.device, fault.evidence[0].after) == ("gpu3", "UUD")


def test_who_holds_a_gpu_is_counted_and_named(seen, controller, gpus):
    """A process that outlived its job, say."""
    devices.set_process(gpus, 1, 4711, "python3", 512)
    controller.wait(lambda: controller.counters("gpu1").get("processes") == 1, "the process")
    controller.wait(
        lambda: ("held_by", "python3 (4711)") in controller.device("gpu1").facts, "its name"
    )
    devices.set_process(gpus, 1, 4711, None)
    controller.wait(lambda: controller.counters("gpu1").get("processes") == 0, "its end")


def test_a_survey_says_how_old_it_is(seen, controller):
    """Its values are not as fresh as the error counters."""
    controller.wait_surveyed("gpu1")
    first = controller.counters("gpu1")["surveyed_at"]
    controller.wait(lambda: controller.counters("gpu1")["surveyed_at"] > first, "another one")


def test_one_look_sees_what_only_two_surveys_show(environment, gpus):
    """`aegis scan` and `aegis agent --once` wait for the second."""
    devices.set_metric(gpus, 1, "pcie_width", 8)
    devices.set_throttle(gpus, 0, "socket", 50)
    told = subprocess.run(
        [sys.executable, "-m", "aegis_agent.main", "--node", "n1", "--once", "-o", "json"],
        env=os.environ | environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    lasting = json.loads(told.stdout)["report"]["conditions"]
    found = {(one["device"], one["fault_class"]) for one in lasting}
    assert {("gpu1", "pcie.link.degraded"), ("gpu0", "gpu.thermal.throttle")} <= found
