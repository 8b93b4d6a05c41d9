"""What a decision says of itself: why nothing is done, what else was thought of, what is news."""

from dataclasses import replace

import pytest

from aegis.core.decide import decide, is_same_answer, is_worn_out
from aegis.core.incidents import begin
from aegis.model import event as ev
from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.incident import Decision, DecisionResult, Remedy, Verdict
from aegis.model.job import JobState
from aegis.model.memory import Attempt, Memory
from aegis.model.node import NodeState
from aegis.model.policy import Mode
from aegis.rules import parse

RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: test
rules:
  - {id: ring, title: T, class: gpu.ring.timeout, remedy: restart}
  - {id: ecc, title: T, class: gpu.ecc.uncorrectable, remedy: drain_now}
  - {id: hive, title: T, class: gpu.ras.fatal, remedy: reset_domain}
  - {id: boot, title: T, class: host.mce.uncorrected, remedy: reboot}
  - {id: lost, title: T, class: [node.lost, node.rebooted, job.worker.exited], remedy: restart}
"""


def decided(fleet, node, fault_class, text=RULES, **fields):
    """What would be decided about a fault of the node, as things stand."""
    known = {"severity": Severity.ERROR, "device": "gpu3", "observed_at": fleet.at}
    fault = Fault(fault_class=FaultClass(fault_class), node=node, **(known | fields))
    rules = parse({"test.yaml": text})
    return decide(fleet.cluster, rules, begin(fleet.cluster, fault))


def test_why_nothing_is_done_is_said_in_each_case(fleet) -> None:
    """No rule, no ranks, ranks that are stopping already, a node that is out already."""
    assert decided(fleet, "n1", "gpu.xgmi.error").reason == (
        "no rule speaks of gpu.xgmi.error, so Aegis only tells people"
    )
    assert decided(fleet, "n3", "gpu.ring.timeout").reason == (
        "rule ring asks for a restart, and the node holds no ranks"
    )
    fleet.cluster.put_job(replace(fleet.job, state=JobState.STOPPING))
    assert decided(fleet, "n1", "gpu.ring.timeout").reason == (
        "rule ring asks for a restart, and its ranks are being stopped already"
    )


@pytest.mark.parametrize("state", [NodeState.DRAINING, NodeState.QUARANTINED, NodeState.REPAIRING])
def test_a_node_that_is_going_is_not_taken_again(fleet, state) -> None:
    """Nor one that is out, nor one that is being repaired."""
    fleet.cluster.put_node(replace(fleet.cluster.nodes["n3"], state=state))
    decision = decided(fleet, "n3", "gpu.ecc.uncorrectable")
    assert (decision.result, decision.reason) == (
        DecisionResult.NOTHING,
        f"rule ecc asks to move off the node without saving, and the node is {state} already",
    )


@pytest.mark.parametrize("fault_class", ["gpu.ras.fatal", "host.mce.uncorrected"])
def test_a_reset_and_a_reboot_begin_with_the_node_going(fleet, fault_class) -> None:
    """Of one that is out already nothing is begun here; its repair goes on by itself."""
    there = fleet.cluster.nodes["n3"]
    assert decided(fleet, "n3", fault_class).result is DecisionResult.ACTED
    fleet.cluster.put_node(replace(there, state=NodeState.QUARANTINED))
    assert decided(fleet, "n3", fault_class).result is DecisionResult.NOTHING


def test_limits_on_nodes_do_not_keep_the_job_of_a_lost_one(make_fleet) -> None:
    """It goes on without the node; where nothing may be done the rule's own remedy stands."""
    fleet = make_fleet()
    fleet.cluster.policy = replace(fleet.cluster.policy, silence_seconds=0.0)
    text = RULES.replace("node.lost, ", "").replace(
        "rules:", "rules:\n  - {id: gone, title: T, class: node.lost, remedy: drain_now}"
    )
    node = fleet.cluster.nodes["n1"]
    fleet.cluster.put_node(replace(node, taken_at=(fleet.at,)))
    decision = decided(fleet, "n1", "node.lost", text)
    assert (decision.remedy, decision.result) == (Remedy.RESTART, DecisionResult.ACTED)
    assert decision.reason.startswith(
        "rule gone asks to restart the job's ranks (to move off the node without saving is called "
        "for, and that may not be done)"
    )
    fleet.apply(ev.AutomationPaused(at=fleet.at, actor="ada", reason="a look"))
    decision = decided(fleet, "n1", "node.lost", text)
    assert (decision.remedy, decision.result) == (Remedy.DRAIN_NOW, DecisionResult.BLOCKED)
    assert [one.remedy for one in decision.alternatives] == [Remedy.RESTART, Remedy.DRAIN_SAVING]
    fleet.apply(ev.AutomationResumed(at=fleet.at, actor="ada", reason="seen"))
    fleet.cluster.policy = replace(fleet.cluster.policy, mode=Mode.OBSERVE)
    decision = decided(fleet, "n1", "node.lost", text)
    assert (decision.remedy, decision.result) == (Remedy.DRAIN_NOW, DecisionResult.WOULD_ACT)


