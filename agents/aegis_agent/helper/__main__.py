"""One connection on standard input, as systemd hands it over; see the package."""

import argparse
import os
import pwd
import shlex
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from aegis.model.order import Order, OrderResult, OrderState, Verb
from aegis_agent.helper.ledger import BusyError, Ledger, LedgerError
from aegis_agent.helper.message import BYTES_MAX, MessageError, read_order, write_result
from aegis_agent.helper.obey import Options, obey, reboot, result_of

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_READ_SECONDS_MAX = 10.0
_LOCK_SECONDS_MAX = 5.0
_USAGE, _DENIED = 2, 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Take one order, answer it, end."""
    chosen = _parser().parse_args(arguments)
    try:
        allowed = pwd.getpwnam(chosen.user).pw_uid
    except KeyError:
        return _say(f"there is no user {chosen.user}: install packaging/sysusers.d", _USAGE)
    try:
        peer = socket.socket(fileno=os.dup(0))
        pid, uid, _ = _credentials(peer)
    except OSError:
        return _say(
            "standard input is no socket: systemd starts it, by aegis-helper.socket", _USAGE
        )
    if uid != allowed:
        return _say(f"refused process {pid} of {_name(uid)}: only {chosen.user} may", _DENIED)
    peer.settimeout(_READ_SECONDS_MAX)
    with peer:
        return _serve(peer, chosen, uid)


def _serve(peer: socket.socket, chosen: argparse.Namespace, uid: int) -> int:
    try:
        order = read_order(_line(peer))
    except (MessageError, TimeoutError) as error:
        _send(peer, OrderResult(id="", verb=Verb.REBOOT, state=OrderState.REFUSED,
                                text=str(error), at=0.0))  # fmt: skip
        return _say(f"refused: {error}", 1)
    options = Options(
        node=chosen.node,
        boot_id=_boot_id(chosen.boot_id_file),
        config=chosen.config,
        look_seconds_max=chosen.look_seconds,
        reset_seconds_max=chosen.reset_seconds,
        reboot_command=tuple(shlex.split(chosen.reboot_command)),
        reboot_delay_seconds=chosen.reboot_delay_seconds,
    )
    try:
        with Ledger.held(chosen.state_dir, _LOCK_SECONDS_MAX) as ledger:
            return _carry_out(peer, order, options, ledger, uid)
    except BusyError as error:
        _send(peer, result_of(order, OrderState.WORKING, str(error)))
        return _say(f"order {order.id}: {error}", 0)
    except LedgerError as error:
        _send(peer, result_of(order, OrderState.REFUSED, str(error)))
        return _say(f"order {order.id}: {error}", 1)


def _carry_out(
    peer: socket.socket, order: Order, options: Options, ledger: Ledger, uid: int
) -> int:
    """The answer is on its way before a reboot begins."""
    ledger.audit(order=asdict(order), by_uid=uid)
    announced = ledger.result(order) is None
    result = obey(order, options, ledger)
    ledger.audit(order=order.id, result=asdict(result))
    _say(f"order {order.id}, {order.verb} for {order.incident}: {result.state}, {result.text}", 0)
    _send(peer, result)
    if announced and result.state is OrderState.ACCEPTED:
        reboot(order, options, ledger)
    return 0


def _line(peer: socket.socket) -> bytes:
    """Everything up to the first end of line."""
    received = b""
    while b"\n" not in received:
        part = peer.recv(4096)
        received += part
        if not part or len(received) > BYTES_MAX:
            raise MessageError("it ends without an end of line, or is too long")
    return received.partition(b"\n")[0]


def _send(peer: socket.socket, result: OrderResult) -> None:
    """Whoever asked may be gone: what was done is in the ledger, and told when asked again."""
    try:
        peer.sendall(write_result(result))
        peer.shutdown(socket.SHUT_WR)
    except OSError as error:
        _say(f"nobody hears the answer: {error.strerror}", 0)


def _credentials(peer: socket.socket) -> tuple[int, int, int]:
    size = struct.calcsize("3i")
    pid, uid, gid = struct.unpack(
        "3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, uid, gid


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _boot_id(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # which no order is for


def _say(text: str, code: int) -> int:
    """To the journal."""
    print(f"aegis-helper: {text}", file=sys.stderr, flush=True)  # noqa: T201
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aegis_agent.helper", description=__doc__)
    add = parser.add_argument
    add("--user", default="aegis-agent", help="the only user who may give orders")
    add("--node", default=socket.gethostname(), help="this node's name (default: the host's)")
    add("--state-dir", type=Path, default=_state_dir(), metavar="DIR")
    add("--config", type=Path, metavar="FILE", help="agent.yaml, for the look before the act")
    add("--boot-id-file", type=Path, default=BOOT_ID, help=argparse.SUPPRESS)
    add("--look-seconds", type=float, default=30.0, help="for the look before the act")
    add("--reset-seconds", type=float, default=120.0, help="for a reset")
    add("--reboot-command", default="systemctl reboot", metavar="COMMAND")
    add("--reboot-delay-seconds", type=float, default=2.0, help="for the answer to be passed on")
    return parser


def _state_dir() -> Path:
    given = os.environ.get("STATE_DIRECTORY", "/var/lib/aegis-helper")
    return Path(given.split(":", 1)[0])


if __name__ == "__main__":
    sys.exit(main())
