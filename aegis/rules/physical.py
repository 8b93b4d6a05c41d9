"""What needs hands first: by AMD's service actions, no reset and no reboot mends it.

Links between GPUs (XGMI, WAFL), PCIe errors, the threshold of bad pages, on-die ECC and the
end-to-end checksum: torque, seating or a new module. A ladder for them never resets or reboots.
"""

from aegis.model.fault import Fault, FaultClass

PHYSICAL = frozenset(
    {
        FaultClass.GPU_XGMI_ERROR,
        FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD,
        FaultClass.PCIE_AER_CORRECTED,
        FaultClass.PCIE_AER_NONFATAL,
        FaultClass.PCIE_AER_FATAL,
    }
)
PHYSICAL_AFIDS = frozenset({*range(13, 24), 30})
SOFT = frozenset({"reset_domain", "reboot"})  # remedies that are no hands


def needs_hands(fault: Fault) -> bool:
    """Whether its class, or AMD's number for it, says so."""
    afid = dict(fault.details).get("afid", "")
    return fault.fault_class in PHYSICAL or (afid.isdigit() and int(afid) in PHYSICAL_AFIDS)
