"""The host itself: memory, processes killed for want of it, machine checks, disks, clock.

    killed for want of memory   host.memory.oom, where the kernel log has not told already whom
    machine check exceptions    host.mce.uncorrected: nothing put the error right, but the kernel
                                went on
    deferred errors (AMD)       the same: bad data was found and has not been used yet
    memory modules              see `edac`
    disks, clock                see `disk`, `clock`

All counters are the kernel's since the boot; what is read first is taken as it is. Polls of machine
checks and threshold interrupts are no errors: corrected ones are counted by EDAC and in the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes import clock, disk, edac
from aegis_agent.probes.clock import ClockMemory, ClockSample
from aegis_agent.probes.disk import DiskMemory, DiskSample
from aegis_agent.probes.edac import EdacMemory, EdacSample
from aegis_agent.probes.subject import Judgement, Subject

# Each number that changes is an event in the controller's log: these are told in steps.
_MEMORY_STEP_PERCENT, _DISK_STEP_PERCENT = 5, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The host's memory."""

    total_mb: int
    available_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupts:
    """Counted by all processors together. None: this kind of processor does not."""

    machine_checks: int | None = None
    deferred: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """What was read of the host. None: not readable."""

    at: float
    clock: ClockSample
    memory: Memory | None = None
    oom_kills: int | None = None
    oom_logged: int = 0  # that the kernel log told since the sample before, with their victims
    interrupts: Interrupts = field(default_factory=Interrupts)
    edac: EdacSample | None = None
    disks: Sequence[DiskSample] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the site allows."""

    disk_full_percent: float
    clock_skew_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """What is remembered between samples and over restarts of the agent."""

    boot_id: str = ""
    oom_kills: int | None = None
    machine_checks: int | None = None
    deferred: int | None = None
    uncorrected: int = 0  # machine checks and deferred errors seen in this boot
    edac: EdacMemory = field(default_factory=EdacMemory)
    disks: dict[str, DiskMemory] = field(default_factory=dict)  # by path
    clock: ClockMemory = field(default_factory=ClockMemory)
    shown: tuple[int, int] = (-100, -100)  # percent of memory available, of disks used

    @property
    def lasting(self) -> tuple[object, ...]:
        """What must outlive the agent; the rest changes at every look."""
        return replace(self, clock=ClockMemory(), shown=(0, 0)), self.clock.lasting


def observe(
    subject: Subject, memory: HostMemory, sample: HostSample, limits: Limits
) -> Judgement[HostMemory]:
    """Judge one sample."""
    if memory.boot_id != subject.boot_id:
        memory = HostMemory(
            boot_id=subject.boot_id, edac=edac.new_boot(memory.edac), disks=memory.disks
        )
    memory, faults = _counted(subject, memory, sample)
    if sample.edac is not None:
        modules, errors = edac.observe(subject, memory.edac, sample.edac)
        memory, faults = replace(memory, edac=modules), [*faults, *errors]
    disks, full, lasting = disk.observe(
        subject, memory.disks, sample.disks, limits.disk_full_percent
    )
    clocked, skews, off = clock.observe(
        subject, memory.clock, sample.clock, limits.clock_skew_seconds
    )
    memory = replace(memory, disks=disks, clock=clocked, shown=_shown(memory, sample))
    return Judgement(
        memory=memory,
        device=_device(subject, memory, sample),
        faults=(*faults, *full, *skews),
        conditions=(*lasting, *off),
    )


def _counted(
    subject: Subject, memory: HostMemory, sample: HostSample
) -> tuple[HostMemory, list[Fault]]:
    interrupts = sample.interrupts
    kills = max(0, _rise(memory.oom_kills, sample.oom_kills) - sample.oom_logged)
    checks = _rise(memory.machine_checks, interrupts.machine_checks)
    deferred = _rise(memory.deferred, interrupts.deferred)
    faults = []
    if kills:
        text = f"the kernel killed {kills} process{'' if kills == 1 else 'es'} for want of memory"
        evidence = _evidence("/proc/vmstat oom_kill", text, memory.oom_kills, sample.oom_kills)
        kind = FaultClass.HOST_MEMORY_OOM
        faults.append(subject.fault(kind, Severity.WARNING, sample.at, evidence, count=kills))
    if checks:
        text = "processors took machine check exceptions, and the kernel went on"
        change = memory.machine_checks, interrupts.machine_checks
        faults.append(
            _uncorrected(subject, sample.at, _evidence("/proc/interrupts MCE", text, *change))
        )
    if deferred:
        text = "a processor found bad data that nobody has used yet (deferred error)"
        change = memory.deferred, interrupts.deferred
        faults.append(
            _uncorrected(subject, sample.at, _evidence("/proc/interrupts DFR", text, *change))
        )
    memory = replace(
        memory,
        oom_kills=_newest(sample.oom_kills, memory.oom_kills),
        machine_checks=_newest(interrupts.machine_checks, memory.machine_checks),
        deferred=_newest(interrupts.deferred, memory.deferred),
        uncorrected=memory.uncorrected + bool(checks) + bool(deferred),
    )
    return memory, faults


def _uncorrected(subject: Subject, at: float, evidence: Evidence) -> Fault:
    """One: how many processors counted it says nothing of how many errors there were."""
    return subject.fault(FaultClass.HOST_MCE_UNCORRECTED, Severity.ERROR, at, evidence)


def _evidence(source: str, text: str, before: int | None, after: int | None) -> Evidence:
    return Evidence(source=source, text=text, before=str(before), after=str(after))


def _rise(before: int | None, after: int | None) -> int:
    return after - before if before is not None and after is not None and after > before else 0


def _newest(after: int | None, before: int | None) -> int | None:
    return before if after is None else after


def _device(subject: Subject, memory: HostMemory, sample: HostSample) -> Device:
    bad = sum(memory.edac.uncorrected.values())
    wrong = [
        *([f"{bad} uncorrected memory errors in this boot"] if bad else []),
        *(
            [f"{memory.uncorrected} uncorrected processor errors in this boot"]
            if memory.uncorrected
            else []
        ),
    ]
    unknown = [one.trouble for one in sample.disks if one.trouble]
    if sample.memory is None:
        unknown.append("/proc/meminfo cannot be read")
    told = [f"{path} is full" for path, one in memory.disks.items() if one.full_at]
    told += ["the clock is adrift"] if memory.clock.adrift_at else []
    told += ["the clock is off"] if memory.clock.skewed_at else []
    health = Health.UNHEALTHY if wrong else Health.UNKNOWN if unknown else Health.HEALTHY
    return Device(
        name=subject.device,
        kind="host",
        health=health,
        detail="; ".join([*wrong, *unknown, *told]),
        read_at=sample.at,
        counters=_counters(memory, sample),
    )


def _shown(memory: HostMemory, sample: HostSample) -> tuple[int, int]:
    """As shown before, unless it is a step away."""
    available, used = memory.shown
    if (size := sample.memory) is not None:
        now = 100 * size.available_mb // size.total_mb
        available = now if abs(now - available) >= _MEMORY_STEP_PERCENT else available
    if readable := [one.used_percent for one in sample.disks if not one.trouble]:
        now = int(max(readable))
        used = now if abs(now - used) >= _DISK_STEP_PERCENT else used
    return available, used


def _counters(memory: HostMemory, sample: HostSample) -> tuple[tuple[str, int], ...]:
    found: dict[str, int | None] = {}
    available, used = memory.shown
    if sample.memory is not None:
        found["memory_gb"] = round(sample.memory.total_mb / 1024)
        found["memory_available_percent"] = available
    if any(not one.trouble for one in sample.disks):
        found["disk_used_percent"] = used
    if sample.edac is not None:
        places = sample.edac.places.values()
        found["edac_corrected"] = sum(one.corrected for one in places)
        found["edac_uncorrected"] = sum(one.uncorrected for one in places)
    found["oom_kills"] = memory.oom_kills
    found["machine_checks"] = memory.machine_checks
    found["deferred_errors"] = memory.deferred
    synchronised = sample.clock.synchronised
    found["clock_synchronised"] = None if synchronised is None else int(synchronised)
    return tuple((name, value) for name, value in found.items() if value is not None)
