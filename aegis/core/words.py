"""Fault classes and remedies in plain words, for headlines that anyone on call can read."""

from aegis.model.fault import FaultClass
from aegis.model.incident import Remedy

FAULTS: dict[FaultClass, str] = {
    FaultClass.GPU_ECC_CORRECTABLE: "Correctable memory error",
    FaultClass.GPU_ECC_DEFERRED: "Deferred memory error",
    FaultClass.GPU_ECC_UNCORRECTABLE: "Uncorrectable memory error",
    FaultClass.GPU_ECC_POISON_CREATED: "Poisoned memory",
    FaultClass.GPU_ECC_POISON_CONSUMED: "Poisoned memory was read",
    FaultClass.GPU_RAS_FATAL: "Fatal hardware error",
    FaultClass.GPU_RAS_RECORD: "Hardware error record",
    FaultClass.GPU_MEMORY_BAD_PAGE: "Memory page retired",
    FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD: "Too many retired memory pages",
    FaultClass.GPU_MEMORY_VRAM_LOST: "GPU memory contents lost",
    FaultClass.GPU_RING_TIMEOUT: "GPU ring time-out",
    FaultClass.GPU_SCHEDULER_HANG: "GPU scheduler hang",
    FaultClass.GPU_QUEUE_RESET: "GPU queue was reset",
    FaultClass.GPU_QUEUE_RESET_FAILED: "GPU queue could not be reset",
    FaultClass.GPU_RESET_BEGIN: "GPU reset began",
    FaultClass.GPU_RESET_PROGRESS: "GPU reset goes on",
    FaultClass.GPU_RESET_SUCCEEDED: "GPU was reset",
    FaultClass.GPU_RESET_FAILED: "GPU could not be reset",
    FaultClass.GPU_FIRMWARE_SMU: "GPU power firmware error",
    FaultClass.GPU_INIT_FAILED: "GPU did not initialise",
    FaultClass.GPU_LOST: "GPU lost from the bus",
    FaultClass.GPU_THERMAL_THROTTLE: "GPU slowed by heat",
    FaultClass.GPU_XGMI_ERROR: "XGMI link error",
    FaultClass.GPU_VM_FAULT: "GPU page fault of the application",
    FaultClass.GPU_SHADER_ILLEGAL_OPCODE: "Illegal instruction in a GPU kernel",
    FaultClass.GPU_IPC_FAILED: "GPU memory sharing failed",
    FaultClass.GPU_COREDUMP: "GPU core dump",
    FaultClass.GPU_PROBE_STALLED: "GPU does not answer its probe",
    FaultClass.NIC_LINK_DOWN: "Network link down",
    FaultClass.NIC_LINK_UP: "Network link up",
    FaultClass.NIC_LINK_FLAP: "Network link flaps",
    FaultClass.NIC_FIRMWARE_FATAL: "Network card firmware failed",
    FaultClass.NIC_FIRMWARE_STALLED: "Network card firmware stalled",
    FaultClass.NIC_FIRMWARE_RECOVERED: "Network card firmware recovered",
    FaultClass.NIC_FIRMWARE_RESET: "Network card firmware was reset",
    FaultClass.NIC_TX_TIMEOUT: "Network card transmit time-out",
    FaultClass.NIC_QUEUE_ERROR: "Network card queue error",
    FaultClass.NIC_RDMA_ERROR: "RDMA errors",
    FaultClass.NIC_RDMA_DEGRADED: "RDMA degraded",
    FaultClass.NIC_PCIE_LOST: "Network card lost from the bus",
    FaultClass.NIC_REMOVED: "Network card gone",
    FaultClass.NIC_MODULE_UNPLUGGED: "Network module unplugged",
    FaultClass.NIC_MODULE_TEMPERATURE: "Network module too hot",
    FaultClass.NIC_POWER_INSUFFICIENT: "Network card lacks power",
    FaultClass.PCIE_AER_CORRECTED: "Corrected PCIe error",
    FaultClass.PCIE_AER_NONFATAL: "Uncorrected PCIe error",
    FaultClass.PCIE_AER_FATAL: "Fatal PCIe error",
    FaultClass.PCIE_DPC: "PCIe port contained an error",
    FaultClass.PCIE_LINK_DOWN: "PCIe link down",
    FaultClass.PCIE_LINK_RESET: "PCIe link was reset",
    FaultClass.PCIE_LINK_DEGRADED: "PCIe link slower or narrower than it should be",
    FaultClass.HOST_APEI_CORRECTED: "Corrected platform error",
    FaultClass.HOST_APEI_RECOVERABLE: "Recoverable platform error",
    FaultClass.HOST_APEI_FATAL: "Fatal platform error",
    FaultClass.HOST_MCE_CORRECTED: "Corrected CPU error",
    FaultClass.HOST_MCE_UNCORRECTED: "Uncorrected CPU error",
    FaultClass.HOST_EDAC_CORRECTED: "Corrected host memory error",
    FaultClass.HOST_EDAC_UNCORRECTED: "Uncorrected host memory error",
    FaultClass.HOST_MEMORY_FAILURE: "Host memory failure",
    FaultClass.HOST_MEMORY_OOM: "Host out of memory",
    FaultClass.HOST_TASK_HUNG: "Hung task",
    FaultClass.HOST_CPU_SOFT_LOCKUP: "CPU lockup",
    FaultClass.HOST_DISK_FULL: "Disk full",
    FaultClass.HOST_CLOCK_SKEW: "Clock is off",
    FaultClass.HOST_CHECK_FAILED: "A site check failed",
    FaultClass.NODE_LOST: "Node silent",
    FaultClass.NODE_REBOOTED: "Node rebooted",
    FaultClass.JOB_WORKER_EXITED: "Rank died",
    FaultClass.JOB_WORKER_OOM_KILLED: "Rank killed for lack of memory",
    FaultClass.JOB_HANG: "Job stuck",
    FaultClass.JOB_STRAGGLER: "Slow rank",
    FaultClass.JOB_LOSS_SPIKE: "Loss spike",
    FaultClass.JOB_LOSS_NAN: "Loss is not a number",
    FaultClass.JOB_CHECKPOINT_CORRUPT: "Corrupt checkpoint",
    FaultClass.JOB_CHECKPOINT_STALE: "Checkpoint too old",
}

REMEDIES: dict[Remedy, str] = {
    Remedy.COUNT: "count it",
    Remedy.NOTIFY: "tell people",
    Remedy.RESTART: "restart the job's ranks",
    Remedy.DRAIN_SAVING: "save, then move off the node",
    Remedy.DRAIN_NOW: "move off the node without saving",
}


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 step", "3 steps"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names with commas and an `and`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
