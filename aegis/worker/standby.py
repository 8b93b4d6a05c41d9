"""A standby: runs the unchanged script ahead of time, up to where it asks for its rank.

It is forked like a rank and ends with its parent like one. What it prints is kept in files of its
own, which become the rank's. A script that fails before it asks ends its standby with a traceback,
and one that ends before it asks waits with its end.
"""

import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aegis.worker import rank
from aegis.worker.gate import Gate
from aegis.worker.rank import RankOrder

_ORDER_BYTES_MAX = 1 << 20
_OURS = "AEGIS_"  # whatever else a launcher tells its ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyOrder:
    """What every standby of a job begins with."""

    kind: str
    target: str
    arguments: Sequence[str]
    environment: dict[str, str]  # what is the same for every rank of the job
    gated: Sequence[str]  # the names of what is not, beside our own
    guarded: Sequence[str]  # folders whose contents change from one generation to the next
    folder: str
    output: str  # the folder for what it prints before it is a rank

    def fits(self, order: RankOrder) -> bool:
        """Whether a standby of this order can become that rank."""
        mine = (self.kind, self.target, list(self.arguments), self.folder)
        its = (order.kind, order.target, list(order.arguments), order.folder)
        known = all(order.environment.get(key) == one for key, one in self.environment.items())
        new = set(order.environment) - set(self.environment)
        return mine == its and known and all(self.is_gated(name) for name in new)

    def is_gated(self, name: str) -> bool:
        """Whether only a rank has this variable."""
        return name in self.gated or (name.startswith(_OURS) and name not in self.environment)

    def begin(self, number: int) -> RankOrder:
        """How this one of them begins."""
        held = Path(self.output) / f"standby-{number}"
        return RankOrder(
            generation=0,
            local_rank=-1,
            kind=self.kind,
            target=self.target,
            arguments=self.arguments,
            environment=self.environment,
            folder=self.folder,
            stdout=f"{held}.stdout",
            stderr=f"{held}.stderr",
        )


def run(standby: StandbyOrder, begun: RankOrder, channel: socket.socket) -> int:
    """Run the script up to the gate, wait, and run it on as a rank; its exit status."""
    rank.channel = channel
    gate = Gate(
        is_gated=standby.is_gated,
        folders=tuple(standby.guarded),
        ask=partial(take_place, channel, {"event": "at_gate"}),
        settle=partial(_settle, begun),
    )

    def tell(error: BaseException) -> None:
        if gate.passed:
            rank.tell_failure(error)
            return
        gate.open()
        sys.excepthook(type(error), error, rank.from_script(error.__traceback__))

    gate.close()
    status = rank.run(begun, tell)
    if status == 0:
        gate.wait()
    return status


def take_place(channel: socket.socket, news: dict[str, Any]) -> RankOrder:
    """Tell the parent, and wait for a place. Ends this process where none is to come."""
    channel.send(json.dumps(news).encode())
    message = channel.recv(_ORDER_BYTES_MAX)
    if not message:
        os._exit(0)
    return RankOrder(**json.loads(message))


def _settle(begun: RankOrder, order: RankOrder) -> None:
    """Be this rank from now on."""
    sys.stdout.flush()
    sys.stderr.flush()
    for held, wanted, descriptor in (
        (begun.stdout, order.stdout, 1),
        (begun.stderr, order.stderr, 2),
    ):
        try:
            Path(held).rename(wanted)
        except OSError:
            rank.redirect(descriptor, wanted)
    rank.be_seen(order)
    os.environ.update(order.environment)


def last_words(begun: RankOrder) -> str:
    """Why a standby that is gone has failed, as far as it said."""
    try:
        lines = Path(begun.stderr).read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:400] if lines else ""


def sweep(begun: RankOrder) -> None:
    """Remove the output of a standby that never became a rank."""
    for path in (begun.stdout, begun.stderr):
        Path(path).unlink(missing_ok=True)
