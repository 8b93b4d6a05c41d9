"""What a verb would do to a job, and why a generation ended: in words, before and after."""

from dataclasses import replace

from aegis.core import history, job_plan
from aegis.model import event as ev
from aegis.model.job import JobState, StopKind, Tier


def told(fleet, kind, **fields):
    event = kind(at=fleet.at, job="llama", actor="", reason="", **fields)
    return job_plan.plan(fleet.cluster, event)


def test_a_restart_that_saves_costs_no_step(fleet) -> None:
    """It names the ranks, and nothing has happened yet."""
    plan = told(fleet, ev.JobRestarted)
    assert plan.hits[:2] == (
        "stops 4 ranks on n1 and n2: they save at their next step, and are killed after 30 s",
        "starts them again from what they saved",
    )
    assert fleet.job.generation == 1
    assert fleet.job.stop is StopKind.NOW


def test_one_without_a_save_says_how_far_it_goes_back(fleet) -> None:
    """The newest checkpoint is of step 50, and step 60 was reached."""
    fleet.tick()
    plan = told(fleet, ev.JobRestarted, at_once=True)
    assert plan.hits[0] == "kills 4 ranks on n1 and n2 at once, without a save"
    assert plan.hits[1].endswith("newest checkpoint, of step 50: 10 steps trained again")


def test_a_node_that_is_left_has_a_successor_or_none(fleet) -> None:
    """Where nobody stands by the job would wait; what leaves too few launchers is refused."""
    assert "n3 takes the place of n1" in told(fleet, ev.JobNodeExcluded, node="n1").hits
    spare = told(fleet, ev.JobNodeExcluded, node="n3")
    assert spare.hits == ("stops nothing: it has no ranks on n3", "no spare is left to it")
    fleet.apply(ev.NodeCordoned(at=fleet.at, node="n3", actor="ada", reason="a look"))
    waits = told(fleet, ev.JobNodeExcluded, node="n1").hits[1]
    assert waits.startswith("no node stands by to take the place of n1: it waits until 2 nodes")
    fleet.apply(ev.JobNodeExcluded(at=fleet.at, job="llama", node="n3", actor="ada", reason="slow"))
    refused = told(fleet, ev.JobNodeExcluded, node="n1")
    assert "needs 2 nodes and would have a launcher on 1 only" in refused.refused
    assert refused.hits == ()
    assert told(fleet, ev.JobNodeExcluded, node="n3", excluded=False).hits[0] == "stops nothing"


def test_a_generation_s_end_names_its_first_cause_and_its_victims(fleet) -> None:
    """The rank that failed first, in its own words; who fell with it; where the next resumed."""
    fleet.die("n2", 3)
    fleet.at += 0.01
    fleet.die("n1", 0)
    fleet.obey("n1", "n2")
    fleet.launchers["n1"] = replace(fleet.launchers["n1"], resumed_from=(Tier.PEER,))
    fleet.launchers["n2"] = replace(fleet.launchers["n2"], resumed_from=(Tier.MEMORY,))
    fleet.train("n1", "n2", step=61, checkpoint=50)
    first, second = history.of_job(fleet.cluster, fleet.job).laps
    assert first.cause == "Rank 3 died on n2: killed by signal 9; boom"
    assert first.victims == ("rank 0 on n1",)
    assert first.steps_lost == 10
    assert second.resumed_from == (Tier.MEMORY, Tier.PEER)
    assert (second.cause, second.victims) == ("", ())


def test_what_a_person_restarts_has_no_cause(fleet) -> None:
    """The reason names the person."""
    fleet.apply(ev.JobRestarted(at=fleet.at, job="llama", actor="ada", reason="new data"))
    fleet.obey("n1", "n2")
    fleet.obey("n1", "n2")
    [first, _] = history.of_job(fleet.cluster, fleet.job).laps
    assert (first.cause, first.incident) == ("", None)
    assert first.reason == "restarted by ada: new data"


def test_the_last_generation_of_a_job_that_is_given_up_tells_why_as_well(fleet) -> None:
    """Nothing follows it, so it is found by the incident that it ended with."""
    for _ in range(6):
        fleet.die("n2", 2)
        fleet.tick()
        fleet.obey("n1", "n2")
        fleet.tick()
        if fleet.job.state is JobState.FAILED:
            break
        fleet.obey("n1", "n2")
    assert fleet.job.state is JobState.FAILED
    last = history.of_job(fleet.cluster, fleet.job).laps[-1]
    assert last.cause == "Rank 2 died on n2: killed by signal 9; boom"
    assert last.incident == fleet.incident.id
    assert told(fleet, ev.JobStopped).refused.startswith("job llama is failed already")
