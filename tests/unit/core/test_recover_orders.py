"""What launchers are told on the way from one generation to the next, and what is written down."""

from dataclasses import replace

import pytest

from aegis.core import recover
from aegis.model import event as ev
from aegis.model.job import Attempt, JobSpec, JobState, LauncherPhase, StopKind
from aegis.model.policy import Mode


def told(fleet, node):
    (order,) = recover.assignments(fleet.cluster, node)
    return order


def test_a_node_that_nobody_knows_is_told_nothing(fleet) -> None:
    """It is heard first, and then told."""
    assert recover.assignments(fleet.cluster, "n99") == ()


def test_only_a_stop_that_saves_has_a_grace(make_fleet) -> None:
    """Ranks that are told to end now end now."""
    fleet = make_fleet(stop_grace_seconds=20.0)
    fleet.apply(ev.NodeDrained(at=fleet.at, node="n1", actor="ada", reason="r"))
    assert (told(fleet, "n1").stop, told(fleet, "n1").stop_grace_seconds) == (
        StopKind.SAVING,
        20.0,
    )
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    fleet.fault("n2", "gpu.ecc.uncorrectable")
    assert (told(fleet, "n1").stop, told(fleet, "n1").stop_grace_seconds) == (StopKind.NOW, 0.0)


def test_a_stop_that_saves_becomes_one_that_does_not_and_never_back(make_fleet) -> None:
    """Each change is an order of its own."""
    fleet = make_fleet()
    recover.stop(fleet.cluster, fleet.job, StopKind.SAVING, "first", None)
    first = fleet.job
    assert (first.state, first.stop, first.awaiting) == (
        JobState.STOPPING,
        StopKind.SAVING,
        {"n1", "n2"},
    )
    recover.stop(fleet.cluster, fleet.job, StopKind.SAVING, "again", None)
    assert (fleet.job.stop, fleet.job.sequence) == (StopKind.SAVING, first.sequence)
    recover.stop(fleet.cluster, fleet.job, StopKind.NOW, "now", None)
    assert (fleet.job.stop, fleet.job.sequence) == (StopKind.NOW, first.sequence + 1)
    recover.stop(fleet.cluster, fleet.job, StopKind.SAVING, "late", None)
    assert (fleet.job.stop, fleet.job.sequence) == (StopKind.NOW, first.sequence + 1)


def test_ranks_that_only_start_have_nothing_to_save(make_fleet) -> None:
    """A generation that is stopped before it runs is stopped at once."""
    fleet = make_fleet()
    starting = replace(fleet.job, state=JobState.STARTING)
    recover.stop(fleet.cluster, starting, StopKind.SAVING, "r", None)
    assert fleet.job.stop is StopKind.NOW


def test_a_job_that_has_ended_or_waits_has_no_ranks_to_stop(fleet) -> None:
    """The one is left as it is; the other learns what it is waiting for now."""
    ended = replace(fleet.job, state=JobState.DONE)
    fleet.cluster.put_job(ended)
    recover.stop(fleet.cluster, ended, StopKind.NOW, "r", "inc-000009")
    assert fleet.job == ended
    waiting = replace(ended, state=JobState.WAITING, incident="inc-000007")
    recover.stop(fleet.cluster, waiting, StopKind.NOW, "r", None)
    assert (fleet.job.state, fleet.job.reason, fleet.job.incident) == (
        JobState.WAITING,
        "r",
        "inc-000007",
    )
    assert fleet.job.sequence == ended.sequence


def test_a_save_that_takes_too_long_is_cut_short(make_fleet) -> None:
    """After its grace and a moment for words to travel, and not before."""
    fleet = make_fleet(stop_grace_seconds=20.0, fresh_seconds=5.0)
    recover.insist(fleet.cluster, fleet.job)
    assert fleet.job.state is JobState.RUNNING
    recover.stop(fleet.cluster, fleet.job, StopKind.SAVING, "r", None)
    since = fleet.job.since
    fleet.cluster.now = since + 24.0
    recover.insist(fleet.cluster, fleet.job)
    assert fleet.job.stop is StopKind.SAVING
    fleet.cluster.now = since + 25.0
    fleet.cluster.hears_since = since + 1.0
    recover.insist(fleet.cluster, fleet.job)
    assert fleet.job.stop is StopKind.SAVING  # a new controller gives it the whole time again
    fleet.cluster.hears_since = 0.0
    recover.insist(fleet.cluster, fleet.job)
    assert fleet.job.stop is StopKind.NOW


