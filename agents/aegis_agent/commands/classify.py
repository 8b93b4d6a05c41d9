"""`aegis classify`: what lines of the kernel log mean, one by one.

Reads as much as there is and answers it before it waits for more, so that it can follow a log.
"""

import argparse
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from aegis_agent.probes.kernel.classify import Finding, classify
from aegis_agent.probes.kernel.line import Line, parse_line

_FAILURE, _NOT_FOUND, _DENIED = 1, 3, 4
_CHUNK_BYTES = 1 << 18  # /dev/kmsg gives one record a read, whatever is asked for
_LINE_BYTES_MAX = 1 << 20  # what is longer without an end of line is no line, and cut
_EPILOG = """\
Lines may be of any form: dmesg (plain, -T, -x, --time-format iso), journalctl (short, short-iso,
-o json), syslog, /dev/kmsg, or bare messages. Each gives one JSON object a line:

  line      as it was read
  class     the fault, or null: context, noise, all is well
  severity  info, warning, error or fatal
  device    a PCI address, a network interface or an RDMA device, as the line names it
  details   what else it says: block, count, ring, pid, syndrome, …
  at        seconds since 1970, or `uptime`, seconds since boot; where the line tells

examples:
  dmesg | aegis classify - --faults-only
  journalctl -k -b -1 -o json | aegis classify - -o table --faults-only
  tail -F /var/log/kern.log | aegis classify - | jq -c 'select(.severity == "fatal")'
  zcat /var/log/kern.log.2.gz | aegis classify -

exit codes: 0 read to the end, 1 not a log that can be read, 3 no such file, 4 it may not be read
"""
# What begins like this holds a log in another form; how to read it.
_PACKED = (
    (b"\x1f\x8b", "compressed by gzip", "zcat {} | aegis classify -"),
    (b"\xfd7zXZ\0", "compressed by xz", "xzcat {} | aegis classify -"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstdcat {} | aegis classify -"),
    (b"BZh", "compressed by bzip2", "bzcat {} | aegis classify -"),
    (b"LPKSHHRH", "a file of the journal", "journalctl --file {} -k -o json | aegis classify -"),
)
_KMSG_FIELD = re.compile(rb" [A-Z_]+=")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class _UnreadableError(Exception):
    """Why nothing is read: a sentence, and the exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what lines of the kernel log mean: fault class, severity, device and details."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("file", metavar="FILE", help="a log, or - for standard input")
    add("--faults-only", action="store_true", help="leave out lines without a fault")
    add("-o", "--output", choices=("json", "table"), default="json", help="default: json")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read to the end of the log."""
    try:
        descriptor = _open(arguments.file)
        _answer(descriptor, arguments)
    except _UnreadableError as error:
        print(f"aegis classify: {error}", file=sys.stderr)
        return error.code
    return 0


def _open(name: str) -> int:
    if name == "-":
        return sys.stdin.fileno()
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _UnreadableError(f"there is no file {name}", _NOT_FOUND) from error
    except PermissionError as error:
        sentence = f"{name} may not be read by this user; the kernel log often needs sudo"
        raise _UnreadableError(sentence, _DENIED) from error
    except (OSError, ValueError) as error:
        raise _UnreadableError(f"{name!r} cannot be opened: {error}", _FAILURE) from error
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise _UnreadableError(f"{name} is a directory; name a file in it", _FAILURE)
    return descriptor


def _answer(descriptor: int, arguments: argparse.Namespace) -> None:
    show: Callable[..., str] = _as_json if arguments.output == "json" else _as_row
    if arguments.output == "table":
        _write([_row("SEVERITY", "CLASS", "DEVICE", "MESSAGE")])
    lines_count, seen = 0, Counter[str]()
    for records in _records(descriptor, arguments.file):
        told = []
        for raw in records:
            line = parse_line(raw)
            finding = classify(line.text)
            if finding is not None:
                seen[finding.fault_class.value] += 1
            elif arguments.faults_only:
                continue
            told.append(show(raw, line, finding))
        lines_count += len(records)
        _write(told)
    if sys.stderr.isatty():
        print(_summary(lines_count, seen), file=sys.stderr)


# ── in ────────────────────────────────────────────────────────────────────────────────────────


def _records(descriptor: int, name: str) -> Iterator[list[str]]:
    """All whole lines that there are, again and again; those of one kmsg record together."""
    rest, first = b"", True
    while chunk := _read(descriptor, name):
        if first:
            _refuse_packed(chunk, name)
            first = False
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        if lines:
            yield _joined(lines)
    if rest:
        yield _joined([rest])


def _read(descriptor: int, name: str) -> bytes:
    while True:
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BrokenPipeError:  # /dev/kmsg: records were overwritten before they were read
            print("aegis classify: some records were lost: the log is full", file=sys.stderr)
        except OSError as error:
            sentence = f"{_named(name)} cannot be read: {error.strerror}"
            raise _UnreadableError(sentence, _FAILURE) from error


def _refuse_packed(start: bytes, name: str) -> None:
    for signature, form, command in _PACKED:
        if start.startswith(signature):
            how = command.format("FILE" if name == "-" else name)
            raise _UnreadableError(f"{_named(name)} is {form}: {how}", _FAILURE)


def _joined(lines: list[bytes]) -> list[str]:
    records: list[str] = []
    for line in lines:
        text = line.removesuffix(b"\r").decode("utf-8", "replace")
        if line.startswith(b" ") and _KMSG_FIELD.match(line) and records and ";" in records[-1]:
            records[-1] += f"\n{text}"
        else:
            records.append(text)
    return records


def _named(name: str) -> str:
    return "standard input" if name == "-" else name


# ── out ───────────────────────────────────────────────────────────────────────────────────────


def _write(lines: list[str]) -> None:
    if lines:
        sys.stdout.write("\n".join([*lines, ""]))
        sys.stdout.flush()


def _as_json(raw: str, line: Line, finding: Finding | None) -> str:
    told: dict[str, Any] = {
        "line": raw,
        "class": finding and finding.fault_class.value,
        "severity": finding and finding.severity.value,
        "device": (finding and (finding.device or line.device)) or None,
        "details": dict(finding.details) if finding else {},
    }
    if line.at is not None:
        told["at"] = line.at
    if line.uptime is not None:
        told["uptime"] = line.uptime
    return json.dumps(told)


def _as_row(_raw: str, line: Line, finding: Finding | None) -> str:
    message = _CONTROL.sub(" ", line.text)
    if finding is None:
        return _row("-", "-", "-", message)
    device = finding.device or line.device or "-"
    return _row(finding.severity.value, finding.fault_class.value, device, message)


def _row(severity: str, fault_class: str, device: str, message: str) -> str:
    row = f"{severity:<8}  {fault_class:<29}  {device:<14}  {message}"
    encoding = sys.stdout.encoding or "utf-8"
    return row.encode(encoding, "replace").decode(encoding)


def _summary(lines_count: int, seen: Counter[str]) -> str:
    counted = ", ".join(f"{count} × {name}" for name, count in seen.most_common())
    lines = "1 line" if lines_count == 1 else f"{lines_count} lines"
    return f"{lines}, {seen.total() or 'no'} with a fault{': ' if counted else ''}{counted}"