def test_a_fault_of_a_job_is_decided_by_its_job(fleet) -> None:
    """A job that is stopping is asked about its restarts; the node may hold no ranks by now."""
    fleet.cluster.put_job(replace(fleet.job, state=JobState.WAITING, members=()))
    decision = decided(fleet, "n1", "job.worker.exited", job="llama")
    assert decision.result is DecisionResult.ACTED
    used = [one.text for one in decision.verdicts if one.rail == "restarts"]
    assert used == ["0 of 3 restarts without progress used"]


@pytest.mark.parametrize("fault_class", ["node.lost", "node.rebooted"])
def test_a_lost_node_is_not_blamed(fleet, fault_class) -> None:
    """What was thought of instead of a restart is another thing than for a device."""
    (other,) = decided(fleet, "n1", fault_class).alternatives
    assert (other.remedy, other.reason) == (
        Remedy.DRAIN_NOW,
        "nothing says that the node is sick once it is back",
    )
    reasons = [one.reason for one in decided(fleet, "n1", "gpu.ring.timeout").alternatives]
    assert "the end of a rank alone does not blame its node" in reasons
    away = [one.remedy for one in decided(fleet, "n1", "gpu.ecc.uncorrectable").alternatives]
    assert away == [Remedy.RESTART, Remedy.DRAIN_SAVING]


def test_what_was_done_waits_for_nothing(fleet) -> None:
    """What is held says what would change it; what needs a person's word names the command."""
    assert decided(fleet, "n1", "gpu.ecc.uncorrectable").clears_when == ""
    fleet.apply(ev.AutomationPaused(at=fleet.at, actor="ada", reason="a look"))
    held = decided(fleet, "n1", "gpu.ecc.uncorrectable")
    assert held.clears_when == "somebody resumes automation (`aegis resume`)"


def test_two_rails_that_a_word_can_pass_ask_for_it(make_fleet) -> None:
    """The mode and the rack at once are one question."""
    fleet = make_fleet("n3", "n4", mode=Mode.APPROVE)
    for node in ("n3", "n4"):
        there = replace(fleet.cluster.nodes[node], labels=(("rack", "r1"),))
        fleet.cluster.put_node(there)
    fleet.cluster.put_node(replace(fleet.cluster.nodes["n4"], taken_at=(fleet.at,)))
    fleet.cluster.policy = replace(fleet.cluster.policy, nodes_out_max=9)
    decision = decided(fleet, "n3", "gpu.ecc.uncorrectable")
    refused = {one.rail for one in decision.verdicts if not one.passed}
    assert (refused, decision.result) == ({"mode", "domain"}, DecisionResult.NEEDS_APPROVAL)