def test_a_running_job_is_never_told_to_hasten(make_fleet) -> None:
    """However long it has run."""
    fleet = make_fleet()
    fleet.cluster.put_job(replace(fleet.job, stop=StopKind.SAVING))
    fleet.cluster.now += 9999.0
    before = fleet.job
    recover.insist(fleet.cluster, before)
    assert fleet.job == before


def test_a_restart_is_counted_in_two_ways(fleet) -> None:
    """All of them, and those since the job came on; it is kept at once."""
    counted = recover.count_restart(fleet.cluster, fleet.job)
    assert (counted.restarts, counted.restarts_without_progress) == (1, 1)
    assert fleet.job == counted


def test_a_job_that_is_submitted_is_given_back(make_fleet) -> None:
    """Once more under its name, its orders go on in sequence."""
    fleet = make_fleet()
    new = recover.submit(fleet.cluster, JobSpec(name="olmo", nodes=1, ranks_per_node=1))
    assert new == fleet.cluster.jobs["olmo"]
    ended = replace(fleet.job, state=JobState.DONE)
    again = recover.resubmit(fleet.cluster, ended, ended.spec)
    assert again == fleet.job
    assert again.sequence == ended.sequence + 1


def test_each_order_is_numbered_once(make_fleet) -> None:
    """A start, a stop and an end are one step each."""
    fleet = make_fleet()
    first = fleet.job.sequence
    recover.stop(fleet.cluster, fleet.job, StopKind.NOW, "r", None)
    assert fleet.job.sequence == first + 1
    fleet.obey("n1", "n2")
    assert (fleet.job.state, fleet.job.generation) == (JobState.STARTING, 2)
    assert fleet.job.sequence == first + 2
    fleet.obey("n1", "n2")
    recover.give_up(fleet.cluster, fleet.job, "worn out", None)
    assert fleet.job.sequence == first + 3
    fleet.obey("n1", "n2")
    assert (fleet.job.state, fleet.job.sequence) == (JobState.FAILED, first + 4)


def test_the_end_of_a_generation_is_written_down_once(fleet) -> None:
    """When it ended, how far it was and why."""
    fleet.die("n1", rank=0)
    fleet.obey("n2")
    ended, running = fleet.job.attempts
    assert (ended.generation, ended.last_step, ended.ended_at) == (1, 60, fleet.at)
    assert "job.worker.exited" in ended.reason
    assert (running.generation, running.ended_at) == (2, None)
    job = replace(fleet.job, attempts=(ended,), state=JobState.STOPPING, awaiting=frozenset())
    fleet.cluster.put_job(job)
    fleet.cluster.now += 50.0
    recover.advance(fleet.cluster, "llama")
    assert fleet.job.attempts[0] == ended


def test_a_job_that_is_given_up_or_stopped_while_it_waits_ends(make_fleet) -> None:
    """With what its launchers exit with: 93, do not requeue, or 0."""
    for change, state, code in (
        ({"giving_up": True}, JobState.FAILED, 93),
        ({"stop_requested": True}, JobState.DONE, 0),
    ):
        fleet = make_fleet()
        waiting = {"state": JobState.WAITING, "members": (), "reason": "it is over"}
        fleet.cluster.put_job(replace(fleet.job, **(waiting | change)))
        recover.start(fleet.cluster, fleet.job)
        assert (fleet.job.state, fleet.job.exit_code) == (state, code)
        assert (fleet.job.reason, fleet.job.giving_up) == ("it is over", False)
        assert told(fleet, "n3").finished


def test_a_job_that_is_given_up_or_stopped_ends_with_its_last_rank(make_fleet) -> None:
    """In the same step in which the last node reports none."""
    for change, state, code in (
        ({"giving_up": True}, JobState.FAILED, 93),
        ({"stop_requested": True}, JobState.DONE, 0),
    ):
        fleet = make_fleet()
        recover.stop(fleet.cluster, fleet.job, StopKind.NOW, "r", None)
        fleet.cluster.put_job(replace(fleet.job, **change))
        fleet.obey("n1")
        assert fleet.job.state is JobState.STOPPING
        fleet.obey("n2")
        assert (fleet.job.state, fleet.job.exit_code) == (state, code)


