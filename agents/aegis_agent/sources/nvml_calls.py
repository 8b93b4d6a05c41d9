"""One call of NVML at a time: noted in the shared page, its failure a number.

The package that is called is given: only `aegis_agent.sources.nvml` imports it.
"""

import time
from collections.abc import Mapping
from typing import Any

from aegis_agent.sources.children import Child, Page

GPU_IS_LOST = 15
_NO_SUCH = frozenset({2, 3, 13})  # INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND

# Names of memory locations, by NVML's number: those that Ampere and newer count, then older ones.
LOCATIONS = {
    "dram": 2,
    "sram": 7,
    "l1": 0,
    "l2": 1,
    "register": 3,
    "texture": 4,
    "shared": 5,
    "cbu": 6,
}
SENSORS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "temperature_c": ("nvmlDeviceGetTemperature", (0,)),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", ()),
    "pcie_generation_max": ("nvmlDeviceGetMaxPcieLinkGeneration", ()),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", ()),
    "pcie_width_max": ("nvmlDeviceGetMaxPcieLinkWidth", ()),
    "power_mw": ("nvmlDeviceGetPowerUsage", ()),
}
_LINK_CALLS = ("nvlink_state", "nvlink_errors")
# A call that hangs or crashes its process and is one of these is left out for a while.
OPTIONAL = frozenset({*SENSORS, *_LINK_CALLS, "clocks_event_reasons", "events", "facts"})
LABELS = [
    *("start", "init", "handle", "uuid", "field_values"),
    *sorted(OPTIONAL),
    *(f"memory_error_counter({location})" for location in LOCATIONS),
]


class CallError(Exception):
    """A call answered with a status other than success."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call} answered {status}")
        self.status = status


class Calls:
    """The calls of one process."""

    def __init__(self, nvml: Any, page: Page, child: Child) -> None:
        self._nvml = nvml
        self._page = page
        self._child = child
        self._supported: set[str] = set()  # have answered in this process
        self.hung = set(child.without)  # hung or crashed, and have not answered since
        self.polls = 0
        self.failed: dict[str, int] = {}  # since the last poll
        self.worked: set[str] = set()
        self.worked_at = time.monotonic()

    def offers(self, function: str) -> bool:
        """Whether this version of the package has it."""
        return hasattr(self._nvml, function)

    def __call__(self, label: str, function: str, *arguments: Any) -> Any:
        """Make the call. Raises CallError."""
        self._page.write(self._child.index, time.monotonic(), label, self.polls)
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            raise CallError(label, int(error.value)) from error
        finally:
            # The name stays: it says in which call a process died.
            self._page.write(self._child.index, 0.0, label, self.polls)

    def ask(self, label: str, function: str, *arguments: Any) -> Any:
        """The answer, or None where there is none; why is noted, and so is that there was one.

        What has never answered and is not supported is a feature that this GPU lacks: no failure.
        """
        if not self.offers(function) or self.is_left_out(label):
            return None
        try:
            answer = self(label, function, *arguments)
        except CallError as error:
            if error.status not in _NO_SUCH or label in self._supported:
                self.failed[label] = error.status
            return None
        self.hung.discard(label)
        self.worked.add(label)
        self._supported.add(label)
        self.worked_at = time.monotonic()
        return answer

    def is_left_out(self, label: str) -> bool:
        """Whether it hung, and not long ago."""
        return label in self.hung and time.monotonic() < self._child.without[label]

    def begin(self) -> None:
        """A poll begins."""
        self.failed, self.worked = {}, set()

    def done(self) -> None:
        """A poll is over."""
        self.polls += 1
        self._page.write(self._child.index, 0.0, "start", self.polls)
