"""Answering a launcher that asks where this rank is, also when it is stuck.

The answer is written by `faulthandler` from within a signal's handler, into a file beside the
rank's output. Torch's flight recorder is told to leave its recordings there too, unless the script
or its user has said otherwise.
"""

import faulthandler
import os
import sys
from pathlib import Path

from aegis.wire.stacks import FILE, FLIGHT_PREFIX, SIGNAL

_FLIGHT_ENTRIES = "2000"
_opened: list[int] = []


def answer(folder: Path) -> None:
    """Write the stacks of all threads into this folder whenever the launcher asks."""
    try:
        file = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        print(f"the file for stacks was not opened: {error}", file=sys.stderr)  # noqa: T201
        return
    faulthandler.register(SIGNAL, file=file, all_threads=True)
    while _opened:
        os.close(_opened.pop())
    _opened.append(file)


def record_flights(folder: Path) -> None:
    """Have torch record the collectives of NCCL and RCCL, to be written here on demand."""
    prefix = str(folder / FLIGHT_PREFIX)
    asked = "TORCH_FR_BUFFER_SIZE" in os.environ or "TORCH_NCCL_TRACE_BUFFER_SIZE" in os.environ
    if not asked:
        os.environ["TORCH_FR_BUFFER_SIZE"] = _FLIGHT_ENTRIES
    for name, value in (
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),
        ("TORCH_FR_DUMP_TEMP_FILE", prefix),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", prefix),
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", prefix),
    ):
        os.environ.setdefault(name, value)
