"""A whole node's sysfs tree: GPUs, a network card beside each, and the ways out.

    pci0000:00/0000:00:01.1/0000:01:00.0 ─┬─ 0000:02:00.0/0000:05:00.0   gpu0
                                          └─ 0000:02:01.0/0000:06:00.0   fab0, ionic_0
    … eight times, four to a socket
    pci0000:a0/…/0000:a1:00.0   eth0   carries the default route
    pci0000:b0/…/0000:b1:00.0   ens1   speaks RDMA far from any GPU: storage

`sys_root` and what is in it is marked as simulated; `network` changes links, and the RDMA side of a
port follows its link. What no driver has is not there: bnxt_re has no counters/ folder.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aegis_agent.probes.rdma_table import PERFORMANCE, TABLE
from aegis_agent.simulated import network
from aegis_agent.simulated.network import Port, point

_GPU_BUSES = (0x05, 0x15, 0x65, 0x75, 0x85, 0x95, 0xE5, 0xF5)  # of an MI300X platform
_LINK = {
    "current_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
}
_TRAFFIC = (
    "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets",
    "unicast_xmit_packets", "unicast_rcv_packets", "multicast_xmit_packets",
    "multicast_rcv_packets",
)  # fmt: skip
_STATES = {True: ("4: ACTIVE", "5: LinkUp"), False: ("1: DOWN", "3: Disabled")}


class NoSuchRdmaError(Exception):
    """The tree has no such RDMA device, or the driver is none that can be simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A make of network card."""

    driver: str  # of the PCI function
    rdma: str  # prefix of its RDMA devices
    vendor: str
    device: str
    link_layer: str = "Ethernet"
    performance: tuple[str, ...] = ()  # in counters/; empty: there is no such folder
    hardware: tuple[str, ...] = ()  # in hw_counters/


CARDS: Mapping[str, Card] = {
    "ionic": Card(
        driver="ionic", rdma="ionic_", vendor="0x1dd8", device="0x1002",
        performance=("link_downed", "symbol_error", "port_rcv_errors", "port_xmit_discards"),
        hardware=(*TABLE["ionic"], "tx_rdma_ucast_pkts", "rx_rdma_ucast_pkts"),
    ),
    "bnxt_re": Card(
        driver="bnxt_en", rdma="bnxt_re", vendor="0x14e4", device="0x1760",
        hardware=(*TABLE["bnxt_re"], "active_qps", "tx_pkts", "rx_pkts"),
    ),
    "mlx5": Card(
        driver="mlx5_core", rdma="mlx5_", vendor="0x15b3", device="0x1021",
        performance=(*PERFORMANCE, *_TRAFFIC), hardware=tuple(TABLE["mlx5"]),
    ),
    "infiniband": Card(
        driver="mlx5_core", rdma="mlx5_", vendor="0x15b3", device="0x1021",
        link_layer="InfiniBand", performance=(*PERFORMANCE, *_TRAFFIC),
        hardware=tuple(TABLE["mlx5"]),
    ),
}  # fmt: skip


def init(root: Path, make: str = "ionic", count: int = 8) -> None:
    """Lay out a node of so many GPUs and fabric ports, at most eight, all links up."""
    if (card := CARDS.get(make)) is None:
        raise NoSuchRdmaError(f"{make} cannot be simulated; there are {', '.join(CARDS)}")
    for number, bus in enumerate(_GPU_BUSES[:count]):
        pci_root, numa_node = bus & 0xF0, number * 2 // count
        switch = f"pci0000:{pci_root:02x}/0000:{pci_root:02x}:01.1/0000:{pci_root + 1:02x}:00.0"
        port = f"0000:{pci_root + 2:02x}"
        gpu = _function(root, f"{switch}/{port}:00.0/0000:{bus:02x}:00.0", numa_node, "0x120000")
        _drive(root, gpu, "amdgpu", "0x1002", "0x74a1")
        nic = f"{switch}/{port}:01.0/0000:{bus + 1:02x}:00.0"
        add_card(root, nic, card, number=number, interface=f"fab{number}", numa_node=numa_node)
    eth = _function(root, "pci0000:a0/0000:a0:01.0/0000:a1:00.0", 0, "0x020000")
    _drive(root, eth, "igb", "0x8086", "0x1521")
    network.add(root, "eth0", Port(speed=1000, function=eth))
    storage = "pci0000:b0/0000:b0:01.0/0000:b1:00.0"
    add_card(root, storage, CARDS["mlx5"], number=9, interface="ens1", numa_node=1)
    _write(
        root / "proc" / "net" / "route",
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0",
    )


def add_card(
    root: Path, place: str, card: Card, *, number: int, interface: str, numa_node: int
) -> None:
    """A network card with one port. InfiniBand gets no interface, as without IP over it."""
    function = _function(root, place, numa_node, "0x020000")
    _drive(root, function, card.driver, card.vendor, card.device)
    name = f"{card.rdma}{number}"
    device = function / "infiniband" / name
    port = device / "ports" / "1"
    ethernet = card.link_layer == "Ethernet"
    _write_all(
        device, {"fw_ver": "1.110.1", "node_type": "1: CA", "board_id": f"{card.vendor}-simulated"}
    )
    _write_all(port, {"link_layer": card.link_layer, "rate": "400 Gb/sec (4X NDR)"})
    _write_all(port / "counters", dict.fromkeys(card.performance, "0"))
    _write_all(port / "hw_counters", dict.fromkeys(card.hardware, "0"))
    if ethernet:
        _write(port / "gid_attrs" / "ndevs" / "0", interface)
    point(device / "device", function)
    point(root / "class" / "infiniband" / name, device)
    if ethernet:
        network.add(root, interface, Port(function=function))
    else:
        set_state(root, name, up=True)


def set_counter(root: Path, device: str, counter: str, value: str) -> None:
    """A counter's file says this, a number or garbage."""
    path = _counter(root, device, counter)
    if path.is_dir():
        path.rmdir()
    hung = path.is_fifo()
    if hung:
        path = path.rename(path.with_name(f".{counter}.hung"))
    _write(path.with_name(counter), value)
    if hung:  # whoever reads it is let go
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        path.unlink()


