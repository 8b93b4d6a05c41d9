"""Which amdsmi reads: ROCm's own before PyPI's, and a pair of package and library that fits."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aegis_agent.simulated import devices

OLDER = "6.4.3"


def own_package(rocm, package):
    """Lay the package into a ROCm tree, where ROCm has its own."""
    place = rocm / "share" / "amd_smi" / "amdsmi"
    shutil.copytree(package, place)
    return place


def of_rocm(rocm, gpus):
    return {"ROCM_PATH": str(rocm), "ROCM_HOME": str(rocm), "AEGIS_SIM_AMDSMI": str(gpus)}


def source(controller):
    return controller.source("gpu")


def installed_package():
    """The package that is installed here."""
    return Path(importlib.util.find_spec("amdsmi").submodule_search_locations[0])


@pytest.fixture(scope="session")
def older_package(tmp_path_factory):
    """An older release beside it."""
    folder = tmp_path_factory.mktemp("older")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--target", str(folder), f"amdsmi=={OLDER}"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"amdsmi {OLDER} cannot be had here: {done.stderr.splitlines()[-1:]}")
    return folder / "amdsmi"


@pytest.fixture(scope="session")
def older_rocm(tmp_path_factory, older_package):
    """A ROCm tree of that release: its own package, and the library that goes with it."""
    folder = tmp_path_factory.mktemp("older-rocm")
    subprocess.run(
        [sys.executable, "-m", "aegis_agent.simulated", "build", str(folder)],
        env=os.environ | {"PYTHONPATH": str(older_package.parent)}, check=True,
    )  # fmt: skip
    own_package(folder, older_package)
    return folder


@pytest.fixture
def mixed_rocm(tmp_path, rocm, older_package):
    """A ROCm tree whose library is newer than its package."""
    tree = tmp_path / "opt-rocm"
    shutil.copytree(rocm, tree)
    own_package(tree, older_package)
    return tree


def test_the_package_of_rocm_comes_before_that_of_pypi(
    start_agent, controller, rocm, gpus, tmp_path
):
    """It says its library's version, not that of ROCm."""
    tree = tmp_path / "opt-rocm"
    shutil.copytree(rocm, tree)
    place = own_package(tree, installed_package())
    (place / "_version.py").write_text('__version__ = "26.0.2+39589fda"\n')
    start_agent(environment=of_rocm(tree, gpus))
    controller.wait_device("gpu1", "healthy")
    assert source(controller) == (
        f"amdsmi 26.0.2+39589fda ({place}) over the simulated library {tree}/lib/libamd_smi.so "
        "26.0, driver 6.16.6-simulated"
    )


def test_a_package_of_rocm_that_cannot_be_imported_leaves_that_of_pypi(
    start_agent, controller, rocm, gpus, tmp_path
):
    """Made for another Python, say."""
    tree = tmp_path / "opt-rocm"
    shutil.copytree(rocm, tree)
    (tree / "share" / "amd_smi" / "amdsmi").mkdir(parents=True)
    (tree / "share" / "amd_smi" / "amdsmi" / "__init__.py").write_text("raise ImportError('old')")
    start_agent(environment=of_rocm(tree, gpus))
    controller.wait_device("gpu1", "healthy")
    assert source(controller).startswith("amdsmi 7.0.2 (")


def test_an_older_release_reads_as_much(start_agent, controller, older_rocm, gpus):
    """6.4.3 lacks some calls; what it has is read."""
    devices.set_throttle(gpus, 1, "socket", 50)
    start_agent(environment=of_rocm(older_rocm, gpus))
    controller.wait_device("gpu1", "healthy")
    assert f"amdsmi {OLDER} (" in source(controller)
    assert "25.5, driver 6.16.6-simulated" in source(controller)
    assert controller.wait_fault("gpu.thermal.throttle").device == "gpu1"
    assert controller.counters("gpu1")["power_w"] == 140
    devices.set_counts(gpus, 1, "umc", (0, 1, 0))
    assert controller.wait_fault("gpu.ecc.uncorrectable").device == "gpu1"
    assert controller.device("gpu1").identity.endswith("SIM00000001")