BEFORE = Decision(
    at=1.0,
    rule="ecc",
    rules_digest="d",
    remedy=Remedy.DRAIN_NOW,
    mode=Mode.ENFORCE,
    result=DecisionResult.BLOCKED,
    reason="r",
    verdicts=(
        Verdict(rail="budget", passed=False, text="1 of 1"),
        Verdict(rail="spare", passed=True, text="n3 stands by"),
    ),
)


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "other"},
        {"remedy": Remedy.DRAIN_SAVING},
        {"mode": Mode.APPROVE},
        {"result": DecisionResult.ACTED},
        {"verdicts": (Verdict(rail="cooldown", passed=False, text="1 of 1"),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_news_is_what_changes_the_answer(change) -> None:
    """A rule, a remedy, a mode, a result or another rail that refuses."""
    assert not is_same_answer(BEFORE, replace(BEFORE, **change))


def test_figures_alone_are_no_news() -> None:
    """Time passes and verdicts count on; what lets it through is not compared either."""
    verdicts = (
        Verdict(rail="budget", passed=False, text="2 of 2"),
        Verdict(rail="ttl", passed=True, text="young"),
    )
    assert is_same_answer(BEFORE, replace(BEFORE, at=9.0, verdicts=verdicts))


def test_the_jobs_mode_is_no_way_round_the_nodes_mode(make_fleet) -> None:
    """Where nodes are only observed, or people are asked, a lost one's job waits for that too."""
    text = RULES.replace("node.lost, ", "").replace(
        "rules:", "rules:\n  - {id: gone, title: T, class: node.lost, remedy: drain_now}"
    )
    for mode, result in (
        (Mode.OBSERVE, DecisionResult.WOULD_ACT),
        (Mode.APPROVE, DecisionResult.NEEDS_APPROVAL),
    ):
        fleet = make_fleet(mode=mode, job_mode=Mode.ENFORCE, silence_seconds=0.0)
        decision = decided(fleet, "n1", "node.lost", text)
        assert (decision.remedy, decision.result) == (Remedy.DRAIN_NOW, result)


def test_where_the_ladder_ends_people_are_told_why(fleet) -> None:
    """The reason names what was tried, also where nothing more is done."""
    text = RULES.replace(
        "class: gpu.ring.timeout, remedy: restart",
        "class: gpu.ring.timeout, remedy: restart, attempts: 1",
    )
    restarted_once(fleet)
    decision = decided(fleet, "n1", "gpu.ring.timeout", text)
    assert (decision.remedy, decision.result) == (Remedy.NOTIFY, DecisionResult.NOTHING)
    assert "(to restart the job's ranks was tried once in " in decision.reason


def test_a_decision_to_do_nothing_says_in_which_mode(fleet) -> None:
    """That of the node's group, where somebody has set one."""
    there = fleet.cluster.nodes["n1"]
    fleet.cluster.put_node(replace(there, labels=(("group", "lab"),)))
    text = RULES.replace(
        "class: gpu.ring.timeout, remedy: restart", "class: gpu.lost, remedy: count"
    )
    fleet.apply(
        ev.RuleModeSet(
            at=fleet.at, rule="ring", mode=Mode.NOTIFY, group="lab", actor="ada", reason="a try"
        )
    )
    assert decided(fleet, "n1", "gpu.lost", text).mode is Mode.NOTIFY
    assert decided(fleet, "n2", "gpu.lost", text).mode is Mode.ENFORCE


def test_ranks_that_were_started_after_a_reboot_are_not_started_again(fleet) -> None:
    """One reboot is one restart; ranks of before it are gone, whatever their launcher said last."""
    started = fleet.job.attempts[-1].started_at
    decision = decided(fleet, "n1", "node.rebooted", observed_at=started)
    assert (decision.result, decision.reason) == (
        DecisionResult.NOTHING,
        "rule lost asks for a restart, and job llama was started since",
    )
    later = decided(fleet, "n1", "node.rebooted", observed_at=started + 1.0)
    assert (later.remedy, later.result) == (Remedy.RESTART, DecisionResult.ACTED)
    other = decided(fleet, "n1", "gpu.ring.timeout", observed_at=started)
    assert (other.remedy, other.result) == (Remedy.RESTART, DecisionResult.ACTED)


def test_a_job_without_a_history_was_not_started_since(fleet) -> None:
    """Nothing says that its ranks are younger than the reboot."""
    fleet.cluster.put_job(replace(fleet.job, attempts=()))
    decision = decided(fleet, "n1", "node.rebooted", observed_at=0.0)
    assert decision.result is not DecisionResult.NOTHING


def restarted_once(fleet):
    """The ranks on n1 were restarted once for this very fault."""
    tried = Attempt(
        at=fleet.at,
        incident="inc-000000",
        fault_class=FaultClass("gpu.ring.timeout"),
        device="gpu3",
        remedy=Remedy.RESTART,
        job="",
    )
    fleet.cluster.memories["n1"] = Memory(tried=(tried,))


@pytest.mark.parametrize(
    ("refused", "result", "worn_out"),
    [
        ({"restarts"}, DecisionResult.BLOCKED, True),
        ({"restarts", "fleet"}, DecisionResult.BLOCKED, True),
        ({"restarts", "pause"}, DecisionResult.BLOCKED, False),
        ({"restarts", "silence"}, DecisionResult.BLOCKED, False),
        ({"fleet"}, DecisionResult.BLOCKED, False),
        ({"restarts"}, DecisionResult.WOULD_ACT, False),
    ],
)
def test_a_job_is_worn_out_by_its_restarts(refused, result, worn_out) -> None:
    """Not where Aegis only says what it would do, nor in a pause, nor for who may still speak."""
    verdicts = tuple(
        Verdict(rail=rail, passed=rail not in refused, text="t")
        for rail in ("pause", "fleet", "restarts", "silence")
    )
    assert is_worn_out(replace(BEFORE, result=result, verdicts=verdicts)) is worn_out


def test_while_people_are_asked_a_job_is_not_given_up(make_fleet) -> None:
    """Its restarts are spent, and a person may yet let it go on elsewhere."""
    text = RULES.replace(
        "class: gpu.ring.timeout, remedy: restart",
        "class: gpu.ring.timeout, remedy: restart, attempts: 1, if_fails: [{remedy: drain_now}]",
    )
    for mode, remedy, result in (
        (Mode.APPROVE, Remedy.DRAIN_NOW, DecisionResult.NEEDS_APPROVAL),
        (Mode.OBSERVE, Remedy.RESTART, DecisionResult.BLOCKED),
    ):
        fleet = make_fleet(mode=mode)
        restarted_once(fleet)
        fleet.cluster.put_job(replace(fleet.job, restarts_without_progress=3))
        decision = decided(fleet, "n1", "gpu.ring.timeout", text)
        assert (decision.remedy, decision.result) == (remedy, result)
