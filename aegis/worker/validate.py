"""Tries a node before it serves again: memory, an all-reduce over its GPUs, the GPUs' memory.

    python -m aegis.worker.validate [--ranks N] [--megabytes M] [--gate allreduce_gbps=310]

Each step is a line of JSON on standard output, written when it has ended. The agent starts this as
a disposable process with a deadline: it never loads torch itself, and a driver that hangs takes
only this with it. Without torch the steps that need it could not be told; they are no pass.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aegis.worker.lifeline import end_with

_MEGABYTE = 1 << 20
_PATTERNS = (0x55, 0xAA, 0x00, 0xFF)
_SPARE_RANKS = 2  # on a node without GPUs


def main(arguments: Sequence[str] | None = None) -> int:
    """Every step; 1 where one failed."""
    chosen = _parser().parse_args(arguments)
    if chosen.parent:
        end_with(chosen.parent)
    gates = dict(chosen.gate)
    steps = [_say(_timed(lambda: host_memory(chosen.megabytes)))]
    try:
        from aegis.worker import validate_ranks  # noqa: PLC0415  torch may be missing or broken
    except (ImportError, OSError) as error:
        why = f"torch cannot be loaded by {sys.executable}: {error}"
        steps.append(_say({"name": "all-reduce", "state": "unknown", "text": why}))
        if chosen.gpus:
            steps.append(_say({"name": "gpu memory", "state": "unknown", "text": why}))
        return _code(steps)
    with tempfile.TemporaryDirectory(prefix="aegis-validate-") as folder:
        tried = validate_ranks.try_all(
            ranks=chosen.ranks or _SPARE_RANKS,
            gpus=chosen.gpus,
            fraction=chosen.gpu_memory_fraction,
            seconds_max=chosen.seconds,
            gates=gates,
            folder=Path(folder),
        )
        steps += map(_say, tried)
    return _code(steps)


def host_memory(megabytes: int) -> dict[str, Any]:
    """Patterns written to, and read back from, a part of the memory."""
    try:
        memory = bytearray(megabytes * _MEGABYTE)
    except MemoryError:
        text = f"{megabytes} MB of memory could not be had"
        return {"name": "host memory", "state": "unknown", "text": text}
    bad = 0
    for pattern in _PATTERNS:
        block = bytes([pattern]) * _MEGABYTE
        for number in range(megabytes):
            memory[number * _MEGABYTE : (number + 1) * _MEGABYTE] = block
        view = memoryview(memory)
        for number in range(megabytes):
            bad += view[number * _MEGABYTE : (number + 1) * _MEGABYTE] != block
        view.release()
    state = "fail" if bad else "pass"
    text = f"{bad} of {4 * megabytes} blocks of 1 MB did not read back as they were written"
    well = f"{megabytes} MB read back as they were written, with {len(_PATTERNS)} patterns"
    return {"name": "host memory", "state": state, "text": text if bad else well}


def _timed(step: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began_at = time.monotonic()
    return step() | {"seconds": round(time.monotonic() - began_at, 3)}


def _say(step: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(step), flush=True)  # noqa: T201  it is what the agent reads
    return step


def _code(steps: Sequence[dict[str, Any]]) -> int:
    return int(any(one["state"] == "fail" for one in steps))


def _gate(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, float(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aegis.worker.validate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--parent", type=int, default=0, help="end when this process does")
    add("--ranks", type=int, default=0, help="of the all-reduce where there is no GPU (2)")
    add("--gpus", type=int, default=0, help="so many are watched here; torch should see them")
    add("--megabytes", type=int, default=128, help="of the host's memory that are tried")
    add("--gpu-memory-fraction", type=float, default=0.25, help="of what is free on each GPU")
    add("--seconds", type=float, default=40.0, help="for all ranks together")
    add("--gate", type=_gate, action="append", default=[], metavar="NAME=NUMBER")
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a library that hangs at its unloading tells nothing new
