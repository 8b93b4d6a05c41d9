"""amdsmi's events, pushed. A process of its own, and only where a site asks for it.

Listening needs /dev/kfd, which makes the listener a process of the GPU, and a reset kills those:
then the agent starts it again. It is told apart from what reads the GPUs, which must not die so.

Run as `python -m aegis_agent.sources.gpu_events`.
"""

import argparse
import os
import sys
import time
from typing import Any

from aegis_agent.probes.gpu_events import MEANING
from aegis_agent.sources import gpu_library
from aegis_agent.sources.children import Report, die_with_parent
from aegis_agent.sources.gpu import import_amdsmi, take_over_output
from aegis_agent.sources.gpu_library import Library

_WAIT_MILLISECONDS = 2000
_NO_DATA = frozenset({8, 40})  # TIMEOUT, NO_DATA: nothing happened
_FAILURES_MAX = 10  # in a row; then another process begins anew


def main() -> int:
    """Listen until the agent is gone."""
    parser = argparse.ArgumentParser(prog="python -m aegis_agent.sources.gpu_events")
    parser.parse_known_args()  # those of a prober; a listener has no pace of its own
    die_with_parent(os.getppid())
    report = Report(take_over_output())
    try:
        library = gpu_library.load(import_amdsmi)
    except gpu_library.LibraryError as error:
        report("unavailable", reason=str(error))
        return 1
    report("library", **library.told())
    if not library.fit().is_sure:
        report("unavailable", reason=library.fit().told())
        return 1
    try:
        return _listen(library, report)
    except library.package.AmdSmiLibraryException as error:
        report("unavailable", reason=f"amdsmi answered {error.get_error_code()}")
        return 1


def _listen(library: Library, report: Report) -> int:
    smi = library.package
    smi.amdsmi_init()
    handles = smi.amdsmi_get_processor_handles()
    addresses = {handle.value: smi.amdsmi_get_gpu_device_bdf(handle) for handle in handles}
    kinds = [kind for kind in smi.AmdSmiEvtNotificationType if kind.name in MEANING]
    readers = [smi.AmdSmiEventReader(handle, kinds) for handle in handles]
    failures = 0
    report("listening", gpus=len(readers))
    while readers and failures < _FAILURES_MAX:
        try:
            # It is the library's one queue, whichever of the readers asks.
            events = readers[0].read(_WAIT_MILLISECONDS)
        except smi.AmdSmiLibraryException as error:
            failures = 0 if error.get_error_code() in _NO_DATA else failures + 1
            events = []
        else:
            failures = 0
        for event in events:
            _tell(report, addresses, event)
        report("alive")
    return 1


def _tell(report: Report, addresses: dict[int, str], event: dict[str, Any]) -> None:
    address = addresses.get(event["processor_handle"].value)
    if address is not None and event["event"] in MEANING:
        message = " ".join(event["message"].split())[:200]
        report("event", at=time.time(), address=address, event=event["event"], message=message)


if __name__ == "__main__":
    sys.exit(main())
