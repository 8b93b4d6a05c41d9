"""What a rule asks of a fault: counts over time, rates, labels, exceptions, and the unknown."""

from dataclasses import dataclass, field, replace

import pytest

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.rules import RuleSet, parse
from aegis.rules.explain import explain

HEAD = "apiVersion: aegis/v1\nkind: RuleSet\nname: s\nrules:\n"
FAULT = Fault(
    fault_class=FaultClass.GPU_ECC_CORRECTABLE,
    severity=Severity.WARNING,
    node="n1",
    device="gpu3",
    observed_at=0.0,
    count=2,
    details=(("block", "umc"), ("bank", "7")),
)


@dataclass
class Known:
    """What the cluster would know."""

    labels: dict = field(default_factory=dict)
    earlier: int | None = 0

    def seen(self, match, fault, seconds):
        return None if self.earlier is None else fault.count + self.earlier


def rules(conditions: str) -> RuleSet:
    body = f"  - {{id: a, title: A, class: gpu.ecc.*, remedy: notify, {conditions}}}\n"
    return parse({"a.yaml": HEAD + body})


def fires(conditions: str, fault: Fault = FAULT, known: Known | None = None) -> bool:
    return rules(conditions).first_match(fault, known or Known()) is not None


def test_a_glob_means_every_class_it_fits() -> None:
    """And no other."""
    (rule,) = rules("severity: warning").rules
    assert {one.rpartition(".")[0] for one in rule.classes} == {"gpu.ecc"}
    assert not fires("severity: warning", replace(FAULT, fault_class=FaultClass.GPU_LOST))


@pytest.mark.parametrize(
    ("conditions", "known", "expected"),
    [
        ("count: 3", Known(earlier=9), False),
        ("count: 2", Known(), True),
        ("count: 3, within: 10m", Known(earlier=1), True),
        ("count: 4, within: 10m", Known(earlier=1), False),
        ("count: 3, within: 10m, scope: rack", Known(earlier=None), False),
        ("rate: 3/h", Known(earlier=1), True),
        ("rate: 4/h", Known(earlier=1), False),
        ("rate: 3/h, within: 30m", Known(earlier=0), True),
        ("rate: 10/h", Known(earlier=None), False),
        ("labels: {rack: r*}", Known({"rack": "r1"}), True),
        ("labels: {rack: r*}", Known({"rack": "x1"}), False),
        ("labels: {rack: r*}", Known(), False),
        ("details: {block: umc, bank: '[0-8]'}", Known(), True),
        ("details: {block: umc, bank: 7}", Known(), True),
        ("details: {block: gfx}", Known(), False),
        ("details: {channel: '*'}", Known(), False),
        ("device: gpu*", Known(), True),
        ("device: fab*", Known(), False),
        ("scope: gpu", Known(), True),
        ("unless: {labels: {rack: r1}}", Known({"rack": "r1"}), False),
        ("unless: {labels: {rack: r1}}", Known({"rack": "r2"}), True),
        ("unless: {labels: {rack: r1}}", Known(), True),
        ("unless: [{severity: info}, {details: {block: umc}}]", Known(), False),
        ("where: fault.count > 1", Known(), True),
        ("where: int(details.bank) > 6 && fault.device.startsWith('gpu')", Known(), True),
        ("where: details.channel == 'x'", Known(), False),
        ("where: \"!(details.channel == 'x')\"", Known(), False),
        ("where: has(labels.rack) && labels.rack == 'r1'", Known({"rack": "r1"}), True),
        ("where: int(details.block) > 1", Known(), False),
        ("where: \"labels.rack == 'r1' || fault.count > 1\"", Known(), True),
    ],
)
def test_a_condition_holds_or_does_not(conditions: str, known: Known, *, expected: bool) -> None:
    """What is missing is unknown, and what is unknown matches nothing."""
    assert fires(conditions, FAULT, known) is expected


@pytest.mark.parametrize(
    "conditions",
    [
        "count: 3, within: 10m",
        "rate: 4/h",
        "labels: {rack: r1}",
        "details: {block: umc}",
        "where: fault.count > 5 && details.block == 'umc'",
        "unless: {details: {block: umc}}",
        "unless: {labels: {rack: r1}}",
        "device: fab*",
        "severity: [error]",
    ],
)
@pytest.mark.parametrize("known", [Known(), Known({"rack": "r1"}, 5), Known({}, None)])
def test_an_explanation_agrees_with_what_happens(conditions: str, known: Known) -> None:
    """Every part of a rule that fires holds; of one that does not, some part says why."""
    found = rules(conditions)
    (told,) = explain(found, FAULT, known)
    assert told.matches is (found.first_match(FAULT, known) is not None)
    assert told.decides is told.matches
    holds = all(one.holds is True for one in told.parts)
    spared = any(all(one.holds is True for one in many) for many in told.unless)
    assert told.matches is (holds and not spared)
    assert told.why


def test_an_explanation_gives_the_value_of_every_part() -> None:
    """Of an expression too: each part of the && and each field."""
    (told,) = explain(
        rules("where: fault.count > 5 && details.channel == 'x', labels: {rack: r1}"),
        FAULT,
        Known(),
    )
    by_name = {one.name: one for one in told.parts}
    assert (by_name["labels"].holds, by_name["labels"].found) == (None, "rack=missing")
    assert by_name["where"].found == (
        "fault.count > 5: false; details.channel == 'x': unknown; "
        "details.channel = missing; fault.count = 2"
    )
    assert (
        told.why
        == "where is " + by_name["where"].found + ", and it wants " + by_name["where"].wanted
    )
