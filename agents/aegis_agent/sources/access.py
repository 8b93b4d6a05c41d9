"""What this process may not read, and what would allow it; GPUs that nobody reads."""

import os
from collections.abc import Iterator
from pathlib import Path

from aegis_agent.probes.verdict import Gap
from aegis_agent.sources import pci

_VENDORS = {"0x1002": "AMD", "0x10de": "NVIDIA"}
_LIBRARIES = {
    "0x1002": "install ROCm's amdsmi, or set ROCM_PATH to where it is",
    "0x10de": "install the driver's libnvidia-ml and `pip install nvidia-ml-py`",
}
# Classes of accelerators and 3D controllers; plain displays do not train.
_ACCELERATORS = ("0x0302", "0x0380", "0x12")


def unread_gpus(sys_root: Path, seen: int) -> Iterator[Gap]:
    """GPUs on the bus, where no GPU was read."""
    if seen:
        return
    for vendor, name in _VENDORS.items():
        found = [
            one.address
            for one in pci.discover(sys_root).endpoints
            if one.vendor == vendor and one.pci_class.startswith(_ACCELERATORS)
        ]
        if found:
            yield Gap(
                what=f"{len(found)} {name} GPU{'s' if len(found) > 1 else ''} on the bus",
                why=f"no library reads them: {', '.join(found)}",
                allow=_LIBRARIES[vendor],
            )


def denied(dev_root: Path = Path("/dev"), debug: Path = Path("/sys/kernel/debug")) -> Iterator[Gap]:
    """What of GPUs is there and may not be read by this user."""
    nodes = [dev_root / "kfd", *sorted((dev_root / "dri").glob("renderD*"))]
    closed = [str(node) for node in nodes if node.exists() and not os.access(node, os.R_OK)]
    if closed:
        yield Gap(
            what="GPU devices",
            why=f"{', '.join(closed[:3])}{' …' if len(closed) > 3 else ''} may not be opened",
            allow="run as root, or as a user of the groups render and video",
            essential=False,  # most of it is read from elsewhere, and what is not is unknown
        )
    if nodes[0].exists() and not os.access(debug, os.R_OK | os.X_OK):
        yield Gap(
            what="error records (CPER)",
            why=f"{debug} is for root alone",
            allow="run as root",
            essential=False,
        )
