"""The process of one NVIDIA GPU: calls NVML, tells what it answers, and ends with its process.

discovery      which GPUs are there, by address
a GPU's own    what it is; then error counters with each poll; links and sensors now and then
"""

import argparse
import ctypes
import importlib.metadata
import os
import time
import traceback
from typing import Any, NoReturn

from aegis_agent.sources.children import DISCOVERY, Child, Children
from aegis_agent.sources.nvml_calls import LOCATIONS, SENSORS, CallError, Calls
from aegis_agent.sources.nvml_links import read_links

_HANDLES_MAX = 64
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _TIMEOUT = 9, 12, 10
_BLIND_SECONDS_MAX = 30.0  # then another process looks anew
_WAIT_SECONDS_MAX = 1.0  # for events, shorter than a call's deadline
_XID_EVENT = 8
# One call reads many: name and NVML's field number.
_FIELDS = {
    "uncorrectable_ever": 6,
    "retired_sbe": 29,
    "retired_dbe": 30,
    "retired_pending": 31,
    "pcie_replays": 94,
    "remapped_correctable": 142,
    "remapped_uncorrectable": 143,
    "remapped_pending": 144,
    "remapped_failure": 145,
    "recovery_action": 230,
}
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class Reader:
    """A child."""

    def __init__(
        self, nvml: Any, options: argparse.Namespace, children: Children, child: Child
    ) -> None:
        self._options = options
        self._children = children
        self._report = children.report
        self._child = child
        self._calls = Calls(nvml, children.page, child)
        self._handle: Any = None
        self._locations = LOCATIONS
        self._links: list[int] | None = None  # which there are; None: not known yet
        self._event_set: Any = None

    def run(self) -> NoReturn:
        """Never returns: what the prober has registered for its own end is not for us."""
        code = 1
        try:
            if self._child.index == DISCOVERY:
                self._discover()
                code = 0
            else:
                self._poll()
        except CallError as error:
            self._say_failed(error)
        # The last resort of a forked process: it must not go on as if it were the prober.
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(code)

    def _say_failed(self, error: CallError) -> None:
        reason = f"NVML {error}"
        if error.status == _DRIVER_NOT_LOADED:
            reason = f"the NVIDIA driver is not loaded ({reason})"
        if error.status == _LIBRARY_NOT_FOUND:
            reason = f"libnvidia-ml.so.1, a part of the NVIDIA driver, is not there ({reason})"
        if self._child.index != DISCOVERY:
            index, at, status = self._child.index, time.time(), error.status
            self._report("failed", index=index, at=at, reason=reason, status=status)
        elif not self._children.has_devices():
            self._report("unavailable", reason=reason, gpus=True)

    # discovery

    def _discover(self) -> None:
        self._calls("init", "nvmlInit")
        self._report("library", **self._library())
        count = min(self._calls("handle", "nvmlDeviceGetCount"), _HANDLES_MAX)
        addresses = [self._address(index) for index in range(count)]
        found = [(place, address) for place, address in enumerate(addresses) if address]
        if not addresses:
            if not self._children.has_devices():
                self._report("unavailable", reason="NVML lists no GPU", gpus=True)
            os._exit(1)
        self._report("excluded", addresses=self._excluded())
        self._children.found(found, hidden=len(addresses) - len(found))

    def _address(self, index: int) -> str:
        """Empty where it does not say: which may be the one that is lost."""
        try:
            handle = self._calls("handle", "nvmlDeviceGetHandleByIndex", index)
            bus_id = self._calls("handle", "nvmlDeviceGetPciInfo", handle).busId
        except CallError:
            return ""
        return _linux_address(_text(bus_id))

    def _excluded(self) -> list[str]:
        """GPUs that someone has told the driver to leave alone."""
        count = self._calls.ask("facts", "nvmlGetExcludedDeviceCount") or 0
        function = "nvmlGetExcludedDeviceInfoByIndex"
        told = [self._calls.ask("facts", function, index) for index in range(count)]
        return [_linux_address(_text(one.pci.busId)) for one in told if one is not None]

    def _library(self) -> dict[str, Any]:
        path = _mapped_library()
        return {
            "package": _package_version(),
            "path": path,
            "version": _text(self._calls.ask("facts", "nvmlSystemGetNVMLVersion")),
            "driver": _text(self._calls.ask("facts", "nvmlSystemGetDriverVersion")),
            "simulated": bool(path) and hasattr(ctypes.CDLL(path), "aegis_simulated"),
        }

    # polling

    def _poll(self) -> None:
        self._calls("init", "nvmlInit")
        address = self._child.address
        self._handle = self._calls("handle", "nvmlDeviceGetHandleByPciBusId", address)
        self._identify()
        if self._options.events:
            self._register()
        poll = self._options.poll_seconds
        slow_every = max(1, round(self._options.slow_seconds / poll))
        while time.monotonic() - self._calls.worked_at < _BLIND_SECONDS_MAX:
            self._calls.begin()
            answers = self._read(slow=self._calls.polls % slow_every == 0)
            self._report(
                "reading",
                index=self._child.index,
                at=time.time(),
                failed=self._calls.failed,
                worked=sorted(self._calls.worked),
                hung=sorted(self._calls.hung),
                **answers,
            )
            self._calls.done()
            # All children wake together, so that the agent wakes once.
            self._rest(poll - time.monotonic() % poll)

    def _identify(self) -> None:
        facts = {
            "model": _text(self._calls.ask("facts", "nvmlDeviceGetName", self._handle)),
            "driver": _text(self._calls.ask("facts", "nvmlSystemGetDriverVersion")),
        }
        self._report(
            "gpu",
            index=self._child.index,
            bdf=self._child.address,
            uuid=_text(self._calls("uuid", "nvmlDeviceGetUUID", self._handle)) or "-",
            serial=_text(self._calls.ask("facts", "nvmlDeviceGetSerial", self._handle)) or "-",
            facts={name: value for name, value in facts.items() if value},
        )

    def _read(self, *, slow: bool) -> dict[str, Any]:
        ask, handle = self._calls.ask, self._handle
        answers: dict[str, Any] = {"errors": self._read_errors(), "fields": self._read_fields()}
        function = next((name for name in _REASONS if self._calls.offers(name)), _REASONS[0])
        answers["reasons"] = ask("clocks_event_reasons", function, handle)
        if slow:
            answers["sensors"] = {
                name: value
                for name, (function, arguments) in SENSORS.items()
                if (value := ask(name, function, handle, *arguments)) is not None
            }
            self._links, answers["links"] = read_links(self._calls, handle, self._links)
        return answers

    def _read_errors(self) -> dict[str, list[int]]:
        """Corrected and uncorrected since driver load, of each location that the GPU counts."""
        errors, unsupported = {}, set()
        for location, number in self._locations.items():
            label, function = f"memory_error_counter({location})", "nvmlDeviceGetMemoryErrorCounter"
            counts = [
                self._calls.ask(label, function, self._handle, kind, 0, number) for kind in (0, 1)
            ]
            if None not in counts:
                errors[location] = counts
            elif label not in self._calls.failed:
                unsupported.add(location)
        if errors and unsupported:
            self._locations = {
                name: number for name, number in self._locations.items() if name not in unsupported
            }
        return errors

    def _read_fields(self) -> dict[str, int]:
        numbers = list(_FIELDS.values())
        values = self._calls.ask("field_values", "nvmlDeviceGetFieldValues", self._handle, numbers)
        return {
            name: field_value(value)
            for name, value in zip(_FIELDS, values or (), strict=False)
            if value.nvmlReturn == 0
        }

    # events

    def _register(self) -> None:
        event_set = self._calls.ask("events", "nvmlEventSetCreate")
        if event_set is None:
            return
        function = "nvmlDeviceRegisterEvents"
        self._calls.ask("events", function, self._handle, _XID_EVENT, event_set)
        self._event_set = None if "events" in self._calls.failed else event_set

    def _rest(self, seconds: float) -> None:
        """Until the next poll, with an ear for events."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._event_set is None or self._calls.is_left_out("events"):
                time.sleep(left)
            else:
                self._wait(min(left, _WAIT_SECONDS_MAX))

    def _wait(self, seconds: float) -> None:
        milliseconds = max(1, int(1000 * seconds))
        try:
            event = self._calls("events", "nvmlEventSetWait", self._event_set, milliseconds)
        except CallError as error:
            if error.status != _TIMEOUT:
                self._event_set = None  # the next process tries again
            return
        if event.eventType & _XID_EVENT:
            number = int(event.eventData)
            self._report("xid", index=self._child.index, at=time.time(), number=number)


def field_value(value: Any) -> int:
    """How much of the union a value fills: NVML's types 1 and 5 are 32 bits wide, 6 is 16."""
    width = {1: 0xFFFFFFFF, 5: 0xFFFFFFFF, 6: 0xFFFF}.get(value.valueType, 0xFFFFFFFFFFFFFFFF)
    return int(value.value.ullVal) & width


def _text(value: Any) -> str:
    """Some versions of the package answer bytes, some text."""
    told = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return " ".join(told.split())


def _linux_address(bus_id: str) -> str:
    """NVML writes "00000000:19:00.0", Linux "0000:19:00.0"."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]:0>4}:{rest}" if rest else ""


def _mapped_library() -> str:
    """Which library was loaded: what the process has mapped, not what was asked for."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  no pathlib here
        return next((line.split()[-1] for line in maps if "libnvidia-ml.so" in line), "")


def _package_version() -> str:
    try:
        return importlib.metadata.version("nvidia-ml-py")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
