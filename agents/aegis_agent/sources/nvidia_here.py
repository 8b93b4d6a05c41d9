"""Whether this node has NVIDIA GPUs for computing, without asking NVIDIA's library."""

import os
from pathlib import Path

_VENDOR = "0x10de"
_COMPUTES = "0x0302"  # the class of a GPU without a display; one with a display may be only that


def is_here(sys_root: Path) -> bool:
    """The driver is loaded, or there is a GPU that computes, or one is simulated."""
    if os.environ.get("AEGIS_SIM_NVML") or (sys_root / "module" / "nvidia").is_dir():
        return True
    return bool(_computing(sys_root))


def addresses(sys_root: Path) -> list[str]:
    """The GPUs that compute and have NVIDIA's driver: those that its library should list."""
    return [path.name for path in _computing(sys_root) if _driver(path) == "nvidia"]


def shares_with_amd(sys_root: Path) -> bool:
    """Whether AMD's driver is loaded as well: then the names of GPUs must differ."""
    return (sys_root / "module" / "amdgpu").is_dir()


def _computing(sys_root: Path) -> list[Path]:
    try:
        functions = sorted((sys_root / "bus" / "pci" / "devices").iterdir())
    except OSError:
        return []
    return [
        path
        for path in functions
        if _read(path / "vendor") == _VENDOR and _read(path / "class").startswith(_COMPUTES)
    ]


def _driver(path: Path) -> str:
    try:
        return (path / "driver").readlink().name
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
