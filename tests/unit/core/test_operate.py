"""Operators' verbs: what is refused, and with which words."""

import pytest

from aegis.core.operate import refusal
from aegis.model import event as ev
from aegis.model.fault import Condition, FaultClass, Severity
from aegis.model.job import JobState, StopKind
from aegis.model.node import Device, Health, NodeState


def verb(kind, fleet, node):
    return kind(at=fleet.at, node=node, actor="alice", reason="a reason")


def quarantined(fleet, node="n3"):
    fleet.apply(verb(ev.NodeDrained, fleet, node))
    assert fleet.cluster.nodes[node].state is NodeState.QUARANTINED


def test_an_unknown_node_or_job_is_named(fleet) -> None:
    """A typing mistake is answered with where to look."""
    assert refusal(fleet.cluster, verb(ev.NodeDrained, fleet, "n9")) == (
        "no node is called n9: see `aegis nodes`"
    )
    stop = ev.JobStopped(at=fleet.at, job="lama", actor="alice", reason="")
    assert refusal(fleet.cluster, stop) == "no job is called lama: see `aegis jobs`"


@pytest.mark.parametrize("kind", [ev.NodeUncordoned, ev.NodeReturned])
def test_a_node_in_service_need_not_be_brought_back(fleet, kind) -> None:
    """Nothing is done twice in silence."""
    assert "n1" in refusal(fleet.cluster, verb(kind, fleet, "n1"))


def test_a_drained_node_is_returned_not_uncordoned(fleet) -> None:
    """The refusal names the verb that does it."""
    quarantined(fleet)
    assert refusal(fleet.cluster, verb(ev.NodeUncordoned, fleet, "n3")) == (
        "n3 is not cordoned but quarantined: `aegis nodes return n3` brings it back"
    )


def test_a_node_with_a_live_condition_stays_out(fleet) -> None:
    """A repair that did not help is found before ranks are."""
    quarantined(fleet)
    down = Condition(fault_class=FaultClass.NIC_LINK_DOWN, device="fab0", since=fleet.at)
    fleet.say("n3", conditions=(down,))
    assert refusal(fleet.cluster, verb(ev.NodeReturned, fleet, "n3")) == (
        "n3 still reports nic.link.down on fab0: repair it first"
    )


def test_a_warning_that_lasts_keeps_no_node_out(fleet) -> None:
    """A clock that drifts or a disk that fills is somebody's work, and the node's ranks can run."""
    quarantined(fleet)
    drifts = Condition(
        fault_class=FaultClass.HOST_CLOCK_SKEW,
        device="host",
        since=fleet.at,
        severity=Severity.WARNING,
    )
    fleet.say("n3", conditions=(drifts,))
    assert refusal(fleet.cluster, verb(ev.NodeReturned, fleet, "n3")) is None


def test_a_node_with_an_unhealthy_device_stays_out(fleet) -> None:
    """The newest reading counts, and it says why."""
    quarantined(fleet)
    sick = Device(name="gpu3", kind="gpu", health=Health.UNHEALTHY, detail="1 uncorrectable error")
    fleet.say("n3", devices=(sick,))
    assert refusal(fleet.cluster, verb(ev.NodeReturned, fleet, "n3")) == (
        "gpu3 on n3 reads as unhealthy (1 uncorrectable error): repair it first"
    )


def test_a_silent_node_stays_out(fleet) -> None:
    """No data is no health."""
    quarantined(fleet)
    fleet.tick(40, silent=("n3",))
    assert refusal(fleet.cluster, verb(ev.NodeReturned, fleet, "n3")) == (
        "n3 has not spoken for 40 s: start its agent, then return it"
    )


def test_a_node_that_still_holds_ranks_is_not_returned(fleet) -> None:
    """Its drain must be over first."""
    fleet.apply(verb(ev.NodeDrained, fleet, "n1"))
    assert refusal(fleet.cluster, verb(ev.NodeReturned, fleet, "n1")) == (
        "n1 still holds ranks: wait until it is quarantined"
    )


def test_a_drain_saves_before_it_moves(fleet) -> None:
    """Planned work costs no steps."""
    fleet.apply(verb(ev.NodeDrained, fleet, "n1"))
    assert (fleet.job.state, fleet.job.stop) == (JobState.STOPPING, StopKind.SAVING)


def test_a_save_that_does_not_end_is_cut_short(fleet) -> None:
    """A rank that cannot save does not hold the drain for ever."""
    fleet.apply(verb(ev.NodeDrained, fleet, "n1"))
    fleet.tick(40)
    assert fleet.job.stop is StopKind.NOW


def test_planned_moves_spend_no_restart(fleet) -> None:
    """Only failures count against a job."""
    fleet.apply(verb(ev.NodeDrained, fleet, "n1"))
    fleet.obey("n1", "n2")
    fleet.obey("n2", "n3")
    assert (fleet.job.generation, fleet.job.restarts) == (2, 0)


def test_a_returned_node_serves_a_probation(make_fleet) -> None:
    """It is the last choice for a while, then like any other."""
    fleet = make_fleet(probation_seconds=30)
    quarantined(fleet)
    fleet.apply(verb(ev.NodeReturned, fleet, "n3"))
    assert fleet.cluster.nodes["n3"].state is NodeState.PROBATION
    fleet.tick(31)
    assert fleet.cluster.nodes["n3"].state is NodeState.READY


def test_a_verb_that_is_no_longer_possible_changes_nothing(fleet) -> None:
    """Between question and log another event may have come."""
    fleet.apply(verb(ev.NodeReturned, fleet, "n1"))
    assert fleet.cluster.nodes["n1"].state is NodeState.READY


def test_a_job_that_waits_is_stopped_at_once(make_fleet) -> None:
    """Nothing runs, so nothing is waited for."""
    fleet = make_fleet()
    for node in ("n3", "n1"):
        fleet.apply(verb(ev.NodeDrained, fleet, node))
    fleet.obey("n1", "n2")
    assert fleet.job.state is JobState.WAITING
    fleet.apply(ev.JobStopped(at=fleet.at, job="llama", actor="bob", reason="enough"))
    assert (fleet.job.state, fleet.job.reason) == (JobState.DONE, "stopped by bob: enough")


def test_what_is_no_harm_to_training_keeps_no_node_out(fleet) -> None:
    """A warning that lasts, and a broken port that no rank uses."""
    quarantined(fleet)
    full = Condition(
        fault_class=FaultClass.HOST_DISK_FULL,
        device="host",
        since=fleet.at,
        severity=Severity.WARNING,
    )
    broken = Device(name="eno1", kind="nic", health=Health.UNHEALTHY, used=False)
    fleet.say("n3", conditions=(full,), devices=(broken,))
    assert refusal(fleet.cluster, verb(ev.NodeReturned, fleet, "n3")) is None
