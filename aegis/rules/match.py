"""What a rule asks of a fault: typed conditions, each of which holds, does not, or is unknown.

Missing data is unknown, and what is unknown matches nothing: a rule does not fire on it, and an
exception does not spare anyone by it.
"""

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.rules import where


class Scope(StrEnum):
    """Among whom faults are counted within a time."""

    DEVICE = "device"
    GPU = "gpu"  # the same, and only of GPUs
    NIC = "nic"  # the same, and only of network ports
    RESET_DOMAIN = "reset_domain"  # the GPUs that are reset together
    NODE = "node"
    JOB = "job"
    RACK = "rack"
    SWITCH = "switch"


class Facts(Protocol):
    """What is known besides the fault itself."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the fault's node."""

    def seen(self, match: "Match", fault: Fault, seconds: float) -> int | None:
        """How many like it came in the last so many seconds, itself included; None: unknown."""


class Nothing:
    """Nothing is known besides the fault."""

    labels: Mapping[str, str] = {}

    def seen(self, _match: "Match", fault: Fault, _seconds: float) -> int | None:
        """The fault itself."""
        return fault.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Conditions on a fault. Every one that is given must hold."""

    classes: tuple[FaultClass, ...] = ()  # empty: any
    severities: tuple[Severity, ...] = ()  # empty: any
    device: str = "*"  # a glob
    scope: Scope = Scope.DEVICE
    count: int = 1
    within_seconds: float | None = None  # None: counted since its incident opened
    rate_per_second: float | None = None  # on average over within_seconds
    labels: tuple[tuple[str, str], ...] = ()  # of the node: name and glob
    details: tuple[tuple[str, str], ...] = ()  # of the fault: name and glob
    where: str = ""  # a CEL expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One kind of condition: whether a match states it, whether it holds, and both in words."""

    name: str
    given: Callable[[Match], bool]
    holds: Callable[[Match, Fault, Facts], bool | None]
    wanted: Callable[[Match], str]
    found: Callable[[Match, Fault, Facts], str]


def conditions_of(match: Match) -> tuple[Condition, ...]:
    """Those that the match states, the cheapest first."""
    return tuple(one for one in CONDITIONS if one.given(match))


def holds(
    match: Match, conditions: tuple[Condition, ...], fault: Fault, facts: Facts
) -> bool | None:
    """Whether all of them hold; None: none fails, and some cannot be known."""
    answer: bool | None = True
    for condition in conditions:
        one = condition.holds(match, fault, facts)
        if one is False:
            return False
        if one is None:
            answer = None
    return answer


def read(fault: Fault, facts: Facts) -> dict[str, object]:
    """What a `where` expression sees."""
    return {
        "fault": {
            "class": fault.fault_class.value,
            "severity": fault.severity.value,
            "component": fault.fault_class.partition(".")[0],
            "count": fault.count,
            "device": fault.device,
            "node": fault.node,
            "job": fault.job or "",
            "simulated": fault.simulated,
        },
        "details": dict(fault.details),
        "labels": dict(facts.labels),
    }


