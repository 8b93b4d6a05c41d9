"""Printing: tables for people, JSON for programs."""

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any


def as_json(value: Any) -> None:
    """The API's own object."""
    print(json.dumps(value, indent=2))


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Columns as wide as they need to be; a sentence when there is no row."""
    lines = [[str(cell) for cell in row] for row in rows]
    if not lines:
        print(empty)
        return
    lines.insert(0, list(titles))
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def pairs(rows: Iterable[tuple[str, object]]) -> None:
    """A name and a value on each line; lines without a value are left out."""
    shown = [(name, str(value)) for name, value in rows if value not in ("", None)]
    width = max((len(name) for name, _value in shown), default=0)
    for name, value in shown:
        print(f"{name.ljust(width)}  {value}")


def ago(at: float | None) -> str:
    """How long ago, short: "4 s", "12 min", "3 h", "9 d"."""
    if not at:
        return "-"
    seconds = max(0.0, time.time() - at)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(at: float | None) -> str:
    """A time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if at else "-"


def wrapped(text: str, indent: str) -> str:
    """Broken between words where a person's terminal ends; a program gets one line."""
    if not sys.stdout.isatty():
        return text
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )


def shortened(text: str, width: int) -> str:
    """At most so many characters."""
    return text if len(text) <= width else text[: width - 1] + "…"
