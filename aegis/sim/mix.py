"""What breaks how often where people have counted it, in the words of our fault classes.

LLAMA3: the 419 unexpected interruptions of "The Llama 3 Herd of Models", table 5. BYTEROBUST: the
incidents of three months in "Robust LLM Training Infrastructure at ByteDance", table 1, rounded.
KERNEL: what the kernel logs of single nodes say, in the order in which it says it. Weights are
tenths of a percent.
"""

from dataclasses import dataclass
from enum import Enum, auto

from aegis.model.fault import FaultClass, Severity

F, S = FaultClass, Severity


class Blow(Enum):
    """A misfortune that is more than a device's words."""

    RANK_DIES = auto()
    RANK_OOM = auto()
    JOB_HANGS = auto()
    LAUNCHER_DIES = auto()
    NODE_DIES = auto()
    LINK_FALLS = auto()
    SWITCH_DIES = auto()
    MAINTENANCE = auto()
    CHECKPOINT_ROTS = auto()
    SLOW = auto()
    RESUBMIT = auto()


@dataclass(frozen=True, slots=True)
class Word:
    """One thing that a device shows."""

    fault_class: FaultClass
    severity: Severity
    after_seconds: float = 0.0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """One row of a table."""

    name: str
    weight: int
    words: tuple[Word, ...] = ()
    device: str = ""  # "": one of its GPUs
    blow: Blow | None = None
    sickens: bool = False  # the device then reads as unhealthy
    kills: bool = False  # the ranks of the node end


def _says(
    name: str, weight: int, fault_class: FaultClass, severity: Severity, device: str = ""
) -> Ailment:
    return Ailment(name=name, weight=weight, words=(Word(fault_class, severity),), device=device)


def _breaks(name: str, weight: int, fault_class: FaultClass, severity: Severity) -> Ailment:
    words = (Word(fault_class, severity),)
    return Ailment(name=name, weight=weight, words=words, sickens=True, kills=True)


def _hits(name: str, weight: int, blow: Blow) -> Ailment:
    return Ailment(name=name, weight=weight, blow=blow)


LLAMA3 = (
    _breaks("faulty GPU", 301, F.GPU_LOST, S.FATAL),
    _breaks("GPU HBM3 memory", 172, F.GPU_ECC_UNCORRECTABLE, S.ERROR),
    _hits("software bug", 129, Blow.RANK_DIES),
    _hits("network cable", 63, Blow.LINK_FALLS),
    _hits("network switch", 21, Blow.SWITCH_DIES),
    _hits("host maintenance", 76, Blow.MAINTENANCE),
    _breaks("GPU SRAM memory", 45, F.GPU_ECC_POISON_CONSUMED, S.ERROR),
    _breaks("GPU system processor", 41, F.GPU_FIRMWARE_SMU, S.ERROR),
    _says("NIC", 17, F.NIC_FIRMWARE_FATAL, S.FATAL, "fab0"),
    _hits("NCCL watchdog time-outs", 17, Blow.JOB_HANGS),
    _hits("silent data corruption", 14, Blow.CHECKPOINT_ROTS),
    _says("GPU thermal interface and sensor", 14, F.GPU_THERMAL_THROTTLE, S.WARNING),
    _says("SSD", 7, F.HOST_DISK_FULL, S.ERROR, "host"),
    _hits("power supply", 7, Blow.NODE_DIES),
    _hits("server chassis", 5, Blow.NODE_DIES),
    Ailment(
        name="IO expansion board",
        weight=5,
        words=(Word(F.PCIE_AER_FATAL, S.FATAL), Word(F.GPU_LOST, S.FATAL, 0.5)),
        kills=True,
    ),
    _hits("dependency", 5, Blow.RANK_DIES),
    _says("CPU", 5, F.HOST_MCE_UNCORRECTED, S.FATAL, "host"),
    _says("system memory", 5, F.HOST_EDAC_UNCORRECTED, S.ERROR, "host"),
)

