"""What is remembered of a node, and what rules make of it: counts, ladders, modes, guards."""

from dataclasses import replace

import pytest

from aegis.core import ladder, memory, modes, returning
from aegis.core.cluster import Cluster
from aegis.core.incidents import begin
from aegis.core.memory import KEPT_SECONDS, SEEN_MAX, TRIED_MAX, Known
from aegis.model.event import PolicyChanged, RuleModeSet
from aegis.model.fault import VICTIM, Fault, FaultClass, Severity
from aegis.model.incident import DecisionResult, Remedy
from aegis.model.memory import Attempt, Memory
from aegis.model.node import Node
from aegis.model.policy import Mode
from aegis.model.validation import Depth
from aegis.rules import Guard, Match, Rule, Rung, Scope

HANG = FaultClass.GPU_RING_TIMEOUT
RULE = Rule(
    id="hang",
    title="T",
    classes=(HANG,),
    remedy=Remedy.RESTART,
    attempts=1,
    if_fails=(Rung(remedy=Remedy.RESET_DOMAIN, attempts=1), Rung(remedy=Remedy.REBOOT, attempts=1)),
)


def shown(device: str = "gpu3", node: str = "n1", at: float = 0.0, **more) -> Fault:
    return Fault(
        fault_class=more.pop("fault_class", HANG),
        severity=Severity.ERROR,
        node=node,
        device=device,
        observed_at=at,
        **more,
    )


def cluster(*labels: tuple[str, str, str]) -> Cluster:
    made = Cluster(now=1000.0)
    for name in ("n1", "n2", "n3"):
        mine = tuple((key, value) for node, key, value in labels if node == name)
        made.put_node(Node(name=name, labels=mine))
    return made


def tried(
    made: Cluster, *remedies: Remedy, node: str = "n1", device: str = "gpu3", at=999.0
) -> None:
    known = made.memories.get(node, Memory())
    attempts = tuple(
        Attempt(at=at, fault_class=HANG, device=device, remedy=one, incident=f"{node}{n}", job="j")
        for n, one in enumerate(remedies, len(known.tried))
    )
    made.memories[node] = replace(known, tried=known.tried + attempts)


def test_memory_is_bounded() -> None:
    """Neither a storm nor the years let it grow."""
    made = cluster()
    for number in range(3 * SEEN_MAX):
        made.now = 1000.0 + 10 * number
        memory.see(made, shown(at=made.now))
    assert len(made.memories["n1"].seen) == SEEN_MAX
    incident = begin(made, shown())
    for _ in range(2 * TRIED_MAX):
        memory.tried(made, incident, Remedy.RESTART)
    assert len(made.memories["n1"].tried) == TRIED_MAX
    made.now += KEPT_SECONDS + 1
    memory.see(made, shown(at=made.now))
    memory.tried(made, incident, Remedy.RESTART)
    assert [len(made.memories["n1"].seen), len(made.memories["n1"].tried)] == [1, 1]


def test_a_burst_is_kept_as_one_with_its_count() -> None:
    """A flood within a second costs one place."""
    made = cluster()
    for number in range(50):
        memory.see(made, shown(at=500.0 + number / 1000, count=2))
    (one,) = made.memories["n1"].seen
    assert one.count == 100


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (Scope.DEVICE, 2),
        (Scope.GPU, 2),
        (Scope.RESET_DOMAIN, 3),
        (Scope.NODE, 4),
        (Scope.RACK, 5),
        (Scope.SWITCH, None),
        (Scope.JOB, None),
    ],
)
def test_a_scope_says_among_whom_to_count(scope: Scope, expected: int | None) -> None:
    """Where it cannot be known among whom, the count is unknown."""
    made = cluster(("n1", "rack", "r1"), ("n2", "rack", "r1"), ("n3", "rack", "r2"))
    for fault in (
        shown(at=100.0),
        shown(at=990.0),
        shown(at=990.5),
        shown("gpu4", at=990.0),
        shown("host", at=990.0),
        shown(node="n2", at=990.0),
        shown(node="n3", at=990.0),
        shown("gpu3", at=990.0, fault_class=FaultClass.GPU_LOST),
    ):
        memory.see(made, fault)
    match = Match(classes=(HANG,), scope=scope, count=2, within_seconds=60.0)
    assert Known(made, "n1").seen(match, shown(at=990.0), 60.0) == expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ((), Remedy.RESTART),
        ((Remedy.RESTART,), Remedy.RESET_DOMAIN),
        ((Remedy.RESTART, Remedy.RESET_DOMAIN), Remedy.REBOOT),
        ((Remedy.RESTART, Remedy.RESET_DOMAIN, Remedy.REBOOT), Remedy.DRAIN_NOW),
    ],
)
def test_the_rung_is_what_was_not_tried_often_enough(before, expected: Remedy) -> None:
    """Above the last rung the node is taken out and left to people."""
    made = cluster()
    tried(made, *before)
    step = ladder.choose(made, RULE, begin(made, shown()), shown())
    assert step.remedy is expected
    assert bool(step.why) is bool(before)


