"""GPUs through the unmodified amdsmi package over the simulated library."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from aegis_agent.simulated import devices


def test_an_uncorrectable_error_arrives_with_its_evidence(seen, controller, gpus):
    """From the register file through amdsmi and the spool to the controller."""
    devices.set_counts(gpus, 1, "umc", (0, 1, 0))
    fault = controller.wait_fault("gpu.ecc.uncorrectable")
    assert (fault.node, fault.device, fault.severity, fault.count) == ("n1", "gpu1", "error", 1)
    assert fault.simulated
    assert fault.identity.split() == [
        "0000:15:00.0", "8bff74a1-0000-1000-80f0-c3a100000001", "SIM00000001",
    ]  # fmt: skip
    assert fault.evidence[0].source == "amdsmi ecc_count(umc)"
    assert (fault.evidence[0].before, fault.evidence[0].after) == ("0", "1")
    assert fault.details == (("block", "umc"),)
    assert controller.wait_device("gpu1", "unhealthy").detail.startswith("uncorrectable errors")
    devices.set_counts(gpus, 1, "umc", (0, 0, 0))
    controller.wait_device("gpu1", "healthy")
    assert controller.classes() == ["gpu.ecc.uncorrectable", "gpu.reset.progress"]


def test_the_report_says_what_reads_the_gpus(seen, controller, rocm):
    """Which library, which version, simulated or not."""
    assert controller.last.simulated
    text = controller.source("gpu")
    assert text.startswith("amdsmi 7.0.2 (")
    assert f"over the simulated library {rocm}/lib/libamd_smi.so 26.0, driver 6.16.6" in text


def test_a_lost_gpu_is_lost_though_its_total_says_zero(seen, controller, gpus):
    """Identity and total still answer; what read the hardware before fails now."""
    devices.set_lost(gpus, 1, lost=True)
    fault = controller.wait_fault("gpu.lost")
    assert (fault.device, fault.severity) == ("gpu1", "fatal")
    assert "ecc_count(umc) answered 2" in fault.evidence[0].text
    controller.wait_device("gpu1", "unhealthy")
    assert controller.gpu_conditions() == ["gpu.lost"]


def test_retired_pages_are_told(seen, controller, gpus):
    """Looked for seldom, since asking floods the kernel's log."""
    devices.add_bad_page(gpus, 0, 0x1000)
    devices.add_bad_page(gpus, 0, 0x2000)
    fault = controller.wait_fault("gpu.memory.bad_page")
    assert (fault.device, fault.severity) == ("gpu0", "warning")


def test_without_the_driver_the_gpus_are_unknown_and_appear_with_it(start_agent, controller, gpus):
    """The package is there, its driver is not: unknown with the reason, not none or healthy."""
    devices.set_driver(gpus, loaded=False)
    start_agent()
    device = controller.wait_device("gpu", "unknown")
    assert device.detail == "the amdgpu driver is not loaded (amdsmi init answered 34)"
    devices.set_driver(gpus, loaded=True)
    controller.wait_device("gpu1", "healthy")
    assert controller.device("gpu") is None


def test_a_host_without_gpu_software_has_no_gpus_and_a_working_agent(
    start_agent, controller, tmp_path
):
    """A controller node, say: no library, no devices, and the reason why."""
    start_agent(environment={"ROCM_PATH": str(tmp_path), "ROCM_HOME": str(tmp_path)})
    controller.wait(lambda: "finds no usable" in controller.source("gpu"), "the reason")
    assert [one for one in controller.last.devices if one.kind == "gpu"] == []
    assert not controller.last.simulated


def test_what_happens_while_the_agent_is_dead_is_told_by_the_next(
    seen, start_agent, controller, gpus
):
    """Counters are remembered: killed, an error, started again, and the error is a fault."""
    seen.end(signal.SIGKILL)
    devices.set_counts(gpus, 0, "gfx", (0, 3, 0))
    start_agent()
    fault = controller.wait_fault("gpu.ecc.uncorrectable")
    assert (fault.device, fault.count) == ("gpu0", 3)


