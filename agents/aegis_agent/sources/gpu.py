"""GPUs through amdsmi, in processes that may hang, crash and be killed.

    agent ── prober ─┬─ child of gpu0        the prober imports amdsmi once and never calls it;
                     ├─ child of gpu1        its children, forked from it, do: one per GPU, so that
                     └─ …                    a wedged GPU or a crash costs one child

Run as `python -m aegis_agent.sources.gpu`; `aegis_agent.sources.prober` starts it and reads its
lines of JSON. This is the only module that imports
amdsmi, and it imports little else: its memory is that of every child.

`aegis_agent.sources.children` keeps the deadlines.
"""

import argparse
import ctypes
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from aegis_agent.sources.children import DISCOVERY, Child, Children, Page, Report, die_with_parent

_CALLS = ("start", "init", "processor_handles", "identity", "ecc_enabled", "total_ecc_count",
          "vram_usage", "bad_page_info", "bad_page_threshold")  # fmt: skip
_DRIVER_NOT_LOADED = 34
_UNKNOWN_STATUS = 0xFFFFFFFF


def main() -> int:
    """The prober: import amdsmi, find the GPUs, keep a child for each until the agent is gone."""
    parser = argparse.ArgumentParser(prog="python -m aegis_agent.sources.gpu", description=__doc__)
    parser.add_argument("--poll-seconds", type=float, default=1.0)
    parser.add_argument("--slow-seconds", type=float, default=10.0)
    parser.add_argument("--deadline-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends us
    report = Report(_take_over_output())
    amdsmi = _import_amdsmi(report)
    if amdsmi is None:
        return 1
    page = Page([*_CALLS, *(f"ecc_count({name})" for name in _blocks(amdsmi))])
    children = Children(
        page=page,
        report=report,
        deadline_seconds=arguments.deadline_seconds,
        be=lambda child: _Reader(amdsmi, arguments, children, child).run(),
    )
    gc.collect()
    gc.freeze()  # what is loaded by now is shared by all children
    return children.run()


def _take_over_output() -> int:
    """The agent's pipe; what the package prints there when it looks in vain is for nobody."""
    descriptor = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return descriptor


def _import_amdsmi(report: Report) -> Any:
    """The amdsmi package, ROCm's own before PyPI's; None when it or its library is missing."""
    rocm = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm"
    sys.path.insert(0, os.path.join(rocm, "share", "amd_smi"))  # noqa: PTH118  no pathlib here
    try:
        import amdsmi  # noqa: PLC0415  the import itself may fail in many ways
    except ModuleNotFoundError:
        report("unavailable", reason="the Python package amdsmi is not installed", gpus=False)
    # All seen: the wrapper fails in whatever way its missing library makes it fail.
    except (ImportError, OSError, KeyError, AttributeError) as error:
        reason = f"amdsmi finds no usable libamd_smi.so under {rocm} or on the linker's path"
        reason += f" ({type(error).__name__}: {error})"
        report("unavailable", reason=reason, gpus=False)
    else:
        return amdsmi
    return None


class _CallError(Exception):
    """A call answered with a status other than success."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call} answered {status}")
        self.status = status


class _Reader:
    """A child: calls amdsmi, and ends with its process."""

    def __init__(
        self,
        amdsmi: Any,
        options: argparse.Namespace,
        children: Children,
        child: Child,
    ) -> None:
        self._amdsmi = amdsmi
        self._options = options
        self._children = children
        self._report = children.report
        self._page = children.page
        self._child = child
        self._polls = 0

    def run(self) -> NoReturn:
        """Never returns: what the prober has registered for its own end is not for us."""
        code = 1
        try:
            if self._child.index == DISCOVERY:
                self._discover()
            else:
                self._poll()
            code = 0
        except _CallError as error:
            self._failed(error)
        # The last resort of a forked process: it must not go on as if it were the prober.
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(code)

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self._page.write(self._child.index, time.monotonic(), name, self._polls)
        try:
            return function(*arguments)
        except self._amdsmi.AmdSmiLibraryException as error:
            raise _CallError(name, error.get_error_code()) from error
        except self._amdsmi.AmdSmiException as error:
            raise _CallError(name, _UNKNOWN_STATUS) from error
        finally:
            # The name stays: it says in which call a process died.
            self._page.write(self._child.index, 0.0, name, self._polls)

    def _failed(self, error: _CallError) -> None:
        reason = f"amdsmi {error}"
        if error.status == _DRIVER_NOT_LOADED:
            reason = f"the amdgpu driver is not loaded (amdsmi {error})"
        if self._child.index == DISCOVERY:
            self._report("unavailable", reason=reason, gpus=True)
        else:
            self._report("failed", index=self._child.index, at=time.time(), reason=reason)

    # discovery

    def _discover(self) -> None:
        smi = self._amdsmi
        self._report("library", **self._library())
        self._call("init", smi.amdsmi_init)
        handles = self._call("processor_handles", smi.amdsmi_get_processor_handles)
        gpus = [self._identity(handle) for handle in handles]
        if not gpus:
            self._report("unavailable", reason="amdsmi lists no GPU", gpus=False)
            os._exit(1)
        driver = self._call("identity", smi.amdsmi_get_gpu_driver_info, handles[0])
        self._report("library", **self._library(), driver=driver["driver_version"])
        for index, gpu in enumerate(gpus):
            self._report("gpu", index=index, count=len(gpus), **gpu)
        self._children.found([gpu["bdf"] for gpu in gpus])

    def _identity(self, handle: Any) -> dict[str, str]:
        smi = self._amdsmi
        board = self._call("identity", smi.amdsmi_get_gpu_board_info, handle)
        return {
            "bdf": self._call("identity", smi.amdsmi_get_gpu_device_bdf, handle),
            "uuid": self._call("identity", smi.amdsmi_get_gpu_device_uuid, handle),
            "serial": str(board["product_serial"]).replace(" ", ""),
            "model": str(board["product_name"]),
        }

    def _library(self) -> dict[str, Any]:
        """Which library was loaded: what the process has mapped, not what was asked for."""
        version = self._try({}, "start", self._amdsmi.amdsmi_get_lib_version)
        path = _mapped_library()
        return {
            "package": getattr(self._amdsmi, "__version__", "of ROCm"),
            "package_path": os.path.dirname(self._amdsmi.__file__ or ""),  # noqa: PTH120
            "path": path,
            "version": ".".join(str(version[part]) for part in ("major", "minor", "release"))
            if version
            else "of unknown version",
            "simulated": bool(path) and hasattr(ctypes.CDLL(path), "aegis_simulated"),
        }

    # polling

    def _poll(self) -> None:
        smi = self._amdsmi
        self._call("init", smi.amdsmi_init)
        handle = self._find()
        blocks = self._enabled_blocks(handle)
        slow_every = max(1, round(self._options.slow_seconds / self._options.poll_seconds))
        while True:
            self._report("reading", **self._read(handle, blocks, self._polls % slow_every == 0))
            self._polls += 1
            self._page.write(self._child.index, 0.0, "start", self._polls)
            # All children wake together, so that the agent wakes once.
            poll = self._options.poll_seconds
            time.sleep(poll - time.monotonic() % poll)

    def _find(self) -> Any:
        smi = self._amdsmi
        for handle in self._call("processor_handles", smi.amdsmi_get_processor_handles):
            if self._call("identity", smi.amdsmi_get_gpu_device_bdf, handle) == self._child.address:
                return handle
        raise _CallError(f"processor_handles without {self._child.address}", _UNKNOWN_STATUS)

    def _enabled_blocks(self, handle: Any) -> dict[str, Any]:
        blocks = _blocks(self._amdsmi)
        try:
            mask = self._call("ecc_enabled", self._amdsmi.amdsmi_get_gpu_ecc_enabled, handle)
        except _CallError:  # so try them all
            return blocks
        return {name: block for name, block in blocks.items() if mask & block} or blocks

    def _read(self, handle: Any, blocks: dict[str, Any], slow: bool) -> dict[str, Any]:  # noqa: FBT001
        smi = self._amdsmi
        counts: dict[str, list[int]] = {}
        failed: dict[str, int] = {}
        for name, block in blocks.items():
            call = f"ecc_count({name})"
            answer = self._try(failed, call, smi.amdsmi_get_gpu_ecc_count, handle, block)
            if answer is not None:
                counts[name] = _counts(answer)
        vram = None
        if slow or not counts:
            vram = self._try(failed, "vram_usage", smi.amdsmi_get_gpu_vram_usage, handle)
        if not counts and vram is not None:
            # The total answers zeros when it can read nothing: believed only beside a live call.
            total = self._try(failed, "total_ecc_count", smi.amdsmi_get_gpu_total_ecc_count, handle)
            counts = {} if total is None else {"all": _counts(total)}
        return {
            "index": self._child.index,
            "at": time.time(),
            "ecc": counts,
            "failed": failed,
            "vram": vram is not None,
            **(self._read_pages(failed, handle) if slow else {}),
        }

    def _read_pages(self, failed: dict[str, int], handle: Any) -> dict[str, Any]:
        """Seldom: asking often floods the kernel log."""
        smi = self._amdsmi
        pages = self._try(failed, "bad_page_info", smi.amdsmi_get_gpu_bad_page_info, handle)
        threshold = self._try(
            failed, "bad_page_threshold", smi.amdsmi_get_gpu_bad_page_threshold, handle
        )
        return {"pages": None if pages is None else len(pages), "threshold": threshold}

    def _try(
        self, failed: dict[str, int], name: str, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        try:
            return self._call(name, function, *arguments)
        except _CallError as error:
            failed[name] = error.status
            return None


def _blocks(amdsmi: Any) -> dict[str, Any]:
    """Every block by its name: "umc"."""
    no_blocks = ("INVALID", "RESERVED")
    return {
        block.name.lower(): block for block in amdsmi.AmdSmiGpuBlock if block.name not in no_blocks
    }


def _counts(answer: dict[str, int]) -> list[int]:
    return [
        answer["correctable_count"],
        answer["uncorrectable_count"],
        answer["deferred_count"],
    ]


def _mapped_library() -> str:
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  no pathlib here
        return next((line.split()[-1] for line in maps if "libamd_smi.so" in line), "")


if __name__ == "__main__":
    sys.exit(main())
