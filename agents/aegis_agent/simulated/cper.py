"""Error records (CPER) as the amdgpu driver writes them, and a ring of them per simulated GPU.

gpuN/cper     records back to back, and a zero byte
cper_afids    lines "RECORD_ID AFID…": what the library says that a record decodes to
"""

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aegis_agent.probes import cper as decoding
from aegis_agent.simulated.devices import NoSuchDeviceError

HEADER_BYTES, DESCRIPTOR_BYTES = 128, 72
RING_BYTES_MAX = (4 << 20) - 2
_NONFATAL, _FATAL, _CORRECTED = 0, 1, 2
_REVISION_MINOR, _REVISION_MAJOR = 1, 0x22
_PRIMARY, _THRESHOLD, _DEFERRED = 0x1, 0x8, 0x10
_ACA, _BOOT = 1, 9


def guid(text: str) -> bytes:
    """The sixteen bytes of a GUID as UEFI stores it: the first three parts turned round."""
    first, second, third, *rest = text.split("-")
    head = struct.pack("<IHH", int(first, 16), int(second, 16), int(third, 16))
    return head + bytes.fromhex("".join(rest))


CRASH_DUMP = guid("32ac0c78-2623-48f6-b0d0-7365725fd6ae")
NONSTANDARD = guid("32ac0c78-2623-48f6-81a2-ac691780551d")
NOTIFY_CORRECTED = guid("2dce8bb1-bdd7-450e-b9ad-9cf4ebd4f890")
NOTIFY_MACHINE_CHECK = guid("e8f56ffe-919c-4cc5-ba88-65abe14913bb")
NOTIFY_BOOT = guid("3d61a466-ab40-409a-a698-f362d464b38f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section: what its descriptor says, and its bytes."""

    kind: bytes
    body: bytes
    severity: int
    flags: int = _PRIMARY


def crash_dump(status: int, ipid: int, address: int = 0, syndrome: int = 0) -> Section:
    """A fatal error's bank: four registers."""
    registers = struct.pack("<4Q", status, address, ipid, syndrome)
    return Section(kind=CRASH_DUMP, body=_body(_ACA, registers, infos=0), severity=_FATAL)


def runtime(
    status: int, ipid: int, *, severity: int = _CORRECTED, flags: int = _PRIMARY
) -> Section:
    """A bank as it is written while the GPU goes on: sixteen registers."""
    words = [0] * 16
    words[1], words[5] = status, ipid
    registers = struct.pack("<16Q", *words)
    body = _body(_ACA, registers, infos=1)
    return Section(kind=NONSTANDARD, body=body, severity=severity, flags=flags)


def boot(messages: Sequence[int]) -> Section:
    """What each of up to eight modules said when it started."""
    registers = struct.pack("<8Q", *messages, *[0] * (8 - len(messages)))
    return Section(kind=CRASH_DUMP, body=_body(_BOOT, registers, infos=0), severity=_FATAL)


def _body(context: int, registers: bytes, *, infos: int) -> bytes:
    head = struct.pack("<QQ48s64s", infos << 2 | infos << 8, 0, b"", b"")
    return head + struct.pack("<HHIQ", context, len(registers), 0, 0) + registers


def record(
    sections: Sequence[Section],
    *,
    severity: int,
    at: float,
    record_id: str = "0:1",
    fru_id: str = "8bf0c3a100000000",
    notify: bytes | None = None,
) -> bytes:
    """A whole record."""
    place = HEADER_BYTES + DESCRIPTOR_BYTES * len(sections)
    length = place + sum(len(section.body) for section in sections)
    if notify is None:
        notify = NOTIFY_CORRECTED if severity == _CORRECTED else NOTIFY_MACHINE_CHECK
    data = _header(
        sections=len(sections),
        severity=severity,
        at=at,
        length=length,
        record_id=record_id,
        notify=notify,
    )
    for section in sections:
        data += struct.pack(
            "<IIBBBBI16s16sI20s",
            *(place, len(section.body), _REVISION_MINOR, _REVISION_MAJOR, 3, 0, section.flags),
            *(section.kind, fru_id.encode()[:16], section.severity, b"OAM0"),
        )
        place += len(section.body)
    return data + b"".join(section.body for section in sections)


def _header(
    *, sections: int, severity: int, at: float, length: int, record_id: str, notify: bytes
) -> bytes:
    when = time.gmtime(at)
    century, year = divmod(when.tm_year, 100)
    stamp = (when.tm_sec, when.tm_min, when.tm_hour, 0, when.tm_mday, when.tm_mon, year, century)
    return struct.pack(
        "<4sHIHIII8B16s16s16s16s8sIQ12s",
        *(b"CPER", 0x100, 0xFFFFFFFF, sections, severity, 7, length, *stamp),
        *(b"0x1002:0x74A1", b"", b"amdgpu", notify, record_id.encode()[:8], 0, 0, b""),
    )


_VALID = 1 << 63 | 1 << 60  # and "enabled"
_UNCORRECTED, _PCC, _DEFERRED_STATUS = 1 << 61, 1 << 57, 1 << 44
_INSTANCE = 0x36430400
UMC_IPID = 0x96 << 32 | _INSTANCE
XGMI_IPID = 0x50 << 32 | _INSTANCE
SMU_IPID = 1 << 48 | 1 << 32 | _INSTANCE

# What to inject by name: the record's severity and its sections.
KINDS = {
    "fatal": (_FATAL, (crash_dump(_VALID | _UNCORRECTED | _PCC, SMU_IPID),)),
    "xgmi": (_FATAL, (crash_dump(_VALID | _UNCORRECTED | _PCC | 5 << 16, XGMI_IPID),)),
    "uncorrected": (
        _NONFATAL,
        (runtime(_VALID | _UNCORRECTED, UMC_IPID, severity=_NONFATAL),),
    ),
    "deferred": (
        _NONFATAL,
        (
            runtime(
                _VALID | _DEFERRED_STATUS,
                SMU_IPID,
                severity=_NONFATAL,
                flags=_PRIMARY | _DEFERRED,
            ),
        ),
    ),
    "corrected": (_CORRECTED, (runtime(_VALID | 9 << 16, UMC_IPID),)),
    "threshold": (
        _FATAL,
        (
            runtime(
                _VALID | _UNCORRECTED | 0x137,
                0x96 << 32,
                severity=_FATAL,
                flags=_PRIMARY | _THRESHOLD,
            ),
        ),
    ),
    "boot": (_FATAL, (boot([0xBA, 0x26A4]),)),
}
GARBAGE = "garbage"


def inject(
    folder: Path,
    gpu: int,
    kind: str,
    *,
    age_seconds: float = 0.0,
    afids: Sequence[int] | None = None,
) -> None:
    """Append a record to the GPU's ring; `afids` is what the library will say of it."""
    place = folder / f"gpu{gpu}"
    if not place.is_dir():
        raise NoSuchDeviceError(f"{folder} has no gpu{gpu}")
    ring_file, afid_file = place / "cper", folder / "cper_afids"
    ring = ring_file.read_bytes()[:-1] if ring_file.exists() else b""
    record_id = f"{gpu}:{ring.count(decoding.SIGNATURE) + 1:X}"
    data = _injected(kind, time.time() - age_seconds, record_id)
    if len(ring) + len(data) > RING_BYTES_MAX:
        raise NoSuchDeviceError(f"the ring of gpu{gpu} is full; delete {ring_file}")
    if afids is None and kind != GARBAGE:
        (decoded,) = decoding.decode(data)
        afids = decoded.afids
    if afids is not None:
        lines = afid_file.read_text() if afid_file.exists() else ""
        _put(afid_file, f"{lines}{record_id} {' '.join(map(str, afids))}\n".encode())
    _put(ring_file, ring + data + b"\0")


def _injected(kind: str, at: float, record_id: str) -> bytes:
    if kind == GARBAGE:
        severity, sections = KINDS["fatal"]
        good = record(sections, severity=severity, at=at, record_id=record_id)
        # A header that can be found, over sections that are none.
        return good[:HEADER_BYTES] + b"\xde\xad\xbe\xef" * ((len(good) - HEADER_BYTES) // 4)
    severity, sections = KINDS[kind]
    notify = NOTIFY_BOOT if kind == "boot" else None
    return record(sections, severity=severity, at=at, record_id=record_id, notify=notify)


def _put(path: Path, content: bytes) -> None:
    """Renamed into place, so that no reader sees half a file."""
    staged = path.with_name(f".{path.name}.new")
    staged.write_bytes(content)
    staged.replace(path)
