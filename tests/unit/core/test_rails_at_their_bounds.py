"""Each rail asked by itself, on both sides of its bound."""

from dataclasses import replace

import pytest

from aegis.core import rails
from aegis.core.decide import decide
from aegis.core.incidents import begin, cause, close
from aegis.core.index import AEGIS, Index
from aegis.core.rails import Request
from aegis.model.fault import Condition, FaultClass
from aegis.model.incident import IncidentState, Remedy
from aegis.model.job import JobState, RankFailure
from aegis.model.node import Device, Health, NodeState
from aegis.model.policy import Mode
from aegis.rules import Guard

LINK = FaultClass.NIC_LINK_DOWN


@pytest.fixture
def watched(make_fleet):
    """A fleet of n1 to n6 that only observes: what its rails are asked, the test says."""
    return make_fleet("n3", "n4", "n5", "n6", mode=Mode.OBSERVE)


def asked(fleet, node="n1", fault_class="gpu.ecc.uncorrectable", device="gpu3", **changes):
    """A request about a fault of the node."""
    fleet.fault(node, fault_class, device=device)
    return about(fleet, fleet.incident, **changes)


def about(fleet, incident, **changes):
    fields = {
        "cluster": fleet.cluster,
        "incident": incident,
        "fault": cause(incident),
        "node": fleet.cluster.nodes[incident.node],
        "job": fleet.cluster.job_on(incident.node),
        "mode": Mode.ENFORCE,
        "remedy": Remedy.DRAIN_NOW,
    }
    return Request(**(fields | changes))


def put(fleet, node, **changes):
    cluster = fleet.cluster
    cluster.nodes[node] = replace(cluster.nodes[node], **changes)
    cluster.begin(Index.of(cluster.nodes, cluster.jobs, cluster.incidents))
    return cluster.nodes[node]


def said(verdict) -> tuple[bool, str]:
    return verdict.passed, verdict.text


# Which rails are asked.


def names(request) -> list[str]:
    return [one.rail for one in rails.verdicts(request)]


def test_only_the_loss_of_a_node_is_asked_about_its_silence(watched) -> None:
    """One rail more; and a remedy that disturbs nobody is asked nothing, whatever the fault."""
    request = asked(watched)
    assert "silence" not in names(request)
    lost = replace(request.fault, fault_class=FaultClass.NODE_LOST)
    for remedy in (Remedy.DRAIN_NOW, Remedy.RESTART):
        assert names(replace(request, fault=lost, remedy=remedy))[-1] == "silence"
    assert names(replace(request, fault=lost, remedy=Remedy.NOTIFY)) == []


# Silence.


def silent(fleet, seconds, *, idle=0.0):
    """n1 has not spoken for so long, and its job not come on."""
    request = asked(fleet)
    fleet.cluster.now = fleet.at = 10_000.0
    node = put(fleet, "n1", seen_at=10_000.0 - seconds)
    job = replace(request.job, progress_at=10_000.0 - idle)
    fleet.cluster.jobs[job.spec.name] = job
    lost = replace(request.fault, fault_class=FaultClass.NODE_LOST)
    return replace(request, node=node, job=job, fault=lost)


def test_a_node_is_lost_after_its_silence_and_not_before(watched) -> None:
    """At the limit itself it is."""
    assert said(rails.silence(silent(watched, 29.0, idle=99.0))) == (
        False,
        "not heard for 29 s, 30 s allowed",
    )
    assert rails.silence(silent(watched, 30.0, idle=99.0)).passed


def test_a_silent_node_whose_job_comes_on_is_not_lost(watched) -> None:
    """Only ranks that are alive say so: a job that has stopped proves nothing."""
    request = silent(watched, 40.0, idle=1.0)
    assert said(rails.silence(request)) == (
        False,
        "job llama comes on: only the node's words are lost",
    )
    assert rails.silence(replace(request, job=None)).passed
    stopping = replace(request.job, state=JobState.STOPPING)
    assert rails.silence(replace(request, job=stopping)).passed


# How old a fault may be.


