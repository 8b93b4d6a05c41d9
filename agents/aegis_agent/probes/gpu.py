"""A GPU's health: what its calls answered, against what they answered before.

    readings      -> counters judged by probes.ecc and probes.pages
    surveys       -> retired pages, and what probes.gpu_survey says
    calls fail    -> unknown; all that ever worked, three times in a row -> gpu.lost
    no answer     -> unknown and gpu.probe.stalled
    not listed    -> gpu.lost
    being reset   -> unknown, whatever fails; then what was counted before the reset is history

NOT_SUPPORTED means both "no such feature" and "gone", so what has worked is remembered. Zero is
not health: the total count answers zeros when nothing could be read, so it never stands alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes import ecc, gpu_survey, gpu_trend, pages
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu_survey import GpuSurvey, SurveyMemory
from aegis_agent.probes.subject import Judgement, Subject
from aegis_agent.probes.trend import Trend

LOST_READINGS = 3  # one failed poll may be a reset under way
# Answers of a GPU that is gone: NOT_SUPPORTED, API_FAILED, IO, NOT_FOUND, UNEXPECTED_SIZE (EIO),
# FILE_NOT_FOUND, UNKNOWN_ERROR (ENODEV). Busy, no permission and the like say nothing of the kind.
_GONE = frozenset({2, 7, 12, 31, 42, 52, 0xFFFFFFFF})
_RESETTING = "it is being reset: nothing can be said until that is over"
_WORDS = {-1: "confused the Python package", -2: "gave no value"}  # instead of a status


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What one poll of one GPU gave."""

    at: float
    ecc: Mapping[str, EccCounts] = field(default_factory=dict)  # by block
    failed: Mapping[str, int] = field(default_factory=dict)  # calls that failed, and their status
    worked: frozenset[str] = frozenset()  # calls that read the hardware and answered
    hung: tuple[str, ...] = ()  # calls left out: they hung or crashed, and have not answered since


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
    survey: SurveyMemory = field(default_factory=SurveyMemory)
    trend: Trend = field(default_factory=Trend)  # of corrected errors and retired pages


def observe(
    subject: Subject, memory: GpuMemory, reading: GpuReading, *, resetting: bool = False
) -> Judgement[GpuMemory]:
    """Judge one reading. `resetting`: the kernel has said that it resets this GPU."""
    if memory.boot_id != subject.boot_id:
        memory = _after_boot(memory, subject.boot_id)
    if not (reading.hung and memory.stalled_at):
        memory = replace(memory, stalled_at=0.0)
    if reading.worked or not memory.worked:
        return _judge_counters(subject, replace(memory, failed_readings=0, lost_at=0.0), reading)
    if resetting:
        return _unknown(subject, memory, _RESETTING, reading.at)
    return _judge_failure(subject, memory, reading)


def surveyed(subject: Subject, memory: GpuMemory, survey: GpuSurvey) -> Judgement[GpuMemory]:
    """Judge one slow look. How the GPU is as a whole follows from the readings between."""
    before, threshold = memory.bad_pages, survey.bad_page_threshold
    if threshold is None:
        threshold = memory.bad_page_threshold
    retired = pages.observe(subject, survey.at, before, survey.bad_pages, threshold)
    memory = replace(
        memory,
        trend=gpu_trend.note(memory.trend, survey.at, ({}, {}), (before, survey.bad_pages)),
        bad_pages=before if survey.bad_pages is None else survey.bad_pages,
        bad_page_threshold=threshold,
    )
    standing = (memory.trend, survey.at, memory.bad_pages, threshold)
    after, faults = gpu_survey.observe(subject, memory.survey, survey)
    memory = replace(memory, survey=after)
    return Judgement(
        memory=memory,
        device=None,
        faults=(*gpu_trend.weigh(retired, *standing), *faults),
        conditions=_lasting(subject, memory),
    )


def silent(
    subject: Subject, memory: GpuMemory, silence: Silence, *, resetting: bool = False
) -> Judgement[GpuMemory]:
    """Judge the absence of a reading."""
    if resetting:
        return _unknown(subject, memory, _RESETTING, silence.at)
    faults: tuple[Fault, ...] = ()
    if silence.stalled and not memory.stalled_at:
        evidence = Evidence(source=silence.source, text=silence.reason)
        memory = replace(memory, stalled_at=silence.at, why=(evidence,))
        faults = (
            subject.fault(FaultClass.GPU_PROBE_STALLED, Severity.ERROR, silence.at, evidence),
        )
    return _unknown(subject, memory, silence.reason, silence.at, faults)


