"""Reports are levels: lost, late and repeated ones do no harm, whoever brings them."""

from dataclasses import replace

import pytest

from aegis.core.cluster import Cluster, contact_of, launcher_of
from aegis.model.event import ControllerStarted, JobStopped
from aegis.model.fault import Condition, FaultClass, Severity
from aegis.model.job import JobState, LauncherPhase, RankPhase
from aegis.model.node import NodeReport, NodeState, Sender


def test_a_repeated_report_changes_nothing(fleet) -> None:
    """The network may deliver twice."""
    fleet.sequences["n1"] -= 1
    before = dict(fleet.cluster.nodes)
    assert fleet.say("n1") == []
    assert fleet.cluster.nodes == before


def test_a_report_of_an_older_connection_is_late(fleet) -> None:
    """A connection that was replaced has nothing to say any more."""
    fleet.say("n1", session=2)
    fleet.launchers["n1"] = replace(fleet.launchers["n1"], phase=LauncherPhase.FAILED)
    fleet.say("n1", session=1)
    assert fleet.job.state is JobState.RUNNING


def test_a_launcher_whose_agent_is_away_speaks_for_itself(fleet) -> None:
    """The job goes on, and its progress is seen, without the agent."""
    launcher = fleet.launchers["n1"]
    ranks = tuple(replace(rank, step=70) for rank in launcher.ranks)
    fleet.launchers["n1"] = replace(launcher, ranks=ranks)
    fleet.at += 5
    fleet.say("n1", sender=Sender.LAUNCHER, session=7, devices=())
    node = fleet.cluster.nodes["n1"]
    assert contact_of(node, "llama").by is Sender.LAUNCHER
    assert launcher_of(node, "llama").ranks[0].step == 70
    assert (node.seen_at, node.agent_seen_at) == (fleet.at, fleet.at - 5)


def test_an_agent_that_is_new_does_not_yet_know_its_launcher(fleet) -> None:
    """For a moment it reports none; nobody concludes anything from that."""
    fleet.say("n1", session=2, launchers=())
    assert fleet.job.state is JobState.RUNNING
    fleet.say("n1", session=2)
    fleet.tick(60)
    assert fleet.job.generation == 1


def test_a_launcher_that_was_followed_by_another_never_comes_back(fleet) -> None:
    """A late word of the old one would look like another restart."""
    old = fleet.launchers["n3"]
    fleet.launchers["n3"] = replace(old, launcher="n3-second")
    fleet.say("n3")
    fleet.launchers["n3"] = old
    fleet.say("n3", sender=Sender.LAUNCHER, session=9)
    assert launcher_of(fleet.cluster.nodes["n3"], "llama").launcher == "n3-second"


def test_a_launcher_does_not_go_back_in_its_life(fleet) -> None:
    """A state of an earlier generation or phase is an overtaken one."""
    idle = replace(fleet.launchers["n1"], phase=LauncherPhase.IDLE, generation=0, ranks=())
    fleet.launchers["n1"] = idle
    fleet.say("n1", sender=Sender.LAUNCHER, session=9)
    assert fleet.job.state is JobState.RUNNING
    assert launcher_of(fleet.cluster.nodes["n1"], "llama").generation == 1


def test_a_report_of_a_launcher_says_nothing_of_the_devices(fleet) -> None:
    """What the agent has read stays until the agent says otherwise."""
    fleet.say("n1", version="1.2")
    fleet.say("n1", sender=Sender.LAUNCHER, session=9)
    assert fleet.cluster.nodes["n1"].version == "1.2"


def test_a_node_that_speaks_again_is_where_it_was(fleet) -> None:
    """Silence alone does not blame a node."""
    fleet.tick(40, silent=("n3",))
    assert fleet.cluster.nodes["n3"].state is NodeState.UNKNOWN
    fleet.say("n3")
    assert fleet.cluster.nodes["n3"].state is NodeState.READY


def test_a_node_without_a_launcher_is_no_spare(fleet) -> None:
    """A machine that only has an agent cannot take ranks."""
    fleet.launchers["n9"] = None
    fleet.say("n9")
    assert [node.name for node in fleet.cluster.spares(fleet.job)] == ["n3"]
    assert isinstance(NodeReport(node="n9", sender=Sender.AGENT, session=1, sequence=1), NodeReport)


