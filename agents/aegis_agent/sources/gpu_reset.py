"""A GPU's hive and its reset: one question or one act, in a process of its own that may hang.

    python -m aegis_agent.sources.gpu_reset domain 0000:c1:00.0
    python -m aegis_agent.sources.gpu_reset reset 0000:c1:00.0

The root helper starts it with a deadline, and kills it when that is over. It prints one line of
JSON: {"error": …} or what was asked for. A reset of one GPU is a reset of its whole hive: the
driver stops all of them, and the kernel kills whoever has one open for compute.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from aegis_agent.sources import gpu_library
from aegis_agent.sources.children import die_with_parent
from aegis_agent.sources.gpu import import_amdsmi, take_over_output
from aegis_agent.sources.gpu_calls import number, text

NO_HIVE = (0, None)
_LINKS = "XGMI_WAFL"  # the block that counts errors of the links between GPUs


class ResetError(Exception):
    """It cannot be done; the sentence says why."""


def main() -> int:
    """Answer one question, or do one reset."""
    parser = argparse.ArgumentParser(
        prog="python -m aegis_agent.sources.gpu_reset", description=__doc__
    )
    parser.add_argument("act", choices=("domain", "reset"))
    parser.add_argument("address", metavar="BDF")
    arguments = parser.parse_args()
    die_with_parent(os.getppid())
    output = take_over_output()
    act: Callable[[gpu_library.Library, str], dict[str, Any]]
    act = domain if arguments.act == "domain" else reset
    try:
        answer = act(gpu_library.load(import_amdsmi), arguments.address)
    except (gpu_library.LibraryError, ResetError) as error:
        answer = {"error": str(error)}
    os.write(output, json.dumps(answer).encode() + b"\n")
    return 1 if "error" in answer else 0


def domain(library: gpu_library.Library, address: str) -> dict[str, Any]:
    """Every GPU of the hive by address, with its link errors, and the processes that hold one."""
    amdsmi = library.package
    gpus = _listed(amdsmi)
    if address not in gpus:
        raise ResetError(f"amdsmi lists no GPU at {address}")
    if "process_list" in library.fit().refused:
        raise ResetError(f"the processes that hold a GPU cannot be listed: {library.fit().told()}")
    hive = _hive(amdsmi, gpus[address])
    members = [
        one
        for one, handle in gpus.items()
        if one == address or (hive not in NO_HIVE and _hive(amdsmi, handle) == hive)
    ]
    holders = {
        int(process["pid"]): text(process["name"]) or "?"
        for one in members
        for process in _ask(amdsmi, amdsmi.amdsmi_get_gpu_process_list, gpus[one])
    }
    return {
        "members": {one: _link_errors(amdsmi, gpus[one]) for one in sorted(members)},
        "holders": sorted(holders.items()),
    }


def reset(library: gpu_library.Library, address: str) -> dict[str, Any]:
    """Reset the GPU, and with it its hive."""
    amdsmi = library.package
    gpus = _listed(amdsmi)
    if address not in gpus:
        raise ResetError(f"amdsmi lists no GPU at {address}")
    _ask(amdsmi, amdsmi.amdsmi_reset_gpu, gpus[address])
    return {"reset": address}


def _listed(amdsmi: Any) -> dict[str, Any]:
    """The handles by address; one that does not answer is not there."""
    _ask(amdsmi, amdsmi.amdsmi_init)
    found = {}
    for handle in _ask(amdsmi, amdsmi.amdsmi_get_processor_handles):
        try:
            found[amdsmi.amdsmi_get_gpu_device_bdf(handle)] = handle
        except amdsmi.AmdSmiException:
            continue
    return found


def _hive(amdsmi: Any, handle: Any) -> int | None:
    try:
        return number(amdsmi.amdsmi_get_xgmi_info(handle)["xgmi_hive_id"])
    except amdsmi.AmdSmiException as error:
        raise ResetError(f"the hive of a GPU is not known: {_reason(error)}") from error


def _link_errors(amdsmi: Any, handle: Any) -> list[int] | None:
    """Correctable and uncorrectable errors of its links; None where it does not tell."""
    try:
        counts = amdsmi.amdsmi_get_gpu_ecc_count(handle, amdsmi.AmdSmiGpuBlock[_LINKS])
    except (amdsmi.AmdSmiException, KeyError):
        return None
    found = [number(counts[name]) for name in ("correctable_count", "uncorrectable_count")]
    return [one for one in found if one is not None] if None not in found else None


def _ask(amdsmi: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except amdsmi.AmdSmiException as error:
        raise ResetError(f"{call.__name__} {_reason(error)}") from error


def _reason(error: Any) -> str:
    code = getattr(error, "get_error_code", None)
    return f"answered {code()}" if code is not None else f"failed: {error}"


if __name__ == "__main__":
    sys.exit(main())