def make_unreadable(root: Path, device: str, counter: str) -> None:
    """Reading the counter fails, for root too."""
    path = _counter(root, device, counter)
    path.unlink()
    path.mkdir()


def make_hang(root: Path, device: str, counter: str) -> None:
    """Reading the counter does not end, as when the card's firmware is wedged."""
    path = _counter(root, device, counter)
    path.unlink()
    os.mkfifo(path)


def set_state(root: Path, device: str, *, up: bool) -> None:
    """The RDMA port is active, or down; InfiniBand counts that it went down."""
    port = _port(root, device)
    state, physical = _STATES[up]
    before = port / "state"
    lost = not up and before.exists() and before.read_text().startswith("4")
    _write_all(port, {"state": state, "phys_state": physical})
    downed = port / "counters" / "link_downed"
    if lost and downed.exists() and "InfiniBand" in (port / "link_layer").read_text():
        _write(downed, str(min(255, int(downed.read_text()) + 1)))


def set_file(root: Path, device: str, name: str, value: str) -> None:
    """Any file of the RDMA port: rate, state, phys_state."""
    _write(_port(root, device) / name, value)


def remove_rdma(root: Path, device: str) -> None:
    """The RDMA device goes away, as when its driver is unloaded; the interface stays."""
    link = root / "class" / "infiniband" / device
    _port(root, device)
    shutil.rmtree(link.resolve())
    link.unlink()


def remove_function(root: Path, address: str) -> None:
    """The card falls off the bus, with all that it had."""
    link = root / "bus" / "pci" / "devices" / address
    if not link.is_symlink():
        raise NoSuchRdmaError(f"{root} has no PCI function {address}")
    folder = link.resolve()
    for device in folder.glob("infiniband/*"):
        (root / "class" / "infiniband" / device.name).unlink()
    for interface in (root / "class" / "net").iterdir():
        if (interface / "device").resolve() == folder:
            interface.unlink()
    link.unlink()
    shutil.rmtree(folder)


def _port(root: Path, device: str) -> Path:
    port = root / "class" / "infiniband" / device / "ports" / "1"
    if not port.is_dir():
        raise NoSuchRdmaError(
            f"{root} has no RDMA device {device}; lay out a node with: "
            f"python -m aegis_agent.simulated node {root}"
        )
    return port


def _counter(root: Path, device: str, counter: str) -> Path:
    port = _port(root, device)
    for folder in ("hw_counters", "counters"):
        if (path := port / folder / counter).exists():
            return path
    raise NoSuchRdmaError(f"{device} has no counter {counter}")


def _function(root: Path, place: str, numa_node: int, pci_class: str) -> Path:
    """A PCI function and the ports above it."""
    folder = root / "devices"
    for part in place.split("/"):
        folder /= part
        if not part.startswith("pci"):
            last = folder.name == place.rsplit("/", 1)[-1]
            _write_all(folder, _LINK | {"class": pci_class if last else "0x060400"})
            _write_all(folder, {"vendor": "0x1022", "device": "0x14a5"})
            _write(folder / "numa_node", str(numa_node))
            point(root / "bus" / "pci" / "devices" / part, folder)
    for kind, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
        _write(folder / f"aer_dev_{kind}", f"TOTAL_ERR_{total} 0")
    return folder


def _drive(root: Path, function: Path, driver: str, vendor: str, device: str) -> None:
    _write_all(function, {"vendor": vendor, "device": device})
    folder = root / "bus" / "pci" / "drivers" / driver
    folder.mkdir(parents=True, exist_ok=True)
    point(function / "driver", folder)


def _write_all(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        _write(folder / name, text)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, so that no reader sees half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.new")
    staged.write_text(text + "\n")
    staged.replace(path)
