"""NVIDIA's driver in the kernel log: every form of an Xid line across driver versions."""

import time

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.kernel import nvidia, xid

FORMS = [
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
     "gpu.lost", "fatal", "0000:3b:00.0", {"xid": "79", "action": "RESTART_BM"}),
    ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
     "gpu.lost", "fatal", "0000:01:00.0", {"xid": "79"}),
    ("NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.",
     "gpu.lost", "fatal", "0000:01:00.0", {"pid": "1122"}),
    ("NVRM: Xid (0000:03:00): 13, 0003 00000000 00008297 00001098 00000000 00000044",
     "gpu.shader.illegal_opcode", "warning", "0000:03:00.0", {"by": "application"}),
    ("NVRM: Xid (0002:00): 8, Channel 00000020",
     "gpu.ring.timeout", "error", "0000:02:00.0", {"action": "RESTART_APP"}),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 31, pid=9154, name=python3, Ch 0000000b, MMU Fault",
     "gpu.vm.fault", "warning", "0000:01:00.0",
     {"instance": "GPU-I:05", "pid": "9154", "process": "python3", "by": "application"}),
    ("NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset",
     "gpu.memory.bad_page", "warning", "0000:10:1c.0", {"pid": "1896"}),
    ("NVRM: Xid (PCI:0000:5d:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: Failed",
     "gpu.memory.bad_page_threshold", "fatal", "0000:5d:00.0", {"action": "RESET_GPU"}),
    ("NVRM: Xid (PCI:0000:5d:00): 48, pid=2103, name=train.py, An uncorrectable double bit error",
     "gpu.ecc.uncorrectable", "error", "0000:5d:00.0", {"process": "train.py"}),
    ("NVRM: Xid (PCI:0000:5d:00): 94, pid=77, name=pt_main_thread, Contained: SM (0x1). RST: No",
     "gpu.ecc.uncorrectable", "error", "0000:5d:00.0", {"action": "RESTART_APP"}),
    ("NVRM: Xid (PCI:0000:5d:00): 95, pid=77, name=pt_main_thread, Uncontained: LTC TAG. RST: Yes",
     "gpu.ecc.uncorrectable", "fatal", "0000:5d:00.0", {"action": "RESET_GPU"}),
    ("NVRM: Xid (PCI:0003:00:00): 74, pid=1, NVLink: fatal error detected on link 14",
     "gpu.xgmi.error", "fatal", "0003:00:00.0", {"link": "14", "action": "WORKFLOW_NVLINK_ERR"}),
    ("NVRM: Xid (PCI:0019:01:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x8)",
     "gpu.xgmi.error", "warning", "0019:01:00.0", {"link": "12"}),
    ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_INT  Fatal   XC0 i0 Link -1",
     "gpu.xgmi.error", "fatal", "0018:01:00.0", {"action": "WORKFLOW_NVLINK5_ERR"}),
    ("NVRM: Xid (PCI:0000:0f:00): 119, pid=14, name=nvidia-smi, Timeout after 6s of waiting for",
     "gpu.firmware.smu", "error", "0000:0f:00.0", {"action": "RESET_GPU"}),
    ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed to 0x2 (Node Reboot Required)",
     "gpu.ras.record", "warning", "0000:01:00.0",
     {"recovery": "Node Reboot Required", "action": "RESTART_BM"}),
    ("NVRM: Xid 154, GPU recovery action changed to 0x1 (GPU Reset Required)",
     "gpu.ras.record", "warning", "", {"action": "RESET_GPU"}),
    ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x2 (Reset) to 0x0 (None)",
     "gpu.ras.record", "info", "0000:01:00.0", {"action": "IGNORE"}),
    ("NVRM: Xid (PCI:0000:3b:00): 999, something new",
     "gpu.ras.record", "warning", "0000:3b:00.0", {"action": "CONTACT_SUPPORT"}),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO",
     "gpu.xgmi.error", "warning", "0000:c1:00.0",
     {"sxid": "28006", "switch": "nvidia-nvswitch3", "link": "46"}),
    ("nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
     "gpu.xgmi.error", "fatal", "0000:00:00.0", {"action": "RESET_GPU"}),
    ("nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 23001, Fatal, Link 12 ingress",
     "gpu.xgmi.error", "fatal", "0000:59:00.0", {"action": "RESTART_BM"}),
    ("nvidia-nvswitch0: SXid (PCI:0000:ca:00.0): 28002, Non-fatal, Therm Warn Deactivated",
     "gpu.thermal.throttle", "warning", "0000:ca:00.0", {}),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine 0",
     "gpu.ras.record", "info", "0000:c1:00.0", {}),
    ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
     "gpu.lost", "fatal", "0000:3b:00.0", {"action": "RESTART_BM"}),
    ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "gpu.lost", "fatal", "0000:01:00.0", {}),
    ("NVRM: GPU 0000:00:03.0: RmInitAdapter failed! (0x22:0x65:884)",
     "gpu.init.failed", "fatal", "0000:00:03.0", {}),
    ("nvidia: probe of 0000:3b:00.0 failed with error -1",
     "gpu.init.failed", "fatal", "0000:3b:00.0", {}),
    ("NVRM: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
     "gpu.ras.fatal", "fatal", "", {"action": "RESTART_BM"}),
]  # fmt: skip

