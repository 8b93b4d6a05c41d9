"""An NVIDIA GPU's health: what NVML answered, against what it answered before.

    readings      -> errors per location, retired pages and remapped rows, throttling, NVLink
    GPU_IS_LOST   -> gpu.lost at once: NVML says so itself; so it does when a reset is required
    calls fail    -> unknown; all that ever worked, three times in a row -> gpu.lost
    no answer     -> unknown and gpu.probe.stalled
    not listed    -> gpu.lost; never listed, though the bus has it -> gpu.init.failed

Errors are counted twice: since the driver's load, and ever. The first restart with a reset; what
the second has more was missed meanwhile. A call that never worked is a feature that the GPU lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes import ecc, gpu_trend, lasting, nvidia_parts
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import left_out
from aegis_agent.probes.kernel.nvidia import describe
from aegis_agent.probes.lasting import Cause, Lasting
from aegis_agent.probes.nvidia_parts import Link, Retired
from aegis_agent.probes.subject import Judgement, Subject
from aegis_agent.probes.trend import Trend

LOST_READINGS = 3  # one failed poll may be a reset under way
GPU_IS_LOST, RESET_REQUIRED = 15, 16
_SAID_LOST: Mapping[int, str] = {
    GPU_IS_LOST: "NVML says that the GPU is lost: it has fallen off the bus or is not accessible",
    RESET_REQUIRED: "NVML says that the GPU must be reset before it can be used again",
}
_CALL = "NVML memory_error_counter"
_LOST, _STALLED, _ABSENT = "lost", "stalled", "absent"
_WITHOUT_READING = frozenset({_LOST, _STALLED, _ABSENT})  # over once the GPU is read


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaReading:
    """What one poll of one GPU gave. None: not asked this time, or no answer."""

    at: float
    errors: Mapping[str, EccCounts] = field(default_factory=dict)  # by location, since driver load
    uncorrectable_ever: int | None = None  # over the GPU's life
    retired: Retired | None = None
    clocks_event_reasons: int | None = None
    recovery_action: int | None = None  # what the driver wants done: 0 nothing
    links: Mapping[int, Link] | None = None
    sensors: Mapping[str, int] = field(default_factory=dict)  # temperature, PCIe link, …
    failed: Mapping[str, int] = field(default_factory=dict)  # calls that failed, and their status
    worked: frozenset[str] = frozenset()  # calls that read the hardware and answered
    hung: tuple[str, ...] = ()  # calls left out: they hung or crashed, and have not answered since


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaSilence:
    """Why a GPU was not read."""

    at: float
    reason: str  # one sentence
    stalled: bool = False  # a call is past its deadline, or its process keeps dying in it
    status: int = 0  # of NVML, where one was answered
    source: str = "NVML"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaMemory:
    """What is remembered of a GPU between samples and over restarts of the agent."""

    name: str  # stays with the GPU whatever index it gets
    boot_id: str = ""
    errors: Mapping[str, EccCounts] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)  # uncorrectable, at first sight
    uncorrectable_ever: int | None = None
    retired: Retired | None = None
    links: Mapping[int, Link] = field(default_factory=dict)
    worked: frozenset[str] = frozenset()
    failed_readings: int = 0  # in a row
    standing: Mapping[str, Lasting] = field(default_factory=dict)
    trend: Trend = field(default_factory=Trend)  # of corrected errors, pages and rows


def observe(
    subject: Subject, memory: NvidiaMemory, reading: NvidiaReading
) -> Judgement[NvidiaMemory]:
    """Judge one reading."""
    for status in (GPU_IS_LOST, RESET_REQUIRED):
        if status in reading.failed.values():
            return _lost(subject, memory, reading.at, _SAID_LOST[status])
    if reading.worked or not memory.worked:
        return _judge(subject, _read_again(memory, reading), reading)
    memory = replace(memory, failed_readings=min(memory.failed_readings + 1, LOST_READINGS))
    told = _told(reading.failed)
    if _LOST in memory.standing or memory.failed_readings >= LOST_READINGS:
        text = f"all {len(memory.worked)} calls that read this GPU before now fail ({told})"
        return _lost(subject, memory, reading.at, text)
    return _unknown(subject, memory, f"nothing can be read any more: {told}", reading.at)


def silent(
    subject: Subject, memory: NvidiaMemory, silence: NvidiaSilence
) -> Judgement[NvidiaMemory]:
    """Judge the absence of a reading."""
    if silence.status in _SAID_LOST:
        return _lost(subject, memory, silence.at, _SAID_LOST[silence.status])
    faults: tuple[Fault, ...] = ()
    if silence.stalled:
        cause = Cause(
            name=_STALLED,
            fault_class=FaultClass.GPU_PROBE_STALLED,
            severity=Severity.ERROR,
            present=True,
            source=silence.source,
            text=silence.reason,
        )
        standing, faults = lasting.hold(subject, memory.standing, silence.at, cause)
        memory = replace(memory, standing=standing)
    return _unknown(subject, memory, silence.reason, silence.at, faults)


def missing(
    subject: Subject, memory: NvidiaMemory, at: float, listed: int
) -> Judgement[NvidiaMemory]:
    """Judge a GPU that was there before and that NVML no longer lists."""
    if _ABSENT in memory.standing:
        return absent(subject, memory, at)
    text = (
        f"NVML lists {listed} GPUs and no longer this one ({subject.identity}); "
        "if it was taken out for good, delete the agent's spool"
    )
    return _lost(subject, memory, at, text)


def absent(subject: Subject, memory: NvidiaMemory, at: float) -> Judgement[NvidiaMemory]:
    """Judge a GPU that is on the PCI bus, with NVIDIA's driver, and that NVML never listed."""
    cause = Cause(
        name=_ABSENT,
        fault_class=FaultClass.GPU_INIT_FAILED,
        severity=Severity.FATAL,
        present=True,
        source="sysfs and NVML",
        text="it is on the PCI bus and has NVIDIA's driver, but NVML does not list it: "
        "the driver could not start it",
    )
    standing, faults = lasting.hold(subject, memory.standing, at, cause)
    return _unknown(subject, replace(memory, standing=standing), cause.text, at, faults)


