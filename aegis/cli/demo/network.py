"""The demo's network: real links in network namespaces, or a simulated sysfs tree without root."""

# ruff: noqa: D102  The protocol says once what each method does.

import ctypes
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

FABRIC = "fab0"
CONTROLLER_PORT = 8500
_CLONE_NEWNET = 0x40000000


class NetworkUnavailableError(Exception):
    """This machine or user cannot make network namespaces; the sentence says why."""


class Network(Protocol):
    """Where the demo's nodes live and how their fabric link is broken."""

    kind: str  # as it stands in the report: "namespaces" | "sysfs"

    def listeners(self, port: int) -> list[socket.socket]:
        """The controller's listening sockets, the one for this machine's browser first."""

    def prefix(self, node: str) -> list[str]:
        """What a command of this node starts with."""

    def controller_url(self, port: int) -> str:
        """Where a node reaches the controller that listens on `port` of this machine."""

    def address(self, node: str) -> str:
        """Where ranks reach the node."""

    def agent_arguments(self, node: str) -> list[str]:
        """What the node's agent must be told about its links."""

    def rank_environment(self) -> dict[str, str]:
        """What the ranks must know to use the fabric."""

    def fabric_down(self, node: str) -> None:
        """Take the node's fabric link away."""

    def fabric_up(self, node: str) -> None:
        """Bring it back."""

    def close(self) -> None:
        """Leave nothing behind."""


class Namespaces:
    """One network namespace per node, a management and a fabric link each, and a switch between.

    node N:  mgmt0 10.88.0.N ──┐            ┌── 10.88.0.254 controller
                               switch namespace
             fab0  10.89.0.N ──┘ (bridge fab)
    """

    kind = "namespaces"

    def __init__(self, nodes: list[str]) -> None:
        if os.geteuid() != 0:
            raise NetworkUnavailableError("network namespaces need root")
        self._number = {node: number for number, node in enumerate(nodes, start=1)}
        self._base = f"aegis-demo-{os.getpid()}"
        self._switch = f"{self._base}-sw"
        self._made: list[str] = []
        _remove_leftovers()
        try:
            self._build()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NetworkUnavailableError(_why(error)) from error
        except KeyboardInterrupt:
            self.close()
            raise

    def _build(self) -> None:
        self._add(self._switch)
        for bridge in ("mgmt", "fab"):
            _ip("-n", self._switch, "link", "add", bridge, "type", "bridge")
            _ip("-n", self._switch, "link", "set", bridge, "up")
        _ip("-n", self._switch, "addr", "add", "10.88.0.254/24", "dev", "mgmt")
        for node, number in self._number.items():
            space = self._space(node)
            self._add(space)
            self._cable(space, f"m{number}", "mgmt0", "mgmt", f"10.88.0.{number}/24")
            self._cable(space, f"f{number}", FABRIC, "fab", f"10.89.0.{number}/24")

    def _add(self, space: str) -> None:
        self._made.append(space)
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")

    def _cable(self, space: str, port: str, interface: str, bridge: str, address: str) -> None:
        switch = self._switch
        _ip("-n", switch, "link", "add", port, "type", "veth", "peer", interface, "netns", space)
        _ip("-n", switch, "link", "set", port, "master", bridge, "up")
        _ip("-n", space, "addr", "add", address, "dev", interface)
        _ip("-n", space, "link", "set", interface, "up")

    def _space(self, node: str) -> str:
        return f"{self._base}-n{self._number[node]}"

    def listeners(self, port: int) -> list[socket.socket]:
        return [
            _listen("127.0.0.1", port),
            _listen_in(self._switch, "10.88.0.254", CONTROLLER_PORT),
        ]

    def prefix(self, node: str) -> list[str]:
        return ["ip", "netns", "exec", self._space(node)]

    def controller_url(self, port: int) -> str:  # noqa: ARG002  the switch has its own port
        return f"http://10.88.0.254:{CONTROLLER_PORT}"

    def address(self, node: str) -> str:
        return f"10.89.0.{self._number[node]}"

    def agent_arguments(self, node: str) -> list[str]:  # noqa: ARG002  the same for all
        return ["--fabric", FABRIC]

    def rank_environment(self) -> dict[str, str]:
        return {"GLOO_SOCKET_IFNAME": FABRIC}

    def fabric_down(self, node: str) -> None:
        _ip("-n", self._switch, "link", "set", f"f{self._number[node]}", "down")

    def fabric_up(self, node: str) -> None:
        _ip("-n", self._switch, "link", "set", f"f{self._number[node]}", "up")

    def close(self) -> None:
        for space in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)
        self._made.clear()


class SimulatedSysfs:
    """All nodes on 127.0.0.1; the fabric link's state is a folder that the agent reads as /sys."""

    kind = "sysfs"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def listeners(self, port: int) -> list[socket.socket]:
        return [_listen("127.0.0.1", port)]

    def prefix(self, node: str) -> list[str]:  # noqa: ARG002  nothing to enter
        return []

    def controller_url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"

    def address(self, node: str) -> str:  # noqa: ARG002  one machine
        return "127.0.0.1"

    def agent_arguments(self, node: str) -> list[str]:
        self._net("init", node)
        return ["--fabric", FABRIC, "--sys-root", str(self._folder / node)]

    def rank_environment(self) -> dict[str, str]:
        return {"GLOO_SOCKET_IFNAME": "lo"}

    def fabric_down(self, node: str) -> None:
        self._net("down", node)

    def fabric_up(self, node: str) -> None:
        self._net("up", node)

    def close(self) -> None:
        """Nothing outside the demo's folder."""

    def _net(self, verb: str, node: str) -> None:
        tree = self._folder / node
        tree.mkdir(parents=True, exist_ok=True)
        simulated = [sys.executable, "-m", "aegis_agent.simulated"]
        subprocess.run([*simulated, "net", verb, str(tree), FABRIC], check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _why(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"`{' '.join(error.cmd)}` said: {error.stderr.strip() or error.returncode}"
    if isinstance(error, FileNotFoundError):
        return "the `ip` command is missing (apt-get install iproute2)"
    return str(error)


def _remove_leftovers() -> None:
    """Namespaces of demos that were killed before they could clean up."""
    folder = Path("/run/netns")
    for space in sorted(folder.glob("aegis-demo-*")) if folder.is_dir() else []:
        owner = re.match(r"aegis-demo-(\d+)-", space.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            subprocess.run(["ip", "netns", "delete", space.name], check=False, capture_output=True)


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.create_server((address, port), backlog=256)
    listener.set_inheritable(True)
    return listener


def _listen_in(space: str, address: str, port: int) -> socket.socket:
    """Listen inside a network namespace: a socket belongs to the namespace it was made in."""
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            with Path(f"/run/netns/{space}").open() as handle:
                _enter(handle.fileno())
                made.append(_listen(address, port))
        except OSError as error:
            failed.append(error)

    # Only the thread that enters the namespace is in it, and it ends here.
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _enter(space: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(space, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