QUIET = [
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 02:10:32 UTC 2025",
    "NVRM: GPU at PCI:0000:3b:00: GPU-9c2c2c2e-4b2a-7a9c-3f8d-0c1d2e3f4a5b",
    "NVRM: GPU Board Serial Number: 1650322000000",
    "nvidia 0000:3b:00.0: enabling device (0140 -> 0142)",
    "nvidia-nvswitch3: using MSI",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
    "nvidia_uvm: module uses symbols nvUvmInterface from proprietary module nvidia",
    "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  570.124.06",
    "nvidia-nvswitch3: SXid (PCI:.): 1, Fatal",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
    "NVRM: Xid (79): what is this",
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Requested object not found",
]


@pytest.mark.parametrize(("text", "name", "severity", "device", "details"), FORMS)
def test_each_form_is_read(text, name, severity, device, details):
    """Class, severity, the device as Linux names it, and what else the line holds."""
    told = nvidia.read(text)
    assert told is not None
    assert (told.fault_class, told.severity, told.device) == (name, severity, device)
    assert dict(told.details).items() >= details.items()


@pytest.mark.parametrize("text", [text for text, *_ in FORMS])
def test_every_fault_line_holds_a_word_that_is_looked_for_first(text):
    """A classifier asks about lines with these words only."""
    assert any(word in text for word in nvidia.WORDS)


@pytest.mark.parametrize("text", QUIET)
def test_what_the_driver_says_of_itself_is_no_fault(text):
    """Loading, naming and enabling are not faults."""
    assert nvidia.read(text) is None


def test_an_unknown_process_is_left_out():
    """`pid='<unknown>', name=<unknown>` tells nothing."""
    told = nvidia.read(FORMS[0][0])
    assert told is not None
    assert told.details.keys().isdisjoint({"pid", "process"})


@pytest.mark.parametrize("text", [
    "NVRM: " * 50_000,
    "NVRM: Xid (PCI:" + "0:" * 50_000 + "): 79, x",
    "NVRM: Xid (PCI:0000:3b:00): 154, " + "to 0x0 (" * 50_000,
    "nvidia " + "a" * 100_000,
    "nvidia-nvswitch3: SXid (PCI:" + "0:" * 50_000,
])  # fmt: skip
def test_a_line_of_any_length_is_read_in_no_time(text):
    """A log may hold anything; an expression that goes back and forth would stop the agent."""
    started = time.monotonic()
    nvidia.read(text)
    assert time.monotonic() - started < 5


def test_what_the_application_did_takes_no_node():
    """13, 31, 43 and 45 are the application's: never more than a warning, and marked as such."""
    own = [known for known in xid.XIDS.values() if known.by_application]
    assert {13, 31, 43, 45} <= {n for n, known in xid.XIDS.items() if known.by_application}
    assert all(known.severity is Severity.WARNING for known in own)


def test_what_asks_for_a_reset_or_a_reboot_is_an_error():
    """Nothing that NVIDIA wants reset or rebooted passes as information."""
    for number, known in xid.XIDS.items():
        if known.action == "RESTART_BM":
            assert known.severity is Severity.FATAL, number
        if known.action == "RESET_GPU" and number not in {61, 156}:
            assert known.severity in {Severity.ERROR, Severity.FATAL}, number


@pytest.mark.parametrize("number", [
    *(13, 31, 32, 38, 43, 44, 45, 46, 48, 54, 61, 62, 63, 64, 66, 68, 69, 74, 79, 92, 94, 95),
    *(109, 110, 119, 120, 121, 122, 123, 137, 140, 143, *range(144, 151), 154),
])  # fmt: skip
def test_the_numbers_that_fleets_meet_are_in_the_table(number):
    """None of them falls back to "a number that is not in the catalogue"."""
    assert number in xid.XIDS


@pytest.mark.parametrize(("given", "address"), [
    ("0000:3b:00", "0000:3b:00.0"),
    ("00000000:3B:00.0", "0000:3b:00.0"),
    ("0008:01:00.0", "0008:01:00.0"),
    ("3b:00", "0000:3b:00.0"),
    ("00010000:E1:00.0", "0000:e1:00.0"),
])  # fmt: skip
def test_addresses_become_linux_addresses(given, address):
    """So that a line finds the device that other senses know."""
    assert nvidia.pci_address(given) == address


def test_severities_are_those_of_the_vocabulary():
    """Lost and uninitialised are fatal; links between GPUs warn until they say fatal."""
    assert nvidia.describe(79).fault_class is FaultClass.GPU_LOST
    assert nvidia.describe(143).severity is Severity.FATAL
    assert nvidia.describe(74).severity is Severity.WARNING
