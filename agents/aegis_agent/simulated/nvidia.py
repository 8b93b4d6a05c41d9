"""The folder that the simulated libnvidia-ml.so.1 reads: lay it out, and break things in it."""

import argparse
from pathlib import Path
from typing import TypeAlias

from aegis_agent.simulated import devices
from aegis_agent.simulated.library import build_nvml

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
_BUSES = (0x19, 0x2D, 0x3F, 0x66, 0x9B, 0xAE, 0xBF, 0xE4)  # of an HGX H100 platform
_LINKS = 18
_VALUES = {
    "temperature_c": 41,
    "clocks_event_reasons": 0,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "power_mw": 112000,
    "remapped_correctable": 0,
    "remapped_uncorrectable": 0,
    "remapped_pending": 0,
    "remapped_failure": 0,
    "recovery_action": 0,
}


def init(folder: Path, gpus: int = 8) -> None:
    """Lay out GPUs without an error, and a loaded driver."""
    for index in range(gpus):
        gpu = folder / f"gpu{index}"
        bus = f"{index // 8:08X}:{_BUSES[index % 8]:02X}:00.0"
        devices.put(gpu / "bus_id", bus)
        devices.put(gpu / "uuid", f"GPU-5a3c1e0f-7b21-4c0d-9e88-{index:012x}")
        devices.put(gpu / "serial", f"SIM{index:010d}")
        devices.put(gpu / "name", "NVIDIA H100 80GB HBM3")
        devices.put(gpu / "ecc", "dram 0 0 0 0\nsram 0 0 0 0")
        devices.put(gpu / "values", _lines(_VALUES))
        devices.put(gpu / "nvlink", "\n".join(f"{link} 1 0 0 0" for link in range(_LINKS)))
        devices.put(gpu / "xids", "")
        devices.put(gpu / "lost", "0")
    devices.put(folder / "faults", "")
    devices.put(folder / "driver", "570.124.06")


def set_errors(folder: Path, gpu: int, location: str, counts: tuple[int, int, int, int]) -> None:
    """Corrected and uncorrected errors of one location, since driver load and ever."""
    path = _gpu(folder, gpu) / "ecc"
    known = {line.split(" ", 1)[0]: line for line in path.read_text().splitlines()}
    known[location] = " ".join(map(str, (location, *counts)))
    devices.put(path, "\n".join(known.values()))


def set_value(folder: Path, gpu: int, name: str, number: int | None) -> None:
    """A sensor, a link or a count; None: the GPU has no such thing."""
    path = _gpu(folder, gpu) / "values"
    values = dict(line.split() for line in path.read_text().splitlines())
    values.pop(name, None)
    if number is not None:
        values[name] = str(number)
    devices.put(path, _lines(values))


def set_link(folder: Path, gpu: int, link: int, counts: tuple[int, int, int, int]) -> None:
    """An NVLink: whether it is active, its replays, recoveries and CRC errors."""
    path = _gpu(folder, gpu) / "nvlink"
    links = path.read_text().splitlines()
    links[link] = " ".join(map(str, (link, *counts)))
    devices.put(path, "\n".join(links))


def add_xid(folder: Path, gpu: int, number: int) -> None:
    """An Xid happens: whoever waits for events hears of it."""
    path = _gpu(folder, gpu) / "xids"
    devices.put(path, f"{path.read_text().strip()}\n{number}".strip())


def set_lost(folder: Path, gpu: int, *, lost: bool) -> None:
    """Whether the GPU has fallen off the bus."""
    devices.put(_gpu(folder, gpu) / "lost", "1" if lost else "0")


def set_driver(folder: Path, version: str) -> None:
    """The driver's version, or "absent"."""
    devices.put(folder / "driver", version)


def reload_driver(folder: Path) -> None:
    """The driver is loaded anew: what it counts since its load starts at zero."""
    for path in folder.glob("gpu*/ecc"):
        rows = [line.split() for line in path.read_text().splitlines()]
        devices.put(path, "\n".join(" ".join([row[0], "0", "0", *row[3:]]) for row in rows))


