"""GPUs through amdsmi, in processes that may hang, crash and be killed.

    agent ── prober ─┬─ child of gpu0        the prober imports amdsmi once and never calls it;
                     ├─ child of gpu1        its children, forked from it, do: one per GPU, so that
                     └─ …                    a wedged GPU or a crash costs one child

Run as `python -m aegis_agent.sources.gpu`; `aegis_agent.sources.prober` starts it and reads its
lines of JSON. This is the only module that imports amdsmi, and those it uses import little else:
its memory is that of every child.

`aegis_agent.sources.children` keeps the deadlines, `aegis_agent.sources.gpu_reader` is a child.
"""

import argparse
import gc
import os
import signal
import sys
from typing import Any

from aegis_agent.sources import gpu_calls, gpu_library
from aegis_agent.sources.children import Children, Page, Report, die_with_parent
from aegis_agent.sources.gpu_reader import Reader, library_blocks


def main() -> int:
    """The prober: import amdsmi, find the GPUs, keep a child for each until the agent is gone."""
    parser = argparse.ArgumentParser(prog="python -m aegis_agent.sources.gpu", description=__doc__)
    parser.add_argument("--poll-seconds", type=float, default=1.0)
    parser.add_argument("--slow-seconds", type=float, default=10.0)
    parser.add_argument("--deadline-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends us
    report = Report(take_over_output())
    try:
        library = gpu_library.load(import_amdsmi)
    except gpu_library.LibraryError as error:
        report("unavailable", reason=str(error), gpus=False)
        return 1
    children = Children(
        page=Page(gpu_calls.labels(library_blocks(library.package))),
        report=report,
        deadline_seconds=arguments.deadline_seconds,
        optional=gpu_calls.optional_labels(),
        be=lambda child: Reader(library, arguments, children, child).run(),
    )
    gc.collect()
    gc.freeze()  # what is loaded by now is shared by all children
    return children.run()


def take_over_output() -> int:
    """The agent's pipe; what the package prints there when it looks in vain is for nobody."""
    descriptor = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return descriptor


def import_amdsmi() -> Any:
    """The only place that names it."""
    import amdsmi  # noqa: PLC0415  the import itself may fail in many ways

    return amdsmi


if __name__ == "__main__":
    sys.exit(main())
