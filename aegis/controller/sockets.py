"""Where the controller listens."""

import errno
import socket

from aegis.controller.systemd import inherited_sockets


class ListenError(Exception):
    """It cannot listen there; the sentence says what to do."""


class TakenError(ListenError):
    """Another program listens there."""


class AddressError(ListenError):
    """It is no address at all."""


def listening(addresses: list[str]) -> list[socket.socket]:
    """The sockets that systemd hands over, or else new ones at these addresses."""
    return inherited_sockets() or [_listen(address) for address in addresses]


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 0xFFFF:
        raise AddressError(f"--listen {address!r} is no address: write HOST:PORT")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, backlog=2048)
    except OSError as error:
        raise _explained(address, error) from error


def _explained(address: str, error: OSError) -> ListenError:
    match error.errno:
        case errno.EADDRINUSE:
            return TakenError(
                f"{address} is already in use by another program; choose another with --listen"
            )
        case errno.EACCES:
            return ListenError(
                f"{address} may only be used by root; choose a port above 1023 with --listen"
            )
        case _:
            return ListenError(
                f"cannot listen on {address} ({error.strerror}); "
                "choose an address of this machine with --listen"
            )


def url(listener: socket.socket) -> str:
    """The address as a browser on this machine would write it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
