"""A node's root helper, and the agent's hand that gives it orders.

Like the real one it looks before it acts, remembers on disk what it began, and holds each order
against `aegis.model.order.refusal`, which both share.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from aegis.model import order as orders
from aegis.model.order import Order, OrderResult, OrderState, Verb
from aegis.model.record import replace
from aegis.sim.scene import Scene

LOOK_SECONDS = 4.0  # at most
RESET_SECONDS = 8.0
REBOOT_DELAY_SECONDS = 2.0
HEALS = 0.6  # of the acts
FAILS = 0.1  # of the resets


@dataclass(slots=True, eq=False, kw_only=True)
class SimHelper:
    """What of it is on the node's disk outlives agent, helper and boot."""

    scene: Scene
    node: str
    skew_seconds: float
    boot_id: Callable[[], str]
    is_live: Callable[[str], bool]  # of a device
    heal: Callable[[], None]
    reboot: Callable[[], None]
    begun: Callable[[Order], None]  # promises look on
    changed: Callable[[], None]
    results: dict[str, OrderResult] = field(default_factory=dict)  # the agent's, as it reports them
    _ended: dict[str, OrderResult] = field(default_factory=dict)  # the helper's own
    _epoch: int = 0

    def take(
        self, standing: tuple[Order, ...], *, epoch: int, sent_at: float, asked_at: float
    ) -> None:
        """The orders that stand, by the answer to a report that was made then."""
        names = {order.id for order in standing}
        self.results = {name: one for name, one in self.results.items() if name in names}
        for order in standing:
            if order.id in self.results:
                continue
            local = replace(order, expires_at=asked_at + order.expires_at - sent_at)
            if reason := self._refusal(local, max(epoch, self._epoch)):
                self._tell(order, OrderState.REFUSED, reason)
                continue
            self._tell(order, OrderState.WORKING, "handed to the helper")
            self.scene.soon(LOOK_SECONDS, partial(self._obey, local, self.boot_id()))

    def _refusal(self, order: Order, epoch: int) -> str:
        return orders.refusal(
            order,
            node=self.node,
            boot_id=self.boot_id(),
            epoch=epoch,
            now=self.scene.now + self.skew_seconds,
        )

    def _obey(self, order: Order, boot: str) -> None:
        if self.boot_id() != boot:  # it went down with the node
            return
        if order.id in self._ended:
            self._keep(self._ended[order.id])
            return
        reason = self._refusal(order, self._epoch)
        if not reason and not self.is_live(order.device):
            reason = f"{order.device} is well"
        if not reason and self._holders():
            reason = "ranks hold its GPUs"
        if reason:
            self._tell(order, OrderState.REFUSED, reason)
            return
        self._epoch = max(self._epoch, order.epoch)
        self.begun(order)
        self.scene.log(f"{self.node} carries out {order.verb} {order.id}")
        self._ended[order.id] = self._result(order, OrderState.FAILED, "nobody saw how it ended")
        match order.verb:
            case Verb.RESET_DOMAIN:
                self.scene.soon(RESET_SECONDS, lambda: self._reset(order, boot))
            case Verb.REBOOT:
                self._end(order, OrderState.ACCEPTED, "it starts anew")
                self.scene.later(REBOOT_DELAY_SECONDS, lambda: self._reboot(boot))

    def _holders(self) -> bool:
        return any(one.node == self.node for one in self.scene.truth.ranks.values())

    def _reset(self, order: Order, boot: str) -> None:
        if self.boot_id() != boot:
            return
        if self.scene.dice.random() < FAILS:
            self._end(order, OrderState.FAILED, "the reset hung")
            return
        self._perhaps_heal()
        self._end(order, OrderState.DONE, "2 GPUs were reset")

    def _reboot(self, boot: str) -> None:
        if self.boot_id() == boot:
            self._perhaps_heal()
            self.reboot()

    def _perhaps_heal(self) -> None:
        if self.scene.dice.random() < HEALS:
            self.heal()

    def _end(self, order: Order, state: OrderState, text: str) -> None:
        self._ended[order.id] = self._result(order, state, text)
        self._keep(self._ended[order.id])

    def _tell(self, order: Order, state: OrderState, text: str) -> None:
        self._keep(self._result(order, state, text))

    def _keep(self, result: OrderResult) -> None:
        self.results[result.id] = result
        self.changed()

    def _result(self, order: Order, state: OrderState, text: str) -> OrderResult:
        at = self.scene.now + self.skew_seconds
        return OrderResult(id=order.id, verb=order.verb, state=state, text=text, at=at)
