"""The folder that the simulated library reads: lay it out, and break things in it."""

from pathlib import Path

_BUSES = (0x05, 0x15, 0x65, 0x75, 0x85, 0x95, 0xE5, 0xF5)  # of an MI300X platform
_BLOCKS = ("umc", "sdma", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl")
_BLOCKS_ENABLED = "ff"  # a mask: the eight of _BLOCKS


class NoSuchDeviceError(Exception):
    """The folder has no such GPU or block; the sentence says which it has."""


def init(folder: Path, gpus: int = 8) -> None:
    """Lay out GPUs without an error, and a loaded driver."""
    for index in range(gpus):
        gpu = folder / f"gpu{index}"
        for name, text in _identity(index).items():
            _put(gpu / name, text)
        for block in _BLOCKS:
            _put(gpu / "ras" / block, "0 0 0")
        _put(gpu / "ras_enabled", _BLOCKS_ENABLED)
        _put(gpu / "bad_pages", "")
        _put(gpu / "metrics", "power_w 140\ntemp_hotspot_c 45\ntemp_mem_c 44")
        _put(gpu / "xgmi_error", "0")
        _put(gpu / "lost", "0")
    _put(folder / "faults", "")
    _put(folder / "driver", "loaded")


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
    }


def set_counts(folder: Path, gpu: int, block: str, counts: tuple[int, int, int]) -> None:
    """Correctable, uncorrectable and deferred errors of one block since driver load."""
    path = _gpu(folder, gpu) / "ras" / block
    if not path.exists():
        blocks = " ".join(sorted(entry.name for entry in path.parent.iterdir()))
        raise NoSuchDeviceError(f"gpu{gpu} has no block {block!r}; it has {blocks}")
    _put(path, " ".join(map(str, counts)))


def add_bad_page(folder: Path, gpu: int, address: int) -> None:
    """One more retired memory page."""
    path = _gpu(folder, gpu) / "bad_pages"
    _put(path, "\n".join([*path.read_text().split("\n")[:-1], f"{address:#x} 4096 0"]).strip())


def set_metric(folder: Path, gpu: int, name: str, value: float) -> None:
    """One line of the metrics file."""
    path = _gpu(folder, gpu) / "metrics"
    others = [line for line in path.read_text().splitlines() if not line.startswith(f"{name} ")]
    _put(path, "\n".join([*others, f"{name} {value:g}"]))


def set_lost(folder: Path, gpu: int, *, lost: bool) -> None:
    """Whether the GPU has fallen off the bus."""
    _put(_gpu(folder, gpu) / "lost", "1" if lost else "0")


def set_driver(folder: Path, *, loaded: bool) -> None:
    """Whether the kernel driver is loaded."""
    _put(folder / "driver", "loaded" if loaded else "absent")


def add_fault(folder: Path, function: str, gpu: str, action: str) -> None:
    """Make a library function misbehave: status=N, delay_ms=N, hang or crash."""
    path = folder / "faults"
    _put(path, f"{path.read_text().strip()}\n{function} {gpu} {action}".strip())


def clear_faults(folder: Path) -> None:
    """All functions behave again."""
    _put(folder / "faults", "")


def _gpu(folder: Path, gpu: int) -> Path:
    path = folder / f"gpu{gpu}"
    if not path.is_dir():
        raise NoSuchDeviceError(
            f"{folder} has no gpu{gpu}; lay it out with: "
            f"python -m aegis_agent.simulated init {folder}"
        )
    return path


def _put(path: Path, text: str) -> None:
    """Renamed into place, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.new")
    staged.write_text(text + "\n")
    staged.replace(path)
