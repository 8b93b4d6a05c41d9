"""Steps and losses out of what ranks print, for scripts that report nothing themselves.

A line speaks for the whole job: in torchtitan the first rank prints it, in Megatron-LM the last. So
all ranks of the node are credited with it, and only what a rank's own page leaves open is filled
in. A rank's silence is not judged by its lines: they come as seldom as the script likes.
"""

import argparse
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from aegis.model.job import RankPhase
from aegis.wire.page import Progress
from aegis_agent.launcher.errors import UsageError
from aegis_agent.launcher.generation import Rank

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_TORCHTITAN = (
    rf"(?<!validate )\bstep:\s*(?P<step>\d+)\s+loss:\s*(?P<loss>{_NUMBER})"
    r"|Training starts at step (?P<next>\d+)"
)
_MEGATRON = (
    rf"\biteration\s+(?P<step>\d+)/\s*\d+ \|(?:.*?\blm loss:\s*(?P<loss>{_NUMBER}))?"
    r"|successfully loaded checkpoint from .* at iteration (?P<resumed>\d+)"
)
_UNNAMED = re.compile(r"\(\?P<(\w+)>")
PATTERNS = {
    "torchtitan": _TORCHTITAN,
    "megatron": _MEGATRON,
    # Primus trains with either of them; the second's groups get names of their own.
    "primus": _MEGATRON + "|" + _UNNAMED.sub(r"(?P<\1_2>", _TORCHTITAN),
}
_NAMED = (
    "torchtitan, megatron or primus, or write an expression like "
    r"'step (?P<step>\d+) loss (?P<loss>\S+)'"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_READ_BYTES = 1 << 18  # of each file at each look; what a flood prints beyond is passed over
_LINE_BYTES = 4096  # a longer one is looked at to here


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The flag of it."""
    parser.add_argument(
        "--log-pattern",
        default="",
        metavar="PATTERN",
        help="read steps and losses from what the ranks print: torchtitan, megatron, primus, or a "
        "regular expression with groups named step and loss",
    )


def checked(text: str) -> str:
    """The same text, once it is sure that it can be read by."""
    if text:
        compiled(text)
    return text


def compiled(text: str) -> re.Pattern[str]:
    """The pattern of that name, or the expression itself. Raises UsageError with what is wrong."""
    try:
        pattern = re.compile(PATTERNS.get(text, text))
    except re.error as error:
        raise UsageError(f"--log-pattern {text}: {error}; name {_NAMED}") from error
    if "step" not in pattern.groupindex:
        raise UsageError(f"--log-pattern {text}: no group is named step; name {_NAMED}")
    return pattern


@dataclass
class _File:
    path: Path
    offset: int = 0
    rest: bytes = b""

    def lines(self) -> list[bytes]:
        """Those that are new and whole."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, 2)
                if end - self.offset > _READ_BYTES:
                    self.offset, self.rest = end - _READ_BYTES, b""
                file.seek(self.offset)
                read = file.read(_READ_BYTES)
        except OSError:
            return []
        self.offset += len(read)
        *whole, rest = (self.rest + read).split(b"\n")
        self.rest = rest[-_READ_BYTES:]
        return whole


class LogProgress:
    """What the lines of a generation on this node say; nothing without a pattern to read by."""

    def __init__(self, pattern: str) -> None:
        self._pattern = compiled(pattern) if pattern else None
        self._files: list[_File] = []
        self._told = Progress()

    def begin(self, ranks: Iterable[Rank]) -> None:
        """Other ranks begin, with files of their own."""
        self._files = [_File(path) for rank in ranks for path in (rank.stdout, rank.stderr)]
        self._told = Progress()

    def look(self, ranks: Iterable[Rank]) -> None:
        """Read what is new, and fill in what the ranks have not said themselves."""
        if self._pattern is None:
            return
        for file in self._files:
            for line in file.lines():
                self._read(line, self._pattern)
        for rank in ranks:
            if self._told.loaded_at and not rank.progress.moved_at:
                rank.progress = self._told

    def _read(self, line: bytes, pattern: re.Pattern[str]) -> None:
        text = _COLOUR.sub("", line[:_LINE_BYTES].decode(errors="replace"))
        found = pattern.search(text)
        if found is None:
            return
        groups = {
            name.removesuffix("_2"): value for name, value in found.groupdict().items() if value
        }
        try:
            self._take(groups, time.time())
        except ValueError:
            return  # a group of the user's own pattern that holds no number

    def _take(self, groups: dict[str, str], now: float) -> None:
        """Never sets `moved_at`: a rank's silence is not judged by its lines."""
        told = replace(self._told, phase=RankPhase.TRAINING, loaded_at=self._told.loaded_at or now)
        if "step" not in groups:
            resumed = int(groups["resumed"]) if "resumed" in groups else int(groups["next"]) - 1
            self._told = replace(told, step=resumed, resumed_step=resumed)
            return
        self._told = replace(
            told,
            step=int(groups["step"]),
            loss=float(groups["loss"]) if "loss" in groups else told.loss,
            first_step_at=told.first_step_at or now,
            last_step_at=now,
        )