BYTEROBUST = (
    Ailment(
        name="CUDA error",
        weight=361,
        words=(Word(F.GPU_RING_TIMEOUT, S.ERROR),),
        kills=True,
    ),
    _hits("CPU overload", 110, Blow.SLOW),
    _hits("CPU out of memory", 101, Blow.RANK_OOM),
    _says("insufficient disk space", 50, F.HOST_DISK_FULL, S.ERROR, "host"),
    _hits("InfiniBand error", 29, Blow.LINK_FALLS),
    _hits("file system mount", 21, Blow.RANK_DIES),
    _hits("HDFS error", 20, Blow.CHECKPOINT_ROTS),
    _hits("container error", 14, Blow.LAUNCHER_DIES),
    _hits("kernel panic", 4, Blow.NODE_DIES),
    _breaks("GPU memory error", 3, F.GPU_ECC_UNCORRECTABLE, S.ERROR),
    _hits("external service", 2, Blow.RANK_DIES),
    _breaks("GPU unavailable", 1, F.GPU_LOST, S.FATAL),
    _says("disk fault", 1, F.HOST_DISK_FULL, S.ERROR, "host"),
    _hits("job hang", 99, Blow.JOB_HANGS),
    _says("MFU decline", 8, F.GPU_THERMAL_THROTTLE, S.WARNING),
    _hits("NaN value", 3, Blow.RANK_DIES),
    _hits("code or data adjustment", 173, Blow.RESUBMIT),
)

KERNEL = (
    Ailment(
        name="ring time-out, reset well",
        weight=200,
        words=(
            Word(F.GPU_RING_TIMEOUT, S.ERROR),
            Word(F.GPU_RESET_BEGIN, S.WARNING, 0.2),
            Word(F.GPU_RESET_PROGRESS, S.INFO, 1.0),
            Word(F.GPU_RESET_SUCCEEDED, S.INFO, 3.0),
        ),
        kills=True,
    ),
    Ailment(
        name="ring time-out, reset failed, GPU lost",
        weight=100,
        words=(
            Word(F.GPU_RING_TIMEOUT, S.ERROR),
            Word(F.GPU_RESET_BEGIN, S.WARNING, 0.2),
            Word(F.GPU_RESET_FAILED, S.FATAL, 4.0),
            Word(F.GPU_LOST, S.FATAL, 9.0),
        ),
        sickens=True,
        kills=True,
    ),
    Ailment(
        name="poison, then fatal",
        weight=100,
        words=(
            Word(F.GPU_ECC_DEFERRED, S.ERROR),
            Word(F.GPU_ECC_POISON_CONSUMED, S.ERROR, 1.5),
            Word(F.GPU_RAS_FATAL, S.FATAL, 2.0),
        ),
        sickens=True,
        kills=True,
    ),
    Ailment(
        name="PCIe path breaks",
        weight=100,
        words=(
            Word(F.GPU_LOST, S.FATAL),
            Word(F.PCIE_AER_FATAL, S.FATAL, 0.3),
            Word(F.PCIE_DPC, S.FATAL, 0.4),
        ),
        sickens=True,
    ),
    _says("queue reset", 50, F.GPU_QUEUE_RESET, S.WARNING),
    _says("XGMI error, of which no rule speaks", 50, F.GPU_XGMI_ERROR, S.WARNING),
    Ailment(
        name="corrected errors, many",
        weight=150,
        words=(
            Word(F.GPU_ECC_CORRECTABLE, S.INFO, 0.0, 40),
            Word(F.GPU_ECC_CORRECTABLE, S.INFO, 1.0, 900),
            Word(F.HOST_MCE_CORRECTED, S.INFO, 1.2, 3),
            Word(F.PCIE_AER_CORRECTED, S.INFO, 1.4, 70),
        ),
    ),
    Ailment(
        name="network card fails and recovers",
        weight=70,
        words=(
            Word(F.NIC_TX_TIMEOUT, S.ERROR),
            Word(F.NIC_FIRMWARE_RECOVERED, S.INFO, 2.0),
        ),
        device="fab0",
    ),
    _says("network card fails", 70, F.NIC_FIRMWARE_FATAL, S.FATAL, "fab0"),
    _hits("panic", 60, Blow.NODE_DIES),
    _says("hung task", 50, F.HOST_TASK_HUNG, S.ERROR, "host"),
    _says("machine check", 50, F.HOST_MCE_UNCORRECTED, S.FATAL, "host"),
    _hits("link", 50, Blow.LINK_FALLS),
)

MIXES = {"llama3": LLAMA3, "byterobust": BYTEROBUST, "kernel": KERNEL}
