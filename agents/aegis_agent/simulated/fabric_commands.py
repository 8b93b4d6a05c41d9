"""The commands that lay out a node's network cards and break them."""

import argparse
from pathlib import Path

from aegis_agent.simulated import fabric, network

_VERBS = {
    "init": network.init,
    "down": network.down,
    "up": network.up,
    "flap": network.flap,
    "off": network.switch_off,
    "on": network.switch_on,
    "remove": network.remove,
}


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """`net`, `net-speed`, `node`, `rdma-…` and `pci-remove`."""
    command = _add(commands, "net", "a network port's sysfs tree, for --sys-root DIR")
    command.add_argument("verb", choices=_VERBS)
    _add_words(command, "folder", "interface")
    command.set_defaults(run=lambda chosen: _VERBS[chosen.verb](chosen.folder, chosen.interface))

    command = _add(commands, "net-speed", "let a port's link train at so many Mb/s")
    _add_words(command, "folder", "interface")
    command.add_argument("speed", type=int)
    command.set_defaults(
        run=lambda chosen: network.set_speed(chosen.folder, chosen.interface, chosen.speed)
    )
    _add_node(commands)
    _add_rdma(commands)


def _add_node(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _add(commands, "node", "a whole node's sysfs tree: GPUs, cards, storage, management")
    _add_words(command, "folder")
    command.add_argument("make", choices=fabric.CARDS, nargs="?", default="ionic")
    command.add_argument("count", type=int, nargs="?", default=8)
    command.set_defaults(run=lambda chosen: fabric.init(chosen.folder, chosen.make, chosen.count))

    command = _add(commands, "pci-remove", "let a card fall off the bus")
    _add_words(command, "folder", "address")
    command.set_defaults(run=lambda chosen: fabric.remove_function(chosen.folder, chosen.address))


def _add_rdma(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _add(
        commands, "rdma-counter", "set a counter of an RDMA device, to garbage if need be"
    )
    _add_words(command, "folder", "device", "counter", "value")
    command.set_defaults(
        run=lambda chosen: fabric.set_counter(
            chosen.folder, chosen.device, chosen.counter, chosen.value
        )
    )
    command = _add(commands, "rdma-unreadable", "let reading a counter fail")
    _add_words(command, "folder", "device", "counter")
    command.set_defaults(
        run=lambda chosen: fabric.make_unreadable(chosen.folder, chosen.device, chosen.counter)
    )
    command = _add(commands, "rdma-hang", "let reading a counter hang, until it is set again")
    _add_words(command, "folder", "device", "counter")
    command.set_defaults(
        run=lambda chosen: fabric.make_hang(chosen.folder, chosen.device, chosen.counter)
    )
    command = _add(commands, "rdma-file", "set state, phys_state or rate of an RDMA port")
    _add_words(command, "folder", "device", "name", "value")
    command.set_defaults(
        run=lambda chosen: fabric.set_file(chosen.folder, chosen.device, chosen.name, chosen.value)
    )
    for verb, up in (("rdma-down", False), ("rdma-up", True)):
        command = _add(commands, verb, f"an InfiniBand link goes {verb.removeprefix('rdma-')}")
        _add_words(command, "folder", "device")
        command.set_defaults(
            run=lambda chosen, up=up: fabric.set_state(chosen.folder, chosen.device, up=up)
        )
    command = _add(commands, "rdma-remove", "let an RDMA device go away; its interface stays")
    _add_words(command, "folder", "device")
    command.set_defaults(run=lambda chosen: fabric.remove_rdma(chosen.folder, chosen.device))


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str
) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=text, description=text)


def _add_words(command: argparse.ArgumentParser, *names: str) -> None:
    metavars = {"folder": "DIR", "interface": "IFACE"}
    for name in names:
        kind = Path if name == "folder" else str
        command.add_argument(name, type=kind, metavar=metavars.get(name, name.upper()))
