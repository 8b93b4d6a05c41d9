"""Looking closely at a node before it serves again: the order to do so, and what came of it.

    core -> agent     ValidationOrder, a level: it stands until it has ended or expired
    agent -> core     ValidationResult, a level too: told until its order no longer stands

`refusal` is what the agent holds an order against before it begins.
"""

from dataclasses import dataclass
from enum import StrEnum


class Depth(StrEnum):
    """How closely."""

    NONE = "none"  # not at all
    LIGHT = "light"  # within a minute
    FULL = "full"  # within ten: with the site's own checks


class StepState(StrEnum):
    """What one step came to. What could not be told is never a pass."""

    PASS = "pass"  # noqa: S105  no password
    WARNING = "warning"  # a difference that people should know of, and no reason to stay out
    FAIL = "fail"
    UNKNOWN = "unknown"


class ValidationState(StrEnum):
    """What a validation came to."""

    WORKING = "working"
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"  # nothing failed, and something could not be told
    ABORTED = "aborted"  # it did not come to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a validation."""

    name: str  # "devices", "all-reduce"
    state: StepState
    text: str  # one sentence: what was found
    value: str = ""  # as measured: "287 GB/s"
    gate: str = ""  # what it must be: ">= 310 GB/s"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationOrder:
    """Validate this node, in this boot."""

    id: str  # never used twice
    node: str
    boot_id: str
    epoch: int  # of the controller: one lower than the highest ever seen is refused
    depth: Depth
    expires_at: float  # the controller's clock; on its way through the agent the node's
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """How far the node has come with it."""

    id: str
    depth: Depth
    state: ValidationState
    text: str  # one sentence
    at: float  # the node's clock
    steps: tuple[Step, ...] = ()  # those that have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A validation that a node was given, kept with the node."""

    order: ValidationOrder
    given_at: float
    actor: str  # who wants the node back: "aegis" after a repair
    reason: str = ""  # why it is to come back
    repair: str = ""  # the order to the helper that it follows
    ended_at: float | None = None
    state: ValidationState | None = None  # None: no word of it yet
    text: str = ""
    steps: tuple[Step, ...] = ()


def refusal(order: ValidationOrder, *, node: str, boot_id: str, epoch: int, now: float) -> str:
    """Why a node may not begin with it, and what to do; empty when it may."""
    if order.node != node:
        return f"it is meant for {order.node} and this is {node}: give each node its own name"
    if not order.boot_id or order.boot_id != boot_id:
        return f"{node} has started anew since it was asked for: return it again"
    if order.epoch < epoch:
        return f"it comes from a controller of epoch {order.epoch}, and epoch {epoch} was seen"
    if now >= order.expires_at:
        return f"it expired {now - order.expires_at:.0f} s ago: return the node again"
    return ""


def outcome(steps: tuple[Step, ...]) -> tuple[ValidationState, str]:
    """What all steps together come to, and one sentence that says why."""
    failed = [one for one in steps if one.state is StepState.FAIL]
    if failed:
        return ValidationState.FAILED, "; ".join(told(one) for one in failed)
    unknown = [one for one in steps if one.state is StepState.UNKNOWN]
    warned = [one for one in steps if one.state is StepState.WARNING]
    passed = len(steps) - len(unknown)
    parts = [f"{passed} of {len(steps)} steps passed"]
    parts += [f"{one.name} could not be told ({one.text})" for one in unknown]
    parts += [f"take note of {one.name}: {one.text}" for one in warned]
    state = ValidationState.UNKNOWN if unknown or not steps else ValidationState.PASSED
    return state, "; ".join(parts)


def told(step: Step) -> str:
    """The step in words: what was measured against what it must be."""
    measured = ", ".join(
        word for word in (step.value, f"wanted {step.gate}" if step.gate else "") if word
    )
    return f"{step.name}: {step.text}" + (f" ({measured})" if measured else "")
