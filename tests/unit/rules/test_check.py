"""What is refused at check: the place, what is wrong, and how to mend it."""

import json
from pathlib import Path

import pytest

from aegis.model.fault import FaultClass
from aegis.model.incident import Remedy
from aegis.model.policy import Mode
from aegis.rules import RuleError, RuleSet, parse, parse_text
from aegis.rules.schema import schema

HEAD = "apiVersion: aegis/v1\nkind: RuleSet\nname: s\nrules:\n"
PLAIN = "  - {id: a, title: A, class: gpu.lost, remedy: drain_now}\n"


def rule(more: str) -> str:
    return HEAD + f"  - {{id: a, title: A, class: gpu.lost, {more}}}\n"


def wrong(*layers: str, version: str = "") -> str:
    names = ["shipped.yaml", "site.yaml"]
    with pytest.raises(RuleError) as caught:
        parse(*({names[n]: text} for n, text in enumerate(layers)), version=version)
    return str(caught.value)


def laid(*bodies: str) -> RuleSet:
    return parse(*({f"{n}.yaml": HEAD + body} for n, body in enumerate(bodies)))


@pytest.mark.parametrize(
    ("more", "place", "sentence"),
    [
        (
            "remedy: notify, where: fault.cuont > 1",
            "5:69",
            "where: unknown field 'cuont': did you mean 'count'?",
        ),
        (
            "remedy: notify, where: 'fault.count > \"x\"'",
            "5:78",
            'where: fault.count is a number and "x" is text: mend one',
        ),
        (
            "remedy: notify, where: 'fault.severity == \"eror\"'",
            "5:82",
            "where: unknown severity 'eror': did you mean 'error'?",
        ),
        (
            "remedy: notify, where: fault.count >",
            "5:76",
            "where: not a CEL expression: it ends too early",
        ),
        (
            "remedy: notify, where: fault.count + 1",
            "5:63",
            "where: it gives 2: write a condition that is true or false",
        ),
        (
            "remedy: notify, where: 'true || details.block.startWith(\"x\")'",
            "5:86",
            "where: unknown function 'startWith': did you mean 'startsWith'?",
        ),
        (
            "remedy: notify, where: 'details.a.matches(\"(\")'",
            "5:82",
            'where: "(" is no regular expression: mend it',
        ),
        (
            "remedy: notify, where: 'details.exists(a, details.exists(b, a == b))'",
            "5:90",
            "where: too costly: one all, exists or exists_one is enough for a rule",
        ),
        (
            f"remedy: notify, where: 'fault.count in [{'1,' * 50}1]'",
            "5:179",
            "where: a list of more than 50 items: use a glob or a regular expression",
        ),
        (
            f"remedy: notify, where: {'(' * 9}fault.count{')' * 9} > 1",
            "5:71",
            "where: more than 8 brackets deep: split it",
        ),
        (
            f"remedy: notify, where: fault.device == '{'x' * 500}'",
            "5:63",
            "where: the expression is longer than 500 characters: shorten it",
        ),
        (
            "remedy: notify, count: 2, within: soon",
            "5:74",
            "within: 'soon' is no duration: write seconds above 0, or text such as 10m or 24h",
        ),
        ("remedy: notify, within: 10m", "5:64", "`within` counts nothing: give `count`"),
        ("remedy: notify, scope: rack", "5:63", "scope rack says among whom to count"),
        ("remedy: notify, scope: nic", "5:63", "scope nic never holds"),
        ("remedy: notify, rate: often", "5:62", "rate: 'often' is no rate: write so many per time"),
        (
            "remedy: restart, attempts: 1, if_fails: [{remedy: restart}]",
            "5:90",
            "the ladder comes back to restart: name each remedy once, `attempts` repeats",
        ),
        (
            "remedy: drain_now, attempts: 1, if_fails: [{remedy: restart}]",
            "5:92",
            "the ladder goes down from drain_now to restart: put the rungs in the order count,",
        ),
        (
            "remedy: restart, if_fails: [{remedy: drain_now}]",
            "5:67",
            "drain_now is never reached: say how many `attempts` restart has",
        ),
        (
            "remedy: drain_now, guard: {budget: 0}",
            "5:75",
            "budget is 0: the guard can never be met; write 1, or `mode: observe`",
        ),
        (
            "remedy: notify, guard: {cooldown: 1h}",
            "5:63",
            "notify does nothing to a node: there is nothing to guard",
        ),
        ("remedy: notify, unless: {}", "5:64", "an exception without a condition"),
        (
            "remedy: notify, unless: {class: gpu.coredump}",
            "5:64",
            "the rule does not speak of gpu.coredump: take it out of the exception",
        ),
        (
            "remedy: notify, labels: [rack]",
            "5:64",
            "labels is ['rack']: write names and values: {rack: r7}",
        ),
        ("remedy: notify, references: false", "5:68", "references is False: write a list"),
        (
            "remedy: notify, references: [false]",
            "5:69",
            "references is False: write text, in quotes",
        ),
        ("remedy: notify, count: many", "5:63", "count is 'many': write a whole number"),
        ("remedy: notify, count: 0", "5:63", "count is 0: write 1 or more"),
        (
            "remedy: notify, count: 3, within: 30d",
            "5:74",
            "Aegis remembers 7d, and counts no further back: write that or less",
        ),
        (
            "remedy: restart, attempts: 1, attempts_within: 30d, if_fails: [{remedy: drain_now}]",
            "5:87",
            "Aegis remembers 7d, and counts no further back: write that or less",
        ),
        (
            "remedy: notify, unless: {class: gpu.lost}",
            "5:64",
            "it excepts all that the rule speaks of: the rule would never fire",
        ),
        (
            "severity: error, remedy: notify, unless: {severity: [error, fatal]}",
            "5:81",
            "it excepts all that the rule speaks of: the rule would never fire",
        ),
        ("remedy: notify, verify: fulll", "5:64", "unknown verify 'fulll': did you mean 'full'?"),
        (
            "remedy: notify, guard: {buget: 1}",
            "5:71",
            "unknown key 'buget': did you mean 'budget'?",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_place(more: str, place: str, sentence: str) -> None:
    """Who wrote the file can go straight to the character."""
    said = wrong(rule(more))
    assert said.startswith(f"shipped.yaml:{place}: {sentence}"), said


@pytest.mark.parametrize(
    ("fault_class", "remedy"),
    [
        ("gpu.xgmi.error", "reset_domain"),
        ("pcie.aer.fatal", "reboot"),
        ("gpu.memory.bad_page_threshold", "reboot"),
    ],
)
def test_what_needs_hands_is_neither_reset_nor_rebooted(fault_class: str, remedy: str) -> None:
    """By AMD's service actions that mends nothing, and in a loop it does harm."""
    said = wrong(rule(f"remedy: {remedy}").replace("gpu.lost", fault_class))
    assert f"{fault_class} needs hands first: {remedy} never mends it; drain instead" in said


def test_all_mistakes_are_told_at_once() -> None:
    """Not one per attempt."""
    said = wrong(rule("remedy: notify, titel: B, severity: bad"))
    assert [line.split(": ")[1] for line in said.splitlines()] == [
        "unknown key 'titel'",
        "unknown severity 'bad'",
    ] or len(said.splitlines()) == 2


def test_a_rule_that_never_fires_is_refused() -> None:
    """Rules before it leave nothing for it; one that leaves a part does not."""
    second = "  - {id: b, title: B, class: gpu.lost, severity: [fatal], remedy: notify}\n"
    assert wrong(HEAD + PLAIN + second).startswith(
        "shipped.yaml:6:5: rule 'b' never fires: 'a' before it matches all that it would"
    )
    narrower = PLAIN.replace("remedy", "severity: [error], remedy")
    assert len(parse({"a.yaml": HEAD + narrower + second}).rules) == 2
    counted = PLAIN.replace("remedy", "count: 3, within: 1h, remedy")
    assert len(parse({"a.yaml": HEAD + counted + second}).rules) == 2


def test_a_newer_aegis_may_be_required() -> None:
    """Rules that this version would read and not understand are refused."""
    text = HEAD.replace("rules:", 'requires: ">=1.2"\nrules:') + PLAIN
    assert "it needs Aegis >=1.2 and this is 0.1.0: install that one" in wrong(
        text, version="0.1.0"
    )
    assert parse({"a.yaml": text}, version="1.10").rules


def test_a_site_has_the_first_word() -> None:
    """Its own rules are asked before the shipped ones."""
    own = "  - {id: mine, title: M, class: gpu.lost, remedy: notify}\n"
    assert [one.id for one in laid(PLAIN, own).rules] == ["mine", "a"]


def test_a_shipped_rule_is_replaced_added_to_or_taken_out() -> None:
    """Each by its id, in the place that it had; an upgrade of the shipped file keeps that."""
    others = PLAIN + "  - {id: z, title: Z, class: gpu.coredump, remedy: count}\n"
    replaced = laid(others, PLAIN.replace("title: A", "title: B, override: replace"))
    assert [(one.id, one.title, one.layer) for one in replaced.rules] == [
        ("a", "B", 1),
        ("z", "Z", 0),
    ]
    more = "  - {id: a, override: append, class: gpu.init.failed, mode: observe, labels: {x: y}}\n"
    (added, _) = laid(others, more).rules
    assert added.classes == (FaultClass.GPU_LOST, FaultClass.GPU_INIT_FAILED)
    assert (added.mode, added.remedy, added.labels) == (
        Mode.OBSERVE,
        Remedy.DRAIN_NOW,
        (("x", "y"),),
    )
    assert [one.id for one in laid(others, "  - {id: a, override: disable}\n").rules] == ["z"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            "  - {id: aa, override: disable}\n",
            (
                "site.yaml:5:24: it overrides 'aa', and no layer below has such a rule: "
                "did you mean 'a'?"
            ),
        ),
        (
            PLAIN,
            "site.yaml:5:5: the rule id 'a' is taken at shipped.yaml:5:5, below: rename it, or say",
        ),
        (
            "  - {id: a, override: append, mode: enforec}\n",
            "site.yaml:5:37: unknown mode 'enforec': did you mean 'enforce'?",
        ),
        (
            "  - {id: a, override: disable, mode: observe}\n",
            "site.yaml:5:38: unknown key 'mode'",
        ),
    ],
)
def test_an_override_that_cannot_be_meant_is_refused(body: str, sentence: str) -> None:
    """Of nothing, of one by accident, or with a mistake in what it adds."""
    assert wrong(HEAD + PLAIN, HEAD + body).startswith(sentence)


def test_the_text_of_layers_reads_back() -> None:
    """The event log keeps it; that checks have become stricter since does not stop a replay."""
    rules = laid(PLAIN, "  - {id: a, override: append, mode: observe}\n")
    assert parse_text(rules.text) == rules
    old = "#=== file: a.yaml\n" + HEAD + PLAIN + PLAIN.replace("id: a", "id: b, min_count: 2")
    assert [one.count for one in parse_text(old).rules] == [1, 2]


def test_the_schema_is_fresh() -> None:
    """Editors are pointed at it by the first line of each shipped file."""
    folder = Path(__file__).parents[3] / "rules"
    assert json.loads((folder / "schema.json").read_text()) == schema(), (
        "run `aegis rules schema > rules/schema.json`"
    )
    heads = [file.read_text().splitlines()[0] for file in folder.glob("*.yaml")]
    assert set(heads) == {"# yaml-language-server: $schema=schema.json"}
