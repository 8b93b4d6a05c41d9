"""What is wrong and lasts: a fault when it begins, a condition as long as it does.

Something that comes and goes is one trouble, not many: with `grace_seconds` it has to be gone for
so long before it is over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """One trouble that goes on."""

    fault_class: FaultClass
    severity: Severity
    since: float
    seen_at: float  # last
    evidence: Evidence


Standing = Mapping[str, Lasting]  # by cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A trouble that a sample shows, or shows to be over."""

    name: str
    fault_class: FaultClass
    severity: Severity
    present: bool
    source: str = ""
    text: str = ""
    grace_seconds: float = 0.0


def hold(
    subject: Subject, standing: Standing, at: float, *causes: Cause
) -> tuple[dict[str, Lasting], tuple[Fault, ...]]:
    """What stands after these causes, and the faults of those that begin."""
    after = dict(standing)
    faults: list[Fault] = []
    for cause in causes:
        before = after.get(cause.name)
        if cause.present and before:
            if cause.grace_seconds and at - before.seen_at >= cause.grace_seconds / 2:
                after[cause.name] = replace(before, seen_at=at)
        elif cause.present:
            evidence = Evidence(source=cause.source, text=cause.text)
            after[cause.name] = Lasting(
                fault_class=cause.fault_class,
                severity=cause.severity,
                since=at,
                seen_at=at,
                evidence=evidence,
            )
            faults.append(subject.fault(cause.fault_class, cause.severity, at, evidence))
        elif before and at - before.seen_at >= cause.grace_seconds:
            del after[cause.name]
    return after, tuple(faults)


def conditions(subject: Subject, standing: Standing) -> tuple[Condition, ...]:
    """One condition for each class, with the evidence of all its causes."""
    by_class: dict[FaultClass, list[Lasting]] = {}
    for lasting in standing.values():
        by_class.setdefault(lasting.fault_class, []).append(lasting)
    return tuple(
        condition
        for fault_class, found in by_class.items()
        for condition in subject.conditions(
            tuple(lasting.evidence for lasting in found),
            {fault_class: min(lasting.since for lasting in found)},
            max((lasting.severity for lasting in found), key=list(Severity).index),
        )
    )
