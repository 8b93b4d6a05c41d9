"""How a launcher asks a rank where it is: a signal out, stacks in a file, and what they say.

`faulthandler` in the rank writes the stacks of all its threads, also while the interpreter is held
up in a library. It does so from within the signal's handler, so a stopped process cannot answer.
"""

import re
import signal
from dataclasses import dataclass

SIGNAL = int(signal.SIGRTMIN) + 7  # SIGUSR1 and SIGUSR2 belong to the script
FILE = "stacks.log"
FLIGHT_PREFIX = "flight-recording-"  # torch adds the rank

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)$')
_OURS = ("aegis/worker/", "<frozen runpy>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One call."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line} {self.name}"


def main_thread(text: str) -> tuple[Frame, ...]:
    """The calls of the thread that answered, innermost first, as far as the script.

    The kernel gives the signal to the main thread unless that one refuses it.
    """
    threads = _threads(text)
    return _of_script(threads[0]) if threads else ()


def _threads(text: str) -> list[tuple[Frame, ...]]:
    """Each thread's calls; the one that answered first, then the oldest."""
    current: list[list[Frame]] = []
    others: list[list[Frame]] = []
    frames: list[Frame] = []
    for line in text.splitlines():
        if match := _THREAD.match(line):
            frames = []
            (current if match[1] == "Current thread" else others).append(frames)
        elif match := _FRAME.match(line):
            frames.append(Frame(file=match["file"], line=int(match["line"]), name=match["name"]))
    return [tuple(one) for one in (*current, *reversed(others))]


def _of_script(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Without the calls that led to the script."""
    kept = list(frames)
    while kept and any(part in kept[-1].file for part in _OURS):
        kept.pop()
    while kept and kept[-1].name in ("_run_code", "_run_module_as_main"):
        kept.pop()
    return tuple(kept or frames)


def crash(text: str) -> str:
    """The last account of a crash that faulthandler has left, as far as the script's own calls."""
    begin = text.rfind("Fatal Python error:")
    if begin < 0:
        return ""
    lines = [line for line in text[begin:].splitlines() if not _is_beside(line)]
    return "\n".join(lines).strip()


def _is_beside(line: str) -> bool:
    """Whether a line of a crash says nothing of the script: modules, and what led to it."""
    match = _FRAME.match(line)
    ours = match is not None and any(part in match["file"] for part in _OURS)
    return ours or line.startswith("Extension modules:")