def test_a_gpu_that_is_missing_after_a_restart_is_lost(start_agent, controller, gpus, tmp_path):
    """It is not listed any more; the one behind it keeps its name."""
    devices.init(gpus, 3)
    agent = start_agent()
    controller.wait_device("gpu2", "healthy")
    agent.end()
    devices.init(tmp_path / "gpus2", 3)
    (gpus / "gpu1").rename(tmp_path / "taken-out")
    (gpus / "gpu2").rename(gpus / "gpu1")
    controller.reports.clear()
    start_agent()
    fault = controller.wait_fault("gpu.lost")
    assert (fault.device, fault.evidence[0].source) == ("gpu1", "amdsmi processor_handles")
    controller.wait_device("gpu2", "healthy")
    assert controller.device("gpu1").health == "unhealthy"


def test_no_process_outlives_the_agent(seen, controller):
    """Killed as hard as can be: the kernel takes the prober and its children along."""
    controller.wait(lambda: len(seen.children()) >= 3, "the prober and its children")
    pids = seen.children()
    seen.end(signal.SIGKILL)
    controller.wait(lambda: not any(alive(pid) for pid in pids), "the end of its children")


def alive(pid):
    """A zombie whom nobody has collected is not alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


READ_ALL = """
import json, amdsmi
amdsmi.amdsmi_init()
handle = amdsmi.amdsmi_get_processor_handles()[1]
print(json.dumps({
    "version": amdsmi.__version__,
    "uuid": amdsmi.amdsmi_get_gpu_device_uuid(handle),
    "asic": amdsmi.amdsmi_get_gpu_asic_info(handle),
    "board": amdsmi.amdsmi_get_gpu_board_info(handle),
    "umc": amdsmi.amdsmi_get_gpu_ecc_count(handle, amdsmi.AmdSmiGpuBlock.UMC),
    "total": amdsmi.amdsmi_get_gpu_total_ecc_count(handle),
    "pages": amdsmi.amdsmi_get_gpu_bad_page_info(handle),
    "power": amdsmi.amdsmi_get_power_info(handle),
    "temperature": amdsmi.amdsmi_get_temp_metric(
        handle, amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT),
    "pcie": amdsmi.amdsmi_get_pcie_info(handle),
}))
"""


def test_the_unmodified_package_reads_the_simulated_library(environment, gpus):
    """Each structure has the layout that the package's own declarations have."""
    devices.set_counts(gpus, 1, "umc", (3, 2, 1))
    devices.set_counts(gpus, 1, "gfx", (4, 0, 0))
    devices.add_bad_page(gpus, 1, 0x4000)
    devices.set_metric(gpus, 1, "power_w", 612)
    devices.set_metric(gpus, 1, "temp_hotspot_c", 91)
    devices.set_metric(gpus, 1, "pcie_width", 8)
    told = subprocess.run(
        [sys.executable, "-c", READ_ALL],
        env=os.environ | environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    read = json.loads(told.stdout)
    assert read["version"] == "7.0.2"
    assert read["uuid"] == "8bff74a1-0000-1000-80f0-c3a100000001"
    assert (read["asic"]["market_name"], read["asic"]["oam_id"]) == ("AMD Instinct MI300X", 1)
    assert read["board"]["product_serial"] == "SIM00000001"
    assert list(read["umc"].values()) == [3, 2, 1]
    assert list(read["total"].values()) == [7, 2, 1]
    assert [page["page_address"] for page in read["pages"]] == [0x4000]
    assert (read["power"]["socket_power"], read["temperature"]) == (612, 91)
    assert read["pcie"]["pcie_metric"]["pcie_width"] == 8


def test_without_a_compiler_one_sentence_says_what_to_install(tmp_path):
    """The demo needs it; the agent on a real node does not."""
    told = subprocess.run(
        [sys.executable, "-m", "aegis_agent.simulated", "build", str(tmp_path / "out")],
        env=os.environ | {"PATH": str(tmp_path)}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 1
    assert told.stderr.endswith("needs a C compiler: apt-get install gcc\n")
    assert len(told.stderr.splitlines()) == 1


def test_a_wrong_number_names_what_there_is(gpus):
    """The simulator is used by hand, too."""
    told = subprocess.run(
        [sys.executable, "-m", "aegis_agent.simulated", "ecc", gpus, "7", "umc", "0", "1", "0"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 1
    assert f"{gpus} has no gpu7" in told.stderr