def test_a_fault_may_be_as_old_as_the_policy_says(watched) -> None:
    """At the limit itself it still counts."""
    request = asked(watched)
    watched.cluster.now = request.fault.observed_at + 600.0
    assert said(rails.ttl(request)) == (True, "10 min old, 10 min allowed")
    watched.cluster.now += 1.0
    assert not rails.ttl(request).passed


def test_a_fault_without_a_boot_id_is_of_this_boot(watched) -> None:
    """Nothing is known against it, from whichever side the word is missing."""
    request = asked(watched)
    assert rails.ttl(replace(request, fault=replace(request.fault, boot_id=""))).passed
    assert rails.ttl(replace(request, node=replace(request.node, boot_id=""))).passed


def test_what_is_unhealthy_still_has_no_age(watched) -> None:
    """As long as a fresh reading says so; an old reading says nothing."""
    request = asked(watched)
    watched.cluster.now = watched.at = request.fault.observed_at + 3600.0
    sick = (Device(name="gpu3", kind="gpu", health=Health.UNHEALTHY),)
    fresh = replace(request.node, devices=sick, agent_seen_at=watched.at)
    assert said(rails.ttl(replace(request, node=fresh))) == (True, "still so")
    stale = replace(fresh, agent_seen_at=watched.at - 60.0)
    assert not rails.ttl(replace(request, node=stale)).passed


def test_a_condition_counts_as_long_as_its_agent_speaks(watched) -> None:
    """An agent that is silent cannot say that it is over."""
    request = asked(watched, fault_class=LINK, device="fab0")
    down = (Condition(fault_class=LINK, device="fab0", since=watched.at),)
    watched.cluster.now = watched.at = request.fault.observed_at + 3600.0
    node = put(watched, "n1", conditions=down, agent_seen_at=watched.at)
    assert said(rails.ttl(replace(request, node=node))) == (True, "still so")
    node = put(watched, "n1", agent_seen_at=watched.at - 60.0)
    assert said(rails.ttl(replace(request, node=node))) == (
        False,
        "its agent has not spoken since: it may be over",
    )


# Whose the node is.


@pytest.mark.parametrize(
    ("state", "holder", "passed"),
    [
        (NodeState.CORDONED, "alice", False),
        (NodeState.QUARANTINED, AEGIS, True),
        (NodeState.CORDONED, "", True),
        (NodeState.READY, "alice", True),
        (NodeState.REPAIRING, "alice", False),
    ],
)
def test_only_what_others_keep_out_is_theirs(watched, state, holder, passed) -> None:
    """A name alone holds nothing, and what Aegis holds itself is its own."""
    request = asked(watched)
    node = replace(request.node, state=state, held_by=holder)
    assert rails.hold(replace(request, node=node)).passed is passed


def test_a_cooldown_ends_to_the_second(watched) -> None:
    """It is counted from when the node was last taken."""
    request = asked(watched)
    node = replace(request.node, taken_at=(1.0, watched.at))
    watched.cluster.now = watched.at + 599.0
    assert said(rails.cooldown(replace(request, node=node))) == (
        False,
        "n1 was taken out before; 1 s to wait",
    )
    watched.cluster.now = watched.at + 600.0
    assert rails.cooldown(replace(request, node=node)).passed
    longer = Guard(cooldown_seconds=700.0)
    assert not rails.cooldown(replace(request, node=node, guard=longer)).passed


# How many.


def test_the_budget_counts_what_was_taken_within_its_window(watched) -> None:
    """What was taken at its very beginning no longer counts."""
    request = asked(watched)
    put(watched, "n3", taken_at=(watched.at,))
    watched.cluster.now = watched.at + 599.0
    assert not rails.budget(request).passed
    watched.cluster.now = watched.at + 600.0
    assert rails.budget(request).passed


def placed(fleet, **labels):
    for node in fleet.cluster.nodes:
        put(fleet, node, labels=tuple(labels.items()))


