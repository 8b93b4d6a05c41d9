"""Every network port of this node, as sysfs has it: where it sits, its RDMA device, its route.

class/net/IF/device              a port is an interface with a device; bridges, VLANs and pairs
                                 of virtual Ethernet have none
class/infiniband/D/ports/P       its RDMA side; InfiniBand may have no interface
bus/pci/devices                  the GPUs, to measure the distance to
PROC/net/route                   which interface carries the default route
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from aegis_agent.probes.nic import Function
from aegis_agent.probes.roles import Place, Port
from aegis_agent.sources import pci

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_VIRTUAL_PORT = re.compile(r"(c\d+)?pf\d+[vs]f\d+")  # stands for a virtual function, as "pf0vf3"
_SUBFUNCTION = re.compile(r"\.sf\.\d+$")
_RATE = re.compile(r"([0-9.]+) Gb/sec")
_GPU_VENDORS = ("0x1002", "0x10de")
_SIMULATED = "aegis_simulated"  # a tree that holds this file is none of the kernel's
_BYTES_MAX = 4096
_LAYERS_MAX = 8  # of bonds, bridges and VLANs upon each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is."""

    ports: tuple[Port, ...] = ()
    gpus: tuple[Place, ...] = ()
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rdma:
    """One port of an RDMA device."""

    device: str
    port: int
    interface: str  # as the device names it; empty: it does not
    place: Place
    driver: str
    model: str
    link_layer: str
    hardware_address: str
    speed: int | None


def find(sys_root: Path, proc_root: Path) -> Found:
    """All ports and GPUs. What cannot be read is empty or absent."""
    interfaces = list(_interfaces(sys_root, proc_root))
    return Found(
        ports=tuple(_joined(interfaces, list(_rdma_ports(sys_root)))),
        gpus=tuple(_gpus(sys_root)),
        simulated=(sys_root / _SIMULATED).exists(),
    )


def read(path: Path) -> str:
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


def parse_rate(text: str) -> int | None:
    """The Mb/s of "400 Gb/sec (4X NDR)"."""
    found = _RATE.match(text)
    return int(float(found[1]) * 1000) or None if found else None


def function_at(sys_root: Path, address: str) -> Function:
    """What has become of a PCI function. All ones are what the bus says when nobody answers."""
    folder = sys_root / "bus" / "pci" / "devices"
    if not address or not folder.is_dir():
        return Function.UNKNOWN
    if not (folder / address).exists():
        return Function.GONE
    try:
        with (folder / address / "config").open("rb", buffering=0) as file:
            return Function.SILENT if file.read(2) == b"\xff\xff" else Function.PRESENT
    except OSError:
        return Function.PRESENT


def listed(folder: Path) -> list[str]:
    """The names in a folder; none where there is none or it cannot be read."""
    try:
        return sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []


def _link(path: Path) -> str:
    """The last part of what a symbolic link points to; empty where there is none."""
    try:
        return os.path.basename(os.readlink(path))  # noqa: PTH119, PTH115  a name, no path
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None


# interfaces


def _interfaces(sys_root: Path, proc_root: Path) -> Iterator[Port]:
    folder = sys_root / "class" / "net"
    routed = _below(folder, _default_route(proc_root))
    for name in listed(folder):
        device = folder / name / "device"
        if not device.exists():
            continue
        function = _function(device)
        speed = _number(read(folder / name / "speed")) or 0
        yield Port(
            interface=name,
            place=_place(function),
            number=_number(read(folder / name / "dev_port")) or 0,
            driver=_link(device / "driver"),
            model=_model(function),
            hardware_address=read(folder / name / "address"),
            speed=speed if speed > 0 else None,
            default_route=name in routed,
            physical_function=_physical(folder / name, device, function),
            master=_link(folder / name / "master"),
        )


def _function(device: Path) -> Path | None:
    """The PCI function that a device is, or sits upon."""
    real = device.resolve()
    for path in (real, *real.parents):
        if _ADDRESS.fullmatch(path.name):
            return path
    return None


def _place(function: Path | None) -> Place:
    if function is None:
        return Place()
    parts = function.parts
    numa_node = _number(read(function / "numa_node"))
    return Place(
        address=function.name,
        root=next((part for part in parts if _ROOT.fullmatch(part)), ""),
        bridges=tuple(part for part in parts[:-1] if _ADDRESS.fullmatch(part)),
        numa_node=None if numa_node is None or numa_node < 0 else numa_node,
    )


