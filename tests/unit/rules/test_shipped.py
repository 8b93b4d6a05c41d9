"""The shipped rules: each has a case that fires it and one that leaves it silent."""

from pathlib import Path

import pytest
import yaml

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.incident import Remedy
from aegis.model.policy import Mode
from aegis.rules import RuleSet, parse, parse_text

FOLDER = Path(__file__).parents[3] / "rules"
FILES = sorted(FOLDER.glob("*.yaml"))
CASES = [
    (path.stem.removesuffix("_test"), case)
    for path in sorted((FOLDER / "tests").glob("*_test.yaml"))
    for case in yaml.safe_load(path.read_text())["cases"]
]
PHYSICAL = [FaultClass.GPU_XGMI_ERROR, FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD]


@pytest.fixture(scope="module")
def shipped() -> RuleSet:
    return parse({path.name: path.read_text() for path in FILES})


def fault(words: list) -> Fault:
    fault_class, severity, device, count = words
    return Fault(
        fault_class=FaultClass(fault_class),
        severity=Severity(severity),
        node="n1",
        device=device,
        observed_at=0.0,
        count=count,
    )


@pytest.mark.parametrize(("file", "case"), CASES, ids=[case["rule"] for _, case in CASES])
def test_each_rule_does_what_its_case_says(shipped: RuleSet, file: str, case: dict) -> None:
    """A rule fires on its faults with its remedy, and leaves its neighbour's faults alone."""
    for words in case["fires_on"]:
        rule = shipped.first_match(fault(words))
        assert rule is not None
        assert (rule.id, rule.remedy, rule.file) == (case["rule"], case["remedy"], f"{file}.yaml")
    for words in case["silent_on"]:
        rule = shipped.first_match(fault(words))
        assert rule is None or rule.id != case["rule"]


def test_each_rule_has_a_case(shipped: RuleSet) -> None:
    """A rule without a test is not shipped."""
    assert sorted(rule.id for rule in shipped.rules) == sorted(case["rule"] for _, case in CASES)


@pytest.mark.parametrize("fault_class", list(FaultClass))
@pytest.mark.parametrize("severity", list(Severity))
def test_each_fault_class_has_a_rule(
    shipped: RuleSet, fault_class: FaultClass, severity: Severity
) -> None:
    """Whatever a probe can say, some rule speaks of it."""
    assert shipped.first_match(fault([fault_class, severity, "gpu3", 1])) is not None


def test_each_rule_names_its_sources(shipped: RuleSet) -> None:
    """Someone who doubts a rule can look up where it comes from."""
    assert [rule.id for rule in shipped.rules if not rule.references or not rule.title] == []


def test_correctable_errors_take_no_node(shipped: RuleSet) -> None:
    """What the hardware mended itself never disturbs a job."""
    corrected = [one for one in FaultClass if one.endswith((".correctable", ".corrected"))]
    remedies = {shipped.first_match(fault([one, "info", "gpu3", 1])).remedy for one in corrected}
    assert remedies == {Remedy.COUNT}


def test_a_flap_is_not_acted_on_at_once(shipped: RuleSet) -> None:
    """Only a link that stays down longer than the policy's hold-down takes a node."""
    rule = shipped.first_match(fault(["nic.link.down", "error", "fab0", 1]))
    assert (rule.waits, rule.hold_down_seconds, rule.mode) == (True, None, Mode.ENFORCE)


def test_the_text_of_a_rule_set_reads_back(shipped: RuleSet) -> None:
    """The event log keeps the text, so that a replay needs no file."""
    assert parse_text(shipped.text) == shipped
