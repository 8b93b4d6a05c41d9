"""PCI Express: error reports of ports and devices, containment, hot plug, links narrower than meant.

The kernel prints most of these in the name of the device itself, whatever its driver: they follow
the tables of the drivers. Registers and TLP headers that come with a report are no reports.
"""

import re

from aegis.model.fault import FaultClass as F
from aegis_agent.probes.kernel.pattern import ERROR, FATAL, INFO, WARNING, Finding, Pattern, Table

_KIND = r"(?:, type=(?P<layer>[\w ]+))?(?:, (?:id=\w*)? ?\((?P<agent>[^)]+)\))?"
_RECEIVED = r" error (?:message )?received(?: from|:)? ?(?:id=)?(?P<from>[0-9a-f:.]+)?"
_MANY = r"(?:(?P<multiple>multiple) )?"
_BIT = r"^(?:aer: *)?\[ ?(?P<bit>\d+)\] (?P<error>"
_END = r")(?=\s|\(|$)(?:\s+\((?P<order>first)\))?"

# fmt: off
PATTERNS = (
    Pattern(F.PCIE_AER_CORRECTED, WARNING, "severity=correct", r"pcie bus error: severity=correct(?:ed|able)\b" + _KIND,
            "pcieport 0000:40:01.1: AER: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)", "aer.c"),
    Pattern(F.PCIE_AER_NONFATAL, ERROR, "severity=uncorrect", r"pcie bus error: severity=uncorrect(?:ed|able) \(non-?fatal\)" + _KIND,
            "nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)", "aer.c"),
    Pattern(F.PCIE_AER_FATAL, FATAL, "severity=uncorrect", r"pcie bus error: severity=uncorrect(?:ed|able) \(fatal\)" + _KIND,
            "pcieport 0000:40:01.1: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)", "aer.c"),
    Pattern(F.PCIE_AER_CORRECTED, WARNING, "error", r"aer: " + _MANY + "correct(?:ed|able)" + _RECEIVED,
            "pcieport 0000:00:1c.0: AER: Multiple Corrected error received: 0000:01:00.0", "aer.c"),
    Pattern(F.PCIE_AER_NONFATAL, ERROR, "error", r"aer: " + _MANY + r"uncorrect(?:ed|able) \(non-?fatal\)" + _RECEIVED,
            "pcieport 0000:00:1c.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:01:00.0", "aer.c"),
    Pattern(F.PCIE_AER_FATAL, FATAL, "error", r"aer: " + _MANY + r"uncorrect(?:ed|able) \(fatal\)" + _RECEIVED,
            "pcieport 0000:00:1c.0: AER: Uncorrected (Fatal) error received: id=00e0", "aer.c"),
    Pattern(F.PCIE_AER_CORRECTED, WARNING, "aer_layer", r"aer_layer=(?P<layer>[\w ]+), aer_agent=(?P<agent>[\w ]+)",
            "pcieport 0000:40:01.1: AER: aer_layer=Physical Layer, aer_agent=Transmitter ID", "aer.c, cper_print_aer"),

    Pattern(F.PCIE_LINK_DOWN, FATAL, "[ 5]", _BIT + r"SDES|Surprise Down(?: Error)?" + _END,
            "pcieport 0000:00:01.0: AER:    [ 5] SDES                   (First)", "aer.c"),
    # other bits: the same may be fatal or not, as the device is set; the line before them says which
    Pattern(F.PCIE_AER_CORRECTED, WARNING, "]", _BIT + r"RxErr|Receiver Error|Bad ?TLP|Bad ?DLLP|Rollover|REL?P?L?AY_NUM Rollover|Timeout|Replay Timer Timeout"
            r"|NonFatalErr|Advisory Non-Fatal|CorrIntErr|Corrected Internal Error|HeaderOF|Header Log Overflow" + _END,
            "pcieport 0000:00:1c.0:    [ 6] BadTLP                (First)", "aer.c"),

    Pattern(F.PCIE_AER_FATAL, FATAL, "aer-aware", r"device has no aer-aware driver",
            "snd_hda_intel 0000:06:00.1: device has no AER-aware driver", "aer.c, err.c"),
    Pattern(F.PCIE_AER_FATAL, FATAL, "recover", r"device recovery failed|aer: can't recover|subordinate device reset failed",
            "pcieport 0000:00:1c.0: AER: can't recover (no error_detected callback)", "err.c"),
    Pattern(F.PCIE_AER_FATAL, FATAL, "subordinate", r"subordinate device reset failed",
            "pcieport 0000:00:1c.0: AER: subordinate device reset failed", "err.c"),
    Pattern(F.PCIE_LINK_RESET, WARNING, "reset", r"\b(?P<port>root|downstream|upstream) port link has been reset(?: \((?P<status>-?\d+)\))?",
            "pcieport 0000:00:1c.0: AER: Root Port link has been reset (0)", "aer.c"),

    Pattern(F.PCIE_DPC, FATAL, "containment event", r"dpc:? containment event, status: ?(?P<status>0x[0-9a-f]+)(?:,? source: ?(?P<source>0x[0-9a-f]+|[0-9a-f:.]+))?",
            "pcieport 0000:40:01.1: DPC: containment event, status:0x1f11 source:0x4100", "dpc.c"),
    Pattern(F.PCIE_DPC, FATAL, "dpc: ", r"dpc: (?P<reason>[\w ]+?) (?:detected|received)(?: from (?P<from>[0-9a-f:.]+))?",
            "pcieport 0000:40:01.1: DPC: unmasked uncorrectable error detected", "dpc.c"),
    Pattern(F.PCIE_DPC, FATAL, "dpc", r"dpc: .*(?:fail\w*|not cleared|rp_pio_status)|dpc root port still busy",
            "pcieport 0000:40:01.1: DPC: Data Link Layer Link Active not cleared in 100 msec", "dpc.c"),

    Pattern(F.PCIE_LINK_DOWN, FATAL, "slot", r"\bslot ?\(?#?(?P<slot>[\w-]+)\)?: (?P<event>link down(?!/up ignored)|card not present|power fault\w*|link training error|cannot train link|failed to check link status|surprise removal)",
            "pcieport 0000:40:01.1: pciehp: Slot(12-1): Link Down", "pciehp_ctrl.c"),
    Pattern(F.PCIE_LINK_DOWN, FATAL, "link", r"^(?:pciehp: )?(?P<event>cannot train link|link training error|data link layer link active not set)\b",
            "pcieport 0000:40:01.1: pciehp: Cannot train link: status 0x1001", "pciehp_hpc.c"),
    Pattern(F.PCIE_LINK_DOWN, FATAL, "power state", r"(?:unable to|can't|cannot) change power state from (?P<state>\w+) to d0\b.*inaccessible",
            "nvme 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible", "pci.c"),
    Pattern(F.PCIE_LINK_DOWN, FATAL, "giving up", r"not ready (?P<waited>\d+)ms after (?P<cause>[\w ]+); giving up",
            "pci 0000:41:00.0: not ready 65535ms after bus reset; giving up", "pci.c"),
    Pattern(F.PCIE_LINK_DEGRADED, WARNING, "limited by", r"(?P<available>[\d.]+ gb/s) available pcie bandwidth, limited by (?P<link>[\d.]+ gt/s(?: pcie)? x\d+) link(?: at (?P<port>[0-9a-f:.]+))?(?: \(capable of (?P<capable>[\d.]+ gb/s))?",
            "mlx5_core 0000:41:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:40:01.1 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
            "pci.c"),
    Pattern(F.PCIE_LINK_DEGRADED, WARNING, "retrain", r"retraining (?:failed|non-functional downstream link at (?P<speed>[\d.]+ ?gt/s))",
            "pcieport 0000:40:01.1: retraining failed", "quirks.c"),
    Pattern(F.PCIE_LINK_DEGRADED, WARNING, "pci-express bandwidth", r"pci-express bandwidth available for this \w+ (?:is not sufficient|may be insufficient)",
            "ixgbe 0000:04:00.0: PCI-Express bandwidth available for this card is not sufficient for optimal performance.", "ixgbe_main.c"),
    Pattern(None, INFO, "ignored", r"link down/up ignored",
            "pcieport 0000:40:01.1: pciehp: Slot(3): Link Down/Up ignored (recovered by DPC)", "pciehp_ctrl.c"),
    Pattern(None, INFO, "aer", r"aer: (?:aer_status|device recovery successful|found no error details)",
            "pcieport 0000:00:1c.0: AER: device recovery successful", "err.c"),
)
# fmt: on

TABLE = Table(PATTERNS)

_HEAD = re.compile(
    r"(?:[\w-]+ )?(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])(?::pcie\w+)?: *"
)


def classify(text: str) -> Finding | None:
    """A line that begins with the name of a port, or of a device of any driver."""
    head = _HEAD.match(text)
    return None if head is None else TABLE.read(text[head.end() :], head["device"], text)