def xid(subject: Subject, at: float, number: int) -> Fault:
    """The fault of an Xid that NVML told of. The kernel log says the same and more."""
    known = describe(number)
    evidence = Evidence(source="NVML event", text=f"Xid {number}: {known.meaning}")
    details = {"xid": str(number), "meaning": known.meaning, "action": known.action}
    if known.by_application:
        details["by"] = "application"
    return subject.fault(known.fault_class, known.severity, at, evidence, details=details)


def _read_again(memory: NvidiaMemory, reading: NvidiaReading) -> NvidiaMemory:
    """It is there. A call that hung before and is left out has not come back with it."""
    over = _WITHOUT_READING - {_STALLED} if reading.hung else _WITHOUT_READING
    standing = {name: found for name, found in memory.standing.items() if name not in over}
    return replace(memory, failed_readings=0, standing=standing)


def _judge(
    subject: Subject, memory: NvidiaMemory, reading: NvidiaReading
) -> Judgement[NvidiaMemory]:
    booted = bool(memory.boot_id) and memory.boot_id != subject.boot_id
    before = memory
    if booted:  # all that is counted since the driver's load started at zero
        zeros = {location: EccCounts() for location in memory.errors}
        before = replace(memory, errors=zeros, accepted={})
    errors = ecc.observe(subject, reading.at, before.errors, reading.errors, call=_CALL)
    missed = _missed(subject, before, reading, booted=booted)
    after = _remember(replace(before, boot_id=subject.boot_id), reading)
    parts = nvidia_parts.observe(subject, reading.at, before.retired, reading.retired)
    links = nvidia_parts.observe_links(subject, reading.at, before.links, reading.links or {})
    standing, begun = lasting.hold(
        subject,
        after.standing,
        reading.at,
        *nvidia_parts.causes(reading.retired),
        *nvidia_parts.link_causes(before.links, reading.links or {}),
        *nvidia_parts.state_causes(reading.clocks_event_reasons, reading.recovery_action),
    )
    if parts:  # a row that is newly remapped waits for a reset: one event, told once
        begun = tuple(fault for fault in begun if fault.fault_class is not parts[0].fault_class)
    after = replace(after, standing=standing)
    health, detail = _health(after, reading)
    trend = (after.trend, reading.at, _replaced(after.retired), None)
    told = "; ".join(text for text in (detail, gpu_trend.told(*trend)) if text)
    return Judgement(
        memory=after,
        device=_device(subject, after, health, told, reading),
        faults=gpu_trend.weigh((*missed, *errors, *parts, *links, *begun), *trend),
        conditions=lasting.conditions(subject, standing),
    )


def _missed(
    subject: Subject, before: NvidiaMemory, reading: NvidiaReading, *, booted: bool
) -> tuple[Fault, ...]:
    """Errors before a restart of the counters, which only the count over the GPU's life shows."""
    ever = (before.uncorrectable_ever, reading.uncorrectable_ever)
    now = sum(counts.uncorrectable for counts in reading.errors.values())
    known = sum(counts.uncorrectable for counts in before.errors.values())
    if ever[0] is None or ever[1] is None or not (booted or now < known):
        return ()
    count = ever[1] - ever[0] - now
    if count <= 0:
        return ()
    evidence = Evidence(
        source="NVML field_values",
        text=f"uncorrectable errors over the GPU's life rose from {ever[0]} to {ever[1]}, and only "
        f"{now} of them came since its driver was loaded: {count} came before and were not seen",
        before=str(ever[0]),
        after=str(ever[1]),
    )
    kind = FaultClass.GPU_ECC_UNCORRECTABLE
    return (subject.fault(kind, Severity.ERROR, reading.at, evidence, count=count),)


