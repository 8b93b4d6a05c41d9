"""The agent's hand that looks closely at its node before it serves again.

How it comes out is drawn from the order's own name, so that no other story changes by it. It ends
with the agent's process: the next one begins anew, as the real one does.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from aegis.model.record import replace
from aegis.model.validation import (
    Step,
    StepState,
    ValidationOrder,
    ValidationResult,
    ValidationState,
    outcome,
    refusal,
)
from aegis.sim.scene import Scene

SECONDS = 20.0  # at most
ABLE, HANGS, FAILS, TELLS_LITTLE = 0.5, 0.05, 0.2, 0.3  # of nodes; of orders


def drawn(text: str) -> float:
    """Between 0 and 1, always the same for the same text."""
    return zlib.crc32(text.encode()) / 2**32


@dataclass(slots=True, eq=False, kw_only=True)
class SimValidator:
    """Of one life of an agent."""

    scene: Scene
    node: str
    boot_id: str
    skew_seconds: float
    changed: Callable[[], None]
    results: dict[str, ValidationResult] = field(default_factory=dict)  # as it reports them

    @property
    def able(self) -> bool:
        """Whether this node's agent can validate."""
        return drawn(self.node) < ABLE

    def take(
        self, standing: tuple[ValidationOrder, ...], *, epoch: int, sent_at: float, asked_at: float
    ) -> None:
        """The orders that stand, by the answer to a report that was made then."""
        names = {order.id for order in standing}
        self.results = {name: one for name, one in self.results.items() if name in names}
        for order in standing:
            if order.id in self.results:
                continue
            now = self.scene.now + self.skew_seconds
            local = replace(order, expires_at=asked_at + order.expires_at - sent_at)
            reason = refusal(local, node=self.node, boot_id=self.boot_id, epoch=epoch, now=now)
            if reason:
                self._tell(order, ValidationState.ABORTED, reason)
                continue
            self._tell(order, ValidationState.WORKING, "it has begun")
            chance = drawn(order.id)
            if chance >= HANGS:
                self.scene.later(chance * SECONDS, partial(self._end, order, chance))

    def _end(self, order: ValidationOrder, chance: float) -> None:
        if order.id not in self.results:
            return
        state = StepState.PASS
        if chance < HANGS + FAILS:
            state = StepState.FAIL
        elif chance < HANGS + FAILS + TELLS_LITTLE:
            state = StepState.UNKNOWN
        step = Step(name="all-reduce", state=state, text="ranks were to meet")
        self._tell(order, *outcome((step,)), (step,))

    def _tell(
        self,
        order: ValidationOrder,
        state: ValidationState,
        text: str,
        steps: tuple[Step, ...] = (),
    ) -> None:
        at = self.scene.now + self.skew_seconds
        self.results[order.id] = ValidationResult(
            id=order.id, depth=order.depth, state=state, text=text, at=at, steps=steps
        )
        self.changed()
