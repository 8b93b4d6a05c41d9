"""Showing what ranks print, line by line, each with its rank.

In a thread of its own: whoever reads our output may stop reading, and supervision must not.
"""

import re
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

_PAUSE_SECONDS = 0.1
_READ_BYTES = 1 << 16
_DRAIN_SECONDS = 2.0
_FOLLOWED_MAX = 64
# A progress bar goes back to the line's begin instead of on to the next.
_LINE_ENDS = re.compile(rb"(?<=\n)|(?<=\r)(?=[^\n])")


@dataclass
class _Followed:
    path: Path
    prefix: bytes
    to: BinaryIO
    offset: int = 0
    rest: bytes = b""

    def pass_on(self) -> bool:
        """Show what is new; whether there was anything."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                read = file.read(_READ_BYTES)
        except OSError:
            return False
        self.offset += len(read)
        *lines, self.rest = _LINE_ENDS.split(self.rest + read)
        self._show(lines)
        return bool(read)

    def finish(self) -> None:
        """Show a last line that has no end."""
        self._show([self.rest + b"\n"] if self.rest else [])
        self.rest = b""

    def _show(self, lines: list[bytes]) -> None:
        if lines:
            self.to.write(b"".join(self.prefix + line for line in lines))
            self.to.flush()


@dataclass
class Output:
    """The files that are shown."""

    _followed: list[_Followed] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to show."""
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def follow(self, rank: int, files: Iterable[tuple[Path, BinaryIO]]) -> None:
        """Show these files of a rank from now on."""
        prefix = f"[rank{rank}] ".encode()
        new = [_Followed(path, prefix, to) for path, to in files]
        with self._lock:
            # Two generations are enough: what is older has been shown long since.
            self._followed = [*self._followed[-_FOLLOWED_MAX:], *new]

    def close(self) -> None:
        """Show what is left, unless nobody reads."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_DRAIN_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_SECONDS):
                self._look()
            self._look()
            for one in self._followed:
                one.finish()
        except (BrokenPipeError, ValueError):
            return  # nobody reads any more; the files have it all

    def _look(self) -> None:
        with self._lock:
            followed = list(self._followed)
        while any([one.pass_on() for one in followed]):  # noqa: C419  each gets its turn
            pass


def streams(number: int) -> list[tuple[str, BinaryIO]]:
    """The streams that a --tee number names: (attribute of the rank, where to show it)."""
    named = [(1, "stdout", sys.stdout.buffer), (2, "stderr", sys.stderr.buffer)]
    return [(name, to) for bit, name, to in named if number & bit]
