"""`aegis scan`: one look at simulated hardware and a kernel log, and a verdict."""

import json
import os
import subprocess
import sys
import time

import pytest

from aegis_agent.simulated import devices, network

SCAN = "from aegis.cli.main import main; raise SystemExit(main())"


@pytest.fixture
def tree(tmp_path):
    """A simulated /sys with one fabric port, its link up."""
    network.init(tmp_path / "sys", "fab0")
    return tmp_path / "sys"


@pytest.fixture
def log(tmp_path):
    """A kernel log without faults."""
    path = tmp_path / "kmsg"
    path.write_text("6,1,1000000,-;amdgpu: the driver was loaded\n")
    return path


@pytest.fixture
def scan(environment, tree, log):
    def look(*flags, without=()):
        flags = (
            "--node",
            "n1",
            "--sys-root",
            tree,
            "--kernel-log",
            log,
            "--fabric",
            "fab0",
            *flags,
        )
        began_at = time.monotonic()
        done = subprocess.run(
            [*without, sys.executable, "-c", SCAN, "scan", *map(str, flags)],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.stderr
        return done.returncode, done.stdout, time.monotonic() - began_at

    return look


def test_a_healthy_node_is_said_to_be(scan) -> None:
    """Every device is listed, what reads it is named, and that it is simulated."""
    code, text, _ = scan()
    assert text.startswith("n1  (simulated hardware): Healthy: "), text
    assert code == 0
    for words in ("gpu0", "gpu1", "fab0", "simulated library", "Read through"):
        assert words in text


def test_findings_have_class_severity_since_and_evidence(scan, gpus, tree, log) -> None:
    """From counters, from levels and from the log of this boot, the worst first."""
    devices.set_counts(gpus, 1, "umc", (5, 2, 0))
    network.down(tree, "fab0")
    with log.open("a") as file:
        file.write("3,2,2000000,-;Memory failure: 0x1a: recovery action for dirty page: Failed\n")
    code, text, _ = scan("-o", "json")
    told = json.loads(text)
    assert (code, told["verdict"], told["simulated"]) == (1, "findings", True)
    found = {one["class"]: one for one in told["findings"] if one["counts"]}
    assert set(found) == {"gpu.ecc.uncorrectable", "nic.link.down", "host.memory.failure"}
    assert found["gpu.ecc.uncorrectable"]["device"] == "gpu1"
    assert found["nic.link.down"]["when"] == "now"
    assert found["nic.link.down"]["since"]
    assert "dirty page" in found["host.memory.failure"]["evidence"][0]
    assert [one["name"] for one in told["devices"] if one["kind"] == "gpu"] == ["gpu0", "gpu1"]
    code, text, _ = scan()
    assert code == 1
    assert "gpu.ecc.uncorrectable: The GPU read data that it knows to be wrong" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("gpu0 ", "gpu1 "))]
    assert [row[2] for row in rows] == ["healthy", "see"]  # what was found of gpu1 stands above


def test_a_gpu_that_hangs_is_not_known_and_keeps_nobody_waiting(scan, gpus) -> None:
    """The look ends in time, and says of which device there is no word."""
    devices.add_fault(gpus, "amdsmi_get_gpu_ecc_count", "0", "hang")
    code, text, seconds = scan("-o", "json")
    told = json.loads(text)
    stalled = [one for one in told["findings"] if one["class"] == "gpu.probe.stalled"]
    assert stalled or told["verdict"] == "unknown"
    assert code in (1, 2)
    assert "gpu0" in told["sentence"]
    assert seconds < 30  # the command's own limit is half of that


def test_gpus_without_a_library_leave_the_verdict_open(scan, tree, environment) -> None:
    """Hardware that is on the bus and read by nobody is not healthy."""
    environment["ROCM_PATH"] = environment["ROCM_HOME"] = "/nonexistent"
    place = tree / "bus" / "pci" / "devices" / "0000:c1:00.0"
    place.mkdir(parents=True)
    for name, text in (("class", "0x120000"), ("vendor", "0x1002"), ("device", "0x74a1")):
        (place / name).write_text(text + "\n")
    code, text, _ = scan()
    assert "1 AMD GPU on the bus" in text
    assert "ROCM_PATH" in text
    assert code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="gives its rights away: needs root")
def test_without_rights_it_says_what_would_give_them(scan, log) -> None:
    """A log that may not be read is no clean log."""
    os.chown(log, 65534, 65534)
    log.chmod(0o600)
    code, text, _ = scan(without=("setpriv", "--bounding-set=-all", "--inh-caps=-all"))
    assert code == 2, text
    assert "no word of kernel-log" in text
    assert "Permission denied" in text