def missing(
    subject: Subject, memory: GpuMemory, at: float, listed: int, *, resetting: bool = False
) -> Judgement[GpuMemory]:
    """Judge a GPU that was there before and that amdsmi no longer lists."""
    if resetting:
        return _unknown(subject, memory, _RESETTING, at)
    text = (
        f"amdsmi lists {listed} GPUs and no longer this one ({subject.identity}); "
        "if it was taken out for good, delete the agent's spool"
    )
    return _lost(subject, memory, at, Evidence(source="amdsmi processor_handles", text=text))


def was_reset(memory: GpuMemory) -> GpuMemory:
    """The reset is over: the errors that led to it are history, though their counters stand.

    Only loading the driver starts them anew; a reset does not.
    """
    accepted = {block: counts.uncorrectable for block, counts in memory.ecc.items()}
    return replace(memory, accepted=accepted, failed_readings=0)


def _after_boot(memory: GpuMemory, boot_id: str) -> GpuMemory:
    """Another boot: all counters started at zero, so what they show now happened since."""
    zeros = {block: EccCounts() for block in memory.ecc} if memory.boot_id else memory.ecc
    return replace(memory, boot_id=boot_id, ecc=zeros, accepted={})


def _judge_counters(
    subject: Subject, memory: GpuMemory, reading: GpuReading
) -> Judgement[GpuMemory]:
    faults = ecc.observe(subject, reading.at, memory.ecc, reading.ecc)
    memory = _remember(memory, reading)
    health, detail = _health(memory, reading)
    standing = (memory.trend, reading.at, memory.bad_pages, memory.bad_page_threshold)
    told = "; ".join(text for text in (detail, gpu_trend.told(*standing)) if text)
    return Judgement(
        memory=memory,
        device=_device(subject, memory, health, told, reading.at),
        faults=gpu_trend.weigh(faults, *standing),
        conditions=_lasting(subject, memory),
    )


def _remember(memory: GpuMemory, reading: GpuReading) -> GpuMemory:
    accepted = dict(memory.accepted)
    for block, counts in reading.ecc.items():
        if block not in memory.ecc:
            accepted[block] = counts.uncorrectable
        elif counts.uncorrectable < memory.ecc[block].uncorrectable:
            accepted[block] = 0
    both = (memory.ecc, reading.ecc)
    return replace(
        memory,
        trend=gpu_trend.note(memory.trend, reading.at, both, (None, None)),
        ecc={**memory.ecc, **reading.ecc},
        accepted=accepted,
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
    if memory.stalled_at:
        return Health.UNKNOWN, f"{memory.why[0].text}; what else there is of it is read"
    return Health.HEALTHY, "; ".join(
        filter(None, (left_out(reading.hung), gpu_survey.told(memory.survey)))
    )


def left_out(hung: Sequence[str]) -> str:
    """What is not known of a GPU that is read otherwise; empty when nothing is left out."""
    if not hung:
        return ""
    return f"not read for now: {', '.join(hung)}, which hung or crashed the process that asks"


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
    return _unknown(subject, memory, detail, reading.at)


def _unknown(
    subject: Subject, memory: GpuMemory, detail: str, at: float, faults: tuple[Fault, ...] = ()
) -> Judgement[GpuMemory]:
    """Nothing was read. What is lost stays so until it is read again."""
    lost = memory.lost_at and not memory.stalled_at
    health = Health.UNHEALTHY if lost else Health.UNKNOWN
    told = memory.why[0].text if lost else detail
    return Judgement(
        memory=memory,
        device=_device(subject, memory, health, told, at),
        faults=faults,
        conditions=_lasting(subject, memory),
    )


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
    return (
        *subject.conditions(memory.why, {FaultClass.GPU_LOST: memory.lost_at}, Severity.FATAL),
        *subject.conditions(memory.why, {FaultClass.GPU_PROBE_STALLED: memory.stalled_at}),
        *gpu_survey.lasting(subject, memory.survey),
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
    told = [
        f"{call} {_WORDS.get(status, f'answered {status}')}"
        for call, status in list(failed.items())[:3]
    ]
    more = len(failed) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