def test_a_newer_library_under_an_older_package_harms_nothing(
    start_agent, controller, mixed_rocm, gpus
):
    """Its structures are larger than what the package gives it: such calls are not made."""
    devices.add_fault(gpus, "amdsmi_get_power_info", "*", "crash")  # not even tried
    devices.add_fault(gpus, "amdsmi_get_violation_status", "*", "crash")
    devices.add_fault(gpus, "amdsmi_get_gpu_board_info", "*", "crash")
    start_agent(environment=of_rocm(mixed_rocm, gpus))
    controller.wait_device("gpu1", "healthy")
    assert "made for library 25.5 and this is 26.0" in source(controller)
    controller.wait_surveyed("gpu1")
    told = controller.counters("gpu1")
    assert told["pcie_width"] == 16
    assert told["temp_hotspot_c"] == 45
    assert "power_w" not in told
    devices.set_counts(gpus, 1, "umc", (0, 1, 0))
    assert controller.wait_fault("gpu.ecc.uncorrectable").device == "gpu1"
    assert "gpu.probe.stalled" not in controller.classes()


def test_a_gpu_keeps_its_memory_when_its_serial_cannot_be_read_any_more(
    start_agent, controller, gpus
):
    """A library that does not fit gives no serial: address and UUID say that it is the same."""
    agent = start_agent()
    identity = controller.wait_device("gpu1", "healthy").identity
    agent.end()
    devices.claim_version(gpus, "27.1.0")
    devices.set_counts(gpus, 1, "umc", (0, 1, 0))
    controller.reports.clear()
    start_agent()
    assert controller.wait_fault("gpu.ecc.uncorrectable").identity == identity
    assert "made for library 26.0 and this is 27.1" in source(controller)


BROKEN = {
    "ImportError": "raise ImportError('cannot import name amdsmi_wrapper')",
    "OSError": "raise OSError('libamd_smi.so: cannot open shared object file')",
    "KeyError": "{}['libamd_smi.so']",
    "AttributeError": "raise AttributeError('undefined symbol: amdsmi_get_gpu_cper_entries')",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_every_failure_of_the_import_has_its_reason(kind, tmp_path):
    """All seen, depending on what is missing."""
    package = tmp_path / "packages" / "amdsmi"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BROKEN[kind])
    told = prober_says(tmp_path, PYTHONPATH=str(package.parent))
    assert '"type":"unavailable"' in told
    assert "finds no usable libamd_smi.so under" in told
    assert kind in told


def test_beside_a_rival_library_nothing_is_read(rocm, gpus, tmp_path):
    """Both in one process: no GPUs, or a crash."""
    rival = tmp_path / "librocm_smi64.so.7"
    source = tmp_path / "rival.c"
    source.write_text("int rsmi_init(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", rival, source], check=True)
    told = prober_says(tmp_path, **of_rocm(rocm, gpus), LD_PRELOAD=str(rival))
    assert f"{rival} is loaded in the GPU prober" in told


def test_the_claimed_version_in_a_file_name_wins(tmp_path, rocm, gpus):
    """The name of the mapped file is asked before the library, whose answer is a structure."""
    tree = tmp_path / "opt-rocm"
    (tree / "lib").mkdir(parents=True)
    shutil.copy(rocm / "lib" / "libamd_smi.so", tree / "lib" / "libamd_smi.so.27.1.70900")
    (tree / "lib" / "libamd_smi.so").symlink_to("libamd_smi.so.27.1.70900")
    told = prober_says(tmp_path, "gpu", **of_rocm(tree, gpus))
    assert "this is 27.1" in told


def prober_says(folder, until="unavailable", **environment):
    """The prober's lines up to the first of that kind."""
    environment = os.environ | {"ROCM_PATH": str(folder), "ROCM_HOME": str(folder)} | environment
    command = [sys.executable, "-m", "aegis_agent.sources.gpu"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as prober:
        lines = []
        for line in prober.stdout:
            lines.append(line)
            if f'"type":"{until}"' in line:
                break
        prober.stdin.close()
    return "".join(lines)
