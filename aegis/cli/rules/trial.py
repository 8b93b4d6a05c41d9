"""`aegis rules test`: the tests beside the rules, run on the real core."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from aegis.cli.client import CommandError
from aegis.cli.rules.fleet import START, Fleet
from aegis.cli.rules.forms import Case, FaultForm, Moment, Story, TestsForm, Then, read
from aegis.core.index import OUT
from aegis.model.incident import Decision, Incident
from aegis.model.policy import Policy
from aegis.rules import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One test and what came of it."""

    file: str
    name: str
    wrong: str = ""  # a sentence; empty: it passed
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Rules that no test fires, and rules that none shows silent."""

    never_fired: tuple[str, ...]
    never_silent: tuple[str, ...]


def test_files(folders: Iterable[Path]) -> list[Path]:
    """The tests of the folders: `*_test.yaml` in them and in their `tests`."""
    return [
        file
        for folder in folders
        for place in (folder, folder / "tests")
        if place.is_dir()
        for file in sorted(place.glob("*_test.y*ml"))
    ]


def run(rules: RuleSet, files: Iterable[Path]) -> tuple[list[Outcome], Coverage]:
    """Every test of the files, and which rules they leave untested."""
    outcomes: list[Outcome] = []
    fired: set[str] = set()
    silent: set[str] = set()
    for file in files:
        try:
            tests = read(TestsForm, str(file), file.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file} cannot be read: {error}") from error
        outcomes += _cases(rules, str(file), tests.cases)
        fired |= {one.rule for one in tests.cases if one.fires_on}
        silent |= {one.rule for one in tests.cases if one.silent_on}
        for story in tests.stories:
            outcomes.append(_timed(str(file), story.name, rules, story))
            fired |= {one.then.rule for one in story.moments if one.then and one.then.rule}
    names = [rule.id for rule in rules.rules]
    coverage = Coverage(
        never_fired=tuple(name for name in names if name not in fired),
        never_silent=tuple(name for name in names if name not in silent),
    )
    return outcomes, coverage


# Cases: one fault, one rule


def _cases(rules: RuleSet, file: str, cases: Iterable[Case]) -> Iterator[Outcome]:
    for case in cases:
        for one in case.fires_on:
            name = f"{case.rule} fires on {_words(one)}"
            yield Outcome(file=file, name=name, wrong=_not_fired(rules, case, one))
        for one in case.silent_on:
            name = f"{case.rule} leaves {_words(one)} alone"
            yield Outcome(file=file, name=name, wrong=_not_silent(rules, case, one))


def _words(form: FaultForm) -> str:
    fault = form.fault()
    count = f" ×{fault.count}" if fault.count > 1 else ""
    more = "".join(f" {key}={value}" for key, value in (*fault.details, *form.labels.items()))
    earlier = f", {len(form.earlier)} earlier" if form.earlier else ""
    return f"{fault.fault_class} ({fault.severity}) on {fault.device}{count}{more}{earlier}"


def _not_fired(rules: RuleSet, case: Case, form: FaultForm) -> str:
    if rules.find(case.rule) is None:
        return f"there is no rule {case.rule!r}"
    rule = rules.first_match(form.fault(), form)
    if rule is None:
        return "no rule fires"
    if rule.id != case.rule:
        return f"rule {rule.id} fires instead"
    return "" if rule.remedy is case.remedy else f"its remedy is {rule.remedy}, not {case.remedy}"


def _not_silent(rules: RuleSet, case: Case, form: FaultForm) -> str:
    rule = rules.first_match(form.fault(), form)
    return "it fires" if rule is not None and rule.id == case.rule else ""


# Stories: signals over time


def _timed(file: str, name: str, rules: RuleSet, story: Story) -> Outcome:
    began = time.monotonic()
    wrong = _told(rules, story)
    return Outcome(file=file, name=name, wrong=wrong, seconds=time.monotonic() - began)


def _policy(story: Story) -> Policy:
    usual = {"mode": "enforce", "gather_seconds": 1.0, "probation_seconds": 0.0}
    try:
        return TypeAdapter(Policy).validate_python({**usual, **story.policy})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise CommandError(
            f"story {story.name!r}: policy: {first['loc'][0]}: {first['msg'].lower()}"
        ) from error


def _told(rules: RuleSet, story: Story) -> str:
    fleet = Fleet(rules, _policy(story), story.nodes, story.spares, story.labels)
    for moment in story.moments:
        fleet.wait_until(moment.at)
        if wrong := _happens(fleet, moment):
            return f"at {moment.at:g} s: {wrong}"
        if moment.then and (wrong := _not_so(fleet, moment.then)):
            return f"at {moment.at:g} s: {wrong}"
    return ""


def _happens(fleet: Fleet, moment: Moment) -> str:
    if moment.fault:
        fleet.show(moment.fault.fault(START))
    if moment.begins:
        fleet.begin(moment.begins.fault(START))
    if moment.ends:
        fleet.end(moment.ends.fault(START))
    refused = fleet.give_back(moment.returned) if moment.returned else None
    return refused or ""


def _not_so(fleet: Fleet, then: Then) -> str:
    incidents = list(fleet.cluster.incidents.values())
    incident = incidents[-1] if incidents else None
    decision = incident.decisions[-1] if incident and incident.decisions else None
    out = [node.name for node in fleet.cluster.nodes.values() if node.state in OUT]
    if then.out is not None and sorted(then.out) != sorted(out):
        return f"{_list(out)} out of service, {_list(then.out)} expected"
    if then.state is not None and (incident is None or incident.state is not then.state):
        return f"the incident is {incident.state if incident else 'not there'}, not {then.state}"
    return _not_decided(decision, incident, then)


def _not_decided(decision: Decision | None, incident: Incident | None, then: Then) -> str:
    wanted = then.model_dump(include={"rule", "remedy", "result", "mode"}, exclude_none=True)
    if decision is None:
        asks = wanted or then.blocked_by is not None or then.reason is not None
        return "nothing was decided" if asks else ""
    for name, value in wanted.items():
        found = getattr(decision, name)
        if found != value:
            return f"{name} is {found}, not {value}: {decision.reason}"
    refused = [one.rail for one in decision.verdicts if not one.passed]
    if then.blocked_by is not None and refused != then.blocked_by:
        return f"held by {_list(refused)}, {_list(then.blocked_by)} expected: {decision.reason}"
    if then.reason is not None and then.reason not in decision.reason:
        name = incident.id if incident else ""
        return f"the reason of {name} is {decision.reason!r}"
    return ""


def _list(names: list[str]) -> str:
    return ", ".join(names) if names else "nothing"
