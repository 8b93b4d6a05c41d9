"""What a GPU is: asked once by each process. These calls also answer for a GPU that is gone."""

from collections.abc import Callable
from typing import Any

from aegis_agent.sources.gpu_calls import Calls, number, text

UNKNOWN = "-"
# Firmware by the last words of amdsmi's names for it.
_FIRMWARE = {"FW_ID_PM": "smu_firmware", "FW_ID_TA_RAS": "ras_firmware"}

Ask = Callable[[str], Any]


def identity(address: str, calls: Calls, handle: Any, ask: Ask) -> dict[str, Any]:
    """Address, UUID and serial, and the facts that stand beside them."""
    uuid = text(calls.attempt("device_uuid", handle))
    board = ask("board_info") or {}
    asic = ask("asic_info") or {}
    facts = {
        "model": text(asic.get("market_name")) or text(board.get("product_name")),
        "asic_serial": text(asic.get("asic_serial")),
        "vbios": text((ask("vbios_info") or {}).get("version")),
        **_firmware(ask("fw_info")),
        "driver": text((ask("driver_info") or {}).get("driver_version")),
        "partition": "/".join(
            filter(None, (text(ask("compute_partition")), text(ask("memory_partition"))))
        ),
        "vram_mb": str(number((ask("vram_info") or {}).get("vram_size")) or ""),
        "hive": _hive(ask("xgmi_info")),
    }
    return {
        "bdf": address,
        "uuid": uuid.replace(" ", "") or UNKNOWN,
        "serial": text(board.get("product_serial")).replace(" ", "") or UNKNOWN,
        "facts": {name: value for name, value in facts.items() if value},
    }


def _hive(answer: Any) -> str:
    """The GPUs that have it in common are linked, and reset together."""
    hive = number((answer or {}).get("xgmi_hive_id"))
    return f"{hive:x}" if hive else ""


def _firmware(answer: Any) -> dict[str, str]:
    found = {}
    for entry in (answer or {}).get("fw_list", []):
        name = getattr(entry["fw_name"], "name", str(entry["fw_name"])).removeprefix("AMDSMI_")
        if name in _FIRMWARE:
            found[_FIRMWARE[name]] = text(entry["fw_version"])
    return found
