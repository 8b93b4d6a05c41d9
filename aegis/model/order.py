"""An order to a node's root helper, and what came of it.

    core -> agent -> helper     Order, a level: it stands until it has ended or expired
    helper -> agent -> core     OrderResult, a level too: told until its order no longer stands

`refusal` is what the agent and the helper both hold an order against before anything is touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from aegis.model.fault import FaultClass

VALID_SECONDS_MAX = 600.0  # an order that would be good for longer is no order of ours
GPU = "gpu."
CLOCK_SECONDS = 1.0  # two clocks of one node may differ by the reading of them


class Verb(StrEnum):
    """All that the root helper can do."""

    RESET_DOMAIN = "reset-domain"  # reset every GPU of a hive: one GPU alone cannot be
    REBOOT = "reboot"


class OrderState(StrEnum):
    """What came of an order."""

    WORKING = "working"  # handed to the helper, which has not answered yet
    ACCEPTED = "accepted"  # a reboot is on its way: a new boot_id is its proof
    DONE = "done"
    FAILED = "failed"  # begun, and it did not come out as it should
    REFUSED = "refused"  # nothing was touched


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One act of the root helper, good for this node, this boot and this controller alone."""

    id: str  # "inc-000001/1": never used twice
    verb: Verb
    node: str
    boot_id: str
    epoch: int  # of the controller: one lower than the highest ever seen is refused
    incident: str
    expires_at: float  # the controller's clock; on its way through the agent the node's
    reason: str
    fault_class: FaultClass  # what must still be so just before the act ...
    device: str  # ... of this device ...
    identity: str = ""  # ... which is this one: "BDF UUID serial"
    devices: tuple[str, ...] = ()  # every GPU that a reset hits, by identity
    processes: tuple[int, ...] = ()  # that may be hit; any other holder of these GPUs stops it


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    """What the node says of an order that it was given."""

    id: str
    verb: Verb
    state: OrderState
    text: str  # one sentence; of a refusal, what to do
    at: float  # the node's clock
    killed: tuple[str, ...] = ()  # the processes that were hit: "4711 python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """An order that a node was given, kept with the node."""

    order: Order
    given_at: float
    done_at: float | None = None  # carried out, by what the node said
    ended_at: float | None = None
    state: OrderState | None = None  # None: no word of it yet
    text: str = ""
    helped: bool = False  # what was wrong was gone afterwards


def refusal(order: Order, *, node: str, boot_id: str, epoch: int, now: float) -> str:
    """Why the order may not be carried out here and now, and what to do; empty when it may."""
    if order.node != node:
        return (
            f"it is meant for {order.node} and this is {node}: give the agent and the helper of "
            "each node the same, and its own, name"
        )
    if not order.boot_id or order.boot_id != boot_id:
        return f"{node} has started anew since it was given: Aegis looks again and gives another"
    if order.epoch < epoch:
        return (
            f"it comes from a controller of epoch {order.epoch}, and epoch {epoch} was seen: stop "
            "the old controller, or, if the controller's data was lost, forget the epoch as "
            "docs/how-to/repair.md says"
        )
    if now >= order.expires_at:
        return f"it expired {now - order.expires_at:.0f} s ago: Aegis looks again and gives another"
    if order.expires_at - now > VALID_SECONDS_MAX + CLOCK_SECONDS:
        return f"it would be good for longer than {VALID_SECONDS_MAX:.0f} s: set the clocks right"
    return ""


def domain_refusal(order: Order, domain: Sequence[str], holders: Sequence[tuple[int, str]]) -> str:
    """Why a reset may not hit this hive, given by address, and these processes."""
    ordered = {identity.split()[0] for identity in order.devices if identity}
    missing, foreign = sorted(set(domain) - ordered), sorted(ordered - set(domain))
    if missing or foreign:
        parts = [f"the reset would hit {', '.join(missing)} as well"] if missing else []
        parts += [f"{', '.join(foreign)} is of another hive"] if foreign else []
        return f"{'; '.join(parts)}: a reset acts on a whole hive, so order it for all its GPUs"
    strangers = [f"{pid} {name}" for pid, name in holders if pid not in order.processes]
    if strangers:
        return (
            f"{', '.join(strangers)} holds a GPU of the hive and would be killed: end it, or let a "
            "person approve the reset"
        )
    return ""
