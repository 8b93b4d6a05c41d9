"""A rule: which remedy a fault calls for. Parsed once, read-only afterwards."""

from dataclasses import dataclass, field
from enum import StrEnum

from aegis.model.fault import Fault, FaultClass
from aegis.model.incident import Remedy
from aegis.model.policy import Mode
from aegis.rules.match import Condition, Facts, Match, Nothing, conditions_of, holds

DAY_SECONDS = 86400.0


class Status(StrEnum):
    """How far a rule has been tried."""

    EXPERIMENTAL = "experimental"
    TEST = "test"
    STABLE = "stable"


class Verify(StrEnum):
    """What must be shown before a node that this rule took out serves again."""

    POLICY = "policy"  # what the policy asks of every node
    LIGHT = "light"
    FULL = "full"


class Told(StrEnum):
    """With what urgency people are told."""

    SEVERITY = "severity"  # as the fault is
    NOBODY = "nobody"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step of a rule's ladder: what is done, and how often before the next is tried."""

    remedy: Remedy
    attempts: int | None = None  # None: as often as it is called for
    within_seconds: float = DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Limits of one rule. They only tighten those of the policy."""

    cooldown_seconds: float | None = None
    max_per_rack: int | None = None
    needs_spare: bool = False
    budget: int | None = None  # nodes in the policy's window


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Match):
    """What to do about some faults. Every condition that it states must hold, and no exception."""

    id: str
    title: str
    remedy: Remedy  # the first rung
    attempts: int | None = None
    attempts_within_seconds: float = DAY_SECONDS
    if_fails: tuple[Rung, ...] = ()  # the rungs above
    description: str = ""
    status: Status = Status.TEST
    unless: tuple[Match, ...] = ()
    waits: bool = False  # it acts only on what lasts: see hold_down_seconds
    hold_down_seconds: float | None = None  # None: the policy's
    guard: Guard = field(default_factory=Guard)
    verify: Verify = Verify.POLICY
    notify: Told = Told.SEVERITY
    mode: Mode = Mode.ENFORCE  # the most it may do, whatever the policy allows
    runbook: str = ""
    references: tuple[str, ...] = ()
    file: str = ""
    line: int = 0
    layer: int = 0  # 0: the lowest, shipped with Aegis; the higher ones are the site's

    @property
    def ladder(self) -> tuple[Rung, ...]:
        """All rungs, the first remedy included."""
        first = Rung(
            remedy=self.remedy,
            attempts=self.attempts,
            within_seconds=self.attempts_within_seconds,
        )
        return (first, *self.if_fails)

    def matches(self, fault: Fault, facts: Facts | None = None) -> bool:
        """Whether this rule speaks of the fault."""
        return Ready.of(self).matches(fault, facts or Nothing())


@dataclass(frozen=True, slots=True)
class Ready:
    """A rule with the conditions that it states sorted out, so that asking it is quick."""

    rule: Rule
    conditions: tuple[Condition, ...]
    unless: tuple[tuple[Match, tuple[Condition, ...]], ...]

    @classmethod
    def of(cls, rule: Rule) -> "Ready":
        """The rule, sorted out."""
        exceptions = tuple((one, conditions_of(one)) for one in rule.unless)
        return cls(rule, conditions_of(rule), exceptions)

    def of_its_class(self) -> "Ready":
        """The same, where the class of the fault is known to be one of its own."""
        others = tuple(one for one in self.conditions if one.name != "class")
        return Ready(self.rule, others, self.unless)

    def matches(self, fault: Fault, facts: Facts) -> bool:
        """Whether every condition is known to hold, and no exception is known to."""
        return holds(self.rule, self.conditions, fault, facts) is True and not any(
            holds(one, conditions, fault, facts) for one, conditions in self.unless
        )


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """All rules in the order in which they are asked; the first that matches decides."""

    rules: tuple[Rule, ...] = ()
    text: str = ""  # the files they came from, in one; `parse_text` reads it back
    digest: str = ""  # of that text
    _ready: dict[FaultClass, tuple[Ready, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Sort the rules by what they speak of."""
        ready = [Ready.of(rule) for rule in self.rules]
        for name in FaultClass:
            about = [one for one in ready if name in one.rule.classes]
            self._ready[name] = tuple(one.of_its_class() for one in about)

    def first_match(self, fault: Fault, facts: Facts | None = None) -> Rule | None:
        """The rule that decides about the fault; None when no rule speaks of it."""
        known = facts or Nothing()
        for one in self._ready[fault.fault_class]:
            if one.matches(fault, known):
                return one.rule
        return None

    def about(self, fault_class: FaultClass) -> tuple[Rule, ...]:
        """The rules that speak of the class, in the order in which they are asked."""
        return tuple(one.rule for one in self._ready[fault_class])

    def find(self, rule_id: str) -> Rule | None:
        """The rule with this id."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)
