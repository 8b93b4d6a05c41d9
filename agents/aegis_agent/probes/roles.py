"""Which network ports training needs: told from where they sit, not from a table of models.

    named in the settings                               fabric
    carries the default route, or is a virtual function management
    speaks RDMA and sits as near to a GPU as any does   fabric
    speaks RDMA, away from the GPUs                     storage
    anything else                                       management

InfiniBand counts as near where nothing tells. What is unsure is management, with the reason: a
port that training does not use takes no node away.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

NAMED = "named in the settings"


class Role(StrEnum):
    """What a port is for."""

    FABRIC = "fabric"  # training's own network
    STORAGE = "storage"
    MANAGEMENT = "management"  # or nobody knows


class Nearness(IntEnum):
    """How close a port is to the nearest GPU."""

    UNKNOWN = 0  # no GPU, or no place, is known
    FAR = 1  # on another socket
    SOCKET = 2  # on one NUMA node
    ROOT = 3  # on one PCIe root
    BRIDGE = 4  # behind one PCIe bridge or switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a PCI function sits."""

    address: str = ""  # "0000:c1:00.0"; empty: not on PCI
    root: str = ""  # "pci0000:c0"
    bridges: tuple[str, ...] = ()  # from the root down, without the function itself
    numa_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A network port as it was found."""

    interface: str = ""  # empty: it has none, as InfiniBand may
    rdma: str = ""  # its RDMA device; empty: it has none
    rdma_port: int = 1
    place: Place = Place()
    number: int = 0  # among the ports of its function
    driver: str = ""
    hardware_address: str = ""  # its MAC, or the GUID of its RDMA device
    model: str = ""  # compared, never looked up: PCI vendor and device, or the RDMA board
    link_layer: str = ""  # "Ethernet", "InfiniBand", … of its RDMA device
    speed: int | None = None  # Mb/s; None: not known, as while the link is down
    default_route: bool = False
    physical_function: str = ""  # whose virtual function it is
    master: str = ""  # the bond it belongs to

    @property
    def name(self) -> str:
        """Its own name. That of InfiniBand is its RDMA device's: interfaces come and go."""
        return self.rdma if self.is_told_by_rdma else self.interface

    @property
    def is_told_by_rdma(self) -> bool:
        """Whether the RDMA device knows the link, and not an interface."""
        return bool(self.rdma) and (self.link_layer == "InfiniBand" or not self.interface)

    @property
    def identity(self) -> str:
        """Where it sits and what it is."""
        return " ".join(
            filter(None, (self.place.address, self.hardware_address, self.driver, self.rdma))
        )

    @property
    def kind(self) -> tuple[str, str, str]:
        """Ports of one kind do the same work. A card's second port may lack a cable in all."""
        return self.driver, self.model, f"{self.place.address[-1:]}.{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A port, what it is for, and why we think so."""

    port: Port
    name: str  # what it is called in reports: as the settings do, or its own
    role: Role
    why: str
    named: bool = False  # by the settings
    gpu: str = ""  # the PCI address of the nearest GPU, where one is near


def assign(ports: Sequence[Port], gpus: Sequence[Place], named: Collection[str]) -> list[Assigned]:
    """The role of every port. With names, only those are fabric."""
    if named:
        return [_named(port, named) for port in ports]
    bonded = {port.master for port in ports if port.master and port.rdma}
    near = {port.name: nearest(port.place, gpus) for port in ports}
    candidates = [
        port for port in ports if (port.rdma or port.master in bonded) and not _excluded(port)
    ]
    best = max((near[port.name][0] for port in candidates), default=Nearness.UNKNOWN)
    nearby = [port for port in candidates if near[port.name][0] == best]
    return [_assign(port, near[port.name], best, candidates, nearby) for port in ports]


def nearest(place: Place, gpus: Sequence[Place]) -> tuple[Nearness, str]:
    """How near the nearest GPU is, and which it is."""
    if not place.address or not gpus:
        return Nearness.UNKNOWN, ""
    measured = [(_nearness(place, gpu), _shared(place, gpu), gpu.address) for gpu in gpus]
    near, _, address = max(measured, key=lambda one: one[:2])
    return near, address


def _nearness(one: Place, other: Place) -> Nearness:
    if _shared(one, other):
        return Nearness.BRIDGE
    if one.root and one.root == other.root:
        return Nearness.ROOT
    if one.numa_node is None or other.numa_node is None:
        return Nearness.UNKNOWN
    return Nearness.SOCKET if one.numa_node == other.numa_node else Nearness.FAR


def _shared(one: Place, other: Place) -> int:
    """How many bridges the two have in common."""
    if one.root != other.root:
        return 0
    count = 0
    for mine, theirs in zip(one.bridges, other.bridges, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _named(port: Port, named: Collection[str]) -> Assigned:
    called = next((name for name in (port.interface, port.rdma) if name and name in named), "")
    if called:
        return Assigned(port=port, name=called, role=Role.FABRIC, why=NAMED, named=True)
    return _is(port, Role.MANAGEMENT, "the settings name other ports")


def _excluded(port: Port) -> str:
    if port.default_route:
        return "the default route goes through it"
    if port.physical_function:
        return f"a virtual function of {port.physical_function}"
    return ""


def _assign(
    port: Port,
    near: tuple[Nearness, str],
    best: Nearness,
    candidates: Sequence[Port],
    nearby: Sequence[Port],
) -> Assigned:
    if why := _excluded(port):
        return _is(port, Role.MANAGEMENT, why)
    if port not in candidates:
        why = "it does not speak RDMA; name it under fabric if training uses it"
        return _is(port, Role.MANAGEMENT, why)
    if port in nearby and (slower := _slower(port, nearby)):
        return _is(port, Role.STORAGE, slower)
    return _by_nearness(port, near, best)


def _by_nearness(port: Port, near: tuple[Nearness, str], best: Nearness) -> Assigned:
    nearness, gpu = near
    if nearness < best:
        return _is(port, Role.STORAGE, "it speaks RDMA, and others sit nearer to GPUs")
    if nearness >= Nearness.SOCKET:
        return _is(port, Role.FABRIC, _told(nearness, gpu), gpu)
    if port.link_layer == "InfiniBand":
        return _is(port, Role.FABRIC, "InfiniBand, and no GPU tells otherwise")
    why = "unsure: it speaks RDMA, but no GPU is known to be near; name it under fabric if one is"
    return _is(port, Role.MANAGEMENT, why)


def _is(port: Port, role: Role, why: str, gpu: str = "") -> Assigned:
    return Assigned(port=port, name=port.name, role=role, why=why, gpu=gpu)


def _told(nearness: Nearness, gpu: str) -> str:
    where = {
        Nearness.BRIDGE: "behind one PCIe bridge",
        Nearness.ROOT: "on one PCIe root",
        Nearness.SOCKET: "on one NUMA node",
    }
    return f"{where[nearness]} with the GPU at {gpu}"


def _slower(port: Port, nearby: Sequence[Port]) -> str:
    """A card of another make at half the speed or less is not one of them that lost lanes."""
    others = [
        other.speed for other in nearby if other.model != port.model and other.speed is not None
    ]
    if port.speed is None or not others or port.speed * 2 > max(others):
        return ""
    return f"{told_speed(port.speed)} where others as near run at {told_speed(max(others))}"


def told_speed(speed: int) -> str:
    """A speed in Mb/s as people say it."""
    return f"{speed / 1000:g} Gb/s" if speed >= 1000 else f"{speed} Mb/s"
