"""Why a rank ended, in words: exit code, signal, out of memory, traceback or last lines."""

import contextlib
import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

from aegis.model.job import RankFailure
from aegis.wire.stacks import crash, main_thread

_TAIL_BYTES = 8192
_TAIL_LINES = 20
_ERROR_CHARACTERS = 8000
# Torch's own info and warning lines, "[W1202 06:18:04.8 socket.cpp:207] …", are no cause of an end.
_SIGNALS = {
    signal.SIGSEGV: "native code touched memory that is not its own",
    signal.SIGBUS: "mapped memory could not be had: is /dev/shm or the disk full?",
    signal.SIGABRT: "native code gave up: an assertion, or a C++ exception that nobody caught",
    signal.SIGILL: "an instruction that this processor does not have",
    signal.SIGFPE: "an arithmetic fault in native code",
    signal.SIGKILL: "sent by somebody; memory had not run out",
    signal.SIGTERM: "somebody asked it to end",
    signal.SIGINT: "somebody interrupted it",
    signal.SIGPIPE: "it wrote to a pipe that nobody reads",
    signal.SIGXCPU: "its limit of processor time is used up",
}
_CODES = {
    2: "wrong arguments, by custom",
    126: "the program is not executable",
    127: "the program was not found",
}
_SHELL = 128  # a shell's way to say that its program ended by a signal
# What a rank says that has lost another one, through gloo, NCCL, RCCL or the store.
_LOST_A_PEER = re.compile(
    r"Connection (was likely )?(closed|reset)|Broken pipe|Connection refused"
    r"|failed to recv, got 0 bytes|remote process exited|ncclRemoteError|ncclSystemError"
    r"|communicator was aborted|collective operation timeout|Timed out waiting",
)
_OF_THE_GROUP = re.compile(
    r"gloo|NCCL|RCCL|TCPStore|ProcessGroup|Dist(Backend|Network|Store)?Error|c10d", re.IGNORECASE
)
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
        victim=not oom_killed and has_lost_a_peer(error),
    )


def raised(*, generation: int, rank: int, at: float, last_step: int, error: str) -> RankFailure:
    """The failure of a rank that has written its traceback and is still on its way out."""
    return RankFailure(
        generation=generation,
        rank=rank,
        at=at,
        last_step=last_step,
        text=f"rank {rank} failed: {_last_line(error)}",
        error=error,
        victim=has_lost_a_peer(error),
    )


def told(failure: RankFailure) -> list[str]:
    """What people read of it: one sentence, and what the rank itself said when it ended.

    A signal leaves it no words: the last lines of its stderr are of something else.
    """
    step = f" at step {failure.last_step}" if failure.last_step else ""
    sentence = f"generation {failure.generation}: {failure.text}{step}"
    return [sentence, failure.error] if failure.error and failure.signal is None else [sentence]


def first_of(known: RankFailure, found: RankFailure) -> RankFailure:
    """The one that was first; one that says it lost another rank was not."""
    if known.rank == found.rank:
        return replace(found, victims=known.victims)
    first, later = known, found
    if (found.victim, found.at) < (known.victim, known.at):
        first, later = found, known
    victims = {*known.victims, *found.victims, *((later.rank,) if later.victim else ())}
    return replace(first, victims=tuple(sorted(victims - {first.rank})))


def has_lost_a_peer(error: str) -> bool:
    """Whether the error is what a rank says when another one has gone."""
    last = _last_line(error)
    return bool(_LOST_A_PEER.search(last) and _OF_THE_GROUP.search(last))


def _last_line(error: str) -> str:
    """The line that people look for: what was raised, with what belongs to its message."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def _sentence(rank: int, status: int, error: str, *, oom_killed: bool) -> str:
    if oom_killed:
        return f"rank {rank} was killed because memory ran out"
    if status < 0:
        meaning = f" ({_SIGNALS[-status]})" if -status in _SIGNALS else ""  # type: ignore[index]
        return f"rank {rank} was killed by {signal_name(-status)}{_crashed_at(error)}{meaning}"
    why = f": {last}" if (last := _last_line(error)) else ""
    meaning = _CODES.get(status, "")
    if status > _SHELL and not meaning:
        meaning = f"a program it ran ended by {signal_name(status - _SHELL)}"
    return f"rank {rank} exited with code {status}{f' ({meaning})' if meaning else ''}{why}"


def _crashed_at(error: str) -> str:
    """The innermost call of a crash, as faulthandler has left it."""
    frames = main_thread(error)
    return f" at {frames[0]}" if frames else ""


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_error(error_file: Path, stderr: Path) -> str:
    """The traceback from the rank's error file, else a crash's stack or the end of its stderr."""
    return (_traceback(error_file) or _tail(stderr))[-_ERROR_CHARACTERS:]


def raised_at(error_file: Path) -> float | None:
    """When the rank wrote its error; None: it has not."""
    try:
        return error_file.stat().st_mtime
    except OSError:
        return None


def leave_error(error_file: Path, text: str, error: str) -> None:
    """Write what torchrun leaves open: an error file also for a rank that could write none."""
    extra = {"py_callstack": error or text, "timestamp": str(int(time.time()))}
    with contextlib.suppress(OSError), error_file.open("x") as file:  # the rank's own goes before
        json.dump({"message": {"message": text, "extraInfo": extra}}, file)


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
    if stack := crash(text):
        return stack
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
    return _count(root / "proc/vmstat") or 0  # of the whole host


def _count(file: Path) -> int | None:
    try:
        words = file.read_text().split()
    except OSError:
        return None
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return int(pairs["oom_kill"]) if "oom_kill" in pairs else None
