"""One call of amdsmi at a time: noted in the shared page, its failure a number, its nonsense None.

The package that is called is given: only `aegis_agent.sources.gpu` imports it.
"""

import ctypes
import time
from collections.abc import Iterable
from typing import Any

from aegis_agent.sources.children import Page

UNKNOWN_STATUS = 0xFFFFFFFF
PACKAGE_FAILED = -1  # the Python package itself stumbled over what the library answered
NO_VALUE = -2  # success, and all ones
_FUNCTIONS = {
    "init": "amdsmi_init",
    "processor_handles": "amdsmi_get_processor_handles",
    "device_bdf": "amdsmi_get_gpu_device_bdf",
    "device_uuid": "amdsmi_get_gpu_device_uuid",
    "board_info": "amdsmi_get_gpu_board_info",
    "asic_info": "amdsmi_get_gpu_asic_info",
    "vbios_info": "amdsmi_get_gpu_vbios_info",
    "vram_info": "amdsmi_get_gpu_vram_info",
    "driver_info": "amdsmi_get_gpu_driver_info",
    "fw_info": "amdsmi_get_fw_info",
    "compute_partition": "amdsmi_get_gpu_compute_partition",
    "memory_partition": "amdsmi_get_gpu_memory_partition",
    "ecc_enabled": "amdsmi_get_gpu_ecc_enabled",
    "ecc_count": "amdsmi_get_gpu_ecc_count",
    "total_ecc_count": "amdsmi_get_gpu_total_ecc_count",
    "vram_usage": "amdsmi_get_gpu_vram_usage",
    "bad_page_info": "amdsmi_get_gpu_bad_page_info",
    "bad_page_threshold": "amdsmi_get_gpu_bad_page_threshold",
    "pcie_info": "amdsmi_get_pcie_info",
    "temp_metric": "amdsmi_get_temp_metric",
    "power_info": "amdsmi_get_power_info",
    "violation_status": "amdsmi_get_violation_status",
    "process_list": "amdsmi_get_gpu_process_list",
    "xgmi_link_status": "amdsmi_get_gpu_xgmi_link_status",
    "xgmi_info": "amdsmi_get_xgmi_info",
    "gpu_cper_entries": "amdsmi_get_gpu_cper_entries",
    "afids_from_cper": "amdsmi_get_afids_from_cper",
}
_ESSENTIAL = frozenset({"init", "processor_handles", "device_uuid", "ecc_count", "total_ecc_count"})
# A call that hangs or crashes its process and is none of the essential is left out for a while.
OPTIONAL = frozenset(_FUNCTIONS) - _ESSENTIAL
HANDLES_MAX = 64
# Seen: the package computes with what the library left empty, or decodes what is no text.
_PACKAGE_ERRORS = (
    ArithmeticError,
    AttributeError,
    ctypes.ArgumentError,
    LookupError,
    TypeError,
    ValueError,
)
_ALL_ONES_WIDE = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, -1})
_ALL_ONES = _ALL_ONES_WIDE | {0xFFFF}


class CallError(Exception):
    """A call answered with a status other than success."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call} answered {status}")
        self.call = call
        self.status = status


def labels(blocks: Iterable[str]) -> list[str]:
    """Every name under which a call may be noted."""
    return [
        "start",
        *_FUNCTIONS,
        *(f"ecc_count({block})" for block in blocks),
        *(handle_label(number) for number in range(HANDLES_MAX)),
    ]


def optional_labels() -> frozenset[str]:
    """Those that a process can do without: a handle that does not answer hides no other."""
    return OPTIONAL | {handle_label(number) for number in range(HANDLES_MAX)}


def handle_label(number: int) -> str:
    """The question which GPU the handle of that number is."""
    return f"device_bdf({number})"


class Calls:
    """The calls of one process."""

    def __init__(self, amdsmi: Any, page: Page, index: int, refused: frozenset[str]) -> None:
        self._amdsmi = amdsmi
        self._page = page
        self._index = index
        self._refused = refused
        self.polls = 0
        self.failed: dict[str, int] = {}  # since it was last emptied

    def offers(self, call: str) -> bool:
        """Whether package and library have the call and it is safe."""
        return call not in self._refused and self._function(call) is not None

    def _function(self, call: str) -> Any:
        """Some that the package does not export stand in its interface all the same."""
        name = _FUNCTIONS[call]
        interface = getattr(self._amdsmi, "amdsmi_interface", None)
        return getattr(self._amdsmi, name, None) or getattr(interface, name, None)

    def __call__(self, call: str, *arguments: Any, label: str = "") -> Any:
        """Make the call. Raises CallError."""
        label = label or call
        self._page.write(self._index, time.monotonic(), label, self.polls)
        try:
            return self._function(call)(*arguments)
        except self._amdsmi.AmdSmiLibraryException as error:
            raise CallError(label, error.get_error_code()) from error
        except self._amdsmi.AmdSmiException as error:
            raise CallError(label, UNKNOWN_STATUS) from error
        except _PACKAGE_ERRORS as error:
            raise CallError(label, PACKAGE_FAILED) from error
        finally:
            # The name stays: it says in which call a process died.
            self._page.write(self._index, 0.0, label, self.polls)

    def attempt(self, call: str, *arguments: Any, label: str = "") -> Any:
        """The answer, or None where there is none; why is noted in `failed`."""
        if not self.offers(call):
            return None
        try:
            return self(call, *arguments, label=label)
        except CallError as error:
            self.failed[error.call] = error.status
            return None

    def done(self) -> None:
        """A poll is over."""
        self.polls += 1
        self._page.write(self._index, 0.0, "start", self.polls)


def number(value: Any) -> int | None:
    """A value that is one: not "N/A", and not all ones in any width, which is the same."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if value in _ALL_ONES or value < 0 else int(value)


def count(value: Any) -> int | None:
    """The same for a counter that may well reach 65535."""
    return value if value == 0xFFFF else number(value)


def text(value: Any) -> str:
    """A text that is one, as a single word's worth of line; empty for "N/A"."""
    told = " ".join(str(value).split()) if isinstance(value, str) else ""
    return "" if told in {"N/A", "0x", "none", "None"} else told
