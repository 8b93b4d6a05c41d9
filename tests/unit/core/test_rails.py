"""Each rail, alone: what holds Aegis back, with the figures that it names."""

from dataclasses import replace

import pytest

from aegis.model import event as ev
from aegis.model.incident import DecisionResult, IncidentState
from aegis.model.node import NodeState
from aegis.model.policy import Mode

ECC = "gpu.ecc.uncorrectable"


def refused(fleet) -> list[str]:
    return [one.rail for one in fleet.decision.verdicts if not one.passed]


def test_with_every_rail_at_ease_aegis_acts(fleet) -> None:
    """Every rail is asked, and each says yes."""
    fleet.fault("n1", ECC)
    assert [one.rail for one in fleet.decision.verdicts] == [
        "mode", "pause", "window", "fleet", "ttl", "upstream", "hold", "cooldown",
        "budget", "domain", "breaker", "spare", "spare_floor",
    ]  # fmt: skip
    assert (fleet.decision.result, refused(fleet)) == (DecisionResult.ACTED, [])


@pytest.mark.parametrize(
    ("mode", "result"),
    [
        (Mode.OBSERVE, DecisionResult.WOULD_ACT),
        (Mode.NOTIFY, DecisionResult.WOULD_ACT),
        (Mode.APPROVE, DecisionResult.NEEDS_APPROVAL),
    ],
)
def test_the_mode_bounds_what_may_be_done(make_fleet, mode: Mode, result: DecisionResult) -> None:
    """Short of enforce the job is left alone and the node keeps its state."""
    fleet = make_fleet(mode=mode)
    fleet.fault("n1", ECC)
    assert (fleet.decision.result, refused(fleet)) == (result, ["mode"])
    assert fleet.cluster.nodes["n1"].state is NodeState.READY
    assert fleet.job.generation == 1


def test_a_rule_may_ask_for_less_than_the_policy_allows(fleet) -> None:
    """A new rule can run in observe mode first."""
    fleet.fault("n1", "gpu.lost")
    assert (fleet.decision.mode, fleet.decision.result) == (Mode.OBSERVE, DecisionResult.WOULD_ACT)


def test_an_old_fault_is_recorded_and_not_acted_on(fleet) -> None:
    """A spool that was cut off for an hour does not take nodes out afterwards."""
    fleet.fault("n1", ECC, observed_at=fleet.at - 3600)
    assert (refused(fleet), fleet.verdict("ttl").text) == (["ttl"], "1 h old, 10 min allowed")
    fleet.tick()
    assert fleet.incident.state is IncidentState.CLOSED


def test_a_fault_from_before_a_reboot_is_not_acted_on(fleet) -> None:
    """The device has been through a reset since."""
    fleet.fault("n1", ECC, boot_id="an earlier one")
    assert refused(fleet) == ["ttl"]


def test_another_owners_hold_is_respected(fleet) -> None:
    """What a person has cordoned is theirs until they let go."""
    fleet.apply(ev.NodeCordoned(at=fleet.at, node="n1", actor="alice", reason="my tests"))
    fleet.fault("n1", ECC)
    assert fleet.verdict("hold").text == "alice holds n1: my tests"
    assert fleet.decision.clears_when == "its holder uncordons or returns the node"
    fleet.apply(ev.NodeUncordoned(at=fleet.at, node="n1", actor="alice", reason="done"))
    fleet.tick()
    assert fleet.decision.result is DecisionResult.ACTED


def test_a_node_is_not_taken_twice_in_a_short_time(make_fleet) -> None:
    """A node that was returned and breaks again is a case for people."""
    fleet = make_fleet("n3", "n4", nodes_out_max=5)
    fleet.fault("n1", ECC)
    fleet.obey("n1", "n2")
    fleet.apply(ev.NodeReturned(at=fleet.at, node="n1", actor="alice", reason="fine again"))
    fleet.tick(10)
    fleet.fault("n1", ECC, device="gpu4")
    assert (refused(fleet), fleet.verdict("cooldown").text) == (
        ["cooldown"],
        "n1 was taken out before; 9 min 50 s to wait",
    )