@pytest.mark.parametrize(
    ("phase", "awaited"),
    [
        (LauncherPhase.RUNNING, {"n2"}),
        (LauncherPhase.DONE, {"n2"}),
        (LauncherPhase.STARTING, {"n1", "n2"}),
    ],
)
def test_a_node_has_started_once_its_ranks_are_alive_or_done(make_fleet, phase, awaited) -> None:
    """One that is only about to start is waited for."""
    fleet = make_fleet()
    everyone = frozenset({"n1", "n2"})
    fleet.cluster.put_job(replace(fleet.job, state=JobState.STARTING, awaiting=everyone))
    node = fleet.cluster.nodes["n2"]
    starting = replace(node.launchers[0], phase=LauncherPhase.STARTING)
    fleet.cluster.nodes["n2"] = replace(node, launchers=(starting,))
    node = fleet.cluster.nodes["n1"]
    there = replace(node.launchers[0], phase=phase)
    fleet.cluster.nodes["n1"] = replace(node, launchers=(there,))
    recover._advance_once(fleet.cluster, fleet.job)
    assert fleet.job.awaiting == awaited


def test_a_node_that_was_given_up_and_is_heard_again_is_waited_for(make_fleet) -> None:
    """It can be told to stop, so no generation begins, and no job ends, beside its ranks."""
    fleet = make_fleet(silence_seconds=10)
    fleet.apply(ev.NodeDrained(at=fleet.at, node="n3", actor="ada", reason="firmware"))
    fleet.apply(ev.JobStopped(at=fleet.at, job="llama", actor="ada", reason="enough"))
    fleet.tick(20, silent=("n1",))
    assert fleet.job.awaiting == {"n2"}
    fleet.say("n1")
    assert fleet.job.awaiting == {"n1", "n2"}
    fleet.obey("n2")
    assert fleet.job.state is JobState.STOPPING
    fleet.obey("n1")
    assert fleet.job.state is JobState.DONE


def test_a_job_keeps_its_newest_attempts(fleet) -> None:
    """Fifty of them, with the end of each: the oldest is forgotten, no other."""
    old = Attempt(generation=0, nodes=("n1", "n2"), started_at=1.0, ended_at=2.0)
    running = fleet.job.attempts[-1]
    history = tuple(replace(old, generation=number) for number in range(1, 50))
    fleet.cluster.put_job(
        replace(fleet.job, generation=50, attempts=(*history, replace(running, generation=50)))
    )
    node = fleet.launchers
    for name in ("n1", "n2"):
        fleet.launchers[name] = replace(node[name], generation=50)
        fleet.say(name)
    fleet.die("n1", rank=0)
    fleet.obey("n2")
    kept = fleet.job.attempts
    assert [one.generation for one in kept] == list(range(2, 52))
    assert [one.ended_at is None for one in kept] == [False] * 49 + [True]
    assert kept[:48] == history[1:]


def test_what_a_job_waits_for_is_noted_once_for_each_reason(make_fleet) -> None:
    """In the incident that it recovers from, however long it waits, whatever is said meanwhile."""
    fleet = make_fleet("n5")
    fleet.apply(ev.NodeDrained(at=fleet.at, node="n5", actor="ada", reason="firmware"))
    fleet.tick(40.0, silent=("n2",))
    fleet.obey("n1")
    assert fleet.job.state is JobState.WAITING
    for words in ("called", "on their way", "in the wrong building", "found it"):
        incident, actor = fleet.incident.id, "ada"
        fleet.apply(ev.IncidentNoted(at=fleet.at, incident=incident, actor=actor, reason=words))
    fleet.tick(5.0, silent=("n2",))
    waits = [one.text for one in fleet.incident.entries if "waits" in one.text]
    assert waits == [f"job llama waits: {fleet.job.reason}"]
    assert "n5 is quarantined" in fleet.job.reason


@pytest.mark.parametrize(
    ("fault_class", "state", "asked"),
    [
        ("job.hang", JobState.STOPPING, True),
        ("job.hang", JobState.WAITING, False),
        ("job.hang", JobState.RUNNING, False),
        ("gpu.ecc.uncorrectable", JobState.STOPPING, False),
        (None, JobState.STOPPING, False),
    ],
)
def test_what_ranks_wait_in_is_asked_only_as_a_hang_stops_them(
    make_fleet, fault_class, state, asked
) -> None:
    """Before and afterwards there is nothing to look at, and another fault explains itself."""
    fleet = make_fleet(mode=Mode.OBSERVE)
    name = None
    if fault_class:
        fleet.fault("n1", fault_class)
        name = fleet.incident.id
    fleet.cluster.put_job(replace(fleet.job, state=state, incident=name, members=()))
    assert told(fleet, "n1").take_stacks is asked


