"""What changes slowly about a GPU: pages, PCIe link, temperatures, throttling, power, processes.

Each answer stands alone: one that fails or is not there leaves the others. A value that is all
ones, in any width, is none.
"""

from collections.abc import Callable
from typing import Any

from aegis_agent.sources.gpu_calls import number, text

_PCIE_NOW = {
    "width": "pcie_width",
    "speed": "pcie_speed",
    "replay": "pcie_replay_count",
    "l0_recovery": "pcie_l0_to_recovery_count",
    "nak_sent": "pcie_nak_sent_count",
    "nak_received": "pcie_nak_received_count",
}
_PCIE_MAX = {"max_width": "max_pcie_width", "max_speed": "max_pcie_speed"}
_VIOLATIONS = {
    "prochot": "acc_prochot_thrm",
    "power": "acc_ppt_pwr",
    "socket": "acc_socket_thrm",
    "vr": "acc_vr_thrm",
    "hbm": "acc_hbm_thrm",
}
_PROCESSES_TOLD_MAX = 16
_NAME_CHARACTERS_MAX = 48

Ask = Callable[..., Any]


class Survey:
    """The slow calls of one GPU."""

    def __init__(self, amdsmi: Any, ask: Ask) -> None:
        self._sensors = amdsmi.AmdSmiTemperatureType
        self._metrics = amdsmi.AmdSmiTemperatureMetric
        self._ask = ask  # a call with the GPU's handle, left out while it is known to hang
        self._limits: dict[str, int] | None = None
        self._violations: dict[str, int] = {}  # the accumulated counts as last read

    def read(self) -> dict[str, Any]:
        """Everything, as far as it answers."""
        pages = self._ask("bad_page_info")
        power = self._ask("power_info") or {}
        links = self._ask("xgmi_link_status") or {}
        processes = self._ask("process_list")
        return {
            "pages": None if pages is None else len(pages),
            "threshold": number(self._ask("bad_page_threshold")),
            "pcie": _pcie(self._ask("pcie_info") or {}),
            "temperatures": self._temperatures(),
            "throttled": self._throttled(self._ask("violation_status") or {}),
            "power_w": number(power.get("current_socket_power"))
            or number(power.get("average_socket_power")),
            "links": "".join(str(state)[:1] for state in links.get("status", [])),
            "processes": None if processes is None else len(processes),
            "holders": _holders(processes or []),
        }

    def _temperatures(self) -> dict[str, int]:
        if self._limits is None:
            self._limits = self._sensed("_critical", self._metrics.CRITICAL)
        return self._limits | self._sensed("", self._metrics.CURRENT)

    def _sensed(self, suffix: str, metric: Any) -> dict[str, int]:
        places = {"hotspot": self._sensors.HOTSPOT, "memory": self._sensors.VRAM}
        celsius = {
            place + suffix: number(self._ask("temp_metric", sensor, metric))
            for place, sensor in places.items()
        }
        return {place: value for place, value in celsius.items() if value is not None}

    def _throttled(self, answer: dict[str, Any]) -> dict[str, float]:
        """Per cent of the time since the last look, by reason.

        The accumulated counts are compared: their flags and percentages look at one moment, and a
        flag that is not available is all ones, which reads as true.
        """
        counts = {name: number(answer.get(key)) for name, key in _VIOLATIONS.items()}
        now = {name: value for name, value in counts.items() if value is not None}
        clock = number(answer.get("acc_counter"))
        before, self._violations = self._violations, now | ({"clock": clock} if clock else {})
        if not clock or "clock" not in before or clock <= before["clock"]:
            return {}
        passed = clock - before["clock"]
        return {
            name: round(min(100.0, 100.0 * (value - before[name]) / passed), 1)
            for name, value in now.items()
            if name in before and value >= before[name]
        }


def _pcie(answer: dict[str, Any]) -> dict[str, int]:
    told = {name: answer.get("pcie_metric", {}).get(key) for name, key in _PCIE_NOW.items()}
    told |= {name: answer.get("pcie_static", {}).get(key) for name, key in _PCIE_MAX.items()}
    values = {name: number(value) for name, value in told.items()}
    return {name: value for name, value in values.items() if value is not None}


def _holders(processes: list[dict[str, Any]]) -> list[list[Any]]:
    return [
        [process["pid"], text(process["name"])[:_NAME_CHARACTERS_MAX]]
        for process in processes[:_PROCESSES_TOLD_MAX]
    ]
