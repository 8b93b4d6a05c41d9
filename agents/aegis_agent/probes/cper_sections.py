"""The body of a CPER section: the registers of ACA banks, the messages of a GPU's start, PCIe.

    64 bytes   valid bits (2–7: how many error infos, 8–13: how many contexts), …, firmware id
    64 bytes   each error info; a place for one is always there
    16 bytes   each context: type, size of its registers in bytes, …; then the registers
               type 1 ACA:  32 bytes, STATUS ADDR IPID SYND, or
                           128 bytes, with STATUS [1], ADDR [2], IPID [5], SYND [6]
               type 9 boot: a 64-bit message per GPU module

Some writers give the counts of the whole record in each section, or none: what fits counts.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from aegis_agent.probes.afid import Bank, afid_of_aca, afid_of_mi450_aca

MALFORMED, INCOMPLETE, INVALID, UNIDENTIFIED = 31, 32, 33, 34
THRESHOLD = 19

_INFO_BYTES, _HEAD_BYTES = 64, 64
_CONTEXT = struct.Struct("<HH12x")
_ACA_CONTEXT, _BOOT_CONTEXT = 1, 9
_ALL_ONES = (1 << 64) - 1
# How many registers there are -> where STATUS, ADDR, IPID and SYND stand among them.
_LAYOUTS = {4: (0, 1, 2, 3), 16: (1, 2, 5, 6)}
_BOOTED, _BOOT_FAILED = 0xBA, 0xA4
_BOOT_ERRORS = {1: 4, 4: 1, 5: 9, 6: 10, 7: 7, 8: 8, 9: 3, 0xA: 2, 0xC: 12, 0xD: 11}
_BOOT_ERRORS_FIRST = {**_BOOT_ERRORS, 0xB: 12, 0xC: 6, 0xD: 6}  # format version 0
_BOOT_UNHANDLED, _BOOT_UNKNOWN = 5, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a record says."""

    afid: int
    text: str  # one sentence: which error of which bank, or what is wrong with the record
    bank: Bank | None = None
    address: int | None = None
    syndrome: int | None = None
    deferred: bool = False  # the section is flagged: lost data that nobody has used yet
    count: int = 1  # of findings that are alike, where they are told as one


def banks(body: bytes, *, threshold: bool, mi450: bool, boot: bool) -> Iterator[Finding]:
    """What the contexts of a section of AMD's kinds say; at least one finding, if only why not.

    A section flagged with `threshold` always means that too many memory pages are bad. `boot` says
    that the record is one of a GPU's start, so contexts of unknown type are too.
    """
    found = False
    for kind, registers, missing in _contexts(body):
        if missing:
            yield Finding(
                afid=INCOMPLETE, text=f"the last {missing} bytes of the registers are missing"
            )
        elif kind == _BOOT_CONTEXT or (boot and kind != _ACA_CONTEXT):
            yield from _boot(registers)
        elif kind == _ACA_CONTEXT:
            yield _aca(registers, threshold=threshold, mi450=mi450)
        else:
            continue
        found = True
    if not found:
        yield Finding(afid=INCOMPLETE, text="the section holds no registers")


def pcie(severity: int) -> Finding:
    """A section of the UEFI specification's PCIe kind: corrected or not is all that we take."""
    corrected = severity == 2
    text = "a PCIe error was corrected" if corrected else "a PCIe error was not corrected"
    return Finding(afid=13 if corrected else 14, text=text)


def _contexts(body: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Type, registers, and how many bytes of them lie outside the section."""
    if len(body) < _HEAD_BYTES:
        return
    valid = int.from_bytes(body[:8], "little")
    infos, contexts = max(1, valid >> 2 & 0x3F), max(1, valid >> 8 & 0x3F)
    if _HEAD_BYTES + infos * _INFO_BYTES + _CONTEXT.size > len(body):
        infos = 1
    place = _HEAD_BYTES + infos * _INFO_BYTES
    for _ in range(contexts):
        if place + _CONTEXT.size > len(body):
            return
        kind, size = _CONTEXT.unpack_from(body, place)
        place += _CONTEXT.size
        if not size:
            return
        registers = body[place : place + size]
        yield kind, registers, size - len(registers)
        place += size


def _aca(registers: bytes, *, threshold: bool, mi450: bool) -> Finding:
    layout = _LAYOUTS.get(len(registers) // 8) if len(registers) % 8 == 0 else None
    if layout is None:
        text = f"{len(registers)} bytes of registers are neither 32 nor 128"
        return Finding(afid=INCOMPLETE, text=text)
    if threshold:  # the driver fills in registers that stand for nothing
        text = "the section is flagged: the number of bad memory pages reached the GPU's threshold"
        return Finding(afid=THRESHOLD, text=text)
    words = struct.unpack(f"<{len(registers) // 8}Q", registers)
    status, address, ipid, syndrome = (words[place] for place in layout)
    bank = Bank(status=status, ipid=ipid)
    if status in {0, _ALL_ONES}:
        what = "zero" if not status else "all ones"
        return Finding(afid=INVALID, text=f"the bank's STATUS is {what}", bank=bank)
    afid = afid_of_mi450_aca(status, ipid) if mi450 else afid_of_aca(status, ipid)
    return Finding(
        afid=afid,
        text=f"{bank.error}, {bank.severity.value}",
        bank=bank,
        address=address,
        syndrome=syndrome,
    )


def _boot(registers: bytes) -> Iterator[Finding]:
    """A message per module: started (0xBA), failed (0xA4 and why), or stuck somewhere else."""
    words = struct.unpack(f"<{len(registers) // 8}Q", registers[: len(registers) // 8 * 8])
    failed = [(number, word) for number, word in enumerate(words) if word & 0xFF == _BOOT_FAILED]
    for number, word in failed:
        kind, version = word >> 8 & 0x1F, word >> 13 & 0x7
        errors = _BOOT_ERRORS if version else _BOOT_ERRORS_FIRST
        text = f"module (OAM) {number} did not start: message {word:#018x}, error {kind:#x}"
        yield Finding(afid=errors.get(kind, _BOOT_UNKNOWN), text=text)
    stuck = [
        (number, word)
        for number, word in enumerate(words)
        if word and word & 0xFF not in {_BOOTED, _BOOT_FAILED}
    ]
    if stuck and not failed:
        number, word = stuck[0]
        text = f"module (OAM) {number} stopped while starting: message {word:#018x}"
        yield Finding(afid=_BOOT_UNHANDLED, text=text)
    if not any(words):
        yield Finding(afid=INCOMPLETE, text="the messages of the GPU's start are all zero")
