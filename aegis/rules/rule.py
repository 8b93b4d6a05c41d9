"""A rule: which remedy a fault calls for. Parsed once, read-only afterwards."""

import fnmatch
from dataclasses import dataclass

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.incident import Remedy
from aegis.model.policy import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What to do about some faults. Every condition that it states must hold."""

    id: str
    title: str
    classes: tuple[FaultClass, ...]
    remedy: Remedy
    description: str = ""
    severities: tuple[Severity, ...] = ()  # empty: any
    min_count: int = 1
    device: str = "*"  # a glob
    waits: bool = False  # it acts only on what lasts: see hold_down_seconds
    hold_down_seconds: float | None = None  # None: the policy's
    mode: Mode = Mode.ENFORCE  # the most it may do, whatever the policy allows
    runbook: str = ""
    references: tuple[str, ...] = ()
    file: str = ""

    def matches(self, fault: Fault) -> bool:
        """Whether this rule speaks of the fault."""
        return (
            fault.fault_class in self.classes
            and (not self.severities or fault.severity in self.severities)
            and fault.count >= self.min_count
            and fnmatch.fnmatchcase(fault.device, self.device)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """All rules in the order in which they are asked; the first that matches decides."""

    rules: tuple[Rule, ...] = ()
    text: str = ""  # the files they came from, in one; `parse_text` reads it back
    digest: str = ""  # of that text

    def first_match(self, fault: Fault) -> Rule | None:
        """The rule that decides about the fault; None when no rule speaks of it."""
        return next((rule for rule in self.rules if rule.matches(fault)), None)