def test_one_node_of_a_rack_is_taken_without_asking(watched) -> None:
    """Taken lately or out still; the node itself, and those of other racks, do not count."""
    placed(watched, rack="r1")
    put(watched, "n1", taken_at=(watched.at,))
    put(watched, "n6", labels=(("rack", "r2"),), taken_at=(watched.at,))
    request = asked(watched)
    assert rails.domain(request).passed
    put(watched, "n3", taken_at=(watched.at,))
    watched.cluster.now = watched.at + 599.0
    assert said(rails.domain(request)) == (
        False,
        "n3 of rack r1 is out already; Aegis waits for a person to agree",
    )
    watched.cluster.now = watched.at + 600.0
    assert rails.domain(request).passed
    put(watched, "n3", state=NodeState.QUARANTINED, held_by=AEGIS)
    assert not rails.domain(request).passed


def test_the_rack_and_the_switch_count_each_for_itself(watched) -> None:
    """A node without a rack has a switch all the same; at most three others are named."""
    placed(watched, switch="s1")
    request = asked(watched)
    for node in ("n2", "n3", "n4", "n5"):
        put(watched, node, taken_at=(watched.at,))
    assert said(rails.domain(request)) == (
        False,
        "n2, n3 and n4 of switch s1 are out already; Aegis waits for a person to agree",
    )


@pytest.mark.parametrize(
    ("state", "holder", "counts"),
    [
        (NodeState.QUARANTINED, AEGIS, True),
        (NodeState.REPAIRING, AEGIS, True),
        (NodeState.READY, AEGIS, False),
        (NodeState.QUARANTINED, "alice", False),
    ],
)
def test_the_breaker_counts_what_aegis_keeps_out(make_fleet, state, holder, counts) -> None:
    """What people took, and what is back, is no sign that Aegis errs."""
    fleet = make_fleet("n3", mode=Mode.OBSERVE, breaker_nodes_min=1)
    request = asked(fleet)
    put(fleet, "n3", state=state, held_by=holder)
    assert rails.breaker(request).passed is not counts


def test_the_breaker_of_a_large_fleet_is_a_part_of_it(make_fleet) -> None:
    """A tenth of forty, where that is more than the least."""
    fleet = make_fleet(*(f"n{number}" for number in range(3, 41)), mode=Mode.OBSERVE)
    assert rails.breaker_reading(fleet.cluster) == (0, 4)


# Links.


def links_down(fleet, *nodes, gap=0.0):
    """Incidents of links that fell one after the other."""
    for node in nodes:
        fleet.at += gap
        fleet.cluster.now = fleet.at
        fleet.fault(node, LINK, device="fab0")
    return [one for one in fleet.cluster.unresolved() if one.fault_class is LINK]


def test_three_links_at_once_are_a_switch(watched) -> None:
    """Two are not; nor are other faults, nor two incidents of one node."""
    first, second = links_down(watched, "n1", "n2")
    assert rails.upstream(about(watched, second)).passed
    watched.fault("n3", "gpu.ecc.uncorrectable")
    fab1 = replace(cause(second), device="fab1")
    watched.cluster.put_incident(replace(begin(watched.cluster, fab1), node="n2"))
    assert rails.upstream(about(watched, second)).passed
    third = links_down(watched, "n4")[-1]
    verdict = rails.upstream(about(watched, third))
    assert not verdict.passed
    assert verdict.text.startswith("3 nodes lost links within 10 s (n1 and n2 too)")
    assert not rails.upstream(about(watched, first)).passed


def test_links_that_fall_one_after_the_other_are_their_own(watched) -> None:
    """Ten seconds are together, more are not."""
    *_, third = links_down(watched, "n1", "n2", "n3", gap=5.0)
    assert not rails.upstream(about(watched, third)).passed
    phases = third.phases
    told_late = replace(third, phases=replace(phases, opened_at=phases.opened_at + 99.0))
    assert not rails.upstream(about(watched, told_late)).passed  # its node was silent meanwhile
    early = replace(third.faults[0], observed_at=third.faults[0].observed_at - 99.0)
    clock_is_wrong = replace(third, faults=(early,))
    assert not rails.upstream(about(watched, clock_is_wrong)).passed
    fault = replace(third.faults[0], observed_at=third.faults[0].observed_at + 1.0)
    later = replace(phases, opened_at=phases.opened_at + 1.0)
    third = replace(third, phases=later, faults=(fault,))
    assert rails.upstream(about(watched, third)).passed


