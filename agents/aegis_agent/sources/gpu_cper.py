"""A GPU's error records (CPER) through amdsmi, in the process that reads the GPU.

The driver keeps them in a ring, oldest first, and the library numbers them by a cursor. When the
ring is full each new record pushes one out and all numbers shift; when the driver is loaded anew
they start at zero. So the last known record is read again each time: it must stand where it stood.

Each record goes to the agent decoded, as a line or some: a record may be longer than a line may be.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from aegis_agent.probes import cper
from aegis_agent.probes.afid import Bank
from aegis_agent.probes.cper import CperRecord
from aegis_agent.probes.cper_records import TOLD_AGES, CperReading, age, fold
from aegis_agent.probes.cper_sections import MALFORMED, Finding

NO_PERMISSION, OUT_OF_RESOURCES, MORE_DATA = 10, 15, 39
NOT_OFFERED = -3  # package or library have no such call
_ALL_SEVERITIES = 0b111
_BUFFER_BYTES, _BUFFER_BYTES_MAX = 256 << 10, 4 << 20  # a record of many banks may be long
_PAGES_MAX = 100  # in one look; a ring that is read for the first time may hold ten thousand
_BACK = (1, 20, 400)  # so far back the last known record is looked for
_FINDINGS_MAX = 6  # in a line
_TEXT_MAX = 160


class CperRing:
    """One GPU's ring, and how far it has been read.

    `entries(mask, buffer_bytes, cursor)` and `afids(record)` are the library's calls: they answer
    None when they fail. `why` gives the status with which the first failed.
    """

    def __init__(
        self,
        entries: Callable[[int, int, int], Any],
        afids: Callable[[bytes], Any],
        why: Callable[[], int | None],
    ) -> None:
        self._entries = entries
        self._afids = afids
        self._why = why
        self.status = 0  # of the last call; 0 where it succeeded
        self._cursor = 0
        self._last = ""  # the digest of the newest record that was read

    def look(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What was found, in numbers, and a line for each record that may matter."""
        now = time.time()
        booted_at = now - time.clock_gettime(time.CLOCK_BOOTTIME)
        found: Counter[str] = Counter()
        lines: list[dict[str, Any]] = []
        for raw in self._new():
            record = cper.decode_one(raw)
            known = age(record.at, now, booted_at)
            found[known.value] += 1
            if known in TOLD_AGES:
                lines += self._lines(record, raw, now, booted_at)
        return dict(found), lines

    def _new(self) -> list[bytes]:
        """The records after the last known one; all of them where that is gone."""
        for back in _BACK:
            if not self._last or back > self._cursor:
                break
            read = self._from(self._cursor - back)
            if read is None:
                return []
            digests = [cper.digest(raw) for raw in read[0]]
            if self._last in digests:
                known = len(digests) - digests[::-1].index(self._last)
                return self._advance(read[0][known:], read[1])
        read = self._from(0)
        return [] if read is None else self._advance(*read)

    def _advance(self, records: list[bytes], cursor: int) -> list[bytes]:
        self._cursor = cursor
        if records:
            self._last = cper.digest(records[-1])
        return records

    def _from(self, cursor: int) -> tuple[list[bytes], int] | None:
        """The records from there on, and where they end; None when nothing can be read."""
        records: list[bytes] = []
        size = _BUFFER_BYTES
        for page_number in range(_PAGES_MAX):
            answer = self._page(size, cursor)
            if self.status == OUT_OF_RESOURCES and size < _BUFFER_BYTES_MAX:
                size = _BUFFER_BYTES_MAX
                answer = self._page(size, cursor)
            if answer is None:
                return (records, cursor) if page_number else None
            _, following, page, status = answer
            # The wrapper gives bytes as signed numbers, and takes them unsigned only.
            records += [bytes(byte & 0xFF for byte in entry["bytes"]) for entry in page]
            stuck, cursor = following == cursor, following
            if status != MORE_DATA or stuck:
                break
        return records, cursor

    def _page(self, size: int, cursor: int) -> Any:
        answer = self._entries(_ALL_SEVERITIES, size, cursor)
        self.status = 0 if answer is not None else self._why() or 0
        return answer

    def _lines(
        self, record: CperRecord, raw: bytes, now: float, booted_at: float
    ) -> Iterator[dict[str, Any]]:
        """The record in parts: one with many kinds of errors would be too long for a line."""
        library: Sequence[int] = record.afids
        if MALFORMED not in record.afids:  # a library may stumble over what we cannot read
            answer = self._afids(raw)
            library = list(answer[0]) if answer else []
        folded, note = fold(record, library)
        told = {"read_at": now, "booted_at": booted_at, "note": note}
        for start in range(0, len(folded.findings), _FINDINGS_MAX):
            findings = folded.findings[start : start + _FINDINGS_MAX]
            digest = f"{folded.digest}+{start}" if start else folded.digest
            part = replace(folded, findings=findings, digest=digest)
            yield {**told, "record": _told(part)}


def reading(line: dict[str, Any]) -> CperReading:
    """The line, as the agent's probe wants it."""
    told = line["record"]
    findings = tuple(_finding(values) for values in told["findings"])
    record = CperRecord(**{**told, "findings": findings})
    return CperReading(
        at=line["read_at"], booted_at=line["booted_at"], record=record, note=line["note"]
    )


def _told(record: CperRecord) -> dict[str, Any]:
    findings = [
        (
            finding.afid,
            finding.text[:_TEXT_MAX],
            finding.bank and (finding.bank.status, finding.bank.ipid),
            finding.address,
            finding.syndrome,
            finding.count,
        )
        for finding in record.findings
    ]
    fields = {name: getattr(record, name) for name in CperRecord.__slots__}
    return {**fields, "findings": findings}


def _finding(values: Sequence[Any]) -> Finding:
    afid, text, bank, address, syndrome, count = values
    registers = Bank(status=bank[0], ipid=bank[1]) if bank else None
    return Finding(
        afid=afid, text=text, bank=registers, address=address, syndrome=syndrome, count=count
    )