def add_commands(commands: Commands) -> None:
    """`nvml build OUT`, `nvml init DIR [N]` and what happens to a GPU."""
    top = commands.add_parser("nvml", help="simulated NVIDIA GPUs, for AEGIS_SIM_NVML=DIR")
    verbs = top.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("build", help="build OUT/lib/libnvidia-ml.so.1, for LD_LIBRARY_PATH")
    verb.add_argument("out", type=Path, metavar="OUT")
    verb.set_defaults(run=lambda c: build_nvml(c.out))
    verb = _add(verbs, "init", "lay out N GPUs", gpu=False)
    verb.add_argument("gpus", type=int, metavar="N", nargs="?", default=8)
    verb.set_defaults(run=lambda c: init(c.folder, c.gpus))
    verb = _add(verbs, "errors", "set a location's memory errors, since driver load and ever")
    verb.add_argument("location", metavar="LOCATION", help="dram, sram, l2, …")
    verb.add_argument("counts", type=int, nargs=4, metavar=("CE", "UE", "CE_EVER", "UE_EVER"))
    verb.set_defaults(run=lambda c: set_errors(c.folder, c.gpu, c.location, tuple(c.counts)))
    verb = _add(verbs, "value", "set a sensor or a count by its name in the values file")
    verb.add_argument("name", metavar="NAME", help="remapped_pending, temperature_c, …")
    verb.add_argument("number", type=int, metavar="VALUE")
    verb.set_defaults(run=lambda c: set_value(c.folder, c.gpu, c.name, c.number))
    verb = _add(verbs, "link", "change an NVLink")
    verb.add_argument("link", type=int, metavar="LINK")
    verb.add_argument(
        "counts", type=int, nargs=4, metavar=("ACTIVE", "REPLAYS", "RECOVERIES", "CRC_ERRORS")
    )
    verb.set_defaults(run=lambda c: set_link(c.folder, c.gpu, c.link, tuple(c.counts)))
    verb = _add(verbs, "xid", "let an Xid happen")
    verb.add_argument("number", type=int, metavar="XID")
    verb.set_defaults(run=lambda c: add_xid(c.folder, c.gpu, c.number))
    verb = _add(verbs, "lost", "let a GPU fall off the bus (1), or return (0)")
    verb.add_argument("lost", type=int, choices=(0, 1))
    verb.set_defaults(run=lambda c: set_lost(c.folder, c.gpu, lost=bool(c.lost)))
    verb = _add(verbs, "driver", "load a version of the kernel driver, or “absent”", gpu=False)
    verb.add_argument("version", metavar="VERSION")
    verb.set_defaults(run=lambda c: set_driver(c.folder, c.version))
    verb = _add(verbs, "fault", "make a library function misbehave", gpu=False)
    verb.add_argument("function", metavar="FUNC", help="nvmlDeviceGetFieldValues, or *")
    verb.add_argument("gpu", metavar="GPU", help="its number, -1 for calls without one, or *")
    verb.add_argument("action", metavar="ACTION", help="status=N, delay_ms=N, hang or crash")
    verb.set_defaults(run=lambda c: devices.add_fault(c.folder, c.function, c.gpu, c.action))
    verb = _add(verbs, "clear", "all functions behave again", gpu=False)
    verb.set_defaults(run=lambda c: devices.clear_faults(c.folder))


def _add(verbs: Commands, name: str, text: str, *, gpu: bool = True) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text, description=text)
    verb.add_argument("folder", type=Path, metavar="DIR")
    if gpu:
        verb.add_argument("gpu", type=int, metavar="GPU")
    return verb


def _lines(values: dict[str, int] | dict[str, str]) -> str:
    return "\n".join(f"{name} {number}" for name, number in values.items())


def _gpu(folder: Path, gpu: int) -> Path:
    path = folder / f"gpu{gpu}"
    if not path.is_dir():
        raise devices.NoSuchDeviceError(
            f"{folder} has no gpu{gpu}; lay it out with: "
            f"python -m aegis_agent.simulated nvml init {folder}"
        )
    return path
