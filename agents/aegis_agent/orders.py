"""Orders of the controller to this node's root helper, and what came of them.

Orders are levels: they stand in the controller's answers until it knows how they ended. Each is
handed to the helper once, and what it answered is told in every report until the order stands no
longer. That is remembered across restarts and reboots; should it be lost all the same, the helper
still knows, by the order's id.

An order expires by the controller's clock. What is left of it is counted from the moment at which
the report was put together that the answer is to: whatever the clocks say, never longer than meant.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aegis.model.order import Order, OrderResult, OrderState, Verb, refusal
from aegis_agent.helper.message import write_order
from aegis_agent.spool import Spool

_log = logging.getLogger(__name__)

_KEY = "order "
_ANSWER_SECONDS_MAX = 240.0
_ASK_AGAIN_SECONDS = 15.0  # while the helper is busy, or a reboot does not come
_LINE_BYTES_MAX = 1 << 16
_OPEN = (OrderState.WORKING, OrderState.ACCEPTED)
_NOT_OURS = (
    "the helper's socket {socket} is closed to this user: SocketUser= of aegis-helper.socket "
    "names who may speak there"
)
_NO_HELPER = (
    "no helper is installed: enable aegis-helper.socket on {node}, or leave resets and reboots to "
    "people (docs/how-to/repair.md)"
)


@dataclass
class Orders:
    """What this node was told to do, and did."""

    spool: Spool
    node: str
    boot_id: str
    socket: Path
    now: Callable[[], float]
    changed: Callable[[], None]
    _results: dict[str, OrderResult] = field(default_factory=dict)  # by id
    _asking: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _epoch: int = 0

    def __post_init__(self) -> None:
        for key, text in self.spool.recall().items():
            if key.startswith(_KEY):
                result = _from_json(json.loads(text))
                self._results[result.id] = result

    def has_helper(self) -> bool:
        """Whether there is a socket to give orders to."""
        return self.socket.is_socket()

    def results(self) -> tuple[OrderResult, ...]:
        """What is known of every order that stands, by id."""
        return tuple(self._results[name] for name in sorted(self._results))

    def take(self, orders: Iterable[Order], *, epoch: int, sent_at: float, asked_at: float) -> None:
        """The orders that stand, by an answer that was sent then, to a report of that time."""
        standing = {order.id: order for order in orders}
        self._epoch = max(self._epoch, epoch)
        for name in [name for name in self._results if name not in standing]:
            del self._results[name]
            self.spool.erase(_KEY + name)
        for order in standing.values():
            local = replace(order, expires_at=asked_at + order.expires_at - sent_at)
            if self._is_open(order.id) and order.id not in self._asking:
                self._asking[order.id] = asyncio.create_task(self._see_to(local))

    def close(self) -> None:
        """Ask nobody any more; the helper goes on with what it has begun."""
        for task in self._asking.values():
            task.cancel()

    def _is_open(self, name: str) -> bool:
        known = self._results.get(name)
        return known is None or known.state in _OPEN

    async def _see_to(self, order: Order) -> None:
        try:
            self._tell(await self._carry_out(order))
        finally:
            del self._asking[order.id]

    async def _carry_out(self, order: Order) -> OrderResult:
        before = self._results.get(order.id)
        if before is None and (
            reason := refusal(
                order, node=self.node, boot_id=self.boot_id, epoch=self._epoch, now=self.now()
            )
        ):
            return self._result(order, OrderState.REFUSED, reason)
        if order.id in self._asked:
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
        self._asked.add(order.id)
        if before is None:
            self._tell(self._result(order, OrderState.WORKING, "handed to the helper"))
        try:
            return await _ask(self.socket, order)
        except (FileNotFoundError, ConnectionRefusedError, PermissionError) as error:
            closed = _NOT_OURS if isinstance(error, PermissionError) else _NO_HELPER
            text = closed.format(node=self.node, socket=self.socket)
            return before or self._result(order, OrderState.REFUSED, text)
        except (OSError, TimeoutError, ValueError, KeyError) as error:
            text = f"the helper gave no answer: {str(error) or 'it took too long'}"
            return self._result(order, OrderState.WORKING, text)

    def _tell(self, result: OrderResult) -> None:
        """In every report from now on, and after a restart."""
        known = self._results.get(result.id)
        if known is not None and (known.state, known.text) == (result.state, result.text):
            return
        self._results[result.id] = result
        self.spool.remember({_KEY + result.id: json.dumps(_told(result))})
        _log.warning(
            "An order is being seen to.",
            extra={
                "order": result.id,
                "verb": result.verb,
                "state": result.state,
                "reason": result.text,
            },
        )
        self.changed()

    def _result(self, order: Order, state: OrderState, text: str) -> OrderResult:
        return OrderResult(id=order.id, verb=order.verb, state=state, text=text, at=self.now())


async def _ask(socket: Path, order: Order) -> OrderResult:
    """One order, one answer. Raises OSError, TimeoutError, ValueError, KeyError."""
    async with asyncio.timeout(_ANSWER_SECONDS_MAX):
        reader, writer = await asyncio.open_unix_connection(str(socket), limit=_LINE_BYTES_MAX)
        try:
            writer.write(write_order(order))
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    if not line:
        raise ConnectionResetError("it ended without a word: see journalctl -u 'aegis-helper@*'")
    result = _from_json(json.loads(line))
    return result if result.id == order.id else replace(result, id=order.id, verb=order.verb)


def _told(result: OrderResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "verb": result.verb,
        "state": result.state,
        "text": result.text,
        "at": result.at,
        "killed": result.killed,
    }


def _from_json(found: dict[str, Any]) -> OrderResult:
    """Raises KeyError, ValueError."""
    return OrderResult(
        id=str(found["id"]),
        verb=Verb(found["verb"]),
        state=OrderState(found["state"]),
        text=str(found["text"]),
        at=float(found["at"]),
        killed=tuple(str(one) for one in found["killed"]),
    )
