"""Generations: one ends before the next begins, and each gets a store of its own."""

from dataclasses import replace

from aegis.core.recover import assignments
from aegis.model.job import JobSpec, JobState, LauncherPhase
from aegis.model.node import NodeState


def told(fleet, node):
    (assignment,) = assignments(fleet.cluster, node)
    return assignment


def test_the_first_start_waits_for_the_spares(make_fleet) -> None:
    """A job that starts before its spare would have none at the first fault."""
    fleet = make_fleet("n3")
    assert [member.node for member in fleet.job.members] == ["n1", "n2"]


def test_the_first_start_does_not_wait_for_ever(make_fleet) -> None:
    """After gather_seconds the job starts with what is there."""
    fleet = make_fleet(gather_seconds=5)
    spec = JobSpec(name="other", nodes=1, ranks_per_node=2, spares=3)
    fleet.connect("m1", spec=spec)
    fleet.tick(4)
    assert fleet.cluster.jobs["other"].state is JobState.WAITING
    fleet.tick(2)
    assert fleet.cluster.jobs["other"].state is JobState.STARTING


def test_a_world_that_the_fleet_cannot_give_is_waited_for_in_words(make_fleet) -> None:
    """Who asked for too much sees what there is; who forgot a node sees that one is missing."""
    fleet = make_fleet(gather_seconds=5)
    nodes = len(fleet.cluster.nodes)
    fleet.connect("m1", spec=JobSpec(name="other", nodes=1000, ranks_per_node=2))
    fleet.tick(6)
    job = fleet.cluster.jobs["other"]
    assert job.state is JobState.WAITING
    assert job.reason == (
        f"needs 1000 nodes, 1 can take ranks; its `aegis run` is on 1 of the fleet's {nodes + 1}"
    )


def test_no_generation_begins_while_a_rank_of_the_last_may_live(fleet) -> None:
    """Both nodes must have said so, in whatever order."""
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    fleet.obey("n1")
    assert (fleet.job.state, fleet.job.awaiting) == (JobState.STOPPING, {"n2"})
    fleet.obey("n2")
    assert (fleet.job.state, fleet.job.generation) == (JobState.STARTING, 2)


def test_a_launcher_that_never_heard_of_the_generation_is_waited_for(make_fleet) -> None:
    """An order to start may still be on its way: only a launcher that refuses it is done with."""
    fleet = make_fleet()
    fleet.die("n1", rank=0)
    fleet.obey("n2")
    fleet.obey("n1")
    assert (fleet.job.state, fleet.job.generation) == (JobState.STARTING, 2)
    # n2 runs generation 2, n1 has not answered yet; now the job has to stop again.
    fleet.launchers["n2"] = replace(fleet.launchers["n2"], generation=2)
    fleet.fault("n2", "gpu.ecc.uncorrectable")
    fleet.say("n1")
    assert "n1" in fleet.job.awaiting
    fleet.obey("n1")
    assert "n1" not in fleet.job.awaiting


def test_survivors_keep_their_place(fleet) -> None:
    """The spare takes the place of the lost one, so ranks keep their numbers."""
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    fleet.obey("n1", "n2")
    assert [member.node for member in fleet.job.members] == ["n3", "n2"]


def test_a_store_serves_one_generation(fleet) -> None:
    """Keys of a dead generation are never read: the first member must have a fresh store."""
    fleet.die("n2", rank=3)
    stale = replace(fleet.launchers["n1"], store_port=4000)
    fleet.launchers["n1"] = stale
    fleet.obey("n1")
    assert (fleet.job.state, fleet.job.reason) == (
        JobState.WAITING,
        "n1 is still opening the store where ranks meet",
    )
    fleet.launchers["n1"] = replace(fleet.launchers["n1"], store_port=4007)
    fleet.say("n1")
    assert (fleet.job.state, fleet.job.master_port) == (JobState.STARTING, 4007)


def test_a_job_without_restarts_is_given_up_in_words(fleet) -> None:
    """It was never restarted: "0 restarts without progress" would say nothing."""
    spec = replace(fleet.job.spec, restarts_max=0)
    fleet.cluster.jobs["llama"] = replace(fleet.job, spec=spec)
    fleet.die("n2", rank=3)
    assert fleet.job.reason == "its ranks ended, and it was started with no restart allowed"


