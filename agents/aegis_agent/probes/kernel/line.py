"""One record of the kernel log, whatever form it comes in.

Known forms: /dev/kmsg; dmesg plain, -r, -x, -T, -e, -d, --time-format=iso, with a caller's id;
journalctl -o short, short-iso, short-precise, short-full, short-monotonic, short-unix, json; syslog
after RFC 3164 and 5424, as rsyslog and busybox write them; and bare text. Nothing is refused: what
looks like none of these is text.

- A time without a year or a zone is no time: `at` stays None rather than wrong by hours.
- What a program wrote and not the kernel keeps the program's name in front of its text, so that a
  program which quotes the kernel is not taken for it.
"""

import json
import re
from calendar import timegm
from dataclasses import dataclass
from typing import Any

KERNEL = "kernel"

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")

_KMSG = re.compile(r"(\d{1,10}),(\d{1,18}),(\d{1,18}),[^;\n]*;", re.ASCII)
_ESCAPED = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")
_DEVICE = re.compile(r"^ DEVICE=\+pci:(\S+)", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_BRACKET = re.compile(r"\[([^\[\]]{1,48})\](?: ?\[ *[TC]\d+\])? ?")
_CALLER = re.compile(r" *[TC]\d+", re.ASCII)
_UPTIME = re.compile(r" *(\d{1,12}\.\d{1,9})(?: *< *[\d.]+ *>)? *", re.ASCII)
_UNUSED_STAMP = re.compile(
    rf"(?:(?:{_DAYS}) )?(?:{_MONTHS}) +\d+ \d\d:\d\d(?::\d\d(?: \d{{4}})?)?"  # -T, -e
    r"| *\+ *\d+\.\d+ *|< *[\d.]+ *>",  # the time since the line before
    re.ASCII,
)
_PRIORITY = re.compile(r"<(\d{1,3})>", re.ASCII)
_DECODED = re.compile(rf"[a-z0-9]+ *:({'|'.join(_LEVELS)}) *: ?")
_SHORT = re.compile(rf"(?:{_MONTHS}) [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?() ", re.ASCII)
_UNIX = re.compile(r"(\d{9,11}\.\d{1,9}) ", re.ASCII)
_ISO = re.compile(
    rf"(?:(?:{_DAYS}) )?(\d{{4}})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:([.,])(\d{{1,9}}))?"
    r" ?(Z|UTC|[+-]\d\d:?\d\d|[A-Z]{3,5}(?= ))? ",
    re.ASCII,
)
_FROM_HOST = re.compile(r"\S+ (?:[a-z0-9]+\.[a-z]+ )?([\w./@+-]+)(?:\[\d+\])?: ?")
_RFC5424 = re.compile(
    r'1 (\S+) \S+ (\S+) (\S+) \S+ (?:-|(?:\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\])+)(?: |$)'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One record. What its form does not tell is None or empty."""

    text: str  # the message, without stamps; several lines where the kernel wrote several at once
    at: float | None = None  # wall clock
    uptime: float | None = None  # seconds since boot, time asleep not counted
    sequence: int | None = None
    priority: int | None = None  # 0 emergency … 7 debug
    boot_id: str = ""
    device: str = ""  # the PCI address that the kernel's record names beside its text
    program: str = KERNEL  # who wrote it, where the form says so


def parse_line(raw: str) -> Line:
    """Read one record. Never raises."""
    kmsg = _KMSG.match(raw)
    if kmsg is not None:
        return _kmsg(raw, kmsg)
    raw = raw.strip("\r\n\0")  # a crash leaves zeros in a file, before what is written after it
    if "\x1b" in raw:
        raw = _COLOUR.sub("", raw)
    if raw.startswith("{") and raw.endswith("}"):
        journal = _journal(raw)
        if journal is not None:
            return journal
    priority, raw = _priority(raw)
    return _stamped(raw, priority)


def _kmsg(raw: str, head: re.Match[str]) -> Line:
    priority, sequence, microseconds = head.groups()
    text, device = raw[head.end() :], ""
    end = text.find("\n")
    if end >= 0:
        if found := _DEVICE.search(text, end + 1):
            device = found[1]
        text = text[:end]
    if "\\" in text:
        text = _ESCAPED.sub(_unescaped, text)
    return Line(
        text=text,
        uptime=int(microseconds) / 1e6,
        sequence=int(sequence),
        priority=int(priority) & 7,
        device=device,
    )


def _unescaped(escaped: re.Match[str]) -> str:
    return bytes.fromhex(escaped[0].replace("\\x", "")).decode("utf-8", "replace")


def _priority(raw: str) -> tuple[int | None, str]:
    """The priority that syslog, dmesg -r ("<4>") or dmesg -x ("kern  :warn  :") put first."""
    if found := _PRIORITY.match(raw):
        return int(found[1]) & 7, raw[found.end() :]
    if found := _DECODED.match(raw):
        return _LEVELS.index(found[1]), raw[found.end() :]
    return None, raw


def _stamped(raw: str, priority: int | None) -> Line:
    if raw.startswith("["):
        return _after_bracket(raw, priority)
    if raw.startswith("1 ") and (found := _RFC5424.match(raw)):
        return _rfc5424(found, raw[found.end() :], priority)
    if found := _ISO.match(raw):
        rest, at = raw[found.end() :], _wall_clock(found)
        if found[7] == ",":  # dmesg alone writes a comma, and neither host nor program
            return Line(text=rest, at=at, priority=priority)
        return _from_host(rest, at, priority)
    found = _UNIX.match(raw) or _SHORT.match(raw)
    if found is None:
        return Line(text=raw, priority=priority)
    return _from_host(raw[found.end() :], float(found[1]) if found[1] else None, priority)


def _rfc5424(head: re.Match[str], text: str, priority: int | None) -> Line:
    stamp = _ISO.match(head[1] + " ")
    name = head[2] if head[3] == "-" else f"{head[2]}[{head[3]}]"
    at = _wall_clock(stamp) if stamp else None
    return _written_by(head[2], name, text.lstrip("\ufeff"), at, priority)


def _after_bracket(raw: str, priority: int | None) -> Line:
    bracket = _BRACKET.match(raw)
    if bracket is None:
        return Line(text=raw, priority=priority)
    rest = raw[bracket.end() :]
    if found := _UPTIME.fullmatch(bracket[1]):
        host = _FROM_HOST.match(rest)
        if host is not None and host[1] == KERNEL:  # journalctl -o short-monotonic
            rest = rest[host.end() :]
        return Line(text=rest, uptime=float(found[1]), priority=priority)
    if _UNUSED_STAMP.fullmatch(bracket[1]) or _CALLER.fullmatch(bracket[1]):  # dmesg -t: a caller
        return Line(text=rest, priority=priority)
    return Line(text=raw, priority=priority)


def _from_host(rest: str, at: float | None, priority: int | None) -> Line:
    """The message "n1 kernel: text", or "n1 sshd[42]: text"."""
    host = _FROM_HOST.match(rest)
    if host is None:
        return Line(text=rest, at=at, priority=priority)
    named = rest[: host.end()].rstrip(": ").split(" ")[-1]
    return _written_by(host[1], named, rest[host.end() :], at, priority)


def _written_by(program: str, name: str, text: str, at: float | None, priority: int | None) -> Line:
    if program != KERNEL:
        return Line(text=f"{name}: {text}", at=at, priority=priority, program=program)
    uptime = None
    if text.startswith("[") and (bracket := _BRACKET.match(text)):
        found = _UPTIME.fullmatch(bracket[1])
        if found is not None:
            text, uptime = text[bracket.end() :], float(found[1])
    return Line(text=text, at=at, uptime=uptime, priority=priority)


def _wall_clock(stamp: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second = (int(stamp[number]) for number in range(1, 7))
    zone = stamp[9]
    if zone is None or not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    if zone in ("Z", "UTC", "GMT"):
        ahead = 0
    elif zone[0] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        ahead = (-60 if zone[0] == "-" else 60) * minutes
    else:
        return None
    fraction = float(f"0.{stamp[8]}") if stamp[8] else 0.0
    return timegm((year, month, day, hour, minute, second)) - ahead + fraction


# ── journalctl -o json ────────────────────────────────────────────────────────────────────────


def _journal(raw: str) -> Line | None:
    try:
        entry = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or "MESSAGE" not in entry:
        return None
    text, program = _message(entry["MESSAGE"]), entry.get("SYSLOG_IDENTIFIER", KERNEL)
    if program != KERNEL:
        text = f"{program}: {text}"
    microseconds = _number(entry.get("__REALTIME_TIMESTAMP"))
    uptime = _number(entry.get("_SOURCE_MONOTONIC_TIMESTAMP"))
    device = str(entry.get("_KERNEL_DEVICE", ""))
    return Line(
        text=text,
        at=None if microseconds is None else microseconds / 1e6,
        uptime=None if uptime is None else uptime / 1e6,
        priority=_number(entry.get("PRIORITY")),
        boot_id=str(entry.get("_BOOT_ID", "")),
        device=device.removeprefix("+pci:") if device.startswith("+pci:") else "",
        program=str(program),
    )


def _message(value: Any) -> str:
    """Text; or a list of bytes where the message is not UTF-8; or null where it is too long."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, int) and 0 <= one < 256 for one in value):
        return bytes(value).decode("utf-8", "replace")
    return ""


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if len(text) <= 18 and text.isascii() and text.isdigit() else None
