"""GPUs and network cards on the PCI bus, and the ports above them, as sysfs has them.

    /sys/bus/pci/devices/0000:c1:00.0 -> ../../../devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0

The path of a device names the ports above it, the root port first. Every second hop is a link: from
a root port to what is below it, then, inside a switch, none, then from the switch's port to what is
below that.

Reading the state of a link asks the device itself and wakes one that sleeps: sleepers are let lie.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aegis_agent.probes.pcie import FunctionSample
from aegis_agent.probes.pcie_link import LinkSample, Rate

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPU_CLASSES = ("0x03", "0x12")  # display, processing accelerator
_NETWORK_CLASS = "0x02"
_GPU_VENDORS = ("0x1002", "0x10de")  # their cards' own switches drop their speed as well
_BYTES_MAX = 4096
_LANES_UNKNOWN = (0, 63, 255)  # "none", and two forms of all ones
_LANES_SILENT = "63"  # all that a device's state can hold: nobody answers
_ERRORS = ("correctable", "nonfatal", "fatal")
_SPEED = re.compile(r"([0-9.]+) GT/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One GPU or network card's function, or a port above one."""

    address: str
    path: Path
    vendor: str = ""
    model: str = ""  # "0x1002:0x74a1"
    pci_class: str = ""
    ports: tuple[str, ...] = ()  # above it, the root port first
    interfaces: tuple[str, ...] = ()  # network interfaces that it has

    @property
    def is_gpu(self) -> bool:
        """Whether it computes or displays."""
        return self.pci_class.startswith(_GPU_CLASSES)

    @property
    def idles(self) -> bool:
        """Whether it may drop the speed of its link when it has nothing to do."""
        return self.is_gpu or self.vendor in _GPU_VENDORS


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Two ends that trained with each other."""

    upper: Function
    lower: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What is looked at."""

    endpoints: tuple[Function, ...] = ()  # GPUs and network cards, without virtual functions
    ports: tuple[Function, ...] = ()  # above them
    links: tuple[Link, ...] = ()

    def below(self, address: str) -> tuple[Function, ...]:
        """The endpoints at the address itself, or behind it."""
        return tuple(
            one for one in self.endpoints if one.address == address or address in one.ports
        )


def discover(sys_root: Path) -> Tree:
    """Find the devices. Without PCI there are none."""
    folder = sys_root / "bus" / "pci" / "devices"
    endpoints = [one for path in _listed(folder) if (one := _endpoint(path)) is not None]
    ports: dict[str, Function] = {}
    links: dict[str, Link] = {}
    for endpoint in endpoints:
        chain = [*(_port(endpoint, depth) for depth in range(len(endpoint.ports))), endpoint]
        ports |= {port.address: port for port in chain[:-1]}
        for upper, lower in zip(chain[::2], chain[1::2], strict=False):
            links.setdefault(upper.address, Link(upper=upper, lower=lower))
    return Tree(
        endpoints=tuple(endpoints), ports=tuple(ports.values()), links=tuple(links.values())
    )


def read_functions(
    functions: Iterable[Function], at: float, silent: frozenset[str] = frozenset()
) -> Iterator[FunctionSample]:
    """Whether each is there, and the errors it counted; `silent` are known not to answer."""
    for function in functions:
        counts = {}
        for kind in _ERRORS:
            text = _read(function.path / f"aer_dev_{kind}")
            if text and (found := parse_counts(text)):
                counts[kind] = found
        present = bool(counts) or function.path.exists()
        yield FunctionSample(
            at=at,
            address=function.address,
            present=present,
            silent=function.address in silent,
            counts=counts,
        )


def read_links(links: Iterable[Link], at: float, *, training: bool) -> Iterator[LinkSample]:
    """How each link runs, and how it could."""
    for link in links:
        upper, lower = _ability(link.upper.path), _ability(link.lower.path)
        yield LinkSample(
            at=at,
            upper=link.upper.address,
            lower=link.lower.address,
            model=link.lower.model,
            now=_current(link.lower.path) or _current(link.upper.path) or Rate(),
            able=Rate(speed=min(upper.speed, lower.speed), width=min(upper.width, lower.width)),
            idles=link.lower.idles,
            training=training,
            silent=not _sleeps(link.lower.path)
            and _read(link.lower.path / "current_link_width") == _LANES_SILENT,
        )


def parse_counts(text: str) -> dict[str, int]:
    """Lines such as "BadTLP 3" or, of older kernels, "Bad TLP 3"."""
    counts = {}
    for line in text.splitlines():
        name, _, count = line.strip().rpartition(" ")
        if name and count.isdigit():
            counts[name] = int(count)
    return counts


def _endpoint(path: Path) -> Function | None:
    pci_class = _read(path / "class")
    if not pci_class.startswith((*_GPU_CLASSES, _NETWORK_CLASS)) or (path / "physfn").exists():
        return None
    real = path.resolve()
    ports = tuple(part for part in real.parts[:-1] if _ADDRESS.fullmatch(part))
    return _function(real, pci_class, ports)


def _port(endpoint: Function, depth: int) -> Function:
    """The port of that depth above the endpoint."""
    path = endpoint.path.parents[len(endpoint.ports) - 1 - depth]
    return _function(path, _read(path / "class"), endpoint.ports[:depth])


def _function(path: Path, pci_class: str, ports: tuple[str, ...]) -> Function:
    vendor = _read(path / "vendor")
    return Function(
        address=path.name,
        path=path,
        vendor=vendor,
        model=f"{vendor}:{_read(path / 'device')}",
        pci_class=pci_class,
        ports=ports,
        interfaces=tuple(one.name for one in _listed(path / "net")),
    )


def _ability(path: Path) -> Rate:
    return _rate(_read(path / "max_link_speed"), _read(path / "max_link_width")) or Rate()


def _current(path: Path) -> Rate | None:
    if _sleeps(path):
        return None
    return _rate(_read(path / "current_link_speed"), _read(path / "current_link_width"))


def _sleeps(path: Path) -> bool:
    return _read(path / "power" / "runtime_status") in ("suspended", "suspending", "resuming")


def _rate(speed: str, width: str) -> Rate | None:
    found = _SPEED.search(speed)
    lanes = int(width) if width.isdigit() else 0
    if found is None or lanes in _LANES_UNKNOWN:
        return None
    return Rate(speed=float(found[1]), width=lanes)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    """A small file, or nothing where there is none or it cannot be read."""
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
