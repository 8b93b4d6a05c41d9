"""Which rank of a job stands out, when launchers say that theirs do not come on."""

from dataclasses import replace

from aegis.core.hangs import stands_out
from aegis.model.fault import FaultClass
from aegis.model.incident import IncidentState
from aegis.model.job import Hang, HangCause, JobState, LauncherPhase, RankPhase, RankView
from aegis.model.policy import Mode
from aegis.rules import parse

RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: hang
rules:
  - {id: told, title: T, class: job.hang, severity: [warning], remedy: notify}
  - {id: hang, title: T, class: job.hang, remedy: restart}
"""
WAITING = ("distributed_c10d.py:3252 all_reduce", "train.py:40 average", "train.py:60 main")
SPINNING = ("train.py:12 spin", "train.py:58 main")


def view(rank, **fields):
    known = {"phase": RankPhase.TRAINING, "step": 60, "state": "S", "silent_seconds": 5.0}
    return RankView(rank=rank, stack=WAITING, **(known | fields))


def names(views):
    found, _ = stands_out(views)
    return [one.rank for one in found]


def test_a_stopped_process_stands_out_before_all_else() -> None:
    """It cannot answer, and everybody else waits."""
    views = [view(0, step=59), view(1), replace(view(2, state="T"), stack=())]
    assert names(views) == [2]


def test_the_rank_that_is_behind() -> None:
    """With two, the lower step; with more, whoever is not where most are."""
    assert names([view(0), view(1, step=59)]) == [1]
    assert names([view(0), view(1), view(2, step=59)]) == [2]


def test_the_rank_that_left_a_collective_out_is_ahead() -> None:
    """The others wait for it at the step before."""
    found, why = stands_out([view(0), view(1, step=61), view(2), view(3)])
    assert ([one.rank for one in found], why) == ([1], "ahead")


def test_another_phase_or_another_stack() -> None:
    """One that spins is not in a collective; one that waits elsewhere has another stack."""
    assert names([view(0), view(1, phase=RankPhase.SAVING), view(2)]) == [1]
    assert names([view(0), replace(view(1), stack=SPINNING)]) == [1]
    elsewhere = ("distributed_c10d.py:2799 recv", "train.py:41 main")
    assert names([view(0), replace(view(1), stack=elsewhere), view(2)]) == [1]


def test_nobody_stands_out_where_all_are_alike_or_unknown() -> None:
    """A guess would be worse than none."""
    assert names([view(0), view(1)]) == []
    assert names([replace(view(rank), stack=()) for rank in (0, 1)]) == []


def hang(fleet, node, *views, cause=HangCause.SILENT, **fields):
    """The node's launcher says that its ranks do not come on."""
    launcher = fleet.launchers[node]
    told = Hang(
        generation=launcher.generation, cause=cause, at=fleet.at, limit_seconds=5.0,
        step_seconds=0.1, ranks=views, folder="/logs/generation-1", **fields,
    )  # fmt: skip
    fleet.launchers[node] = replace(launcher, hang=told)
    return fleet.say(node)


def stuck(fleet):
    return [one for one in fleet.cluster.incidents.values() if one.fault_class == "job.hang"]


def with_rules(fleet):
    fleet.rules = parse({"hang.yaml": RULES})
    return fleet


def test_silence_is_judged_once_all_members_have_spoken(fleet) -> None:
    """The rank that stands out may be on the node that speaks last."""
    with_rules(fleet)
    hang(fleet, "n1", view(0), view(1))
    assert not stuck(fleet)
    hang(fleet, "n2", view(2), replace(view(3), stack=SPINNING, state="R"))
    (incident,) = stuck(fleet)
    assert (incident.node, incident.device) == ("n2", "rank3")
    assert incident.headline == "Rank 3 hangs on n2: job llama is being restarted"
    assert fleet.job.state is JobState.STOPPING
    texts = [one.text for one in incident.faults[0].evidence]
    assert texts[0] == (
        "rank 3 is elsewhere than the others, at step 60: "
        "train.py:12 spin < train.py:58 main, running"
    )
    assert "the other 3 ranks wait at step 60: distributed_c10d.py:3252 all_reduce" in texts[1]
    fleet.obey("n1", "n2")
    assert fleet.job.generation == 2


def test_a_member_that_says_nothing_is_waited_for_a_moment(fleet) -> None:
    """Its launcher may not see the ranks; then those that speak are enough."""
    with_rules(fleet)
    hang(fleet, "n1", view(0), view(1))
    fleet.tick(2)
    (incident,) = stuck(fleet)
    assert incident.device == "ranks"


def test_a_rank_that_saves_elsewhere_is_waited_for(fleet) -> None:
    """The others are silent because of it, and its own launcher knows its budget."""
    with_rules(fleet)
    launcher = fleet.launchers["n2"]
    saving = tuple(replace(one, phase=RankPhase.SAVING) for one in launcher.ranks)
    fleet.launchers["n2"] = replace(launcher, ranks=saving)
    fleet.say("n2")
    hang(fleet, "n1", view(0), view(1))
    fleet.tick(30)
    assert not stuck(fleet)


def test_ranks_that_all_move_get_more_time(fleet) -> None:
    """An evaluation that nobody announced looks like this."""
    with_rules(fleet)
    hang(fleet, "n1", view(0, moves=True), view(1, moves=True))
    hang(fleet, "n2", view(2, moves=True), view(3, moves=True))
    fleet.tick(30)
    assert not stuck(fleet)
    fleet.tick(20)
    assert stuck(fleet)


def test_a_stopped_process_is_acted_upon_at_once(fleet) -> None:
    """And the other nodes take stacks before they kill."""
    with_rules(fleet)
    actions = hang(fleet, "n1", view(0), view(1, state="T"), cause=HangCause.STOPPED)
    (incident,) = stuck(fleet)
    assert incident.device == "rank1"
    told = {one.node: one.assignment for one in actions if hasattr(one, "assignment")}
    assert told["n2"].world is None
    assert told["n2"].take_stacks


def test_what_is_only_observed_is_told_once(fleet) -> None:
    """--no-hang-detection: nobody is restarted."""
    with_rules(fleet)
    for node in ("n1", "n2"):
        hang(fleet, node, view(0), view(1), observed=True)
    fleet.tick(5)
    (incident,) = stuck(fleet)
    assert incident.state is IncidentState.CLOSED
    assert fleet.job.state is JobState.RUNNING


def test_ranks_that_go_on_by_themselves_end_the_incident(make_fleet) -> None:
    """Where the mode let nothing be done."""
    fleet = with_rules(make_fleet(job_mode=Mode.OBSERVE))
    hang(fleet, "n1", view(0), view(1))
    hang(fleet, "n2", view(2), view(3))
    (incident,) = stuck(fleet)
    assert incident.state is IncidentState.OPEN
    for node in ("n1", "n2"):
        fleet.launchers[node] = replace(fleet.launchers[node], hang=None)
        fleet.say(node)
    fleet.tick()
    (incident,) = stuck(fleet)
    assert incident.outcome.startswith("the ranks went on by themselves")


def test_a_hang_of_an_older_generation_is_no_news(fleet) -> None:
    """The level stays in the launcher's report until its next ranks start."""
    with_rules(fleet)
    launcher = fleet.launchers["n1"]
    old = Hang(generation=0, cause=HangCause.STOPPED, at=1.0)
    fleet.launchers["n1"] = replace(launcher, hang=old, phase=LauncherPhase.RUNNING)
    fleet.say("n1")
    assert FaultClass.JOB_HANG not in [one.fault_class for one in stuck(fleet)]
