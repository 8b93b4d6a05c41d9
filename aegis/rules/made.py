"""From the form of a rule to the rule."""

from collections.abc import Iterator

from pydantic import ValidationError

from aegis.model.fault import FaultClass
from aegis.rules import sentence
from aegis.rules.form import ExceptionForm, RuleForm, RungForm, meant
from aegis.rules.layers import Entry
from aegis.rules.match import Match
from aegis.rules.problem import Problem
from aegis.rules.rule import Guard, Rule, Rung


def make(entry: Entry) -> Rule | list[Problem]:
    """The rule that stands there, or what is wrong with it."""
    try:
        read = RuleForm.model_validate(entry.raw)
    except ValidationError as error:
        return list(_problems(error, entry))
    return _rule(read, entry)


def _problems(error: ValidationError, entry: Entry) -> Iterator[Problem]:
    for one in error.errors(include_url=False):
        text = sentence.of(one, RuleForm)
        yield entry.problem(entry.place(one["loc"]), text)


def _rule(read: RuleForm, entry: Entry) -> Rule:
    waits = read.for_ is not None
    return Rule(
        id=read.id,
        title=read.title,
        description=read.description,
        status=read.status,
        classes=_classes(read.classes),
        severities=tuple(read.severity),
        device=read.device,
        scope=read.scope,
        count=read.count,
        within_seconds=read.within,
        rate_per_second=read.rate,
        labels=tuple(read.labels.items()),
        details=tuple(read.details.items()),
        where=read.where.strip(),
        unless=tuple(_exception(one) for one in read.unless),
        waits=waits,
        hold_down_seconds=None if isinstance(read.for_, str) else read.for_,
        remedy=read.remedy,
        attempts=read.attempts,
        attempts_within_seconds=read.attempts_within,
        if_fails=tuple(_rung(one) for one in read.if_fails),
        guard=Guard(
            cooldown_seconds=read.guard.cooldown,
            max_per_rack=read.guard.max_per_rack,
            needs_spare=read.guard.needs_spare,
            budget=read.guard.budget,
        ),
        verify=read.verify,
        notify=read.notify,
        mode=read.mode,
        runbook=read.runbook,
        references=tuple(read.references),
        file=entry.file,
        line=entry.place().line,
        layer=entry.layer,
    )


def _classes(read: list[str]) -> tuple[FaultClass, ...]:
    """Each once, in the order given; a glob gives all that it means."""
    return tuple(dict.fromkeys(one for name in read for one in meant(name)))


def _exception(read: ExceptionForm) -> Match:
    return Match(
        classes=_classes(read.classes),
        severities=tuple(read.severity),
        device=read.device,
        scope=read.scope,
        count=read.count,
        within_seconds=read.within,
        rate_per_second=read.rate,
        labels=tuple(read.labels.items()),
        details=tuple(read.details.items()),
        where=read.where.strip(),
    )


def _rung(read: RungForm) -> Rung:
    return Rung(remedy=read.remedy, attempts=read.attempts, within_seconds=read.attempts_within)
