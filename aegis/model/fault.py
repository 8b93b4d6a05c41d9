"""A fault: one thing wrong with one device, as a probe saw it."""

from dataclasses import dataclass
from enum import StrEnum


class FaultClass(StrEnum):
    """What went wrong. One name from metric to rule to page: `component.subject.kind`."""

    GPU_ECC_CORRECTABLE = "gpu.ecc.correctable"
    GPU_ECC_DEFERRED = "gpu.ecc.deferred"
    GPU_ECC_UNCORRECTABLE = "gpu.ecc.uncorrectable"
    GPU_ECC_POISON_CREATED = "gpu.ecc.poison_created"
    GPU_ECC_POISON_CONSUMED = "gpu.ecc.poison_consumed"
    GPU_RAS_FATAL = "gpu.ras.fatal"
    GPU_RAS_RECORD = "gpu.ras.record"
    GPU_MEMORY_BAD_PAGE = "gpu.memory.bad_page"
    GPU_MEMORY_BAD_PAGE_THRESHOLD = "gpu.memory.bad_page_threshold"
    GPU_MEMORY_VRAM_LOST = "gpu.memory.vram_lost"
    GPU_RING_TIMEOUT = "gpu.ring.timeout"
    GPU_SCHEDULER_HANG = "gpu.scheduler.hang"
    GPU_QUEUE_RESET = "gpu.queue.reset"
    GPU_QUEUE_RESET_FAILED = "gpu.queue.reset_failed"
    GPU_RESET_BEGIN = "gpu.reset.begin"
    GPU_RESET_PROGRESS = "gpu.reset.progress"
    GPU_RESET_SUCCEEDED = "gpu.reset.succeeded"
    GPU_RESET_FAILED = "gpu.reset.failed"
    GPU_FIRMWARE_SMU = "gpu.firmware.smu"
    GPU_INIT_FAILED = "gpu.init.failed"
    GPU_LOST = "gpu.lost"
    GPU_THERMAL_THROTTLE = "gpu.thermal.throttle"
    GPU_XGMI_ERROR = "gpu.xgmi.error"
    GPU_VM_FAULT = "gpu.vm.fault"
    GPU_SHADER_ILLEGAL_OPCODE = "gpu.shader.illegal_opcode"
    GPU_IPC_FAILED = "gpu.ipc.failed"
    GPU_COREDUMP = "gpu.coredump"
    GPU_PROBE_STALLED = "gpu.probe.stalled"
    NIC_LINK_DOWN = "nic.link.down"
    NIC_LINK_UP = "nic.link.up"
    NIC_LINK_FLAP = "nic.link.flap"
    NIC_FIRMWARE_FATAL = "nic.firmware.fatal"
    NIC_FIRMWARE_STALLED = "nic.firmware.stalled"
    NIC_FIRMWARE_RECOVERED = "nic.firmware.recovered"
    NIC_FIRMWARE_RESET = "nic.firmware.reset"
    NIC_TX_TIMEOUT = "nic.tx.timeout"
    NIC_QUEUE_ERROR = "nic.queue.error"
    NIC_RDMA_ERROR = "nic.rdma.error"
    NIC_RDMA_DEGRADED = "nic.rdma.degraded"
    NIC_PCIE_LOST = "nic.pcie.lost"
    NIC_REMOVED = "nic.removed"
    NIC_MODULE_UNPLUGGED = "nic.module.unplugged"
    NIC_MODULE_TEMPERATURE = "nic.module.temperature"
    NIC_POWER_INSUFFICIENT = "nic.power.insufficient"
    PCIE_AER_CORRECTED = "pcie.aer.corrected"
    PCIE_AER_NONFATAL = "pcie.aer.nonfatal"
    PCIE_AER_FATAL = "pcie.aer.fatal"
    PCIE_DPC = "pcie.dpc"
    PCIE_LINK_DOWN = "pcie.link.down"
    PCIE_LINK_RESET = "pcie.link.reset"
    PCIE_LINK_DEGRADED = "pcie.link.degraded"
    HOST_APEI_CORRECTED = "host.apei.corrected"
    HOST_APEI_RECOVERABLE = "host.apei.recoverable"
    HOST_APEI_FATAL = "host.apei.fatal"
    HOST_MCE_CORRECTED = "host.mce.corrected"
    HOST_MCE_UNCORRECTED = "host.mce.uncorrected"
    HOST_EDAC_CORRECTED = "host.edac.corrected"
    HOST_EDAC_UNCORRECTED = "host.edac.uncorrected"
    HOST_MEMORY_FAILURE = "host.memory.failure"
    HOST_MEMORY_OOM = "host.memory.oom"
    HOST_TASK_HUNG = "host.task.hung"
    HOST_CPU_SOFT_LOCKUP = "host.cpu.soft_lockup"
    HOST_DISK_FULL = "host.disk.full"
    HOST_CLOCK_SKEW = "host.clock.skew"
    HOST_CHECK_FAILED = "host.check.failed"
    NODE_LOST = "node.lost"
    NODE_REBOOTED = "node.rebooted"
    JOB_WORKER_EXITED = "job.worker.exited"
    JOB_WORKER_OOM_KILLED = "job.worker.oom_killed"
    JOB_HANG = "job.hang"
    JOB_STRAGGLER = "job.straggler"
    JOB_LOSS_SPIKE = "job.loss.spike"
    JOB_LOSS_NAN = "job.loss.nan"
    JOB_CHECKPOINT_CORRUPT = "job.checkpoint.corrupt"
    JOB_CHECKPOINT_STALE = "job.checkpoint.stale"


VICTIM = ("victim", "yes")  # among a fault's details


class Severity(StrEnum):
    """How bad a fault is for the device and the work on it."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"  # the work on the device is lost or at risk
    FATAL = "fatal"  # the device is lost until reset, reboot or repair


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One reading that supports a fault: a counter before and after, a log line, an exit code."""

    source: str  # where it was read: "amdsmi ecc_count(umc)", "netlink", "waitpid"
    text: str  # one sentence an operator can read
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong with one device of one node."""

    fault_class: FaultClass
    severity: Severity
    node: str
    device: str  # "gpu3", a network interface's name, "rank2", or "host"
    observed_at: float  # the node's clock, at the first reading that showed it
    boot_id: str = ""
    count: int = 1  # how many since the last report of the same fault
    simulated: bool = False  # the device is; a rank that died on simulated GPUs did die
    evidence: tuple[Evidence, ...] = ()
    job: str | None = None  # set for faults of a job: job.*
    identity: str = ""  # what the device is whichever slot it sits in: "BDF UUID serial"
    details: tuple[tuple[str, str], ...] = ()  # what the evidence names: ("block", "umc")

    @property
    def is_victim(self) -> bool:
        """Whether it is a rank that says it lost another one: its node is not to blame."""
        return VICTIM in self.details


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something wrong that lasts, reported as long as it does: a link that is down."""

    fault_class: FaultClass
    device: str
    since: float  # the node's clock
    severity: Severity = Severity.ERROR  # below error, the node may serve while it lasts
    simulated: bool = False  # as of a fault
    evidence: tuple[Evidence, ...] = ()