def test_only_this_device_counts_and_only_lately() -> None:
    """What was tried elsewhere, long ago, or for another class says nothing."""
    made = cluster()
    tried(made, Remedy.RESTART, device="gpu4")
    tried(made, Remedy.RESTART, node="n2")
    tried(made, Remedy.RESTART, at=1000.0 - 86400.0 - 1)
    assert ladder.choose(made, RULE, begin(made, shown()), shown()).remedy is Remedy.RESTART


def test_what_wanders_is_the_application() -> None:
    """As often elsewhere as here: the first rung stays, and the reason says so."""
    made = cluster()
    incident = replace(begin(made, shown()), job="j")
    tried(made, Remedy.RESTART)
    assert ladder.choose(made, RULE, incident, shown()).remedy is Remedy.RESET_DOMAIN
    tried(made, Remedy.RESTART, node="n2", device="gpu0")
    step = ladder.choose(made, RULE, incident, shown())
    assert step.remedy is Remedy.RESTART
    assert step.why == "it was on n2 gpu0 too: the application is suspect, not a device"


def test_a_victim_blames_nobody() -> None:
    """It lost another rank: whatever was tried before, the first rung stays, and does not count."""
    made = cluster()
    tried(made, Remedy.RESTART, Remedy.RESET_DOMAIN, Remedy.REBOOT)
    victim = shown(details=(VICTIM,))
    step = ladder.choose(made, RULE, begin(made, victim), victim)
    assert step.remedy is Remedy.RESTART
    assert "lost another one" in step.why
    memory.tried(made, begin(made, victim), Remedy.RESTART)
    assert len(made.memories["n1"].tried) == 3


@pytest.mark.parametrize(
    "fault",
    [
        shown(fault_class=FaultClass.GPU_ECC_UNCORRECTABLE, details=(("afid", "21"),)),
        shown(fault_class=FaultClass.GPU_XGMI_ERROR),
        shown(fault_class=FaultClass.PCIE_AER_FATAL),
        shown(fault_class=FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD),
    ],
)
def test_what_needs_hands_is_never_reset(fault: Fault) -> None:
    """Whatever a site's ladder says, and however often it was tried."""
    made = cluster()
    rule = replace(RULE, classes=(fault.fault_class,))
    for _ in range(4):
        step = ladder.choose(made, rule, begin(made, fault), fault)
        assert step.remedy in (Remedy.RESTART, Remedy.DRAIN_NOW)
        known = made.memories.get("n1", Memory())
        one = Attempt(
            at=999.0,
            fault_class=fault.fault_class,
            device="gpu3",
            remedy=step.remedy,
            incident="old",
        )
        made.memories["n1"] = replace(known, tried=(*known.tried, one))


def test_an_operator_s_word_stands_in_the_place_of_the_policy_s_mode() -> None:
    """A group's before the one for all; never above the rule's own cap, nor the policy's."""
    made = cluster(("n1", "group", "canary"), ("n2", "group", "rest"))
    one, two, three = (made.nodes[name] for name in ("n1", "n2", "n3"))

    def say(mode: Mode | None, group: str = "") -> None:
        modes.apply(
            made,
            RuleModeSet(at=0.0, rule="hang", mode=mode, group=group, actor="a", reason="r"),
        )

    def granted(rule: Rule = RULE) -> list[Mode]:
        return [modes.granted(made, rule, Remedy.DRAIN_NOW, node) for node in (one, two, three)]

    assert granted() == [Mode.OBSERVE] * 3
    say(Mode.ENFORCE, "canary")
    assert granted() == [Mode.ENFORCE, Mode.OBSERVE, Mode.OBSERVE]
    say(Mode.APPROVE)
    assert granted() == [Mode.ENFORCE, Mode.APPROVE, Mode.APPROVE]
    assert granted(replace(RULE, mode=Mode.NOTIFY)) == [Mode.NOTIFY] * 3
    assert granted(replace(RULE, id="other")) == [Mode.OBSERVE] * 3
    made.policy = replace(made.policy, mode_max=Mode.OBSERVE)
    assert granted() == [Mode.OBSERVE] * 3
    say(None)
    say(None, "canary")
    assert made.rule_modes == {}


