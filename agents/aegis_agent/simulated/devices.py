"""The folder that the simulated library reads: lay it out, and break things in it."""

import time
from collections.abc import Callable
from pathlib import Path

_BUSES = (0x05, 0x15, 0x65, 0x75, 0x85, 0x95, 0xE5, 0xF5)  # of an MI300X platform
_BLOCKS = ("umc", "sdma", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl")
_BLOCKS_ENABLED = "ff"  # a mask: the eight of _BLOCKS


PCIE = {
    "width": "pcie_width",
    "speed": "pcie_speed",
    "max_width": "pcie_max_width",
    "max_speed": "pcie_max_speed",
    "replay": "pcie_replay",
    "l0_recovery": "pcie_l0_recovery",
    "nak_sent": "pcie_nak_sent",
    "nak_received": "pcie_nak_received",
}
TEMPERATURES = {
    "hotspot": "temp_hotspot_c",
    "memory": "temp_mem_c",
    "hotspot_critical": "temp_hotspot_critical_c",
    "memory_critical": "temp_mem_critical_c",
}
THROTTLES = ("prochot", "power", "socket", "vr", "hbm")
LINK_STATES = {"up": "U", "down": "D", "disabled": "X"}


class NoSuchDeviceError(Exception):
    """The folder has no such GPU or block; the sentence says which it has."""


def init(folder: Path, gpus: int = 8) -> None:
    """Lay out GPUs without an error, and a loaded driver."""
    for index in range(gpus):
        gpu = folder / f"gpu{index}"
        for name, text in _identity(index).items():
            put(gpu / name, text)
        for block in _BLOCKS:
            put(gpu / "ras" / block, "0 0 0")
        put(gpu / "ras_enabled", _BLOCKS_ENABLED)
        put(gpu / "bad_pages", "")
        put(gpu / "metrics", "power_w 140\ntemp_hotspot_c 45\ntemp_mem_c 44")
        put(gpu / "xgmi_error", "0")
        put(gpu / "xgmi_links", " ".join("U" * max(0, min(gpus, 8) - 1)))
        put(gpu / "xgmi_hive", str(index // 8 + 1) if gpus > 1 else "0")
        put(gpu / "processes", "")
        put(gpu / "lost", "0")
    put(folder / "faults", "")
    put(folder / "driver", "loaded")


def _identity(index: int) -> dict[str, str]:
    unique = 0x8BF0C3A100000000 + index
    return {
        "bdf": f"{index // 8:04x}:{_BUSES[index % 8]:02x}:00.0",
        "uuid": f"{unique >> 56:02x}ff74a1-0000-1000-80{unique >> 48 & 0xFF:02x}-"
        f"{unique & (1 << 48) - 1:012x}",
        "serial": f"SIM{index:08d}",
        "market_name": "AMD Instinct MI300X",
        "unique_id": f"{unique:016X}",
        "model_number": "102-G30211-00",
        "fru_id": f"113-SIMFRU-{index}",
        "vbios": "022.040.003.041.000001",
        "compute_partition": "SPX",
        "memory_partition": "NPS1",
    }


def set_counts(folder: Path, gpu: int, block: str, counts: tuple[int, int, int]) -> None:
    """Correctable, uncorrectable and deferred errors of one block since driver load."""
    path = _gpu(folder, gpu) / "ras" / block
    if not path.exists():
        blocks = " ".join(sorted(entry.name for entry in path.parent.iterdir()))
        raise NoSuchDeviceError(f"gpu{gpu} has no block {block!r}; it has {blocks}")
    put(path, " ".join(map(str, counts)))


def add_bad_page(folder: Path, gpu: int, address: int) -> None:
    """One more retired memory page."""
    path = _gpu(folder, gpu) / "bad_pages"
    put(path, "\n".join([*path.read_text().split("\n")[:-1], f"{address:#x} 4096 0"]).strip())


def set_metric(folder: Path, gpu: int, name: str, value: float | str) -> None:
    """One line of the metrics file."""
    text = value if isinstance(value, str) else f"{value:.15g}"
    _set_line(_gpu(folder, gpu) / "metrics", name, text)


def set_not_available(folder: Path, gpu: int, name: str, bits: int) -> None:
    """A value that is all ones in that many bits, whatever its field holds."""
    set_metric(folder, gpu, name, hex((1 << bits) - 1))


def set_throttle(
    folder: Path, gpu: int, kind: str, percent: float, now: Callable[[], float] = time.time
) -> None:
    """From now on throttled for that part of the time."""
    path = _gpu(folder, gpu) / "throttle"
    milliseconds = int(now() * 1000)
    before = _lines(path).get(kind, f"0 {milliseconds} 0").split()
    kept = int(before[2]) + int((milliseconds - int(before[1])) * float(before[0]) / 100)
    _set_line(path, kind, f"{percent:g} {milliseconds} {kept}")


def set_process(folder: Path, gpu: int, pid: int, name: str | None, megabytes: int = 0) -> None:
    """A process that holds the GPU; without a name it lets go."""
    path = _gpu(folder, gpu) / "processes"
    _set_line(path, str(pid), None if name is None else f"{name} {megabytes << 20}")


def set_xgmi_link(folder: Path, gpu: int, link: int, state: str) -> None:
    """One of the links to the other GPUs: up, down or disabled."""
    path = _gpu(folder, gpu) / "xgmi_links"
    letters = path.read_text().split()
    if not 0 <= link < len(letters):
        raise NoSuchDeviceError(f"gpu{gpu} has no link {link}; it has {len(letters)} links")
    letters[link] = LINK_STATES[state]
    put(path, " ".join(letters))


def set_hive(folder: Path, gpu: int, hive: int) -> None:
    """To which GPUs it is linked: those of the same number are reset together; 0: to none."""
    put(_gpu(folder, gpu) / "xgmi_hive", str(hive))


def set_stubborn(folder: Path, gpu: int, *, stubborn: bool) -> None:
    """Whether a reset leaves its error counts as they are."""
    put(_gpu(folder, gpu) / "stubborn", str(int(stubborn)))


def hide_block(folder: Path, gpu: int, block: str) -> None:
    """The block's own count answers NOT_SUPPORTED from now on; its total goes without it."""
    set_counts(folder, gpu, block, (0, 0, 0))
    (_gpu(folder, gpu) / "ras" / block).unlink()


def push_event(folder: Path, gpu: int, name: str, message: str = "") -> None:
    """An event for those who listen: VMFAULT, THERMAL_THROTTLE, GPU_PRE_RESET and others."""
    _gpu(folder, gpu)
    path = folder / "events"
    before = path.read_text() if path.exists() else ""
    put(path, f"{before}{gpu} {name} {message}".rstrip())


def reload_driver(folder: Path) -> None:
    """All error counts start anew, as they do when the driver is loaded again."""
    for path in folder.glob("gpu*/ras/*"):
        put(path, "0 0 0")


def claim_version(folder: Path, version: str) -> None:
    """Let the library say that it is another release: "27.1.0"."""
    put(folder / "version", version)


def set_order(folder: Path, gpus: list[int]) -> None:
    """In which order the next start lists the GPUs; those left out are not listed."""
    for gpu in gpus:
        _gpu(folder, gpu)
    put(folder / "order", " ".join(map(str, gpus)))


def set_lost(folder: Path, gpu: int, *, lost: bool) -> None:
    """Whether the GPU has fallen off the bus."""
    put(_gpu(folder, gpu) / "lost", "1" if lost else "0")


def set_driver(folder: Path, *, loaded: bool) -> None:
    """Whether the kernel driver is loaded."""
    put(folder / "driver", "loaded" if loaded else "absent")


def add_fault(folder: Path, function: str, gpu: str, action: str) -> None:
    """Make a library function misbehave: status=N, delay_ms=N, hang or crash."""
    path = folder / "faults"
    put(path, f"{path.read_text().strip()}\n{function} {gpu} {action}".strip())


def clear_faults(folder: Path) -> None:
    """All functions behave again."""
    put(folder / "faults", "")


def _gpu(folder: Path, gpu: int) -> Path:
    path = folder / f"gpu{gpu}"
    if not path.is_dir():
        raise NoSuchDeviceError(
            f"{folder} has no gpu{gpu}; lay it out with: "
            f"python -m aegis_agent.simulated init {folder}"
        )
    return path


def _lines(path: Path) -> dict[str, str]:
    """A file of "NAME REST" lines."""
    text = path.read_text() if path.exists() else ""
    lines = (line.partition(" ") for line in text.splitlines() if " " in line)
    return {name: rest for name, _, rest in lines}


def _set_line(path: Path, name: str, rest: str | None) -> None:
    """Replace the line of that name; None takes it away."""
    lines = {key: value for key, value in _lines(path).items() if key != name}
    if rest is not None:
        lines[name] = rest
    put(path, "\n".join(f"{key} {value}" for key, value in lines.items()))


def put(path: Path, text: str) -> None:
    """Renamed into place, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.new")
    staged.write_text(text + "\n")
    staged.replace(path)