def test_a_link_within_another_story_counts_too(watched) -> None:
    """What was wrong with a card before is its story; the switch is as suspect for it."""
    one, _, third = links_down(watched, "n1", "n2", "n3")
    before = replace(one, fault_class=FaultClass.NIC_FIRMWARE_FATAL)
    watched.cluster.put_incident(before)
    assert not rails.upstream(about(watched, third)).passed
    watched.cluster.put_incident(replace(before, faults=()))
    assert rails.upstream(about(watched, third)).passed


def test_the_last_link_of_a_switch_is_given_its_time(watched) -> None:
    """Ports come back one by one: a minute after the others it is its own fault."""
    first, second, third = links_down(watched, "n1", "n2", "n3")
    for one in (first, second):
        held = decide(watched.cluster, watched.rules, one)
        close(watched.cluster, replace(one, decisions=(held,)), "over")
    watched.cluster.now = watched.at + 59.0
    assert not rails.upstream(about(watched, third)).passed
    watched.cluster.now = watched.at + 60.0
    assert rails.upstream(about(watched, third)).passed


def test_links_that_only_flapped_excuse_no_other(watched) -> None:
    """They came back before anything was decided."""
    first, second, third = links_down(watched, "n1", "n2", "n3")
    for one in (first, second):
        close(watched.cluster, one, "cleared")
    assert rails.upstream(about(watched, third)).passed


def test_at_most_three_others_are_named(watched) -> None:
    """A switch of many ports makes no longer sentence."""
    *_, last = links_down(watched, "n1", "n2", "n3", "n4", "n5")
    assert "(n1, n2 and n3 too)" in rails.upstream(about(watched, last)).text


# Somewhere to go.


def test_a_job_that_stands_still_needs_no_spare(watched) -> None:
    """It has stopped, or a rank of this node has failed, in this generation."""
    request = asked(watched)
    for node in ("n3", "n4", "n5", "n6"):
        put(watched, node, state=NodeState.SUSPECT)
    assert said(rails.spare(request)) == (False, "no spare stands by for job llama")
    stopping = replace(request.job, state=JobState.STOPPING)
    assert rails.spare(replace(request, job=stopping)).passed
    assert rails.spare(replace(request, node=_failed(request, 1))).passed
    assert not rails.spare(replace(request, node=_failed(request, 0))).passed
    needy = Guard(needs_spare=True)
    assert not rails.spare(replace(request, job=stopping, guard=needy)).passed


def _failed(request, generation):
    (launcher,) = request.node.launchers
    failure = RankFailure(generation=generation, rank=0, at=0.0)
    return replace(request.node, launchers=(replace(launcher, failure=failure),))


def test_a_lost_node_has_no_ranks_to_lose(watched) -> None:
    """Its job stands still, whatever its launcher said last."""
    request = asked(watched)
    for node in ("n3", "n4", "n5", "n6"):
        put(watched, node, state=NodeState.SUSPECT)
    lost = replace(request.fault, fault_class=FaultClass.NODE_LOST)
    assert rails.spare(replace(request, fault=lost)).passed


def test_spares_are_named_up_to_three(watched) -> None:
    """One stands by, more stand by."""
    request = asked(watched)
    assert rails.spare(request).text == "n3, n4 and n5 stand by"
    for node in ("n4", "n5", "n6"):
        put(watched, node, state=NodeState.SUSPECT)
    assert rails.spare(request).text == "n3 stands by"


