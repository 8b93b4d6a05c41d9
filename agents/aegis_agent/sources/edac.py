"""The kernel's counters of memory errors: /sys/devices/system/edac/mc/mc*/dimm* (or rank*, csrow*).

The driver is the chipset's, or ghes_edac where the firmware tells. A controller's own total is read
each time, its modules only after it has changed.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from aegis_agent.probes.edac import EdacSample, ModuleErrors

_BYTES_MAX = 256


@dataclass
class Edac:
    """The memory controllers under one root."""

    sys_root: Path
    drivers: tuple[str, ...] = ()  # of the controllers found last
    _read: dict[str, tuple[tuple[int, ...], dict[str, ModuleErrors]]] = field(default_factory=dict)

    def read(self, at: float) -> EdacSample | None:
        """All counters; None where no driver counts."""
        folder = self.sys_root / "devices/system/edac/mc"
        places: dict[str, ModuleErrors] = {}
        drivers = []
        for controller in _listed(folder, "mc"):
            corrected, uncorrected = (
                _number(controller / "ce_count"),
                _number(controller / "ue_count"),
            )
            if corrected is None or uncorrected is None:
                continue
            drivers.append(_text(controller / "mc_name") or controller.name)
            totals = (corrected, uncorrected)
            known = self._read.get(controller.name)
            if known is None or known[0] != totals:
                known = (totals, _modules(controller, corrected, uncorrected))
                self._read[controller.name] = known
            places |= known[1]
        self.drivers = tuple(drivers)
        return EdacSample(at=at, places=places) if drivers else None


def _modules(controller: Path, corrected: int, uncorrected: int) -> dict[str, ModuleErrors]:
    """By place; what the modules do not account for stands under the controller itself."""
    found = {
        f"{controller.name}/{name}": errors
        for name, errors in (_dimms(controller) or _channels(controller)).items()
    }
    rest = ModuleErrors(
        corrected=max(0, corrected - sum(one.corrected for one in found.values())),
        uncorrected=max(0, uncorrected - sum(one.uncorrected for one in found.values())),
    )
    return found | {controller.name: rest}


def _dimms(controller: Path) -> dict[str, ModuleErrors]:
    found = {}
    for module in (*_listed(controller, "dimm"), *_listed(controller, "rank")):
        corrected = _number(module / "dimm_ce_count")
        uncorrected = _number(module / "dimm_ue_count")
        if corrected is not None and uncorrected is not None:
            label = _text(module / "dimm_label") or _text(module / "dimm_location")
            found[module.name] = ModuleErrors(
                corrected=corrected, uncorrected=uncorrected, label=label
            )
    return found


def _channels(controller: Path) -> dict[str, ModuleErrors]:
    """As kernels before 4.11 count: corrected errors by channel, uncorrected ones by row."""
    found = {}
    for row in _listed(controller, "csrow"):
        for path in sorted(row.glob("ch*_ce_count")):
            channel = path.name.removesuffix("_ce_count")
            found[f"{row.name}/{channel}"] = ModuleErrors(
                corrected=_number(path) or 0, label=_text(row / f"{channel}_dimm_label")
            )
        found[row.name] = ModuleErrors(uncorrected=_number(row / "ue_count") or 0)
    return found


def _listed(folder: Path, prefix: str) -> list[Path]:
    try:
        names = [one for one in folder.iterdir() if one.name.removeprefix(prefix).isdigit()]
    except OSError:
        return []
    return sorted(names, key=lambda one: int(one.name.removeprefix(prefix)))


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _BYTES_MAX).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
