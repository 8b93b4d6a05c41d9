"""`aegis afid` and `aegis cper`: AMD's field ids and error records in words."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aegis_agent.probes import afid as fields
from aegis_agent.probes import cper
from aegis_agent.probes.afid import Bank
from aegis_agent.probes.afid_table import Afid
from aegis_agent.probes.cper import CperRecord
from aegis_agent.probes.cper_sections import Finding

_FAILURE, _USAGE, _NOT_FOUND, _DENIED = 1, 2, 3, 4
_BYTES_MAX = 64 << 20  # the driver's ring has four megabytes
_AFID_EPILOG = """\
examples:
  aegis afid 18                                        what a number means, and what to do
  aegis afid 0xb000000000000000 0x0000005036430400     the number of an ACA bank's error
  aegis afid b000000000000000 0000005036430400 -o json | jq .afid

exit codes: 0 decoded, 2 no such arguments, 3 no such number
"""
_CPER_EPILOG = """\
examples:
  aegis cper record.cper
  cat /sys/kernel/debug/dri/1/amdgpu_ring_cper | aegis cper -
  aegis cper record.cper -o json | jq .afids

A part that cannot be read is a finding of its own (AFID 31 to 34).

exit codes: 0 decoded, 1 no CPER record in it, 3 no such file, 4 it may not be read
"""


class _RefusalError(Exception):
    """Why nothing is decoded: a sentence, and the exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def configure_afid(parser: argparse.ArgumentParser) -> None:
    """Say what an AMD field id (AFID) or an ACA bank's registers mean, and what to do."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _AFID_EPILOG
    parser.add_argument(
        "words",
        nargs="+",
        metavar="NUMBER | STATUS IPID",
        help="a field id in decimal, or two registers in hexadecimal, with or without 0x",
    )
    parser.add_argument(
        "--gpu",
        choices=("mi300", "mi450"),
        default="mi300",
        help="whose rules to apply to registers (default: mi300)",
    )
    _add_output(parser)
    parser.set_defaults(run=lambda chosen: _guarded("afid", _run_afid, chosen))


def configure_cper(parser: argparse.ArgumentParser) -> None:
    """Decode a file of error records (CPER), and say what to do."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _CPER_EPILOG
    parser.add_argument("file", metavar="FILE", help="- reads standard input")
    _add_output(parser)
    parser.set_defaults(run=lambda chosen: _guarded("cper", _run_cper, chosen))


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def _guarded(name: str, run: Any, arguments: argparse.Namespace) -> int:
    try:
        run(arguments)
    except _RefusalError as refusal:
        print(f"aegis {name}: {refusal}", file=sys.stderr)
        return refusal.code
    return 0


# ── aegis afid ────────────────────────────────────────────────────────────────────────────────


def _run_afid(arguments: argparse.Namespace) -> None:
    match arguments.words:
        case [number]:
            bank, field = None, _field(number)
        case [status, ipid]:
            bank = Bank(status=_register("STATUS", status), ipid=_register("IPID", ipid))
            decode = fields.afid_of_mi450_aca if arguments.gpu == "mi450" else fields.afid_of_aca
            field = _described(decode(bank.status, bank.ipid))
        case words:
            sentence = f"{len(words)} words are neither one NUMBER nor STATUS and IPID"
            raise _RefusalError(sentence, _USAGE)
    if arguments.output == "json":
        _print_json(_field_as_json(field, bank))
    else:
        _print_pairs(_field_in_words(field, bank))


def _field(word: str) -> Afid:
    if not (word.isascii() and word.isdecimal()):
        hint = ""
        if _is_register(word):
            hint = "; of registers it takes two: aegis afid STATUS IPID"
        raise _RefusalError(f"a field id is a decimal number, not {word!r}{hint}", _USAGE)
    # The digits first: a number of ten thousand of them would take a while, and is none.
    field = fields.describe(int(word)) if len(word.lstrip("0")) <= 20 else None
    if field is None:
        sentence = (
            f"no field id is numbered {word[:20]}; there are 1 to 34, 10000 to 10999 (of the BMC), "
            "16999 and, of MI450, some between 40001 and 46848"
        )
        raise _RefusalError(sentence, _NOT_FOUND)
    return field


def _register(name: str, word: str) -> int:
    if not _is_register(word):
        sentence = f"{name} is a register of up to 16 hexadecimal digits, not {word!r}"
        raise _RefusalError(sentence, _USAGE)
    return int(word, 16)


def _is_register(word: str) -> bool:
    digits = word.lower().removeprefix("0x")
    return bool(digits) and len(digits) <= 16 and set(digits) <= set("0123456789abcdef")


def _described(number: int) -> Afid:
    field = fields.describe(number)
    assert field is not None, number  # noqa: S101  every number that a decoder gives is described
    return field


