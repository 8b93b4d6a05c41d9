"""Where the ranks' saves meet beside training: each tells its share, the first the outcome.

It goes over a connection of its own to the store at which the ranks have met, not over a process
group: a group's calls come in one order, and training goes on meanwhile. Whoever waits here asks
again and again, and the more ranks there are the more seldom.
"""

import json
import threading
import time
from typing import Any

import torch.distributed as dist
from torch.distributed import DistError, distributed_c10d

from aegis.worker.ranks import Ranks

_LOOK_SECONDS = 0.01
_LOOKS_PER_SECOND_MAX = 2000  # of all ranks together
_WAIT_SECONDS_MAX = 1800.0  # for a share or for the outcome
_LEAVE_SECONDS_MAX = 5.0  # for the others to have read the last outcome


class LostError(Exception):
    """The other ranks cannot be heard any more."""


class Meeting:
    """This rank among the others, from the thread that sees to its save."""

    def __init__(self, ranks: Ranks, name: str) -> None:
        """`name` is known to these ranks alone: their successors may use the store again."""
        self._rank, self._size = ranks.rank, ranks.size
        self._name = name
        self._store: Any = None
        self.abandoned = threading.Event()  # this rank is ending: nothing is waited for any more
        self._pause = max(_LOOK_SECONDS, ranks.size / _LOOKS_PER_SECOND_MAX)
        if ranks.size > 1:
            store = distributed_c10d._get_default_store()  # noqa: SLF001  there is no other way
            self._store = store.clone() if hasattr(dist.Store, "clone") else store

    def gather(self, number: int, share: Any) -> list[Any] | None:
        """What all ranks tell in save `number`, in rank order, on the first; None on the others."""
        if self._store is None:
            return [share]
        try:
            self._store.set(self._key(number, f"share/{self._rank}"), json.dumps(share))
            if self._rank != 0:
                return None
            keys = [self._key(number, f"share/{rank}") for rank in range(self._size)]
            self._await(keys)
            shares = [json.loads(self._store.get(key)) for key in keys]
            for key in keys:
                self._store.delete_key(key)
        except DistError as error:
            raise LostError(str(error)) from error
        return shares

    def tell(self, number: int, outcome: Any) -> None:
        """The first rank tells the others how it went."""
        if self._store is None:
            return
        try:
            self._store.set(self._key(number, "outcome"), json.dumps(outcome))
            if number > 1:
                self._store.delete_key(self._key(number - 1, "outcome"))
        except DistError as error:
            raise LostError(str(error)) from error

    def hear(self, number: int) -> Any:
        """What the first rank tells."""
        try:
            key = self._key(number, "outcome")
            self._await([key])
            outcome = json.loads(self._store.get(key))
            self._store.add(self._key(number, "heard"), 1)
        except DistError as error:
            raise LostError(str(error)) from error
        return outcome

    def leave(self, number: int) -> None:
        """The store may end with the first rank: stay until the others have heard the last."""
        if self._store is None or self._rank != 0 or number == 0:
            return
        until = time.monotonic() + _LEAVE_SECONDS_MAX
        try:
            heard = self._key(number, "heard")
            while self._store.add(heard, 0) < self._size - 1 and time.monotonic() < until:
                if self.abandoned.wait(self._pause):
                    return
        except DistError:
            return

    def _await(self, keys: list[str]) -> None:
        until = time.monotonic() + _WAIT_SECONDS_MAX
        while not self._store.check(keys):
            if time.monotonic() > until:
                raise LostError("nothing was heard of the other ranks for half an hour")
            if self.abandoned.wait(self._pause):
                raise LostError("this rank has failed")

    def _key(self, number: int, what: str) -> str:
        return f"aegis/save/{self._name}/{number}/{what}"
