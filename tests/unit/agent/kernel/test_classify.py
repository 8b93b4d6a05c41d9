"""Lines of the kernel log get their class, and what only looks like a fault gets none."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.kernel import amdgpu, host, nic, nic_drivers
from aegis_agent.probes.kernel.classify import LENGTH_MAX, classify
from aegis_agent.probes.kernel.line import parse_line

ROOT = Path(__file__).parents[4]
SHARED = ROOT / ".." / "shared" / "data" / "kernel_lines.jsonl"
WORDINGS = [
    tuple(row.split("\t", 1))
    for row in (ROOT / "tests/data/kernel_wordings.tsv").read_text(encoding="utf-8").splitlines()
    if not row.startswith("#")
]
PATTERNS = [
    *amdgpu.TABLE,
    *host.PATTERNS,
    *nic.ANY,
    *nic.RDMA,
    *nic_drivers.IONIC,
    *nic_drivers.MLX5,
    *nic_drivers.BNXT,
    *nic_drivers.INTEL,
]


def class_of(line):
    finding = classify(line)
    return "-" if finding is None else finding.fault_class.value


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.example[:60])
def test_a_pattern_knows_its_own_example(pattern):
    """Each row of each table shows a line that it, and no row above it, decides."""
    assert pattern.word in pattern.example.lower()
    finding = classify(pattern.example)
    if pattern.fault_class is None:
        assert finding is None
    else:
        assert (finding.fault_class, finding.severity) == (pattern.fault_class, pattern.severity)
        assert finding.text == pattern.example


@pytest.mark.parametrize(("wanted", "line"), WORDINGS, ids=[line[:60] for _, line in WORDINGS])
def test_a_line_of_any_kernel_gets_its_class(wanted, line):
    """Old and new wordings, with and without a prefix; and what looks like them and is none."""
    assert class_of(line) == wanted


def test_every_line_of_the_shared_data_is_read_right():
    """All faults are named, and no other line."""
    if not SHARED.exists():
        pytest.skip(f"there is no {SHARED}: the shared data is not part of this repository")
    records = [json.loads(row) for row in SHARED.read_text(encoding="utf-8").splitlines()]
    wrong = [
        (record["line"], told)
        for record in records
        if (told := class_of(parse_line(record["line"]).text)) != (record["class"] or "-")
    ]
    assert not wrong


def test_there_is_a_pattern_for_every_class_that_the_kernel_can_tell():
    """Others are seen by reading counters and by comparing readings."""
    unseen = {FaultClass.GPU_PROBE_STALLED, FaultClass.NIC_LINK_FLAP}
    kernels = {name for name in FaultClass if name.split(".")[0] in ("gpu", "nic", "pcie", "host")}
    told = {pattern.fault_class for pattern in PATTERNS}
    assert {name for name in kernels - unseen - told if name != "host.check.failed"} == set()


@pytest.mark.parametrize(
    ("line", "device", "details"),
    [
        (
            "amdgpu 0000:c1:00.0: amdgpu: {7}socket: 4, die: 1, 3 new deferred hardware errors detected in umc block",
            "0000:c1:00.0",
            {"socket": "4", "die": "1", "count": "3", "block": "umc", "event": "7"},
        ),
        (
            "amdgpu 0000:9e:00.0: {2}[Hardware Error]: ACA[01/02].STATUS=0xb000000000000137",
            "0000:9e:00.0",
            {"entry": "01", "entries": "02", "register": "STATUS"}
            | {"value": "0xb000000000000137", "event": "2"},
        ),
        (
            "amdgpu 0000:c1:00.0: amdgpu: Saved bad pages 300 reaches threshold value 256",
            "0000:c1:00.0",
            {"pages": "300", "threshold": "256"},
        ),
        (
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1, emitted seq=3",
            "",
            {"ring": "sdma0", "signaled": "1", "emitted": "3"},
        ),
        (
            "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32771, for process python3 pid 41 thread python3 pid 43)",
            "0000:c1:00.0",
            {"hub": "gfxhub0", "kind": "no-retry", "source": "0", "ring": "24", "vmid": "3"}
            | {"pasid": "32771", "process": "python3", "pid": "41"}
            | {"thread": "python3", "thread_pid": "43"},
        ),
        (
            "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] page fault (src_id:0 ring:8 vmid:8 pasid:0, for process  pid 0 thread  pid 0)",
            "0000:c1:00.0",
            {"hub": "gfxhub0", "source": "0", "ring": "8", "vmid": "8", "pasid": "0"}
            | {"pid": "0", "thread_pid": "0"},
        ),
        (
            "amdgpu 0000:c1:00.0: amdgpu: XGMI: Set topology failure on device 9a, hive 5f, ret -22",
            "0000:c1:00.0",
            {"node": "9a", "hive": "5f", "status": "-22"},
        ),
        (
            "amdgpu: failed to remove hardware queue from MES, doorbell=0x1002",
            "",
            {"action": "remove", "doorbell": "0x1002"},
        ),
        (
            "amdgpu: probe of 0000:c1:00.0 failed with error -12",
            "",
            {"address": "0000:c1:00.0", "status": "-12"},
        ),
        (
            "ionic 0000:8c:00.3 ionic_2: opcode CREATE_QP (2) error BAD_ATTR (5)",
            "ionic_2",
            {"opcode": "CREATE_QP", "number": "2", "error": "BAD_ATTR", "status": "5"}
            | {"address": "0000:8c:00.3"},
        ),
        (
            "infiniband bnxt_re0: Failed to allocate HW AH",
            "bnxt_re0",
            {"action": "allocate", "object": "AH"},
        ),
        (
            "mlx5_core 0000:5c:00.0: print_health_info:424:(pid 0): synd 0x8: unrecoverable hardware error",
            "0000:5c:00.0",
            {"syndrome": "0x8", "error": "unrecoverable hardware error"},
        ),
        ("igb 0000:00:14.0 eth0: igb: eth0 NIC Link is Down", "eth0", {"address": "0000:00:14.0"}),
        (
            "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 7 timed out",
            "eth0",
            {"queue": "7", "driver": "mlx5_core"},
        ),
        (
            "bonding: bond0: link status definitely down for interface eth2, disabling it",
            "eth2",
            {},
        ),
        (
            "pcieport 0000:40:01.1: AER: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
            "0000:40:01.1",
            {"layer": "Data Link Layer", "agent": "Receiver ID"},
        ),
        (
            "pciehp 0000:02:05.0:pcie24: slot(6): Link Down event",
            "0000:02:05.0",
            {"slot": "6", "event": "Link Down"},
        ),
        (
            "EDAC MC1: 2 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0)",
            "",
            {"controller": "MC1", "count": "2", "error": "memory scrubbing error"}
            | {"label": "CPU_SrcID#1_Ha#0_Chan#0_DIMM#0"},
        ),
        (
            "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000800400",
            "",
            {"cpu": "3", "global_status": "0", "bank": "7", "status": "be00000000800400"},
        ),
        (
            "Memory cgroup out of memory: Killed process 4711 (tokio worker) total-vm:1kB",
            "",
            {"scope": "Memory cgroup", "pid": "4711", "process": "tokio worker"},
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_finding_carries_what_the_line_says(line, device, details):
    """Whoever gets the incident needs the block, the ring, the process, not only the class."""
    finding = classify(line)
    assert finding.device == device
    assert finding.details == details


def test_how_bad_a_line_is_depends_on_the_line():
    """One class may be a nuisance or the end: a refused query, a firmware that is stuck."""
    refused = classify("amdgpu 0000:c1:00.0: amdgpu: Failed to export SMU metrics table!")
    stuck = classify("amdgpu 0000:c1:00.0: amdgpu: SMU: I'm not done with your previous command!")
    assert refused.fault_class == stuck.fault_class == FaultClass.GPU_FIRMWARE_SMU
    assert (refused.severity, stuck.severity) == (Severity.WARNING, Severity.ERROR)
    recovered = classify(
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, but soft recovered"
    )
    assert recovered.severity == Severity.WARNING


def test_throttling_by_the_power_cap_is_normal():
    """Heat is told; power is what a cap is for; both together are heat."""
    said = "amdgpu 0000:c1:00.0: amdgpu: WARN: GPU is throttled, expect performance decrease. "
    assert class_of(f"{said}PPT.") == class_of(f"{said}PPT0 and TDC_GFX and EDC.") == "-"
    assert class_of(f"{said}PPT and HBM.") == class_of(f"{said}SOC.") == "gpu.thermal.throttle"


@pytest.mark.parametrize("count", ["0", "00"])
def test_nothing_counted_is_no_fault(count):
    """The driver prints the total of every die, also of those without an error."""
    for kind in ("correctable", "uncorrectable", "deferred"):
        line = f"socket: 1, die: 0, {count} {kind} hardware errors detected in total in umc block"
        assert class_of(f"amdgpu 0000:c1:00.0: amdgpu: {{3}} {line}") == "-"


@pytest.mark.parametrize("program", ["python[4242]", "node-scraper", "systemd[1]", "kubelet"])
def test_a_program_that_quotes_the_kernel_is_not_the_kernel(program):
    """Its name stands first, whatever form the log has."""
    for _, line in WORDINGS:
        quoted = parse_line(f"Mar  4 10:11:12 n1 {program}: {line}")
        assert class_of(quoted.text) == "-", line


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "[ 5140.900000] {}",
        "[Tue Mar  4 10:11:12 2025] {}",
        "<4>[ 5140.900000] {}",
        "kern  :err   : [ 5140.900000] {}",
        "4,339,5140900000,-;{}",
        "Mar  4 10:11:12 n1 kernel: {}",
        "Mar  4 10:11:12 n1 kernel: [ 5140.900000] {}",
        "2025-03-04T10:11:12.123456+00:00 n1 kernel: {}",
        "<4>1 2025-03-04T10:11:12Z n1 kernel - - - {}",
        '{{"MESSAGE": "{}", "SYSLOG_IDENTIFIER": "kernel", "PRIORITY": "4"}}',
    ],
)
def test_the_class_does_not_depend_on_the_form_of_the_log(form):
    """dmesg, journal, syslog and /dev/kmsg tell the same."""
    for wanted, line in WORDINGS:
        if '"' not in line and "\t" not in line and not line.startswith(" "):
            assert class_of(parse_line(form.format(line)).text) == wanted, line


HEADS = sorted({line.split(": ")[0] + ": " for _, line in WORDINGS if ": " in line})


@given(st.one_of(st.text(), st.builds(str.__add__, st.sampled_from(HEADS), st.text(max_size=200))))
def test_no_text_is_too_much(text):
    """Garbage, other scripts, control characters: read, or left alone."""
    finding = classify(text)
    if finding is not None:
        assert finding.text.strip() in text
        assert all(isinstance(value, str) and value for value in finding.details.values())


def test_no_line_takes_long():
    """Lines that almost match many times over are read in a blink."""
    words = ["queue ", "failed ", "mes ", "error ", "xgmi ", "instance ", "[ 5] ", "0 ", "sec 1 "]
    began = time.process_time()
    for head in (
        "amdgpu 0000:c1:00.0: ",
        "mlx5_core 0000:5c:00.0 eth0: ",
        "pcieport 0000:00:01.0: ",
    ):
        for word in words:
            classify(head + word * 200_000)
    assert time.process_time() - began < 20
    assert LENGTH_MAX <= 4096