def _remember(memory: NvidiaMemory, reading: NvidiaReading) -> NvidiaMemory:
    accepted = dict(memory.accepted)
    for location, counts in reading.errors.items():
        if location not in memory.errors:
            accepted[location] = counts.uncorrectable
        elif counts.uncorrectable < memory.errors[location].uncorrectable:
            accepted[location] = 0
    ever, retired = reading.uncorrectable_ever, reading.retired or memory.retired
    replaced = (_replaced(memory.retired), _replaced(reading.retired))
    return replace(
        memory,
        trend=gpu_trend.note(memory.trend, reading.at, (memory.errors, reading.errors), replaced),
        errors={**memory.errors, **reading.errors},
        accepted=accepted,
        uncorrectable_ever=memory.uncorrectable_ever if ever is None else ever,
        retired=retired,
        links={**memory.links, **nvidia_parts.remembered(memory.links, reading.links or {})},
        worked=memory.worked | reading.worked,
    )


def _health(memory: NvidiaMemory, reading: NvidiaReading) -> tuple[Health, str]:
    if errors := ecc.unforgiven(memory.errors, memory.accepted):
        told = ", ".join(f"{count} in {name.upper()}" for name, count in errors.items())
        remedy = "a reset or a driver reload starts the count anew"
        return Health.UNHEALTHY, f"uncorrectable errors: {told}; {remedy}"
    if grave := [
        found.evidence.text
        for name, found in memory.standing.items()
        if found.severity is not Severity.WARNING and name != _STALLED
    ]:
        return Health.UNHEALTHY, grave[0]
    if _STALLED in memory.standing:
        text = memory.standing[_STALLED].evidence.text
        return Health.UNKNOWN, f"{text}; what else there is of it is read"
    blind = {call: status for call, status in reading.failed.items() if call in memory.worked}
    if blind:
        return Health.UNKNOWN, f"cannot be read any more: {_told(blind)}"
    if not reading.worked:
        return Health.UNKNOWN, f"nothing can be read: {_told(reading.failed)}"
    lasting_texts = (found.evidence.text for found in memory.standing.values())
    return Health.HEALTHY, "; ".join(filter(None, (left_out(reading.hung), *lasting_texts)))


def _unknown(
    subject: Subject,
    memory: NvidiaMemory,
    detail: str,
    at: float,
    faults: tuple[Fault, ...] = (),
) -> Judgement[NvidiaMemory]:
    """Nothing was read. What is lost stays so until it is read again."""
    lost = memory.standing.get(_LOST) or memory.standing.get(_ABSENT)
    stands = lost is not None and _STALLED not in memory.standing
    health = Health.UNHEALTHY if stands else Health.UNKNOWN
    told = lost.evidence.text if lost is not None and stands else detail
    return Judgement(
        memory=memory,
        device=_device(subject, memory, health, told, NvidiaReading(at=at)),
        faults=faults,
        conditions=lasting.conditions(subject, memory.standing),
    )


def _lost(subject: Subject, memory: NvidiaMemory, at: float, text: str) -> Judgement[NvidiaMemory]:
    cause = Cause(
        name=_LOST,
        fault_class=FaultClass.GPU_LOST,
        severity=Severity.FATAL,
        present=True,
        source="NVML",
        text=text,
    )
    standing = {name: found for name, found in memory.standing.items() if name != _STALLED}
    standing, faults = lasting.hold(subject, standing, at, cause)
    memory = replace(memory, standing=standing)
    return _unknown(subject, memory, text, at, faults)


def _replaced(retired: Retired | None) -> int | None:
    return None if retired is None else retired.replaced


def _device(
    subject: Subject, memory: NvidiaMemory, health: Health, detail: str, reading: NvidiaReading
) -> Device:
    counts = memory.errors.values()
    counters = {
        "ecc_correctable": sum(count.correctable for count in counts),
        "ecc_uncorrectable": sum(count.uncorrectable for count in counts),
        "bad_pages": _replaced(memory.retired) or 0,
        "nvlink_errors": sum(link.errors for link in memory.links.values()),
    }
    return Device(
        name=subject.device,
        kind="gpu",
        health=health,
        detail=detail,
        identity=subject.identity,
        read_at=reading.at,
        counters=(*counters.items(), *reading.sensors.items()) if reading.worked else (),
    )


def _told(failed: Mapping[str, int]) -> str:
    """The failed calls in words, the first few of them."""
    told = [f"{call} answered {status}" for call, status in list(failed.items())[:3]]
    more = len(failed) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
