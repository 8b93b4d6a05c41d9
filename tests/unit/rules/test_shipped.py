"""The shipped rules: every class, AFID and Xid has one, and each rule has its tests."""

from pathlib import Path

import pytest

from aegis.cli.rules import trial
from aegis.core import ladder
from aegis.core.cluster import Cluster
from aegis.core.decide import DRAINS
from aegis.core.incidents import begin
from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.incident import Remedy
from aegis.model.memory import Attempt, Memory
from aegis.model.node import Node
from aegis.model.policy import Mode
from aegis.rules import Rule, RuleSet, parse, parse_text
from aegis.rules.physical import PHYSICAL, PHYSICAL_AFIDS, SOFT
from aegis_agent.probes.afid_table import AFIDS, Afid
from aegis_agent.probes.kernel.xid import XIDS, Xid

FOLDER = Path(__file__).parents[3] / "rules"
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.fixture(scope="module")
def shipped() -> RuleSet:
    return parse({path.name: path.read_text() for path in FILES})


def fault(words: list, **details: str) -> Fault:
    fault_class, severity, device, count = words
    return Fault(
        fault_class=FaultClass(fault_class),
        severity=Severity(severity),
        node="n1",
        device=device,
        observed_at=0.0,
        count=count,
        details=tuple(details.items()),
    )


def of_afid(row: Afid) -> Fault:
    return fault([row.fault_class, row.severity, "gpu3", 1], afid=str(row.number))


def of_xid(number: int, row: Xid) -> Fault:
    more = {"by": "application"} if row.by_application else {}
    words = [row.fault_class, row.severity, "gpu3", 1]
    return fault(words, xid=str(number), action=row.action, **more)


def test_each_rule_does_what_its_tests_say(shipped: RuleSet) -> None:
    """A rule fires on its faults with its remedy, leaves its neighbour's alone, tells its story."""
    outcomes, coverage = trial.run(shipped, trial.test_files([FOLDER]))
    assert [f"{one.name}: {one.wrong}" for one in outcomes if one.wrong] == []
    assert (coverage.never_fired, coverage.never_silent) == ((), ())


@pytest.mark.parametrize("fault_class", list(FaultClass))
@pytest.mark.parametrize("severity", list(Severity))
def test_each_fault_class_has_a_rule(
    shipped: RuleSet, fault_class: FaultClass, severity: Severity
) -> None:
    """Whatever a probe can say, some rule speaks of it."""
    assert shipped.first_match(fault([fault_class, severity, "gpu3", 1])) is not None


def rungs(rule: Rule, one: Fault) -> list[Remedy]:
    """Every rung that is reached when nothing helps."""
    cluster = Cluster(now=10.0, nodes={"n1": Node(name="n1")})
    incident = begin(cluster, one)
    reached: list[Remedy] = []
    while len(reached) < 9:
        remedy = ladder.choose(cluster, rule, incident, one).remedy
        reached.append(remedy)
        attempt = Attempt(
            at=9.0,
            fault_class=one.fault_class,
            device=one.device,
            remedy=remedy,
            incident=f"old-{len(reached)}",
        )
        tried = cluster.memories.get("n1", Memory()).tried
        cluster.memories["n1"] = Memory(tried=(*tried, attempt))
    return reached


@pytest.mark.parametrize("number", sorted(AFIDS))
def test_each_afid_has_a_rule_that_names_it(shipped: RuleSet, number: int) -> None:
    """What needs hands first is never reset or rebooted, however often it comes."""
    row = AFIDS[number]
    rule = shipped.first_match(of_afid(row))
    assert rule is not None
    named = " ".join(rule.references)
    assert str(number) in named or any(_is_between(number, text) for text in rule.references)
    if row.physical_action_first:
        assert not {str(one) for one in rungs(rule, of_afid(row))} & SOFT


def _is_between(number: int, text: str) -> bool:
    words = text.replace(",", " ").replace(";", " ").split()
    spans = [words[n - 1 : n + 2] for n, word in enumerate(words) if word == "to"]
    return any(int(low) <= number <= int(high) for low, _, high in spans)


def test_what_needs_hands_is_what_amd_says() -> None:
    """The rules know the numbers by themselves; the agent's table is the source."""
    assert {row.number for row in AFIDS.values() if row.physical_action_first} == PHYSICAL_AFIDS
    whole = {row.fault_class for row in AFIDS.values() if row.physical_action_first}
    for row in AFIDS.values():
        if not row.physical_action_first:
            whole.discard(row.fault_class)
    assert whole <= PHYSICAL


@pytest.mark.parametrize("number", sorted(XIDS))
def test_each_xid_is_answered_as_nvidia_recommends(shipped: RuleSet, number: int) -> None:
    """A node is taken for what asks for a reset or a reboot, and never for what asks for less."""
    row = XIDS[number]
    rule = shipped.first_match(of_xid(number, row))
    assert rule is not None
    takes = rule.remedy in DRAINS
    if row.action in ("IGNORE", "RESTART_APP") or row.severity in ("info", "warning"):
        assert not takes
    elif row.action in ("RESET_GPU", "RESTART_BM", "WORKFLOW_XID_48"):
        assert takes
    if row.fault_class is FaultClass.GPU_XGMI_ERROR:
        assert not {str(one) for one in rungs(rule, of_xid(number, row))} & SOFT


def test_ladders_end_with_people(shipped: RuleSet) -> None:
    """However often a fault comes back, nothing is tried for ever."""
    for rule in shipped.rules:
        one = fault([rule.classes[0], "error", "gpu3", 1])
        soft = [str(rung) for rung in rungs(rule, one) if str(rung) in SOFT]
        assert len(soft) == len(set(soft)), rule.id


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
