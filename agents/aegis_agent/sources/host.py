"""The host itself: its name, its boot, its clock."""

import socket
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def hostname() -> str:
    """The name by which the controller knows this node, unless it is told another."""
    return socket.gethostname()


def boot_id(path: Path = _BOOT_ID) -> str:
    """Drawn by the kernel at each boot; empty where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def now() -> float:
    """The node's clock."""
    return time.time()
