"""Why a rule fired, or did not: every part of every rule that speaks of the class, with values."""

from dataclasses import dataclass

from aegis.model.fault import Fault
from aegis.rules.match import Facts, Match, Nothing, conditions_of
from aegis.rules.rule import Rule, RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One condition: what the rule wants, what is so, and whether that holds."""

    name: str
    wanted: str
    found: str
    holds: bool | None  # None: unknown, which is no match


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One rule against one fault."""

    rule: str
    title: str
    place: str
    remedy: str
    matches: bool
    decides: bool  # it is the first that matches
    parts: tuple[Part, ...]
    unless: tuple[tuple[Part, ...], ...]
    why: str  # one sentence


def explain(rules: RuleSet, fault: Fault, facts: Facts | None = None) -> tuple[Explained, ...]:
    """Each rule that speaks of the fault's class, in the order in which they are asked."""
    known = facts or Nothing()
    first = rules.first_match(fault, known)
    return tuple(
        _explained(rule, fault, known, decides=rule is first)
        for rule in rules.about(fault.fault_class)
    )


def _explained(rule: Rule, fault: Fault, facts: Facts, *, decides: bool) -> Explained:
    parts = _parts(rule, fault, facts)
    unless = tuple(_parts(one, fault, facts) for one in rule.unless)
    matches = rule.matches(fault, facts)
    return Explained(
        rule=rule.id,
        title=rule.title,
        place=f"{rule.file}:{rule.line}",
        remedy=rule.remedy,
        matches=matches,
        decides=decides,
        parts=parts,
        unless=unless,
        why=_why(parts, unless, matches=matches, decides=decides),
    )


def _parts(match: Match, fault: Fault, facts: Facts) -> tuple[Part, ...]:
    return tuple(
        Part(
            name=one.name,
            wanted=one.wanted(match),
            found=one.found(match, fault, facts),
            holds=one.holds(match, fault, facts),
        )
        for one in conditions_of(match)
    )


def _why(
    parts: tuple[Part, ...],
    unless: tuple[tuple[Part, ...], ...],
    *,
    matches: bool,
    decides: bool,
) -> str:
    if decides:
        return "it is the first that matches: it decides"
    if matches:
        return "it matches, and a rule before it has decided already"
    for one in parts:
        if one.holds is False:
            return f"{one.name} is {one.found}, and it wants {one.wanted}"
    for one in parts:
        if one.holds is None:
            return f"{one.name} cannot be known ({one.found}), and what is unknown matches nothing"
    names = [one.name for many in unless if all(part.holds for part in many) for one in many]
    return f"it is excepted by {' and '.join(names)}"
