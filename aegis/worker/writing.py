"""The rank's side of its writer (`aegis.worker.writer`)."""

import base64
import contextlib
import errno
import json
import subprocess
import sys
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aegis.worker.folder import FileSum
from aegis.worker.peers import Keeper
from aegis.worker.shelf import Entry

_END_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to become of what was copied; None for nowhere."""

    entry: Entry
    own: Path | None = None  # where it counts as this node's memory
    claim: str = ""  # by which that memory is this save's
    disk: Path | None = None  # its folder on this node's disk
    shared: Path | None = None  # its file in the checkpoint folder
    peer: Keeper | None = None

    def line(self) -> dict[str, Any]:
        """As the writer reads it."""
        places = {"own": self.own, "disk": self.disk, "shared": self.shared}
        return {
            "op": "write",
            "length": self.entry.size,
            "entry": asdict(self.entry),
            "peer": self.peer and asdict(self.peer),
            "claim": self.claim,
            **{name: path and str(path) for name, path in places.items()},
        }


class Writer:
    """The process that writes; started when it is needed, again when it has died.

    It has a session of its own: a rank that is killed does not take it along at once, so that what
    was copied comes to count.
    """

    def __init__(self, file: int, metadata: bytes) -> None:
        command = [sys.executable, "-m", "aegis.worker.writer", str(file)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[file],
            bufsize=0,
            start_new_session=True,
        )
        self._rest = b""
        self._said: dict[str, dict[str, Any]] = {}
        self.close = weakref.finalize(self, _end, self._process)
        self.close.atexit = False  # it ends with the pipe, and the last save may still need it
        self._tell(op="plan", metadata=base64.b64encode(metadata).decode())

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._process.poll() is None

    def write(self, order: Order) -> FileSum:
        """Have it done, all but the copy at the peer; raises OSError where that fails."""
        self._said.clear()
        self._tell(**order.line())
        said = self._hear("written", "failed")
        if said["event"] == "failed":
            raise OSError(said["errno"], said["reason"], said["path"])
        return FileSum(size=said["size"], hash=said["hash"])

    def copied(self) -> dict[str, Any]:
        """How the copy to the peer went: `seconds`, or the `reason` why there is none."""
        try:
            return self._hear("copied")
        except OSError as error:
            return {"reason": error.strerror}

    def _tell(self, **message: Any) -> None:
        rest = json.dumps(message).encode() + b"\n"
        asked = self._process.stdin
        assert asked is not None  # noqa: S101  it is a pipe
        with contextlib.suppress(BrokenPipeError):  # then it does not answer, either
            while rest:
                rest = rest[asked.write(rest) or 0 :]

    def _hear(self, *events: str) -> dict[str, Any]:
        while True:
            for event in events:
                if event in self._said:
                    return self._said.pop(event)
            line = self._line()
            said = json.loads(line)
            self._said[said["event"]] = said

    def _line(self) -> bytes:
        told = self._process.stdout
        assert told is not None  # noqa: S101  it is a pipe
        while b"\n" not in self._rest:
            read = told.read(1 << 16)
            if not read:
                raise OSError(errno.EPIPE, "the process that writes checkpoints has died")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _end(process: subprocess.Popen[bytes]) -> None:
    """It ends by itself; a peer that does not answer may keep it a little longer."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    if process.stdout is not None:
        process.stdout.close()
