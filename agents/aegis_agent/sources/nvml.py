"""NVIDIA GPUs through NVML, in processes that may hang, crash and be killed.

The same arrangement as `aegis_agent.sources.gpu`: a prober that imports nvidia-ml-py and never
calls it, and a child for each GPU, forked from it, that does. This is the only module that imports
it, by its name `pynvml`.

Run as `python -m aegis_agent.sources.nvml`; `aegis_agent.sources.prober` starts it and reads its
lines of JSON. As long as its children run, they hold /dev/nvidia* open: NVIDIA's tools reset a GPU
only when nobody does, so the agent has to be stopped for that.
"""

import argparse
import gc
import os
import signal
import sys
from typing import Any

from aegis_agent.sources.children import Children, Page, Report, die_with_parent
from aegis_agent.sources.nvml_calls import LABELS, OPTIONAL
from aegis_agent.sources.nvml_reader import Reader


def main() -> int:
    """The prober: import the package, find the GPUs, keep a child for each."""
    parser = argparse.ArgumentParser(prog="python -m aegis_agent.sources.nvml", description=__doc__)
    parser.add_argument("--poll-seconds", type=float, default=1.0)
    parser.add_argument("--slow-seconds", type=float, default=10.0)
    parser.add_argument("--deadline-seconds", type=float, default=2.0)
    parser.add_argument("--events", action="store_true", help="wait for Xid events, too")
    arguments = parser.parse_args()
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends us
    report = Report(os.dup(1))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        nvml = _import_nvml()
    except ImportError as error:
        reason = "the Python package nvidia-ml-py is not installed: pip install nvidia-ml-py"
        if not isinstance(error, ModuleNotFoundError):
            reason = f"the Python package nvidia-ml-py cannot be imported ({error})"
        report("unavailable", reason=reason, gpus=True)
        return 1
    children = Children(
        page=Page(LABELS),
        report=report,
        deadline_seconds=arguments.deadline_seconds,
        optional=OPTIONAL,
        be=lambda child: Reader(nvml, arguments, children, child).run(),
    )
    gc.collect()
    gc.freeze()  # what is loaded by now is shared by all children
    return children.run()


def _import_nvml() -> Any:
    import pynvml  # noqa: PLC0415  it may be missing

    return pynvml


if __name__ == "__main__":
    sys.exit(main())
