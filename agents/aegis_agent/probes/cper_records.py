"""Error records of a GPU (CPER) become faults, each once.

record   told once, though it stays in the driver's ring and is read anew after each restart
time     older than an hour, or of another boot: counted, no fault. Such records flagged GPUs
         that had been well for days. Without a time it is told as a record, and no more
number   the library's, if it means something; else our own. Seen: 2**64-1, and empty lists
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.afid import describe, meaning_of
from aegis_agent.probes.afid_table import AFIDS, Afid
from aegis_agent.probes.cper import CperRecord
from aegis_agent.probes.cper_sections import UNIDENTIFIED, Finding
from aegis_agent.probes.subject import Judgement, Subject

SOURCE = "amdsmi gpu_cper_entries"
FRESH_SECONDS = 3600.0
LIBRARY_AFIDS_MAX = 12  # that it gives of one record
_CLOCK_SECONDS = 60.0  # a record may be this much ahead of the agent's clock
_BOOT_SECONDS = 2.0  # both times are rounded
_REMEMBERED_MAX = 64
_WORST_FIRST = (Severity.FATAL, Severity.ERROR, Severity.WARNING, Severity.INFO)
_COLLECTION = range(31, 35)  # numbers that say: the record could not be read


class Age(StrEnum):
    """Whether a record may speak of the GPU as it is."""

    FRESH = "fresh"
    STALE = "stale"
    ANOTHER_BOOT = "of another boot"
    UNDATED = "undated"


TOLD_AGES = frozenset({Age.FRESH, Age.UNDATED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CperReading:
    """One record, folded."""

    at: float  # when it was read
    booted_at: float
    record: CperRecord
    note: str = ""  # where the library's decoder and ours differ


@dataclass(frozen=True, slots=True, kw_only=True)
class CperMemory:
    """Which records of a GPU were told: those of the last hour, by digest."""

    told: tuple[tuple[float, str], ...] = ()  # when written, digest; the newest last
    told_until: float = 0.0  # what is older was told, or is too old to be
    undated: tuple[str, ...] = ()  # digests of those told without a time


def age(written_at: float | None, at: float, booted_at: float) -> Age:
    """Judge a record by its time alone."""
    if written_at is None:
        return Age.UNDATED
    if written_at < booted_at - _BOOT_SECONDS:
        return Age.ANOTHER_BOOT
    if at - written_at > FRESH_SECONDS:
        return Age.STALE
    # Far ahead of the clock: one of the two clocks is wrong, so nothing is known of its age.
    return Age.FRESH if written_at - at <= _CLOCK_SECONDS else Age.UNDATED


def observe(subject: Subject, memory: CperMemory, reading: CperReading) -> Judgement[CperMemory]:
    """Judge one record. The GPU as a whole is another probe's."""
    record = reading.record
    known = age(record.at, reading.at, reading.booted_at)
    if known not in TOLD_AGES or _was_told(memory, record, known):
        return Judgement(memory=memory, device=None)
    faults = _faults(subject, reading, dated=known is Age.FRESH)
    return Judgement(memory=_remember(memory, reading, known), device=None, faults=faults)


def _was_told(memory: CperMemory, record: CperRecord, known: Age) -> bool:
    if known is Age.UNDATED or record.at is None:
        return record.digest in memory.undated
    return record.at < memory.told_until or (record.at, record.digest) in memory.told


def _remember(memory: CperMemory, reading: CperReading, known: Age) -> CperMemory:
    record = reading.record
    if known is Age.UNDATED or record.at is None:
        undated = (*memory.undated, record.digest)[-_REMEMBERED_MAX:]
        return replace(memory, undated=undated)
    told = sorted([*memory.told, (record.at, record.digest)])
    fresh = [entry for entry in told if reading.at - entry[0] <= FRESH_SECONDS]
    kept = fresh[-_REMEMBERED_MAX:]
    dropped = [written_at for written_at, _ in told[: len(told) - len(kept)]]
    until = max([memory.told_until, *dropped])
    return replace(memory, told=tuple(kept), told_until=until)