def test_the_budget_is_the_larger_of_a_number_and_a_part_of_the_fleet(make_fleet) -> None:
    """One node in ten minutes, or two in a hundred, whichever is more."""
    fleet = make_fleet(*(f"n{number}" for number in range(3, 103)))
    fleet.fault("n3", ECC)
    fleet.fault("n4", ECC)
    assert fleet.decision.result is DecisionResult.ACTED
    fleet.fault("n5", ECC)
    assert refused(fleet) == ["budget"]
    assert "2 of 2 nodes taken in 10 min" in fleet.verdict("budget").text


def test_without_a_spare_running_ranks_stay(make_fleet) -> None:
    """A job that still trains is not stopped for nothing."""
    fleet = make_fleet("n3", nodes_out_max=5)
    fleet.fault("n3", ECC)
    fleet.fault("n1", ECC)
    assert refused(fleet) == ["spare"]
    assert fleet.cluster.nodes["n1"].state is NodeState.SUSPECT


def test_without_a_spare_dead_ranks_do_not_hold_a_node(make_fleet) -> None:
    """Once its rank has died the job has nothing to lose by leaving."""
    fleet = make_fleet("n3", nodes_out_max=5)
    fleet.fault("n3", ECC)
    fleet.die("n1", rank=0)
    fleet.fault("n1", ECC)
    assert fleet.decision.result is DecisionResult.ACTED


def test_spares_below_the_floor_are_kept(make_fleet) -> None:
    """The last spare is for a node that dies outright."""
    fleet = make_fleet(spare_floor=1)
    fleet.fault("n1", ECC)
    assert (refused(fleet), fleet.verdict("spare_floor").text) == (
        ["spare_floor"],
        "0 left, 1 must be",
    )


def test_while_the_fleet_is_silent_nothing_is_decided(make_fleet) -> None:
    """The controller's own network is the likelier cause."""
    fleet = make_fleet("n3", "n4")
    fleet.tick(40, silent=("n1", "n2", "n3"))
    assert {node.state for node in fleet.cluster.nodes.values()} == {NodeState.READY}
    fleet.fault("n4", ECC)
    assert refused(fleet) == ["fleet"]
    fleet.tick()
    assert fleet.decision.result is DecisionResult.ACTED


def test_one_silent_node_of_three_is_no_silent_fleet(fleet) -> None:
    """A single dead node is recovered from, not held."""
    fleet.tick(40, silent=("n2",))
    assert fleet.cluster.silent_since is None
    assert fleet.incident.fault_class == "node.lost"


def test_restarts_are_governed_by_the_jobs_own_mode(make_fleet) -> None:
    """A fresh install observes nodes and restarts ranks; a site may forbid that too."""
    fleet = make_fleet(job_mode=Mode.OBSERVE)
    fleet.die("n1", rank=0)
    assert fleet.decision.result is DecisionResult.WOULD_ACT
    fleet.apply(
        ev.PolicyChanged(
            at=fleet.at,
            policy=replace(fleet.cluster.policy, job_mode=Mode.ENFORCE),
            actor="alice",
        )
    )
    fleet.tick()
    assert fleet.decision.result is DecisionResult.ACTED


def test_where_nodes_have_racks_one_whose_rack_is_not_known_asks_first(fleet) -> None:
    """Only its launcher has spoken since the log was lost: it may be the third of its rack."""
    nodes = fleet.cluster.nodes
    fleet.cluster.put_node(replace(nodes["n2"], labels=(("rack", "r1"),)))
    fleet.cluster.put_node(replace(nodes["n1"], agent_session=0))
    fleet.fault("n1", ECC)
    assert (refused(fleet), fleet.decision.result) == (["domain"], DecisionResult.NEEDS_APPROVAL)
    assert fleet.verdict("domain").text == (
        "its agent has not told its rack and switch yet; Aegis waits for a person to agree"
    )
