"""`python -m aegis.worker.store LAUNCHER_PID ADDRESS`: the rendezvous stores of a launcher.

Each generation meets at a store of its own, so no key of a dead generation is ever read. One fresh
store is always open and reported; `begin` takes it into use, closes the one before, and raises the
fence first. A store lives here and not in a rank, so it outlives any rank.

    in   {"op": "begin", "generation", "epoch", "port", "job", "folder"}   folder "": no fence
         {"op": "retire", "generation", "refused"}   close what older generations used; open another
                                                 where this one is refused: it may have been used
    out  {"event": "fresh", "port"}              an unused store is open
         {"event": "begun", "generation"}        the fence is up and the store in use
         {"event": "refused", "generation", "reason"}
         {"event": "failed", "reason"}           it cannot work here at all, and ends
"""

import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aegis.worker.fence import Fence, FenceError, raise_fence
from aegis.worker.lifeline import end_with
from aegis.worker.lines import Lines

_BACKLOG = 4096
_OFFERED_MAX = 8


@dataclass
class Stores:
    """The stores that nobody has met at, by port, and the one that a generation uses.

    After a refused generation another store is offered: its other members may have met at the one
    before. That one stays open all the same, until a later generation begins: it may have been
    given to that one before the refusal was heard of.
    """

    address: str
    lines: Lines
    offered: dict[int, Any] = field(default_factory=dict)  # the newest last
    used: Any = None
    used_by: int = 0

    def open_fresh(self) -> None:
        """Open an unused store and tell the launcher where."""
        while len(self.offered) >= _OFFERED_MAX:
            del self.offered[next(iter(self.offered))]
        store = _open(self.address)
        self.offered[store.port] = store
        self.lines.say("fresh", port=store.port)

    def obey(self, message: dict[str, Any]) -> None:
        """Do what the launcher asks."""
        match message["op"]:
            case "begin":
                self._begin(message)
                self.open_fresh()
            case "retire":
                if self.used_by < message["generation"]:
                    self._close_used()
                if message["refused"]:
                    self.open_fresh()
            case _:
                pass

    def _begin(self, message: dict[str, Any]) -> None:
        generation, port = message["generation"], message["port"]
        self._close_used()
        try:
            if message["folder"]:
                fence = Fence(job=message["job"], generation=generation, epoch=message["epoch"])
                raise_fence(Path(message["folder"]), fence)
        except FenceError as error:
            self.lines.say("refused", generation=generation, reason=str(error))
            return
        if port not in self.offered:
            reason = f"the rendezvous store at port {port} is no longer open"
            self.lines.say("refused", generation=generation, reason=reason)
            return
        self.used, self.used_by = self.offered[port], generation
        self.offered.clear()
        self.lines.say("begun", generation=generation)

    def _close_used(self) -> None:
        self.used, self.used_by = None, 0  # the server ends with its last reference


def _open(address: str) -> Any:
    from torch.distributed import TCPStore  # noqa: PLC0415  after the lifeline is tied

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((address, 0))
    listener.listen(_BACKLOG)
    port = listener.getsockname()[1]
    return TCPStore(
        address,
        port,
        None,
        True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def main() -> int:
    """Serve the launcher until it closes its side."""
    end_with(int(sys.argv[1]))
    lines = Lines()
    stores = Stores(address=sys.argv[2], lines=lines)
    try:
        stores.open_fresh()
    except ImportError as error:
        lines.say("failed", reason=f"torch: {error}")
        return 1
    except OSError as error:
        reason = f"no rendezvous store can listen on {stores.address}: {error.strerror or error}"
        lines.say("failed", reason=reason)
        return 1
    for message in lines:
        stores.obey(message)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
