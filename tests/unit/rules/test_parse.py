"""Rule files that are wrong: the error names the place, what is wrong, and how to mend it."""

import pytest

from aegis.model.fault import FaultClass
from aegis.model.incident import Remedy
from aegis.model.policy import Mode
from aegis.rules import RuleError, parse, parse_text

HEAD = """\
apiVersion: aegis/v1
kind: RuleSet
name: site
rules:
"""
RULE = """\
  - id: a
    title: A
    class: gpu.lost
    remedy: drain_now
"""


def wrong(text: str) -> str:
    with pytest.raises(RuleError) as caught:
        parse({"site.yaml": text})
    return str(caught.value)


def test_a_rule_reads_in_full() -> None:
    """Every key of the form has its place."""
    text = HEAD + (
        "  - {id: a, title: A, description: D, class: [gpu.lost, gpu.init.failed],\n"
        "     severity: fatal, count: 2, device: 'gpu*', for: 1.5,\n"
        "     remedy: drain_saving, mode: approve,\n"
        "     runbook: 'https://example.org/a', references: [R]}\n"
    )
    (rule,) = parse({"site.yaml": text}).rules
    assert rule.classes == (FaultClass.GPU_LOST, FaultClass.GPU_INIT_FAILED)
    assert (rule.remedy, rule.mode, rule.count) == (Remedy.DRAIN_SAVING, Mode.APPROVE, 2)
    assert (rule.waits, rule.hold_down_seconds, rule.device) == (True, 1.5, "gpu*")


def test_files_are_asked_in_the_order_of_their_names() -> None:
    """A site puts its own file before the shipped ones to have the first word."""
    second = RULE.replace("id: a", "id: b").replace("gpu.lost", "gpu.init.failed")
    rules = parse({"20-late.yaml": HEAD + RULE, "10-early.yaml": HEAD + second})
    assert [rule.id for rule in rules.rules] == ["b", "a"]


def test_the_digest_changes_with_the_text() -> None:
    """Decisions name the very rules that they were made by."""
    one, two = HEAD + RULE, HEAD + RULE.replace("title: A", "title: B")
    assert parse({"a": one}).digest != parse({"a": two}).digest
    assert parse_text(parse({"a": one}).text) == parse({"a": one})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "site.yaml:1:1: the file is empty: write rules into it or remove it"),
        (
            "# only a comment\n",
            "site.yaml:1:1: the file is empty: write rules into it or remove it",
        ),
        (
            HEAD + RULE.replace("gpu.lost", "gpu.losst"),
            "site.yaml:7:12: unknown class 'gpu.losst': did you mean 'gpu.lost'?",
        ),
        (
            HEAD + RULE.replace("drain_now", "drian_now"),
            "site.yaml:8:13: unknown remedy 'drian_now': did you mean 'drain_now'?",
        ),
        (
            HEAD + RULE.replace("drain_now", "dance"),
            (
                "site.yaml:8:13: unknown remedy 'dance': "
                "use one of count, notify, restart, drain_saving, drain_now, reset_domain, reboot"
            ),
        ),
        (
            HEAD + RULE + RULE,
            "site.yaml:9:5: the rule id 'a' is taken at site.yaml:5:5: rename one",
        ),
        (
            HEAD + RULE + "    titel: B\n",
            "site.yaml:9:12: unknown key 'titel': did you mean 'title'?",
        ),
        (HEAD + RULE + "    title: B\n", "site.yaml:9:5: 'title' is given twice: remove one"),
        (
            HEAD + RULE.replace("    remedy: drain_now\n", ""),
            "site.yaml:5:5: 'remedy' is missing: add it",
        ),
        (
            HEAD + RULE.replace("title: A", "title: 5"),
            "site.yaml:6:12: title is 5: write text, in quotes where YAML reads something else",
        ),
        (
            HEAD + RULE + "    for: -1\n",
            (
                "site.yaml:9:10: for is -1: write `policy`, a number of seconds above 0, "
                "or text such as 10m"
            ),
        ),
        (
            HEAD.replace("v1", "v9") + RULE,
            "site.yaml:1:13: apiVersion is 'aegis/v9': write 'aegis/v1'",
        ),
        (HEAD + "  - 5\n", "site.yaml:5:5: a mapping of keys to values is expected here"),
        ("a: [1,", "site.yaml:1:7: not YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, sentence: str) -> None:
    """Who wrote the file can go straight to the character."""
    assert wrong(text) == sentence


def test_a_file_that_imitates_the_joint_is_refused() -> None:
    """The one text of a rule set must fall apart into the same files again."""
    assert "take it out" in wrong(HEAD + RULE + "#=== file: other.yaml\n")


def test_a_file_that_unfolds_without_end_is_refused() -> None:
    """Aliases of aliases are short to write and long to read."""
    bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a]\n"
    for number in range(1, 12):
        bomb += f"x{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 9)}]\n"
    assert "it unfolds to more than 100,000 values: make it smaller" in wrong(HEAD + RULE + bomb)
    assert "an alias of itself" in wrong(HEAD + RULE + "x: &x [*x]\n")


@pytest.mark.parametrize("word", ["on", "no", "True", "010", "0x10", "12:30", "1_000"])
def test_a_word_that_yaml_reads_as_something_else_is_refused(word: str) -> None:
    """An exception for nodes with the label `on` must not look for the label True."""
    said = wrong(HEAD + RULE + f"    labels: {{protected: {word}}}\n")
    assert f"site.yaml:9:25: YAML reads {word} as" in said
    assert "write text in quotes" in said
