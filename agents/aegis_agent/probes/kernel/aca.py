"""Register lines of the Accelerator Check Architecture: many lines, one record, one field id.

    amdgpu 0000:48:00.0: {7}[Hardware Error]: ACA[01/02].STATUS=0xdc2040000000011b
    amdgpu 0000:48:00.0: {7}[Hardware Error]: aca entry[00].IPID=0x0000009600000000

The number in braces is the record's, that in brackets the bank's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from aegis_agent.probes import afid
from aegis_agent.probes.afid import Bank

_REGISTER = re.compile(
    r"\{(\d{1,20})\}\[Hardware Error\]: *"
    r"(?:ACA\[(\d{1,4})/\d{1,4}\]|(?:aca|mca) entry\[(\d{1,4})\])\.(\w{1,16})=(0x[0-9a-fA-F]{1,16})"
)
RECORDS_MAX, BANKS_MAX = 8, 16
_VALID = 1 << 63


@dataclass(slots=True)
class AcaRecords:
    """Registers by record, bank and name, of one GPU."""

    records: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    def take(self, text: str) -> str:
        """The bank and the register that this line is about; empty when it is about none."""
        found = _REGISTER.search(text) if "=0x" in text else None
        if found is None:
            return ""
        record, index, name = found[1], found[2] or found[3], found[4].upper()
        if record in self.records or len(self.records) < RECORDS_MAX:
            banks = self.records.setdefault(record, {})
            if index in banks or len(banks) < BANKS_MAX:
                banks.setdefault(index, {})[name] = int(found[5], 16)
        return f"{index}.{name}"

    def decoded(self) -> Iterator[tuple[dict[str, str], list[str]]]:
        """Details and sentences of each record that holds enough to be read."""
        for record, banks in self.records.items():
            details: dict[str, str] = {"record": record}
            sentences = []
            for index, registers in banks.items():
                if "STATUS" in registers and "IPID" in registers:
                    read = _read(registers)
                    sentences.append(_sentence(record, index, read))
                    for name, value in read.items():
                        told = details.get(name)
                        if told != value:
                            details[name] = f"{told}, {value}" if told else value
            if sentences:
                yield details, sentences


def _read(registers: dict[str, int]) -> dict[str, str]:
    status, ipid = registers["STATUS"], registers["IPID"]
    read = {name.lower(): f"{value:#018x}" for name, value in registers.items() if value}
    if not status & _VALID:
        return {"error": "no error: STATUS is not valid", **read}
    bank = Bank(status=status, ipid=ipid)
    number = afid.afid_of_aca(status, ipid)
    meaning = afid.describe(number)
    told = {"afid": str(number), "error": bank.error, "error_severity": bank.severity.value}
    return {**told, **({"action": meaning.action} if meaning else {}), **read}


def _sentence(record: str, index: str, read: dict[str, str]) -> str:
    what = read["error"]
    if "afid" in read:
        what += f", {read['error_severity']} (AFID {read['afid']})"
    registers = ("status", "ipid", "addr", "synd")
    told = " ".join(f"{name.upper()}={read[name]}" for name in registers if name in read)
    return f"hardware error record {record}, bank {index}: {what}; {told}"
