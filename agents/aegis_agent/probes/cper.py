"""Common Platform Error Records (CPER), as the amdgpu driver keeps them: bytes in, findings out.

    record    128 bytes of header, 72 bytes per section descriptor, the sections
    header    "CPER" · sections u16 at 10 · severity u32 at 12 · length u32 at 20 · time at 24
    severity  0 uncorrected, 1 fatal, 2 corrected

What comes in may be anything: records arrive cut off, overwritten and from other writers. What
cannot be read is a finding of its own (AFID 31 to 34), an alarm about collection, and costs none
of what can be read beside it. Nothing here raises.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aegis_agent.probes import cper_sections as sections
from aegis_agent.probes.cper_sections import Finding

HEADER_BYTES, DESCRIPTOR_BYTES = 128, 72
_RING_HEAD_BYTES = 12  # of the ring's file in debugfs: three positions, before the records
SIGNATURE = b"CPER"
_SIGNATURE_END = b"\xff\xff\xff\xff"
_HEADER = struct.Struct("<4sH4sHIII8s16s16s16s16s8sIQ12s")
_DESCRIPTOR = struct.Struct("<IIBBBBI16s16sI20s")
_TIME_VALID = 0x2
_FRU_ID_VALID, _FRU_TEXT_VALID = 0x1, 0x2
_THRESHOLD_FLAG, _DEFERRED_FLAG = 0x8, 0x10
_MI450_REVISION = 0x32  # program generation 2, RAS generation 3; MI300 has 0x22
_DRIVER = "amdgpu"
_SEVERITIES = {0: "uncorrected, non-fatal", 1: "fatal", 2: "corrected"}

_CRASH_DUMP = "32ac0c78-2623-48f6-b0d0-7365725fd6ae"
_NONSTANDARD = "32ac0c78-2623-48f6-81a2-ac691780551d"
_PROCESSOR = "dc3ea0b0-a144-4797-b95b-53fa242b6e1d"
_PCIE = "d995e954-bbc1-430f-ad91-b44dcb3c6f35"
_BOOT = "3d61a466-ab40-409a-a698-f362d464b38f"
_BANK_SECTIONS = frozenset({_CRASH_DUMP, _NONSTANDARD, _PROCESSOR, _BOOT})
_NOTIFICATIONS = {
    "2dce8bb1-bdd7-450e-b9ad-9cf4ebd4f890": "CMC (corrected)",
    "4e292f96-d843-4a55-a8c2-d481f27ebeee": "CPE (corrected platform error)",
    "e8f56ffe-919c-4cc5-ba88-65abe14913bb": "MCE (machine check)",
    "cf93c01f-1a16-4dfc-b8bc-9c4daf67c104": "PCIe",
    _BOOT: "BOOT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CperRecord:
    """One record, as far as it can be read."""

    findings: tuple[Finding, ...]
    digest: str  # of its bytes: two records are one when it is the same
    length: int  # of its bytes
    record_id: str = ""
    severity: str = "unknown"
    at: float | None = None  # when it was written; None: it does not say
    platform: str = ""
    creator: str = ""
    notification: str = ""
    fru_id: str = ""  # which part: a serial or unique id
    fru_text: str = ""  # "OAM3"

    @property
    def has_header(self) -> bool:
        """Whether it is a record at all."""
        return self.severity != "unknown"

    @property
    def afids(self) -> tuple[int, ...]:
        """The number of each finding."""
        return tuple(finding.afid for finding in self.findings)


@dataclass(frozen=True, slots=True)
class _Section:
    offset: int
    length: int
    revision: int
    flags: int
    kind: str
    severity: int
    fru_id: str
    fru_text: str


def decode(data: bytes) -> tuple[CperRecord, ...]:
    """Every record in the bytes, and one for each stretch of bytes that is no record."""
    return tuple(decode_one(stretch) for stretch in _stretches(data))


def digest(data: bytes) -> str:
    """By it a record is known again: two checksums, for nobody wants to deceive us."""
    return f"{zlib.crc32(data):08x}{zlib.adler32(data):08x}"


def _stretches(data: bytes) -> Iterator[bytes]:
    """The bytes cut where records begin and end; zeros at the end are no record."""
    in_debugfs = not _is_header(data, 0) and _is_header(data, _RING_HEAD_BYTES)
    place, last = _RING_HEAD_BYTES if in_debugfs else 0, len(data.rstrip(b"\0"))
    while place < last:
        length = _length(data, place)
        within = HEADER_BYTES <= length <= len(data) - place
        end = place + length if within else _next_header(data, place + 1)
        yield data[place:end]
        place = end


def _length(data: bytes, place: int) -> int:
    """What the header there says of its length; 0 without a header."""
    if not _is_header(data, place) or place + 24 > len(data):
        return 0
    return int.from_bytes(data[place + 20 : place + 24], "little")


def _is_header(data: bytes, place: int) -> bool:
    ends = data[place + 6 : place + 10] == _SIGNATURE_END
    return ends and data[place : place + 4] == SIGNATURE


def _next_header(data: bytes, place: int) -> int:
    while (place := data.find(SIGNATURE, place)) >= 0:
        if _is_header(data, place):
            return place
        place += 1
    return len(data)


def decode_one(data: bytes) -> CperRecord:
    """The bytes as one record, whatever they are."""
    wrong = ""
    if data[:4] != SIGNATURE:
        wrong = f"{len(data)} bytes begin with no CPER signature"
    elif len(data) < HEADER_BYTES:
        wrong = f"the record is cut off within its header, after {len(data)} bytes"
    if wrong:
        return CperRecord(findings=(_malformed(wrong),), digest=digest(data), length=len(data))
    (_, _, end, count, severity, valid, length, when, platform, _, creator, notify, number, *_) = (
        _HEADER.unpack_from(data)
    )
    record = CperRecord(
        findings=(),
        digest=digest(data),
        length=len(data),
        record_id=_text(number),
        severity=_SEVERITIES.get(severity, f"unknown ({severity})"),
        platform=_text(platform),
        creator=_text(creator),
        notification=_NOTIFICATIONS.get(_guid(notify), _guid(notify)),
        at=_time(when, binary=_text(creator).startswith(_DRIVER)) if valid & _TIME_VALID else None,
    )
    findings: list[Finding] = []
    if end != _SIGNATURE_END:
        findings.append(_malformed("the signature's end is not ffffffff"))
    if length != len(data):
        text = f"the record says that it has {length} bytes, and {len(data)} are there"
        findings.append(_malformed(text))
    return _with_sections(record, findings, data, count, length)


def _with_sections(
    record: CperRecord, findings: list[Finding], data: bytes, count: int, said: int
) -> CperRecord:
    fit = min(count, (len(data) - HEADER_BYTES) // DESCRIPTOR_BYTES)
    if fit < count:
        text = f"the record announces {count} sections, and descriptors of {fit} fit into it"
        findings.append(_malformed(text))
    if not count:
        findings.append(Finding(afid=sections.INCOMPLETE, text="the record has no section"))
    described = [_section(data, number) for number in range(fit)]
    taken = HEADER_BYTES + fit * DESCRIPTOR_BYTES  # by the header, the descriptors, sections so far
    for number, section in sorted(enumerate(described), key=lambda pair: pair[1].offset):
        if (wrong := _misplaced(section, taken, len(data))) is not None:
            # What the record was cut off with is told by then.
            if not len(data) < section.offset + section.length <= said:
                findings.append(_malformed(f"section {number} {wrong}"))
            continue
        taken = section.offset + section.length
        body = data[section.offset : taken]
        findings += _findings(section, body, boot=record.notification == _NOTIFICATIONS[_BOOT])
    first = described[0] if described else None
    return replace(
        record,
        findings=tuple(findings),
        fru_id=first.fru_id if first else "",
        fru_text=first.fru_text if first else "",
    )


def _section(data: bytes, number: int) -> _Section:
    offset, length, _, revision, valid, _, flags, kind, fru_id, severity, fru_text = (
        _DESCRIPTOR.unpack_from(data, HEADER_BYTES + number * DESCRIPTOR_BYTES)
    )
    return _Section(
        offset=offset,
        length=length,
        revision=revision,
        flags=flags,
        kind=_guid(kind),
        severity=severity,
        fru_id=_text(fru_id) if valid & _FRU_ID_VALID else "",
        fru_text=_text(fru_text) if valid & _FRU_TEXT_VALID else "",
    )


def _misplaced(section: _Section, taken: int, length: int) -> str | None:
    if not section.length:
        return "is empty"
    if section.offset + section.length > length:
        return f"reaches to byte {section.offset + section.length} of {length}"
    if section.offset < taken:
        return f"begins at byte {section.offset}, inside what ends at {taken}"
    return None


def _findings(section: _Section, body: bytes, *, boot: bool) -> list[Finding]:
    threshold = bool(section.flags & _THRESHOLD_FLAG)
    if section.kind in _BANK_SECTIONS:
        found = sections.banks(
            body,
            threshold=threshold,
            mi450=section.revision == _MI450_REVISION,
            boot=boot or section.kind == _BOOT,
        )
        deferred = bool(section.flags & _DEFERRED_FLAG)
        return [replace(finding, deferred=deferred) for finding in found]
    if section.kind == _PCIE:
        return [sections.pcie(section.severity)]
    text = f"a section of unknown kind {section.kind}"
    return [Finding(afid=sections.UNIDENTIFIED, text=text)]


def _malformed(text: str) -> Finding:
    return Finding(afid=sections.MALFORMED, text=text)


def _text(raw: bytes) -> str:
    text = raw.partition(b"\0")[0].decode("ascii", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text).strip()


def _guid(raw: bytes) -> str:
    first, second, third = struct.unpack_from("<IHH", raw)
    return f"{first:08x}-{second:04x}-{third:04x}-{raw[8:10].hex()}-{raw[10:16].hex()}"


def _time(raw: bytes, *, binary: bool) -> float | None:
    """The specification wants each byte as two decimal digits; the driver writes plain numbers."""
    decimals = [(byte >> 4) * 10 + (byte & 0xF) for byte in raw]
    plain = binary or any(byte & 0xF > 9 or byte >> 4 > 9 for byte in raw)
    second, minute, hour, _, day, month, year, century = raw if plain else decimals
    year += (century or 20) * 100
    if not (1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    return float(_days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)


# Not by `calendar`: with all that it imports it would add a fifth to the memory of the process
# that reads GPUs.


def _days_in(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 28 + leap if month == 2 else 30 + (month in {1, 3, 5, 7, 8, 10, 12})


def _days_since_1970(year: int, month: int, day: int) -> int:
    """A year that begins in March has its leap day at its end."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    leap_days = year // 4 - year // 100 + year // 400
    return 365 * year + leap_days + (153 * month + 2) // 5 + day - 1 - 719468
