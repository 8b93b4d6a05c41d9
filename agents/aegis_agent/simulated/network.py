"""A network port's sysfs tree: DIR/class/net/IFACE, as the kernel lays it out under /sys.

Each change is a new folder and one renamed link, so that no reader sees half a change. The file
`aegis_simulated` marks the tree, as the symbol of that name marks the GPU library.
"""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

_FOLDER = "devices/virtual/net"
_MARK = "aegis_simulated"
_NOMINAL = ".nominal_speed"  # what the link comes up with


class NoSuchPortError(Exception):
    """The tree has no such interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What the port's files say."""

    carrier: bool = True
    carrier_up_count: int = 1
    carrier_down_count: int = 0
    speed: int = 400_000  # while the link is up
    switched_on: bool = True
    number: int = 0  # among the ports of its function
    function: Path | None = None  # its PCI function's folder; None: it is virtual

    def files(self) -> dict[str, str]:
        """Names and contents under class/net/IFACE."""
        return {
            "operstate": "up" if self.carrier else "down",
            "carrier": str(int(self.carrier)),
            "carrier_changes": str(self.carrier_up_count + self.carrier_down_count),
            "carrier_up_count": str(self.carrier_up_count),
            "carrier_down_count": str(self.carrier_down_count),
            "speed": str(self.speed if self.carrier else -1),
            "flags": hex(0x1002 | int(self.switched_on)),
            "dev_port": str(self.number),
            "mtu": "9000",
            _NOMINAL: str(self.speed),
        }


def init(root: Path, interface: str) -> None:
    """A port with its link up."""
    add(root, interface, Port())


def add(root: Path, interface: str, port: Port) -> None:
    """A port as it is described."""
    root.mkdir(parents=True, exist_ok=True)
    (root / _MARK).touch()
    _write(root, interface, port)


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


def switch_off(root: Path, interface: str) -> None:
    """An administrator takes the port down: `ip link set IFACE down`."""
    port = _read(root, interface)
    _write(root, interface, replace(_fallen(port) if port.carrier else port, switched_on=False))


def switch_on(root: Path, interface: str) -> None:
    """An administrator brings it up again."""
    port = replace(_read(root, interface), switched_on=True)
    _write(root, interface, port if port.carrier else _risen(port))


def set_speed(root: Path, interface: str, speed: int) -> None:
    """The link trains at another speed, in Mb/s: it is lost and comes back."""
    port = replace(_read(root, interface), speed=speed)
    _write(root, interface, _risen(_fallen(port)) if port.carrier else port)


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
            speed=int((folder / _NOMINAL).read_text()),
            switched_on=bool(int((folder / "flags").read_text(), 16) & 1),
            number=int((folder / "dev_port").read_text()),
            function=(folder / "device").resolve() if (folder / "device").exists() else None,
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
    state = f"{files['carrier_changes']}-{files['flags']}-{port.speed}"
    folder = root / _FOLDER / f"{interface}-{state}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    if port.function is not None:
        point(folder / "device", port.function)
    staged = link.with_name(f".{interface}.new")
    staged.unlink(missing_ok=True)
    staged.symlink_to(folder.resolve())
    staged.replace(link)
    _follow(link / "device", up=port.carrier)
    if before is not None and before != folder.resolve():
        shutil.rmtree(before, ignore_errors=True)


def _follow(device: Path, *, up: bool) -> None:
    """The RDMA port over an Ethernet link is as active as the link."""
    for port in device.glob("infiniband/*/ports/1"):
        (port / "state").write_text("4: ACTIVE\n" if up else "1: DOWN\n")
        (port / "phys_state").write_text("5: LinkUp\n" if up else "3: Disabled\n")


def point(link: Path, target: Path) -> None:
    """A relative symbolic link, as sysfs has them."""
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