@pytest.mark.parametrize(
    ("guard", "rail"),
    [
        (Guard(budget=1), "budget"),
        (Guard(cooldown_seconds=5000.0), "cooldown"),
        (Guard(max_per_rack=1), "domain"),
    ],
)
def test_a_guard_is_tighter_than_the_policy(make_fleet, guard: Guard, rail: str) -> None:
    """Without it the same act is allowed."""
    results = []
    for own in (Guard(), guard):
        fleet = make_fleet(
            nodes_out_max=9, breaker_nodes_min=9, cooldown_seconds=1.0, nodes_out_per_domain_max=9
        )
        rules = tuple(replace(one, guard=own) for one in fleet.rules.rules)
        fleet.rules = replace(fleet.rules, rules=rules)
        for name in ("n1", "n3"):
            node = fleet.cluster.nodes[name]
            fleet.cluster.put_node(replace(node, labels=(("rack", "r1"),)))
        taken = "n1" if rail == "cooldown" else "n3"
        node = fleet.cluster.nodes[taken]
        fleet.cluster.put_node(replace(node, taken_at=(fleet.at - 30.0,)))
        fleet.fault("n1", "gpu.ecc.uncorrectable")
        refused = [one.rail for one in fleet.decision.verdicts if not one.passed]
        results.append((fleet.decision.result, refused))
    assert results[0] == (DecisionResult.ACTED, [])
    assert results[1][1] == [rail]


def test_a_rule_says_with_what_urgency_people_are_told(fleet) -> None:
    """Or that nobody is; and what must be shown before the node serves again stands beside it."""
    told = []
    for notify in ("severity", "warning", "nobody"):
        rules = tuple(replace(one, notify=notify, verify="full") for one in fleet.rules.rules)
        fleet.rules = replace(fleet.rules, rules=rules)
        actions = fleet.fault("n3", "gpu.ecc.correctable", device=f"gpu-{notify}", count=10)
        told.append([one.severity.value for one in actions if hasattr(one, "kind")])
    assert [bool(one) for one in told] == [True, True, False]
    assert set(told[1]) == {"warning"}


def test_a_rule_may_ask_for_a_closer_look_than_the_policy(fleet) -> None:
    """Before a node that it took serves again; a policy of none stays none."""
    rules = tuple(replace(one, verify="full") for one in fleet.rules.rules)
    fleet.rules = replace(fleet.rules, rules=rules)
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    one, other = fleet.cluster.nodes["n1"], fleet.cluster.nodes["n3"]
    depths = [returning.asked(fleet.cluster, node) for node in (one, other)]
    assert depths == [Depth.FULL, Depth.LIGHT]
    fleet.cluster.policy = replace(fleet.cluster.policy, validate_on_return=Depth.NONE)
    assert returning.asked(fleet.cluster, one) is Depth.NONE


def test_only_faults_of_the_asked_severity_count() -> None:
    """Three warnings are not three errors."""
    made = cluster()
    for at in (900.0, 910.0):
        memory.see(made, replace(shown(at=at), severity=Severity.WARNING))
    memory.see(made, shown(at=920.0))
    match = Match(classes=(HANG,), severities=(Severity.ERROR,), count=3, within_seconds=600.0)
    assert Known(made, "n1").seen(match, shown(at=920.0), 600.0) == 1


def test_a_policy_of_observe_restarts_what_would_be_drained(make_fleet) -> None:
    """A job that stands still is not left standing because the next rung is not allowed."""
    fleet = make_fleet()
    rules = tuple(
        replace(one, attempts=1, if_fails=(Rung(remedy=Remedy.DRAIN_NOW),))
        if one.id == "rank"
        else one
        for one in fleet.rules.rules
    )
    fleet.rules = replace(fleet.rules, rules=rules)
    fleet.apply(
        PolicyChanged(
            at=fleet.at, policy=replace(fleet.cluster.policy, mode=Mode.OBSERVE), actor="test"
        )
    )
    job = fleet.cluster.jobs["llama"]
    tried_before = Attempt(
        at=fleet.at - 5,
        fault_class=FaultClass.JOB_WORKER_EXITED,
        device="rank0",
        remedy=Remedy.RESTART,
        incident="old",
        job=job.spec.name,
    )
    fleet.cluster.memories["n1"] = Memory(tried=(tried_before,))
    fleet.die("n1", 0)
    assert (fleet.decision.remedy, fleet.decision.result) == (
        Remedy.RESTART,
        DecisionResult.ACTED,
    )
    assert "and that may not be done" in fleet.decision.reason
