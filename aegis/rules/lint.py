"""What can be read and cannot be meant: ladders that loop, guards that never open, dead rules.

Each finding is the key it stands at and a sentence that says how to mend it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from aegis.model.fault import Severity
from aegis.model.incident import Remedy
from aegis.model.memory import KEPT_SECONDS
from aegis.rules import where
from aegis.rules.layers import Entry
from aegis.rules.match import Match, Scope, span
from aegis.rules.physical import PHYSICAL, SOFT
from aegis.rules.problem import Problem
from aegis.rules.rule import Guard, Rule, Rung

Path = tuple[int | str, ...]
Found = Iterator[tuple[Path, str]]
LADDER = list(Remedy)  # from least to most disruptive
IDLE = (Remedy.COUNT, Remedy.NOTIFY)
_FORGOTTEN = f"Aegis remembers {span(KEPT_SECONDS)}, and counts no further back: write that or less"
_DRAINS = tuple(one for one in Remedy if one.value.startswith("drain"))


def of_rule(rule: Rule, entry: Entry) -> Iterator[Problem]:
    """What is wrong with one rule by itself."""
    found = (*_match(rule, ()), *_exceptions(rule), *_ladder(rule), *_guard(rule))
    for path, text in found:
        yield entry.problem(entry.place(path), text, is_doubt=True)
    yield from _where(rule, entry)


def of_set(placed: Sequence[tuple[Rule, Entry]]) -> Iterator[Problem]:
    """Rules that are never asked, because another of their layer says all that they would."""
    for number, (rule, entry) in enumerate(placed):
        before = [one for one, _ in placed[:number] if one.layer == rule.layer]
        if shadows := _shadows(rule, before):
            text = (
                f"rule {rule.id!r} never fires: {_names(shadows)} before it matches all that it "
                "would; put it first, narrow the other, or remove it"
            )
            yield entry.problem(entry.place(), text, is_doubt=True)


# One rule


def _where(rule: Rule, entry: Entry) -> Iterator[Problem]:
    expressions = [(rule.where, "where"), *((one.where, "unless") for one in rule.unless)]
    for source, key in expressions:
        if not source:
            continue
        try:
            where.check(source, rule.classes)
        except where.WhereError as error:
            place = entry.place((key,))
            if key == "where":
                place = entry.place_inside(key, source, error.offset)
            yield entry.problem(place, f"where: {error}", is_doubt=True)


def _match(match: Match, path: Path) -> Found:
    counts = match.count > 1 or match.rate_per_second is not None
    if match.within_seconds is not None and not counts:
        yield (*path, "within"), "`within` counts nothing: give `count` above 1, or `rate`"
    if (match.within_seconds or 0.0) > KEPT_SECONDS:
        yield (*path, "within"), _FORGOTTEN
    if match.scope is not Scope.DEVICE and match.scope not in (Scope.GPU, Scope.NIC):
        timed = match.within_seconds is not None or match.rate_per_second is not None
        if not (counts and timed):
            text = f"scope {match.scope} says among whom to count: give `count` and `within`"
            yield (*path, "scope"), text
    component = {Scope.GPU: "gpu.", Scope.NIC: "nic."}.get(match.scope)
    if component and match.classes and not _has(match, component):
        text = f"scope {match.scope} never holds: no class of the rule begins with {component}"
        yield (*path, "scope"), text


def _has(match: Match, component: str) -> bool:
    also = ("pcie.",) if component == "gpu." else ()
    return any(one.startswith((component, *also)) for one in match.classes)


def _exceptions(rule: Rule) -> Found:
    for number, one in enumerate(rule.unless):
        path: Path = ("unless", number)
        if one == Match():
            yield path, "an exception without a condition: the rule would never fire"
        if _is_whole(rule, one):
            yield path, "it excepts all that the rule speaks of: the rule would never fire"
        strange = [name for name in one.classes if name not in rule.classes]
        if strange:
            text = f"the rule does not speak of {strange[0]}: take it out of the exception"
            yield (*path, "class"), text
        yield from _match(one, path)


def _is_whole(rule: Rule, exception: Match) -> bool:
    """Whether the exception leaves nothing: it asks for nothing but what the rule asks for too."""
    bare = replace(exception, classes=(), severities=(), device="*")
    return (
        exception != Match()
        and bare == Match()
        and (not exception.classes or set(rule.classes) <= set(exception.classes))
        and (not exception.severities or set(_severities(rule)) <= set(exception.severities))
        and exception.device in ("*", rule.device)
    )


def _ladder(rule: Rule) -> Found:
    seen: list[Rung] = []
    for number, rung in enumerate(rule.ladder):
        path: Path = ("if_fails", number - 1, "remedy") if number else ("remedy",)
        if rung.within_seconds > KEPT_SECONDS and rung.attempts is not None:
            yield (*path[:-1], "attempts_within"), _FORGOTTEN
        if seen:
            yield from _step(seen, rung, path, number)
        if rung.remedy.value in SOFT:
            hands = [one for one in rule.classes if one in PHYSICAL]
            if hands:
                text = f"{hands[0]} needs hands first: {rung.remedy} never mends it; drain instead"
                yield path, text
        seen.append(rung)


def _step(seen: list[Rung], rung: Rung, path: Path, number: int) -> Found:
    before = seen[-1]
    if rung.remedy in [one.remedy for one in seen]:
        text = f"the ladder comes back to {rung.remedy}: name each remedy once, `attempts` repeats"
        yield path, text
    elif LADDER.index(rung.remedy) < LADDER.index(before.remedy):
        text = (
            f"the ladder goes down from {before.remedy} to {rung.remedy}: put the rungs in the "
            f"order {', '.join(LADDER)}"
        )
        yield path, text
    elif before.attempts is None:
        above: Path = ("if_fails", number - 2) if number > 1 else ("if_fails",)
        text = f"{rung.remedy} is never reached: say how many `attempts` {before.remedy} has"
        yield above, text


def _guard(rule: Rule) -> Found:
    guard = rule.guard
    if guard == Guard():
        return
    remedies = [rung.remedy for rung in rule.ladder]
    for name, number in (("budget", guard.budget), ("max_per_rack", guard.max_per_rack)):
        if number == 0:
            text = f"{name} is 0: the guard can never be met; write 1, or `mode: observe`"
            yield ("guard", name), text
    if all(one in IDLE for one in remedies):
        yield ("guard",), f"{remedies[0]} does nothing to a node: there is nothing to guard"
    elif guard.needs_spare and remedies == [Remedy.RESTART]:
        yield ("guard", "needs_spare"), "a restart in place takes no spare: leave it out"


# All rules


def _shadows(rule: Rule, before: Sequence[Rule]) -> list[Rule]:
    """The rules that together leave nothing for this one."""
    left = {(name, severity) for name in rule.classes for severity in _severities(rule)}
    shadows = []
    for other in before:
        taken = {
            (name, severity)
            for name, severity in left
            if name in other.classes and severity in _severities(other)
        }
        if taken and _is_wider(other, rule):
            shadows.append(other)
            left -= taken
    return [] if left else shadows


def _severities(rule: Rule) -> Iterable[Severity]:
    return rule.severities or tuple(Severity)


def _is_wider(other: Rule, rule: Rule) -> bool:
    """Whether the other asks for nothing more, class and severity aside."""
    timed = other.within_seconds is not None or other.rate_per_second is not None
    counted = other.count == 1 or (other.count <= rule.count and rule.within_seconds is None)
    return (
        not other.unless
        and not timed
        and counted
        and other.device in ("*", rule.device)
        and (other.scope is Scope.DEVICE or other.scope is rule.scope)
        and set(other.labels) <= set(rule.labels)
        and set(other.details) <= set(rule.details)
        and other.where in ("", rule.where)
    )


def _names(rules: Sequence[Rule]) -> str:
    return " and ".join(repr(rule.id) for rule in rules)
