"""A network port's sysfs tree: DIR/class/net/IFACE, as the kernel lays it out under /sys.

Each change is a new folder and one renamed link, so that no reader sees half a change. The file
`aegis_simulated` marks the tree, as the symbol of that name marks the GPU library.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

_FOLDER = "devices/virtual/net"
_MARK = "aegis_simulated"


class NoSuchPortError(Exception):
    """The tree has no such interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What the port's files say."""

    carrier: bool = True
    carrier_up_count: int = 1
    carrier_down_count: int = 0
    speed: int = 400_000

    def files(self) -> dict[str, str]:
        """Names and contents under class/net/IFACE."""
        return {
            "operstate": "up" if self.carrier else "down",
            "carrier": str(int(self.carrier)),
            "carrier_changes": str(self.carrier_up_count + self.carrier_down_count),
            "carrier_up_count": str(self.carrier_up_count),
            "carrier_down_count": str(self.carrier_down_count),
            "speed": str(self.speed if self.carrier else -1),
            "mtu": "9000",
        }


def init(root: Path, interface: str) -> None:
    """A port with its link up."""
    root.mkdir(parents=True, exist_ok=True)
    (root / _MARK).touch()
    _write(root, interface, Port())


def down(root: Path, interface: str) -> None:
    """The link goes down."""
    port = _read(root, interface)
    if port.carrier:
        _write(root, interface, _fallen(port))


def up(root: Path, interface: str) -> None:
    """The link comes up."""
    port = _read(root, interface)
    if not port.carrier:
        _write(root, interface, _risen(port))


def flap(root: Path, interface: str) -> None:
    """The link goes down and up again, faster than any reader."""
    port = _read(root, interface)
    _write(root, interface, _risen(_fallen(port)) if port.carrier else _fallen(_risen(port)))


def remove(root: Path, interface: str) -> None:
    """The interface goes away."""
    (root / "class" / "net" / interface).unlink(missing_ok=True)


def _fallen(port: Port) -> Port:
    return replace(port, carrier=False, carrier_down_count=port.carrier_down_count + 1)


def _risen(port: Port) -> Port:
    return replace(port, carrier=True, carrier_up_count=port.carrier_up_count + 1)


def _read(root: Path, interface: str) -> Port:
    folder = root / "class" / "net" / interface
    try:
        return Port(
            carrier=(folder / "carrier").read_text().strip() == "1",
            carrier_up_count=int((folder / "carrier_up_count").read_text()),
            carrier_down_count=int((folder / "carrier_down_count").read_text()),
        )
    except FileNotFoundError as error:
        raise NoSuchPortError(
            f"{root} has no interface {interface}; lay it out with: "
            f"python -m aegis_agent.simulated net init {root} {interface}"
        ) from error


def _write(root: Path, interface: str, port: Port) -> None:
    link = root / "class" / "net" / interface
    link.parent.mkdir(parents=True, exist_ok=True)
    before = link.resolve() if link.is_symlink() else None
    files = port.files()
    folder = root / _FOLDER / f"{interface}-{files['carrier_changes']}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    staged = link.with_name(f".{interface}.new")
    staged.unlink(missing_ok=True)
    staged.symlink_to(folder.resolve())
    staged.replace(link)
    if before is not None and before != folder.resolve():
        shutil.rmtree(before, ignore_errors=True)
