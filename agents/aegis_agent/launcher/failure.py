"""Why a rank ended, in words: exit code, signal, out of memory, traceback or last lines."""

import json
import re
import signal
from pathlib import Path

from aegis.model.job import RankFailure

_TAIL_BYTES = 8192
_TAIL_LINES = 20
_ERROR_CHARACTERS = 8000
# Torch's own info and warning lines, "[W1202 06:18:04.8 socket.cpp:207] …", are no cause of an end.
_LIBRARY_NOTE = re.compile(r"(^|\] )\[[IW]\d{4} \d\d:\d\d:\d\d\.\d+ ")


def describe(
    *,
    generation: int,
    rank: int,
    at: float,
    status: int,
    last_step: int,
    oom_killed: bool,
    error: str,
) -> RankFailure:
    """The failure of a rank whose exit status was this: negative for a signal."""
    return RankFailure(
        generation=generation,
        rank=rank,
        at=at,
        exit_code=status if status >= 0 else None,
        signal=-status if status < 0 else None,
        oom_killed=oom_killed,
        last_step=last_step,
        text=_sentence(rank, status, error, oom_killed=oom_killed),
        error=error,
    )


def _sentence(rank: int, status: int, error: str, *, oom_killed: bool) -> str:
    if oom_killed:
        return f"rank {rank} was killed because memory ran out"
    if status < 0:
        return f"rank {rank} was killed by {signal_name(-status)}"
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    why = f": {lines[-1][:400]}" if lines else ""
    return f"rank {rank} exited with code {status}{why}"


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_error(error_file: Path, stderr: Path) -> str:
    """The traceback from the rank's error file, else the last lines of its stderr."""
    return (_traceback(error_file) or _tail(stderr))[-_ERROR_CHARACTERS:]


def _traceback(path: Path) -> str:
    """Torch's format; what a script wrote there itself is taken as it is."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    try:
        message = json.loads(text)["message"]
        return str(message["extraInfo"]["py_callstack"])
    except (ValueError, KeyError, TypeError):
        return text


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in text.strip().splitlines() if not _LIBRARY_NOTE.search(line)]
    return "\n".join(lines[-_TAIL_LINES:])


def oom_kills(root: Path = Path("/")) -> int:
    """How many processes the kernel has killed for want of memory in this process's cgroup."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return 0
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            file = root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.oom_control"
        elif controllers == "":
            file = root / "sys/fs/cgroup" / path.lstrip("/") / "memory.events"
        else:
            continue
        if (count := _count(file)) is not None:
            return count
    return 0


def _count(file: Path) -> int | None:
    try:
        words = file.read_text().split()
    except OSError:
        return None
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return int(pairs["oom_kill"]) if "oom_kill" in pairs else None
