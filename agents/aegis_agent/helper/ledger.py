"""What the helper remembers from order to order: the highest epoch, and what came of each id.

It is on disk before anything is touched, so that an order that was begun is never begun again,
whatever happens in between. One helper at a time holds the ledger.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aegis.model.order import Order, OrderResult, OrderState, Verb

_KEPT = 200  # the newest orders
_PAUSE_SECONDS = 0.05


class LedgerError(Exception):
    """The ledger cannot be used, so nothing is done; the sentence says what to do."""


class BusyError(Exception):
    """Another helper holds the ledger: an order is under way, this one perhaps."""


@dataclass
class Ledger:
    """The folder with `ledger.json`, and `audit.jsonl` beside it."""

    folder: Path
    epoch: int = 0
    _results: dict[str, OrderResult] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def held(cls, folder: Path, seconds_max: float) -> Iterator["Ledger"]:
        """The ledger, for us alone. Raises LedgerError, BusyError."""
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(f"{folder} cannot be written ({error.strerror})") from error
        try:
            _lock(lock, seconds_max)
            yield cls.read(folder)
        finally:
            os.close(lock)

    def result(self, order: Order) -> OrderResult | None:
        """What came of an order of this id, if there was one."""
        return self._results.get(order.id)

    def see(self, epoch: int) -> None:
        """A controller of this epoch has spoken: older ones count no more."""
        if epoch > self.epoch:
            self.epoch = epoch
            self._write()

    def begin(self, order: Order) -> None:
        """From here on the order counts as begun."""
        text = "it was begun, and nobody has seen how it ended: look at the node"
        self.end(_result(order, OrderState.FAILED, text))

    def end(self, result: OrderResult) -> None:
        """What came of it."""
        self._results.pop(result.id, None)
        self._results[result.id] = result
        self._results = dict(list(self._results.items())[-_KEPT:])
        self._write()

    def audit(self, **fields: Any) -> None:
        """One more line in the file that is only ever added to."""
        line = json.dumps({"at": time.time(), **fields})
        path = self.folder / "audit.jsonl"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise LedgerError(f"{path} cannot be written ({error.strerror})") from error

    @classmethod
    def read(cls, folder: Path) -> "Ledger":
        """The ledger as it stands. Raises LedgerError."""
        path = folder / "ledger.json"
        try:
            found = json.loads(path.read_text())
            results = {one["id"]: _from_json(one) for one in found["results"]}
            return cls(folder, int(found["epoch"]), results)
        except FileNotFoundError:
            return cls(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LedgerError(
                f"{path} cannot be read ({error}): without it an old order could be done again; "
                "move it away once you know that none is under way"
            ) from error

    def _write(self) -> None:
        """All of it or nothing: written beside, on disk, then renamed into place."""
        told = {"epoch": self.epoch, "results": [asdict(one) for one in self._results.values()]}
        staged = self.folder / "ledger.json.new"
        try:
            descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(told, file)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(self.folder / "ledger.json")
            folder = os.open(self.folder, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except OSError as error:
            raise LedgerError(
                f"{self.folder} cannot be written ({error.strerror}), so nothing is done"
            ) from error


def _from_json(found: dict[str, Any]) -> OrderResult:
    return OrderResult(
        id=found["id"],
        verb=Verb(found["verb"]),
        state=OrderState(found["state"]),
        text=found["text"],
        at=found["at"],
        killed=tuple(found["killed"]),
    )


def _result(order: Order, state: OrderState, text: str) -> OrderResult:
    return OrderResult(id=order.id, verb=order.verb, state=state, text=text, at=time.time())


def _lock(descriptor: int, seconds_max: float) -> None:
    until = time.monotonic() + seconds_max
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BusyError("an order is under way on this node") from None
            time.sleep(_PAUSE_SECONDS)
        else:
            return
