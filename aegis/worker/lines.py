"""JSON lines between a launcher and the processes that it owns.

They come on standard input and go to what was standard output. Standard output itself is pointed
at standard error, so that nothing a library prints can break a line.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

_READ_BYTES = 1 << 16


class Lines:
    """Both directions. Reading ends when the launcher has closed its side or is gone."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._rest = b""

    def fileno(self) -> int:
        """Where the launcher's lines arrive, for a selector."""
        return 0

    def say(self, event: str, **fields: object) -> None:
        """One line to the launcher. A launcher that is gone is noticed on reading."""
        line = json.dumps({"event": event, **fields}).encode() + b"\n"
        while line:
            try:
                line = line[os.write(self._out, line) :]
            except BrokenPipeError:
                return

    def take(self) -> list[dict[str, Any]] | None:
        """The lines that have arrived, waiting for the first; None at the end."""
        read = os.read(0, _READ_BYTES)
        if not read:
            return None
        *whole, self._rest = (self._rest + read).split(b"\n")
        return [json.loads(line) for line in whole]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (messages := self.take()) is not None:
            yield from messages

    def close(self) -> None:
        """Let go of both pipes, in a process that is to be something else."""
        os.close(self._out)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
