"""A small process that outlives the ranks' parent just long enough to clear up after it.

The kernel ends ranks with their parent, but not what ranks have started: data loaders, tokenizers,
shells. The sweeper knows the process group of each rank and ends them all when the parent is gone,
however it went. It is forked before anything is imported, so it costs next to no memory.
"""

import contextlib
import os
import signal


class Sweeper:
    """The parent's end of the pipe to its sweeper."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        if os.fork() == 0:
            os.close(self._writing)
            _sweep(reading)
        os.close(reading)

    def watch(self, group: int) -> None:
        """A rank has started: end its group when the parent is gone."""
        self._tell(group)

    def forget(self, group: int) -> None:
        """The group is over, and its number may come to mean another."""
        self._tell(-group)

    def close(self) -> None:
        """Let go of the pipe, in a process that is not the parent any more."""
        os.close(self._writing)

    def _tell(self, number: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # a sweeper that was killed: the kernel's
            os.write(self._writing, b"%d\n" % number)  # promise for the ranks holds without it


def end_group(group: int) -> None:
    """Kill a rank and everything it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _sweep(reading: int) -> None:
    os.setsid()
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: set[int] = set()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.closerange(3, reading)
    os.closerange(reading + 1, 64)
    with os.fdopen(reading) as lines:
        for line in lines:
            number = int(line)
            groups = groups | {number} if number > 0 else groups - {-number}
    for group in groups:
        end_group(group)
    os._exit(0)