def span(seconds: float) -> str:
    """A duration as it is written in a rule."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def _globbed(wanted: tuple[tuple[str, str], ...], given: Mapping[str, str]) -> bool | None:
    answer: bool | None = True
    for name, glob in wanted:
        if name not in given:
            answer = None
        elif not is_like(given[name], glob):
            return False
    return answer


def is_like(text: str, glob: str) -> bool:
    """Whether the text is of this form. Of many rules most name just one thing: no pattern."""
    return fnmatch.fnmatchcase(text, glob) if _has_wildcard(glob) else text == glob


@cache
def _has_wildcard(glob: str) -> bool:
    return any(sign in glob for sign in "*?[")


def _named(pairs: tuple[tuple[str, str], ...], given: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={given.get(name, 'missing')}" for name, _glob in pairs)


def _is_of_scope(match: Match, fault: Fault, _facts: Facts) -> bool:
    return fault.device.startswith("gpu") if match.scope is Scope.GPU else _is_port(fault)


def _is_port(fault: Fault) -> bool:
    return fault.fault_class.startswith("nic.")


def _counted(match: Match, fault: Fault, facts: Facts) -> int | None:
    if match.within_seconds is None:
        return fault.count
    return facts.seen(match, fault, match.within_seconds)


def _counts(match: Match, fault: Fault, facts: Facts) -> bool | None:
    found = _counted(match, fault, facts)
    return None if found is None else found >= match.count


def _rate(match: Match, fault: Fault, facts: Facts) -> float | None:
    seconds = match.within_seconds or 3600.0
    found = facts.seen(match, fault, seconds)
    return None if found is None else found / seconds


def _rates(match: Match, fault: Fault, facts: Facts) -> bool | None:
    found = _rate(match, fault, facts)
    return None if found is None else found >= (match.rate_per_second or 0.0)


def _count_wanted(match: Match) -> str:
    if match.within_seconds is None:
        return f"at least {match.count}"
    return f"at least {match.count} of the {match.scope} within {span(match.within_seconds)}"


def _hourly(per_second: float | None) -> str:
    return "unknown" if per_second is None else f"{per_second * 3600:.4g} an hour"


CONDITIONS = (
    Condition(
        name="class",
        given=lambda match: bool(match.classes),
        holds=lambda match, fault, _: fault.fault_class in match.classes,
        wanted=lambda match: " or ".join(match.classes),
        found=lambda _match, fault, _: fault.fault_class.value,
    ),
    Condition(
        name="severity",
        given=lambda match: bool(match.severities),
        holds=lambda match, fault, _: fault.severity in match.severities,
        wanted=lambda match: " or ".join(match.severities),
        found=lambda _match, fault, _: fault.severity.value,
    ),
    Condition(
        name="device",
        given=lambda match: match.device != "*",
        holds=lambda match, fault, _: is_like(fault.device, match.device),
        wanted=lambda match: match.device,
        found=lambda _match, fault, _: fault.device,
    ),
    Condition(
        name="scope",
        given=lambda match: match.scope in (Scope.GPU, Scope.NIC),
        holds=_is_of_scope,
        wanted=lambda match: f"a {match.scope}",
        found=lambda _match, fault, _: fault.device,
    ),
    Condition(
        name="labels",
        given=lambda match: bool(match.labels),
        holds=lambda match, _fault, facts: _globbed(match.labels, facts.labels),
        wanted=lambda match: ", ".join(f"{name}={glob}" for name, glob in match.labels),
        found=lambda match, _fault, facts: _named(match.labels, facts.labels),
    ),
    Condition(
        name="details",
        given=lambda match: bool(match.details),
        holds=lambda match, fault, _: _globbed(match.details, dict(fault.details)),
        wanted=lambda match: ", ".join(f"{name}={glob}" for name, glob in match.details),
        found=lambda match, fault, _: _named(match.details, dict(fault.details)),
    ),
    Condition(
        name="where",
        given=lambda match: bool(match.where),
        holds=lambda match, fault, facts: where.evaluate(match.where, read(fault, facts)),
        wanted=lambda match: match.where,
        found=lambda match, fault, facts: where.values(match.where, read(fault, facts)),
    ),
    Condition(
        name="count",
        given=lambda match: match.count > 1,
        holds=_counts,
        wanted=_count_wanted,
        found=lambda match, fault, facts: str(_counted(match, fault, facts) or "unknown"),
    ),
    Condition(
        name="rate",
        given=lambda match: match.rate_per_second is not None,
        holds=_rates,
        wanted=lambda match: (
            f"at least {_hourly(match.rate_per_second)} over {span(match.within_seconds or 3600.0)}"
        ),
        found=lambda match, fault, facts: _hourly(_rate(match, fault, facts)),
    ),
)