def test_a_spare_that_people_are_asked_to_take_out_is_none(make_fleet) -> None:
    """One that is only watched, or about which only a record is kept, still stands by."""
    fleet = make_fleet("n3", "n4", "n5", "n6", mode=Mode.APPROVE)
    request = asked(fleet)
    fleet.fault("n3", "nic.link.down", device="fab0")
    put(fleet, "n3", state=NodeState.READY)
    assert not fleet.cluster.unresolved_on("n3")[0].decisions
    fleet.fault("n4", "gpu.lost", device="gpu1")
    assert fleet.cluster.unresolved_on("n4")[0].decisions
    fleet.fault("n5", "gpu.ecc.uncorrectable")
    assert rails.spare(request).text == "n3, n4 and n6 stand by"
    for node in ("n3", "n4", "n6"):
        fleet.fault(node, "gpu.ecc.uncorrectable")
        put(fleet, node, state=NodeState.READY)
    asks = "people are asked whether to leave n3, n4 and n5 too"
    assert said(rails.spare(request)) == (False, f"no spare stands by for job llama, and {asks}")


def test_the_floor_is_what_is_left_afterwards(make_fleet) -> None:
    """One of two may go where one must be left; a job that has failed needs none."""
    fleet = make_fleet("n3", "n4", mode=Mode.OBSERVE, spare_floor=1)
    request = asked(fleet)
    assert said(rails.spare_floor(request)) == (True, "1 left, 1 must be")
    put(fleet, "n4", state=NodeState.SUSPECT)
    assert said(rails.spare_floor(request)) == (False, "0 left, 1 must be")
    put(fleet, "n3", state=NodeState.SUSPECT)
    assert said(rails.spare_floor(request)) == (False, "0 left, 1 must be")
    failed = replace(request, node=_failed(request, 1))
    assert said(rails.spare_floor(failed)) == (True, "job llama has stopped already")
    assert rails.spare_floor(replace(request, job=None)).passed


def test_a_fault_of_no_job_restarts_none(watched) -> None:
    """There is no budget to spend."""
    request = asked(watched, job=None, remedy=Remedy.RESTART)
    assert said(rails.restarts(request)) == (True, "no job to restart")
    assert request.incident.state is IncidentState.OPEN


# Limits that somebody has set to nothing.


def test_a_policy_without_a_cooldown_has_none(make_fleet) -> None:
    """Not even for a moment."""
    fleet = make_fleet("n3", mode=Mode.OBSERVE, cooldown_seconds=0.0)
    request = asked(fleet)
    node = replace(request.node, taken_at=(fleet.at,))
    assert rails.cooldown(replace(request, node=node)).passed


def test_a_node_of_no_rack_is_in_no_racks_way(make_fleet) -> None:
    """Even where every one of a rack needs a person's word."""
    fleet = make_fleet("n3", mode=Mode.OBSERVE, nodes_out_per_domain_max=0)
    request = asked(fleet)
    assert rails.domain(request).passed
    node = put(fleet, "n1", labels=(("rack", "r1"),))
    assert not rails.domain(replace(request, node=node)).passed


def test_a_rules_limit_for_racks_is_none_for_switches(make_fleet) -> None:
    """A switch of many racks has its own."""
    fleet = make_fleet("n3", mode=Mode.OBSERVE, nodes_out_per_domain_max=2)
    placed(fleet, switch="s1")
    request = asked(fleet, guard=Guard(max_per_rack=1))
    put(fleet, "n3", taken_at=(fleet.at,))
    assert rails.domain(request).passed
    placed(fleet, rack="r1")
    request = replace(request, node=fleet.cluster.nodes["n1"])
    assert not rails.domain(request).passed


def test_each_taking_of_a_node_is_counted_for_its_time(watched) -> None:
    """One that was taken twice counts once when the first is as old as the window."""
    watched.cluster.policy = replace(watched.cluster.policy, nodes_out_max=2)
    request = asked(watched)
    put(watched, "n3", taken_at=(watched.at, watched.at + 10.0))
    watched.cluster.now = watched.at + 600.0
    assert rails.budget(request).text.startswith("1 of 2 nodes")


def test_a_job_whose_launcher_is_away_has_not_failed_there(watched) -> None:
    """Nothing says so; it needs a spare as any other."""
    request = asked(watched)
    for node in ("n3", "n4", "n5", "n6"):
        put(watched, node, state=NodeState.SUSPECT)
    away = replace(request.node, launchers=(), contacts=())
    assert not rails.spare(replace(request, node=away)).passed