def fold(record: CperRecord, library: Sequence[int]) -> tuple[CperRecord, str]:
    """The record with the numbers that are believed, and a note where two decoders differ.

    A record may hold a bank a hundred times: findings that are alike are told as one.
    """
    own = record.findings
    numbers = [finding.afid for finding in own]
    # The library has no room for more.
    paired = len(library) == len(own) or len(own) > len(library) == LIBRARY_AFIDS_MAX
    if paired:
        believed = (_believed(*pair) for pair in zip(library, numbers, strict=False))
        numbers[: len(library)] = believed
    folded: dict[tuple[object, ...], Finding] = {}
    for finding, number in zip(own, numbers, strict=True):
        key = (number, *_alike(finding))
        known = folded.get(key)
        count = finding.count + (known.count if known else 0)
        folded[key] = replace(known or finding, afid=number, count=count)
    return replace(record, findings=tuple(folded.values())), _difference(own, library)


def _alike(finding: Finding) -> tuple[object, ...]:
    bank = finding.bank
    if bank is None:
        return (finding.text,)
    return bank.error, bank.severity, bank.is_poison, bank.is_deferred


def _believed(library: int, own: int) -> int:
    """The library may know newer hardware; a number that says nothing is worth less than ours."""
    return own if describe(library) is None or library in _COLLECTION else library


def _difference(own: Sequence[Finding], library: Sequence[int]) -> str:
    ours = [finding.afid for finding in own]
    if list(library) == ours[: LIBRARY_AFIDS_MAX if library else None]:
        return ""
    said = ", ".join(map(str, library)) if library else "nothing"
    ours_shown = ", ".join(map(str, ours[:LIBRARY_AFIDS_MAX]))
    return f"the library decodes it as {said}, our own decoder as {ours_shown}"


def _faults(subject: Subject, reading: CperReading, *, dated: bool) -> tuple[Fault, ...]:
    found = reading.record.findings
    faults = (_fault(subject, reading, finding, dated=dated) for finding in found)
    return tuple(sorted(faults, key=lambda fault: _WORST_FIRST.index(fault.severity)))


def _fault(subject: Subject, reading: CperReading, finding: Finding, *, dated: bool) -> Fault:
    row = describe(finding.afid) or AFIDS[UNIDENTIFIED]
    fault_class, severity = meaning_of(finding.afid, finding.bank)
    if not dated:
        fault_class, severity = FaultClass.GPU_RAS_RECORD, Severity.WARNING
    service = f"AMD service action {row.condition}" if row.condition else "AMD service action"
    return subject.fault(
        fault_class,
        severity,
        reading.at,
        Evidence(source=SOURCE, text=_text(reading, finding, row, dated=dated)),
        Evidence(source=service, text=row.action),
        count=finding.count,
        details=_details(subject, reading, finding, row),
    )


def _text(reading: CperReading, finding: Finding, row: Afid, *, dated: bool) -> str:
    record = reading.record
    name = f"error record {record.record_id}" if record.record_id else "an error record"
    written = "whose time says nothing, so nothing is done about it"
    if dated and record.at is not None:
        written = f"written {max(0.0, reading.at - record.at):.0f} s before it was read"
    text = f"{name} ({record.severity}), {written}: {finding.text}; "
    text += f"AFID {finding.afid}: {row.meaning}"
    return f"{text} ({reading.note})" if reading.note else text


def _details(
    subject: Subject, reading: CperReading, finding: Finding, row: Afid
) -> Mapping[str, str]:
    record, bank = reading.record, finding.bank
    details = {
        "afid": str(finding.afid),
        "afid_type": f"{row.kind}, {row.afid_severity}",
        "block": bank.name if bank else "",
        "error": bank.error if bank else "",
        "status": f"{bank.status:#018x}" if bank else "",
        "ipid": f"{bank.ipid:#018x}" if bank else "",
        "address": f"{finding.address:#x}" if finding.address else "",
        "syndrome": f"{finding.syndrome:#x}" if finding.syndrome else "",
        "record": record.record_id,
        "part": " ".join(word for word in (record.fru_text, record.fru_id) if word),
        "serial": subject.identity.rpartition(" ")[2],
        "physical_action_first": "yes" if row.physical_action_first else "",
        "decoders_differ": reading.note,
    }
    return {name: text for name, text in details.items() if text}