def test_a_rank_that_died_on_simulated_gpus_did_die(fleet) -> None:
    """Only what a simulated device reports is simulated."""
    fleet.say("n1", simulated=True)
    fleet.die("n1", rank=1)
    assert (fleet.incident.fault_class, fleet.incident.simulated) == ("job.worker.exited", False)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_condition_says_itself_whether_it_is_simulated(fleet, simulated) -> None:
    """A real link beside simulated GPUs is real."""
    down = Condition(
        fault_class=FaultClass.NIC_LINK_DOWN, device="fab0", since=fleet.at, simulated=simulated
    )
    fleet.say("n3", simulated=True, conditions=(down,))
    assert (fleet.incident.device, fleet.incident.simulated) == ("fab0", simulated)


def test_a_condition_says_itself_how_bad_it_is(fleet) -> None:
    """A card that training does not use may be down for ever: no rule takes the node for it."""
    down = Condition(
        fault_class=FaultClass.NIC_LINK_DOWN,
        device="eno1",
        since=fleet.at,
        severity=Severity.WARNING,
    )
    fleet.say("n3", conditions=(down,))
    assert (fleet.incident.device, fleet.incident.severity) == ("eno1", Severity.WARNING)


def test_a_launcher_may_follow_its_agent_that_was_away(make_fleet) -> None:
    """An agent that comes back has not missed it for as long as the agent itself was missed."""
    fleet = make_fleet(silence_seconds=10)
    for step in range(61, 65):
        fleet.tick(4, silent=("n1",))
        fleet.train("n2", step=step, checkpoint=50)
    launcher = fleet.launchers.pop("n1")
    fleet.say("n1", session=2)
    fleet.tick(2)
    assert fleet.job.state is JobState.RUNNING
    fleet.launchers["n1"] = launcher
    fleet.say("n1", session=2)
    fleet.tick(9)
    assert fleet.job.state is JobState.RUNNING
    del fleet.launchers["n1"]
    fleet.say("n1", session=2)
    fleet.tick(11)
    assert fleet.job.state is not JobState.RUNNING


def test_ranks_that_have_exited_are_not_yet_gone(fleet) -> None:
    """While their launcher is stopping, what they started may live: also where the log was lost."""
    fleet.cluster = Cluster(policy=fleet.cluster.policy)
    fleet.apply(ControllerStarted(at=fleet.at, epoch=2, version="test"))
    launcher = replace(fleet.launchers["n1"], phase=LauncherPhase.STOPPING)
    fleet.launchers["n1"] = launcher
    fleet.say("n1")
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    dead = tuple(replace(rank, phase=RankPhase.EXITED) for rank in launcher.ranks)
    fleet.launchers["n1"] = replace(launcher, ranks=dead)
    fleet.say("n1")
    assert fleet.cluster.nodes["n1"].state is NodeState.DRAINING
    fleet.launchers["n1"] = replace(launcher, ranks=dead, phase=LauncherPhase.IDLE)
    fleet.say("n1")
    assert fleet.cluster.nodes["n1"].state is NodeState.QUARANTINED


def test_a_late_word_of_an_ended_run_displaces_nobody(make_fleet) -> None:
    """The launcher of the run before may be heard once more, long after the next one came."""
    fleet = make_fleet()
    old = fleet.launchers["n1"]
    fleet.apply(JobStopped(at=fleet.at, job="llama", actor="ada", reason="enough"))
    fleet.obey("n1", "n2")
    for node in ("n1", "n2", "n3"):
        fleet.launchers.pop(node)
        fleet.say(node)
    fleet.tick(40)
    for node in ("n1", "n2", "n3"):
        fleet.launchers[node] = replace(
            old, launcher=f"{node}-again", phase=LauncherPhase.IDLE, ranks=(), generation=1
        )
        fleet.say(node)
    again = fleet.launchers["n1"]
    fleet.launchers["n1"] = replace(old, generation=1)
    fleet.say("n1", sender=Sender.LAUNCHER, session=1)
    assert launcher_of(fleet.cluster.nodes["n1"], "llama").launcher == again.launcher


def test_a_launcher_that_its_agent_misses_is_forgotten_while_the_fleet_is_silent(
    make_fleet,
) -> None:
    """Its agent's word is enough: its node can be left, though the others never come back."""
    fleet = make_fleet(silence_seconds=10)
    fleet.launchers.pop("n1")
    fleet.say("n1")
    fleet.tick(4)
    fleet.tick(30, silent=("n2", "n3"))
    assert fleet.cluster.silent_since is not None
    assert fleet.cluster.nodes["n1"].launchers == ()
