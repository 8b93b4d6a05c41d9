"""What NVIDIA's driver writes into the kernel log: Xid of GPUs, SXid of NVSwitches, and the rest.

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:01:00 GPU-I:05): 13, pid=1896, name=python, Graphics Exception: …
    NVRM: Xid (0000:03:00): 14, Channel 00000001
    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO
    NVRM: GPU 0000:03:00.0: RmInitAdapter failed! (0x22:0x65:884)

All of them hold one of the `WORDS`, so a reader need not ask of any other line.
"""

import re

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.kernel import xid as catalogue
from aegis_agent.probes.kernel.pattern import Finding
from aegis_agent.probes.kernel.xid import Xid

WORDS = ("NVRM", "nvidia")

_XID = re.compile(
    r"NVRM: Xid(?: \((?:PCI:)?([0-9a-fA-F]+(?::[0-9a-fA-F]+)+(?:\.[0-7])?)(?: (GPU-I:\w+))?\))?:? "
    r"(\d{1,6})\b,?(.*)"
)
_SXID = re.compile(
    r"(nvidia-nvswitch\d+)?:? ?SXid \(PCI:([0-9a-fA-F]+(?::[0-9a-fA-F]+)+(?:\.[0-7])?)\): "
    r"(\d{1,6}), "
    r"(?:(Fatal|Non-fatal), )?(?:Link (\d+))?(.*)"
)
_PROCESS = re.compile(r"\bpid='?(\d+)'?(?:, name=([^,<]+))?")
_LINK = re.compile(r"\b[Ll]ink:? ?(\d+)")
_FATAL = re.compile(r"(?<![-\w])fatal\b", re.IGNORECASE)
_RECOVERY = re.compile(r"to 0x[0-9a-fA-F]+ \(([^)]*)\)?")
_ADDRESS = re.compile(r"\b((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b")

# Lines that hold no Xid: those with all of these words. First match wins.
_OTHERS: tuple[tuple[tuple[str, ...], FaultClass, str], ...] = (
    (("NVRM: ", "fallen off the bus"), FaultClass.GPU_LOST, "RESTART_BM"),
    (("NVRM: ", "RmInitAdapter failed"), FaultClass.GPU_INIT_FAILED, "RESET_GPU"),
    (("NVRM: ", "rm_init_adapter failed"), FaultClass.GPU_INIT_FAILED, "RESET_GPU"),
    (("NVRM: The NVIDIA probe routine failed",), FaultClass.GPU_INIT_FAILED, "CONTACT_SUPPORT"),
    (("NVRM: None of the NVIDIA devices were initialized",), FaultClass.GPU_INIT_FAILED,
     "CONTACT_SUPPORT"),
    (("nvidia: probe of ", "failed with error"), FaultClass.GPU_INIT_FAILED, "CONTACT_SUPPORT"),
    (("nvidia ", "probe with driver nvidia failed"), FaultClass.GPU_INIT_FAILED,
     "CONTACT_SUPPORT"),
    (("NVRM: uvm encountered global fatal error",), FaultClass.GPU_RAS_FATAL, "RESTART_BM"),
)  # fmt: skip

_SWITCH_NUMBERS = (
    (catalogue.SXID_REBOOT, FaultClass.GPU_XGMI_ERROR, Severity.FATAL, "RESTART_BM"),
    (catalogue.SXID_RESET_ALL, FaultClass.GPU_XGMI_ERROR, Severity.FATAL,
     "RESET_ALL_GPUS_AND_NVSWITCHES"),
    (catalogue.SXID_THERMAL, FaultClass.GPU_THERMAL_THROTTLE, Severity.WARNING, "CHECK_THERMALS"),
    (catalogue.SXID_IGNORE, FaultClass.GPU_XGMI_ERROR, Severity.INFO, "IGNORE"),
    (catalogue.SXID_RESTART_VM, FaultClass.GPU_XGMI_ERROR, Severity.WARNING, "RESTART_VM"),
    (catalogue.SXID_MECHANICALS, FaultClass.GPU_XGMI_ERROR, Severity.WARNING,
     "CHECK_MECHANICALS"),
)  # fmt: skip


def read(text: str) -> Finding | None:
    """What the message says; None where it says nothing of a fault."""
    if "Xid" in text:
        if found := _XID.search(text):
            return _read_xid(found)
        if found := _SXID.search(text):
            return _read_sxid(found)
    for words, fault_class, action in _OTHERS:
        if all(word in text for word in words):
            address = _ADDRESS.search(text)
            return Finding(
                fault_class=fault_class,
                severity=Severity.FATAL,
                device=pci_address(address[1]) if address else "",
                details={"action": action},
                text=text,
            )
    return None


def pci_address(text: str) -> str:
    """The address as Linux writes it, "0000:3b:00.0", whatever NVIDIA's software left out of it."""
    place, _, function = text.lower().partition(".")
    parts = place.split(":")
    domain = parts[-3][-4:] if len(parts) > 2 else "0"
    return f"{domain:0>4}:{int(parts[-2], 16):02x}:{int(parts[-1], 16):02x}.{function or '0'}"


def describe(number: int) -> Xid:
    """What the number means."""
    return catalogue.XIDS.get(number, catalogue.UNKNOWN)


def _read_xid(found: re.Match[str]) -> Finding:
    address, instance, number, rest = found[1], found[2], int(found[3]), found[4].strip()
    known = describe(number)
    severity, action = known.severity, known.action
    details = {"xid": str(number), "meaning": known.meaning}
    if known.by_application:
        details["by"] = "application"
    if instance:
        details["instance"] = instance
    if process := _PROCESS.search(rest):
        details["pid"] = process[1]
        if process[2]:
            details["process"] = process[2].strip()
    if number in catalogue.NVLINK_NUMBERS:
        if link := _LINK.search(rest):
            details["link"] = str(int(link[1]))
        severity = Severity.FATAL if _FATAL.search(rest) else severity
    if number == 154 and (wanted := _RECOVERY.search(rest)):
        details["recovery"] = wanted[1]
        action = catalogue.RECOVERY_ACTIONS.get(wanted[1].lower(), "RESET_GPU")
        severity = Severity.INFO if action == "IGNORE" else Severity.WARNING
    return Finding(
        fault_class=known.fault_class,
        severity=severity,
        device=pci_address(address) if address else "",
        details={**details, "action": action},
        text=found.string,
    )


def _read_sxid(found: re.Match[str]) -> Finding:
    switch, address, number, fatality, link = found[1], found[2], int(found[3]), found[4], found[5]
    fault_class, severity, action = _switch_fault(number, fatality)
    details = {"sxid": str(number)}
    if switch:
        details["switch"] = switch
    if link:
        details["link"] = str(int(link))
    return Finding(
        fault_class=fault_class,
        severity=severity,
        device=pci_address(address),
        details={**details, "action": action},
        text=found.string,
    )


def _switch_fault(number: int, fatality: str | None) -> tuple[FaultClass, Severity, str]:
    if fatality is None:  # "28006, Severity 0 Engine instance 46 …", "28006, Data {0x…}"
        return FaultClass.GPU_RAS_RECORD, Severity.INFO, "IGNORE"
    for numbers, fault_class, severity, action in _SWITCH_NUMBERS:
        if number in numbers:
            return fault_class, severity, action
    if fatality == "Fatal":
        return FaultClass.GPU_XGMI_ERROR, Severity.FATAL, "RESET_GPU"
    return FaultClass.GPU_XGMI_ERROR, Severity.WARNING, "IGNORE"