def _field_in_words(field: Afid, bank: Bank | None) -> list[tuple[str, str]]:
    fault_class, severity = fields.meaning_of(field.number, bank)
    rows = [
        ("AFID", f"{field.number}  {field.kind}, {field.afid_severity} ({field.category})"),
        ("meaning", field.meaning),
        ("class", f"{fault_class.value}, {severity.value}"),
        ("do", field.action),
    ]
    if field.physical_action_first:
        rows.append(("hands first", "yes: it is never answered by a reset or a reboot"))
    if field.condition:
        rows.append(("AMD's name", f"{field.condition} (linked by name)"))
    return rows if bank is None else [*rows, *_bank_in_words(bank)]


def _bank_in_words(bank: Bank) -> list[tuple[str, str]]:
    return [
        ("error", f"{bank.error}, {bank.severity.value}"),
        ("valid", "" if bank.is_valid else "no: bit 63 of STATUS is 0, so the bank tells no error"),
        (
            "bank",
            f"hardware id {bank.hardware_id:#x}, type {bank.mca_type:#x}, code {bank.code:#x}",
        ),
        ("registers", f"STATUS {bank.status:#018x}  IPID {bank.ipid:#018x}"),
    ]


def _field_as_json(field: Afid, bank: Bank | None) -> dict[str, Any]:
    fault_class, severity = fields.meaning_of(field.number, bank)
    known = {
        "afid": field.number,
        "category": field.category,
        "type": field.kind,
        "afid_severity": field.afid_severity,
        "class": fault_class.value,
        "severity": severity.value,
        "meaning": field.meaning,
        "service_action": field.action,
        "physical_action_first": field.physical_action_first,
        "condition": field.condition or None,
    }
    return known if bank is None else known | _bank_as_json(bank)


def _bank_as_json(bank: Bank) -> dict[str, Any]:
    return {
        "error": bank.error,
        "bank_severity": bank.severity.value,
        "is_valid": bank.is_valid,
        "hardware_id": bank.hardware_id,
        "mca_type": bank.mca_type,
        "code": bank.code,
        "status": f"{bank.status:#018x}",
        "ipid": f"{bank.ipid:#018x}",
    }


# ── aegis cper ────────────────────────────────────────────────────────────────────────────────


def _run_cper(arguments: argparse.Namespace) -> None:
    records = cper.decode(_read(arguments.file))
    if not any(record.has_header for record in records):
        reason = records[0].findings[0].text if records else "it holds only zeros"
        raise _RefusalError(f"{arguments.file} holds no CPER record: {reason}", _FAILURE)
    if arguments.output == "json":
        afids = [afid for record in records for afid in record.afids]
        _print_json({"afids": afids, "records": [_record_as_json(record) for record in records]})
        return
    for number, record in enumerate(records):
        if number:
            print()
        _print_record(record)


def _read(name: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise _RefusalError(f"there is no file {name}", _NOT_FOUND) from error
    except IsADirectoryError as error:
        raise _RefusalError(f"{name} is a folder; name a file of records in it", _USAGE) from error
    except PermissionError as error:
        raise _RefusalError(f"{name} may not be read: try it as root", _DENIED) from error
    except OSError as error:
        raise _RefusalError(f"{name} cannot be read: {error.strerror}", _FAILURE) from error
    if not data:
        raise _RefusalError(f"{name} is empty", _FAILURE)
    if len(data) > _BYTES_MAX:
        sentence = f"{name} is larger than {_BYTES_MAX >> 20} MB and no file of error records"
        raise _RefusalError(sentence, _FAILURE)
    return data


def _print_record(record: CperRecord) -> None:
    part = " ".join(word for word in (record.fru_text, record.fru_id) if word)
    head = [
        ("record", record.record_id or "without an id"),
        ("severity", record.severity),
        ("written", _moment(record.at)),
        ("part", part),
        ("device", " ".join(word for word in (record.platform, record.creator) if word)),
        ("notified as", record.notification),
    ]
    _print_pairs(head)
    if not record.findings:
        print("  nothing is wrong: each module started")
    for finding in record.findings:
        print()
        field = _described(finding.afid)
        rows = [("found", finding.text), *_field_in_words(field, finding.bank)]
        _print_pairs(rows, indent="  ")


def _record_as_json(record: CperRecord) -> dict[str, Any]:
    known = asdict(record)
    known["written_at"] = _moment(record.at) if record.at is not None else None
    known["findings"] = [_finding_as_json(finding) for finding in record.findings]
    return known


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    known = _field_as_json(_described(finding.afid), finding.bank) | {"text": finding.text}
    if finding.address is not None:
        known |= {"address": f"{finding.address:#018x}", "syndrome": f"{finding.syndrome:#018x}"}
    return known


# ── printing ──────────────────────────────────────────────────────────────────────────────────


def _moment(at: float | None) -> str:
    if at is None:
        return "it does not say when"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, indent=2))


def _print_pairs(rows: Iterable[tuple[str, str]], indent: str = "") -> None:
    shown = [(name, text) for name, text in rows if text]
    width = max(len(name) for name, _ in shown)
    for name, text in shown:
        print(f"{indent}{name.ljust(width)}  {text}")
