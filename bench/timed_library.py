"""The GPU prober with every call of the C library timed: what the simulator itself costs.

Started by `bench/agent.py` in place of `python -m aegis_agent.sources.gpu`, alone. The time inside
each C function goes to a shared page, a slot for each process: AEGIS_BENCH_PAGE. A real library has
a cost of its own there, which nobody knows without one.
"""

import ctypes
import mmap
import os
import struct
import sys
import time
from pathlib import Path

from aegis_agent.sources import gpu

SLOTS, SLOT = 4096, struct.Struct("qq")  # calls, nanoseconds


def totals(page: Path) -> tuple[int, int]:
    """All calls so far, and the nanoseconds in them."""
    pairs = SLOT.iter_unpack(page.read_bytes())
    calls, nanoseconds = zip(*pairs, strict=True)
    return sum(calls), sum(nanoseconds)


def main() -> int:
    """The prober, timed."""
    file = Path(os.environ["AEGIS_BENCH_PAGE"]).open("r+b")  # noqa: SIM115  as long as we live
    page = mmap.mmap(file.fileno(), SLOTS * SLOT.size)
    load = gpu.import_amdsmi

    def load_timed():
        amdsmi = load()
        _time_all(amdsmi.amdsmi_wrapper, page)
        return amdsmi

    gpu.import_amdsmi = load_timed
    return gpu.main()


def _time_all(wrapper, page) -> None:
    for name, function in vars(wrapper).items():
        if name.startswith("amdsmi_") and isinstance(function, ctypes._CFuncPtr):  # noqa: SLF001
            setattr(wrapper, name, _timed(function, page))


class _Timed:
    """A C function that notes how long it took."""

    def __init__(self, function, page) -> None:
        self.__dict__.update(function=function, page=page)

    def __call__(self, *arguments):
        began_at = time.thread_time_ns()
        result = self.function(*arguments)
        took = time.thread_time_ns() - began_at
        offset = os.getpid() % SLOTS * SLOT.size
        calls, nanoseconds = SLOT.unpack_from(self.page, offset)
        SLOT.pack_into(self.page, offset, calls + 1, nanoseconds + took)
        return result

    def __getattr__(self, name):
        return getattr(self.function, name)

    def __setattr__(self, name, value) -> None:
        setattr(self.function, name, value)


def _timed(function, page):
    return _Timed(function, page)


if __name__ == "__main__":
    sys.exit(main())
