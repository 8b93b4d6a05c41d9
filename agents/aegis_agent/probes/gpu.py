"""A GPU's health: what its calls answered, against what they answered before.

    readings      -> counters judged by probes.ecc and probes.pages
    calls fail    -> unknown; all that ever worked, three times in a row -> gpu.lost
    no answer     -> unknown and gpu.probe.stalled
    not listed    -> gpu.lost

NOT_SUPPORTED means both "no such feature" and "gone", so what has worked is remembered. Zero is
not health: the total count answers zeros when nothing could be read, so it never stands alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes import ecc, gpu_trend, pages
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.subject import Judgement, Subject
from aegis_agent.probes.trend import Trend

LOST_READINGS = 3  # one failed poll may be a reset under way
# Answers of a GPU that is gone: NOT_SUPPORTED, API_FAILED, IO, NOT_FOUND, UNEXPECTED_SIZE (EIO),
# FILE_NOT_FOUND, UNKNOWN_ERROR (ENODEV). Busy, no permission and the like say nothing of the kind.
_GONE = frozenset({2, 7, 12, 31, 42, 52, 0xFFFFFFFF})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What one poll of one GPU gave."""

    at: float
    ecc: Mapping[str, EccCounts] = field(default_factory=dict)  # by block
    failed: Mapping[str, int] = field(default_factory=dict)  # calls that failed, and their status
    worked: frozenset[str] = frozenset()  # calls that read the hardware and answered
    bad_pages: int | None = None  # None: not asked this time, or no answer
    bad_page_threshold: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Why a GPU was not read."""

    at: float
    reason: str  # one sentence
    stalled: bool = False  # a call is past its deadline, or its process keeps dying in it
    source: str = "amdsmi"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """What is remembered of a GPU between samples and over restarts of the agent."""

    name: str  # stays with the GPU whatever index it gets
    simulated: bool = False
    boot_id: str = ""
    ecc: Mapping[str, EccCounts] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)  # uncorrectable, at first sight
    bad_pages: int | None = None
    bad_page_threshold: int | None = None
    worked: frozenset[str] = frozenset()
    failed_readings: int = 0  # in a row
    lost_at: float = 0.0
    stalled_at: float = 0.0
    why: tuple[Evidence, ...] = ()  # of what lasts: lost or stalled
    trend: Trend = field(default_factory=Trend)  # of corrected errors and retired pages


def observe(subject: Subject, memory: GpuMemory, reading: GpuReading) -> Judgement[GpuMemory]:
    """Judge one reading."""
    if memory.boot_id != subject.boot_id:
        memory = _after_boot(memory, subject.boot_id)
    memory = replace(memory, stalled_at=0.0)
    if reading.worked or not memory.worked:
        return _judge_counters(subject, replace(memory, failed_readings=0, lost_at=0.0), reading)
    return _judge_failure(subject, memory, reading)


def silent(subject: Subject, memory: GpuMemory, silence: Silence) -> Judgement[GpuMemory]:
    """Judge the absence of a reading."""
    faults: tuple[Fault, ...] = ()
    if silence.stalled and not memory.stalled_at:
        evidence = Evidence(source=silence.source, text=silence.reason)
        memory = replace(memory, stalled_at=silence.at, why=(evidence,))
        faults = (
            subject.fault(FaultClass.GPU_PROBE_STALLED, Severity.ERROR, silence.at, evidence),
        )
    device = _device(subject, memory, Health.UNKNOWN, silence.reason, silence.at)
    return Judgement(
        memory=memory, device=device, faults=faults, conditions=_lasting(subject, memory)
    )


def missing(subject: Subject, memory: GpuMemory, at: float, listed: int) -> Judgement[GpuMemory]:
    """Judge a GPU that was there before and that amdsmi no longer lists."""
    text = (
        f"amdsmi lists {listed} GPUs and no longer this one ({subject.identity}); "
        "if it was taken out for good, delete the agent's spool"
    )
    return _lost(subject, memory, at, Evidence(source="amdsmi processor_handles", text=text))


def name_gpus(known: Mapping[str, str], listed: Sequence[str]) -> dict[str, str]:
    """A name for each listed identity: the one it had, or that of the GPU it replaces in its slot.

    Numbers shift when a GPU disappears, so a number once given stays with its GPU.
    """
    by_slot = {_slot(identity): name for identity, name in known.items() if identity not in listed}
    names = {identity: known[identity] for identity in listed if identity in known}
    taken = set(known.values())
    for index, identity in enumerate(listed):
        if identity in names:
            continue
        free = (f"gpu{number}" for number in (index, *range(len(listed) + len(known) + 1)))
        name = by_slot.get(_slot(identity)) or next(name for name in free if name not in taken)
        names[identity] = name
        taken.add(name)
    return names


def replaced(known: Sequence[str], listed: Sequence[str]) -> list[str]:
    """Known GPUs whose slot now holds another one."""
    slots = {_slot(identity) for identity in listed}
    return [identity for identity in known if identity not in listed and _slot(identity) in slots]


def _slot(identity: str) -> str:
    return identity.split(" ", 1)[0]  # "BDF UUID serial"


def _after_boot(memory: GpuMemory, boot_id: str) -> GpuMemory:
    """Another boot: all counters started at zero, so what they show now happened since."""
    zeros = {block: EccCounts() for block in memory.ecc} if memory.boot_id else memory.ecc
    return replace(memory, boot_id=boot_id, ecc=zeros, accepted={})


def _judge_counters(
    subject: Subject, memory: GpuMemory, reading: GpuReading
) -> Judgement[GpuMemory]:
    faults = (
        *ecc.observe(subject, reading.at, memory.ecc, reading.ecc),
        *pages.observe(
            subject,
            reading.at,
            memory.bad_pages,
            reading.bad_pages,
            reading.bad_page_threshold,
        ),
    )
    memory = _remember(memory, reading)
    health, detail = _health(memory, reading)
    standing = (memory.trend, reading.at, memory.bad_pages, memory.bad_page_threshold)
    told = "; ".join(text for text in (detail, gpu_trend.told(*standing)) if text)
    device = _device(subject, memory, health, told, reading.at)
    return Judgement(memory=memory, device=device, faults=gpu_trend.weigh(faults, *standing))


def _remember(memory: GpuMemory, reading: GpuReading) -> GpuMemory:
    accepted = dict(memory.accepted)
    for block, counts in reading.ecc.items():
        if block not in memory.ecc:
            accepted[block] = counts.uncorrectable
        elif counts.uncorrectable < memory.ecc[block].uncorrectable:
            accepted[block] = 0
    threshold = reading.bad_page_threshold
    pages_before_and_after = (memory.bad_pages, reading.bad_pages)
    return replace(
        memory,
        trend=gpu_trend.note(
            memory.trend, reading.at, (memory.ecc, reading.ecc), pages_before_and_after
        ),
        ecc={**memory.ecc, **reading.ecc},
        accepted=accepted,
        bad_pages=memory.bad_pages if reading.bad_pages is None else reading.bad_pages,
        bad_page_threshold=memory.bad_page_threshold if threshold is None else threshold,
        worked=memory.worked | reading.worked,
    )


def _health(memory: GpuMemory, reading: GpuReading) -> tuple[Health, str]:
    if errors := ecc.unforgiven(memory.ecc, memory.accepted):
        told = ", ".join(f"{count} in {block.upper()}" for block, count in errors.items())
        remedy = "a reset or a driver reload starts the count anew"
        return Health.UNHEALTHY, f"uncorrectable errors: {told}; {remedy}"
    if pages.is_exceeded(memory.bad_pages, memory.bad_page_threshold):
        told = f"{memory.bad_pages} retired memory pages, threshold {memory.bad_page_threshold}"
        return Health.UNHEALTHY, f"{told}: replace it"
    blind = {call: status for call, status in reading.failed.items() if call in memory.worked}
    if blind:
        return Health.UNKNOWN, f"cannot be read any more: {_told(blind)}"
    if not reading.ecc:
        return Health.UNKNOWN, f"no error counter can be read: {_told(reading.failed)}"
    return Health.HEALTHY, ""


def _judge_failure(
    subject: Subject, memory: GpuMemory, reading: GpuReading
) -> Judgement[GpuMemory]:
    """No call that worked before works now."""
    memory = replace(memory, failed_readings=min(memory.failed_readings + 1, LOST_READINGS))
    gone = all(status in _GONE for status in reading.failed.values())
    if memory.lost_at or (gone and memory.failed_readings >= LOST_READINGS):
        evidence = Evidence(
            source="amdsmi",
            text=f"all {len(memory.worked)} calls that read this GPU before now fail "
            f"({_told(reading.failed)}), though its identity still answers from a cache",
        )
        return _lost(subject, memory, reading.at, evidence)
    detail = f"nothing can be read any more: {_told(reading.failed)}"
    device = _device(subject, memory, Health.UNKNOWN, detail, reading.at)
    return Judgement(memory=memory, device=device)


def _lost(
    subject: Subject, memory: GpuMemory, at: float, evidence: Evidence
) -> Judgement[GpuMemory]:
    faults: tuple[Fault, ...] = ()
    if not memory.lost_at:
        memory = replace(memory, lost_at=at, why=(evidence,))
        faults = (subject.fault(FaultClass.GPU_LOST, Severity.FATAL, at, evidence),)
    device = _device(subject, memory, Health.UNHEALTHY, memory.why[0].text, at)
    return Judgement(
        memory=memory, device=device, faults=faults, conditions=_lasting(subject, memory)
    )


def _lasting(subject: Subject, memory: GpuMemory) -> tuple[Condition, ...]:
    return subject.conditions(
        memory.why,
        {
            FaultClass.GPU_LOST: memory.lost_at,
            FaultClass.GPU_PROBE_STALLED: memory.stalled_at,
        },
    )


def _device(subject: Subject, memory: GpuMemory, health: Health, detail: str, at: float) -> Device:
    counts = memory.ecc.values()
    counters = (
        ("ecc_correctable", sum(count.correctable for count in counts)),
        ("ecc_uncorrectable", sum(count.uncorrectable for count in counts)),
        ("ecc_deferred", sum(count.deferred for count in counts)),
        ("bad_pages", memory.bad_pages or 0),
    )
    return Device(
        name=subject.device,
        kind="gpu",
        health=health,
        detail=detail,
        identity=subject.identity,
        read_at=at,
        counters=counters if memory.ecc else (),
    )


def _told(failed: Mapping[str, int]) -> str:
    """The failed calls in words, the first few of them."""
    told = [f"{call} answered {status}" for call, status in list(failed.items())[:3]]
    more = len(failed) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