def test_an_assignment_names_the_very_launcher(fleet) -> None:
    """A launcher that came in place of another is told to hold no ranks of that generation."""
    fleet.launchers["n2"] = replace(
        fleet.launchers["n2"], launcher="another", generation=0, phase=LauncherPhase.IDLE, ranks=()
    )
    fleet.say("n2")
    assert told(fleet, "n2").world is None


def test_assignments_grow_in_sequence(fleet) -> None:
    """A launcher can tell which of two orders is the newer one."""
    before = told(fleet, "n1").sequence
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    assert told(fleet, "n1").sequence > before


def test_a_spare_on_probation_is_the_last_choice(make_fleet) -> None:
    """A node that has just been repaired waits behind those that never broke."""
    fleet = make_fleet("n3", "n4")
    fleet.cluster.put_node(replace(fleet.cluster.nodes["n3"], state=NodeState.PROBATION))
    assert [node.name for node in fleet.cluster.spares(fleet.job)] == ["n4", "n3"]


def test_a_job_without_checkpoints_shows_progress_by_its_steps(make_fleet) -> None:
    """It begins at 0 each time: only a step that was never reached before counts."""
    fleet = make_fleet()
    fleet.train("n1", "n2", step=80)
    fleet.tick()
    assert fleet.job.best_step == 80
    fleet.die("n1", rank=0)
    fleet.obey("n2")
    fleet.obey("n1", "n2")
    fleet.train("n1", "n2", step=40)
    assert fleet.job.restarts_without_progress == 1
    fleet.train("n1", "n2", step=81)
    fleet.tick()
    assert fleet.job.restarts_without_progress == 0


def test_a_script_that_reports_no_steps_recovers_after_a_while(make_fleet) -> None:
    """An unmodified script is judged by its life: settle_seconds of it."""
    fleet = make_fleet(settle_seconds=20)
    for node in ("n1", "n2"):
        ranks = tuple(replace(rank, step=0) for rank in fleet.launchers[node].ranks)
        fleet.launchers[node] = replace(
            fleet.launchers[node], ranks=ranks, checkpoint_step=0, resumed_step=None
        )
        fleet.say(node)
    fleet.die("n1", rank=0)
    fleet.obey("n2")
    fleet.obey("n1", "n2")
    fleet.tick(25)
    assert fleet.incident.outcome == (
        "job llama goes on in place; its ranks have lived for 20 s and report no steps"
    )


def test_two_jobs_share_the_fleet_and_no_node(make_fleet) -> None:
    """A node that holds ranks of one job is no spare of another."""
    fleet = make_fleet("n3", gather_seconds=0)
    fleet.connect("m1", spec=JobSpec(name="small", nodes=1, ranks_per_node=2))
    small = fleet.cluster.jobs["small"]
    assert [member.node for member in small.members] == ["m1"]
    assert fleet.cluster.spares(fleet.job)[0].name == "n3"


def test_a_generation_is_higher_than_any_that_a_launcher_knows(make_fleet) -> None:
    """The fence of an earlier run stands; a launcher starts no generation at or below it."""
    fleet = make_fleet(gather_seconds=5)
    spec = JobSpec(name="other", nodes=2, ranks_per_node=2)
    fleet.connect("m1", spec=spec)
    fleet.launchers["m1"] = replace(fleet.launchers["m1"], generation=5)
    fleet.say("m1")
    fleet.connect("m2", spec=spec)
    assert fleet.cluster.jobs["other"].generation == 6


def test_a_launcher_without_ranks_knows_generations_too(make_fleet) -> None:
    """After its log was lost a controller counts none again that a spare has heard of."""
    fleet = make_fleet(gather_seconds=5)
    spec = JobSpec(name="other", nodes=1, ranks_per_node=2, spares=2)
    for name in ("m1", "m2"):
        fleet.connect(name, spec=spec)
    fleet.launchers["m2"] = replace(fleet.launchers["m2"], generation=5)
    fleet.say("m2")
    fleet.tick(6)
    other = fleet.cluster.jobs["other"]
    assert [member.node for member in other.members] == ["m1"]
    assert other.generation == 6
