"""PCI Express: ports, links, and what they say of the devices behind them."""

from aegis.model.catalogue.entry import Entry
from aegis.model.catalogue.sources import AER, AER_COUNTERS, INSTINCT, PCI_RECOVERY, linux
from aegis.model.fault import FaultClass, Severity

_BEHIND = "the device behind the port; a device that training does not use is warned of at most"
_LINK_STATE = "`lspci -vv -s ADDRESS | grep -E 'LnkCap:|LnkSta:'`: speed and width"

ENTRIES: dict[FaultClass, Entry] = {
    FaultClass.PCIE_AER_CORRECTED: Entry(
        title="Corrected PCIe error",
        description=(
            "A packet on a PCIe link was damaged or late and was sent again. A few are normal; "
            "many mean a bad riser, cable, or seat."
        ),
        effect="None, or a little slower when there are very many.",
        severity=Severity.WARNING,
        scope=_BEHIND,
        seen=("aer_dev_correctable", "kernel log", "CPER records"),
        answer="Count it and watch its rate.",
        check=(
            "`cat /sys/bus/pci/devices/ADDRESS/aer_dev_correctable`: which kind grows",
            _LINK_STATE,
            "The other end of the link counts what this end cannot see",
        ),
        afids=(13,),
        references=(AER, AER_COUNTERS, INSTINCT),
    ),
    FaultClass.PCIE_AER_NONFATAL: Entry(
        title="Uncorrected PCIe error",
        description="A transfer over PCIe was lost; the link itself still works.",
        effect="The driver of the device may recover, or its user gets an error.",
        severity=Severity.ERROR,
        scope=_BEHIND,
        seen=("aer_dev_nonfatal", "kernel log"),
        answer="Tell people; with a GPU or card lost beside it, it is the path.",
        check=(
            '`dmesg -T | grep -A4 "PCIe Bus Error"`: type, and which device',
            "`cat /sys/bus/pci/devices/ADDRESS/aer_dev_nonfatal`",
            _LINK_STATE,
        ),
        references=(AER, AER_COUNTERS, PCI_RECOVERY),
    ),
    FaultClass.PCIE_AER_FATAL: Entry(
        title="Fatal PCIe error",
        description="A PCIe link has failed and is reset, or its device could not be recovered.",
        effect="The device behind it is lost, with the ranks that use it.",
        severity=Severity.FATAL,
        scope=_BEHIND,
        seen=("aer_dev_fatal", "kernel log", "CPER records"),
        answer="Move the ranks off; hands before reboots: reseat, check the riser.",
        check=(
            '`dmesg -T | grep -A6 -E "Fatal|recovery"`: whether recovery worked',
            "`cat /sys/bus/pci/devices/ADDRESS/aer_dev_fatal`",
            "`lspci -tv`: what sits behind the port",
        ),
        afids=(14,),
        references=(AER, PCI_RECOVERY, INSTINCT),
    ),
    FaultClass.PCIE_DPC: Entry(
        title="PCIe port contained an error",
        description=(
            "A port shut its link at once to keep an error from spreading (Downstream Port "
            "Containment)."
        ),
        effect="Everything behind the port is gone until the kernel brings it back.",
        severity=Severity.FATAL,
        scope=_BEHIND,
        seen=("kernel log",),
        answer="Move the ranks off; look at the path.",
        check=(
            '`dmesg -T | grep -iE "DPC|containment|recovery"`: whether the link came back',
            "`lspci -tv`: what sits behind the port",
        ),
        references=(PCI_RECOVERY, linux("drivers/pci/pcie/dpc.c")),
    ),
    FaultClass.PCIE_LINK_DOWN: Entry(
        title="PCIe link down",
        description="A port has no link to its device any more: pulled, without power, or broken.",
        effect="The device behind it is lost.",
        severity=Severity.FATAL,
        scope=_BEHIND,
        seen=("kernel log",),
        answer="Move the ranks off; look at the slot.",
        check=(
            '`dmesg -T | grep -iE "pciehp|Surprise"`: which slot',
            "`lspci -tv`: what is missing behind the port",
            "Power of the slot in the BMC's log",
        ),
        references=(PCI_RECOVERY, linux("drivers/pci/hotplug/pciehp_ctrl.c")),
    ),
    FaultClass.PCIE_LINK_RESET: Entry(
        title="PCIe link was reset",
        description="The kernel reset a link to bring its device back after an error.",
        effect="The device was away for a moment; its driver starts again or gives up.",
        severity=Severity.WARNING,
        raised="error when the reset was part of a recovery that failed",
        scope=_BEHIND,
        seen=("kernel log",),
        answer="Tell people; read it with the error before it.",
        check=(
            '`dmesg -T | grep -B6 "link has been reset"`: the error before, and what came of it',
            _LINK_STATE,
        ),
        references=(PCI_RECOVERY, linux("drivers/pci/pcie/err.c")),
    ),
    FaultClass.PCIE_LINK_DEGRADED: Entry(
        title="PCIe link slower or narrower than it should be",
        description=(
            "A link runs below the speed or width that both its ends can do: a bad contact, "
            "a riser, or a link that trained after errors."
        ),
        effect="Copies to and from the device are slow, and with them every step of the job.",
        severity=Severity.WARNING,
        scope=_BEHIND,
        seen=("current and maximum link speed and width", "amdsmi pcie_info", "kernel log"),
        answer="Tell people; reseat. A reset in a loop does not help.",
        check=(
            _LINK_STATE,
            "The same device on a neighbour: some idle links are slow to save power",
            "Replays and NAKs: `amd-smi metric --gpu N --pcie`",
        ),
        references=(INSTINCT, linux("Documentation/ABI/testing/sysfs-bus-pci")),
    ),
}