def _model(function: Path | None) -> str:
    if function is None or not (vendor := read(function / "vendor")):
        return ""
    return f"{vendor}:{read(function / 'device')}"


def _physical(interface: Path, device: Path, function: Path | None) -> str:
    """Whose virtual function, subfunction or stand-in it is; empty: it is a port of its own."""
    if function is None:
        return ""
    if physical := _link(function / "physfn"):
        return physical
    is_stand_in = _VIRTUAL_PORT.fullmatch(read(interface / "phys_port_name")) is not None
    is_subfunction = _SUBFUNCTION.search(device.resolve().name) is not None
    return function.name if is_stand_in or is_subfunction else ""


def _default_route(proc_root: Path) -> set[str]:
    """The interfaces of the best default route; of IPv6 only where IPv4 has none.

    A switch that advertises itself to IPv6 gives every port of the fabric a default route.
    """
    best: dict[int, set[str]] = {}
    for line in _lines(proc_root / "net" / "route")[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            best.setdefault(_number(fields[6]) or 0, set()).add(fields[0])
    if not best:
        for line in _lines(proc_root / "net" / "ipv6_route"):
            fields = line.split()
            if len(fields) == 10 and fields[:2] == ["0" * 32, "00"] and fields[9] != "lo":
                best.setdefault(int(fields[5], 16), set()).add(fields[9])
    return best[min(best)] if best else set()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _below(folder: Path, names: set[str]) -> set[str]:
    """The interfaces, and those that carry them."""
    found, queue = set(names), list(names)
    for _ in range(_LAYERS_MAX):
        queue = [
            entry.removeprefix("lower_")
            for name in queue
            for entry in listed(folder / name)
            if entry.startswith("lower_")
        ]
        found.update(queue)
    return found


# RDMA devices


def _rdma_ports(sys_root: Path) -> Iterator[_Rdma]:
    folder = sys_root / "class" / "infiniband"
    for name in listed(folder):
        device = folder / name / "device"
        function = _function(device) if device.exists() else None
        for port in listed(folder / name / "ports"):
            place = folder / name / "ports" / port
            yield _Rdma(
                device=name,
                port=_number(port) or 1,
                interface=read(place / "gid_attrs" / "ndevs" / "0"),
                place=_place(function),
                driver=_link(device / "driver"),
                model=_model(function) or read(folder / name / "board_id"),
                link_layer=read(place / "link_layer"),
                hardware_address=read(folder / name / "node_guid"),
                speed=parse_rate(read(place / "rate")),
            )


def _joined(interfaces: list[Port], rdma_ports: list[_Rdma]) -> Iterator[Port]:
    """Interfaces with their RDMA device, then RDMA ports without an interface."""
    left = list(interfaces)
    alone = []
    for rdma in rdma_ports:
        port = _interface_of(rdma, left)
        if port is None:
            alone.append(_without_interface(rdma))
            continue
        left[left.index(port)] = replace(
            port,
            rdma=rdma.device,
            rdma_port=rdma.port,
            link_layer=rdma.link_layer,
            speed=port.speed or rdma.speed if rdma.link_layer == "InfiniBand" else port.speed,
        )
    yield from left
    yield from alone


def _interface_of(rdma: _Rdma, ports: list[Port]) -> Port | None:
    free = [port for port in ports if not port.rdma]
    for port in free:
        if rdma.interface and port.interface == rdma.interface:
            return port
    for port in free:
        here = rdma.place.address and port.place.address == rdma.place.address
        if here and not port.physical_function and port.number in (rdma.port - 1, 0):
            return port
    return None


def _without_interface(rdma: _Rdma) -> Port:
    return Port(
        rdma=rdma.device,
        rdma_port=rdma.port,
        place=rdma.place,
        driver=rdma.driver,
        model=rdma.model,
        link_layer=rdma.link_layer,
        hardware_address=rdma.hardware_address,
        speed=rdma.speed,
    )


# GPUs


def _gpus(sys_root: Path) -> Iterator[Place]:
    for function in pci.discover(sys_root).endpoints:
        if function.is_gpu and function.vendor in _GPU_VENDORS:
            yield _place(function.path)