def test_who_hung_up_stands_in_the_incident(fleet) -> None:
    """A node that is killed is given up by name; one that stops as it is told is not."""
    fleet.at += 1.0
    fleet.apply(ev.NodeHungUp(at=fleet.at, node="n2", session=fleet.session))
    fleet.at += 1.0
    fleet.die("n1", rank=0)
    assert (fleet.job.state, fleet.job.generation) == (JobState.STARTING, 2)
    texts = [one.text for one in fleet.incident.entries if "hung up" in one.text]
    assert texts == ["n2 hung up 0.4 s ago or more: given up, with its ranks"]


def test_nobody_has_hung_up_where_every_node_answered(fleet) -> None:
    """The incident of a rank's death speaks of no node that was given up."""
    fleet.die("n1", rank=0)
    fleet.obey("n2")
    assert fleet.job.generation == 2
    assert [one.text for one in fleet.incident.entries if "hung up" in one.text] == []


def test_a_job_without_a_history_can_be_stopped(fleet) -> None:
    """There is no attempt whose end could be written down."""
    fleet.cluster.put_job(replace(fleet.job, attempts=()))
    recover.stop(fleet.cluster, fleet.job, StopKind.NOW, "r", None)
    assert (fleet.job.state, fleet.job.attempts) == (JobState.STOPPING, ())


def test_a_job_is_not_done_while_one_of_its_launchers_is_away(fleet) -> None:
    """What the others say is no word of that one."""
    for name in ("n1", "n2"):
        node = fleet.cluster.nodes[name]
        done = replace(node.launchers[0], phase=LauncherPhase.DONE)
        fleet.cluster.put_node(replace(node, launchers=(done,) if name == "n1" else ()))
    recover._advance_once(fleet.cluster, fleet.job)
    assert fleet.job.state is JobState.RUNNING


def of_another_run(fleet, node):
    """The node's launcher, started with another number of nodes under the same name."""
    (launcher,) = fleet.cluster.nodes[node].launchers
    return replace(launcher, launcher="other", spec=replace(launcher.spec, nodes=5))


def test_a_launcher_of_another_run_is_told_so_once_it_holds_no_ranks(fleet) -> None:
    """With what differs; as long as it holds ranks it is told to hold none."""
    node = fleet.cluster.nodes["n1"]
    training = of_another_run(fleet, "n1")
    fleet.cluster.put_node(replace(node, launchers=(training,)))
    assert not told(fleet, "n1").finished
    idle = replace(training, phase=LauncherPhase.IDLE, ranks=())
    fleet.cluster.put_node(replace(node, launchers=(idle,)))
    assert (told(fleet, "n1").finished, told(fleet, "n1").exit_code) == (True, 6)
    assert told(fleet, "n1").reason == (
        "job llama is running already, of another run (nodes: 2, not 5): "
        "say another --job NAME, or end it with `aegis jobs stop llama`"
    )


def test_only_a_job_that_waits_with_nobody_left_becomes_another(fleet) -> None:
    """Not one that has ranks, not the same once more, and not one that nobody knows."""
    new = of_another_run(fleet, "n1")
    recover.renew(fleet.cluster, replace(new, spec=replace(new.spec, name="olmo")))
    assert "olmo" not in fleet.cluster.jobs
    (same,) = fleet.cluster.nodes["n1"].launchers
    for name in ("n1", "n2", "n3"):
        node = fleet.cluster.nodes[name]
        fleet.cluster.put_node(replace(node, launchers=(), contacts=()))
    before = fleet.job
    recover.renew(fleet.cluster, new)
    assert fleet.job == before
    fleet.cluster.put_job(replace(before, state=JobState.WAITING, members=()))
    waiting = fleet.job
    fleet.cluster.now += 5.0
    recover.renew(fleet.cluster, same)
    assert fleet.job == waiting
    recover.renew(fleet.cluster, new)
    assert (fleet.job.spec, fleet.job.submitted_at) == (new.spec, fleet.cluster.now)
