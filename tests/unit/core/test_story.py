"""The story of an incident: every question of a person on call has its line."""

from aegis.core import story
from aegis.core.words import FAULTS, duration
from aegis.model.fault import FaultClass


def labels(lines: list[str]) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for line in lines[1:]:
        told.setdefault(line[:10].strip(), []).append(line[10:])
    return told


def moved(fleet):
    """An incident from its fault to the first new step, a second for each part."""
    fleet.fault("n1", "gpu.ecc.uncorrectable", observed_at=fleet.at - 1, simulated=True)
    fleet.at += 1
    fleet.obey("n1", "n2")
    fleet.at += 1
    fleet.obey("n3", "n2")
    fleet.at += 1
    fleet.train("n3", "n2", step=51, checkpoint=50)
    return fleet.incident


def test_a_recovery_is_told_from_fault_to_first_step(fleet) -> None:
    """What, where, effect, decision, action, outcome, and where the seconds went."""
    told = labels(story.tell(moved(fleet)))
    assert told["What"] == ["gpu.ecc.uncorrectable (error), on simulated hardware"]
    assert told["Where"] == ["n1 gpu3"]
    assert told["Evidence"] == ["probe: a counter rose (0 → 1)"]
    assert told["Effect"] == ["job llama stopped at step 60 (generation 1 on n1 and n2)"]
    assert told["Action"][-1] == "generation 2 of job llama is started on n3 and n2"
    (outcome,) = told["Outcome"]
    assert outcome == (
        "job llama goes on at n3 from step 50, 10 steps lost, 4 s after the fault; "
        "n1 is quarantined"
    )


def test_the_phases_sum_up_to_the_whole(fleet) -> None:
    """No second is counted twice or forgotten."""
    incident = moved(fleet)
    took = story.seconds(incident)
    assert took == {
        "detect": 1.0,
        "decide": 0.0,
        "stop": 1.0,
        "provision": 1.0,
        "load": 1.0,
        "first_step": 0.0,
    }
    phases = incident.phases
    assert sum(took.values()) == phases.first_step_at - phases.observed_at


def test_a_phase_that_was_over_before_the_one_ahead_took_no_time(fleet) -> None:
    """The ranks of the node that failed were gone before anyone decided to stop them."""
    fleet.die("n1", rank=0)
    fleet.obey("n2")
    incident = fleet.incident
    assert story.seconds(incident)["stop"] == 0.0
    assert story.seconds(incident)["provision"] is None


def test_a_rank_is_named_in_the_headline(fleet) -> None:
    """The one who is paged reads the rank and the node first."""
    fleet.die("n2", rank=3)
    assert fleet.incident.headline == "Rank 3 died on n2: job llama is being restarted"


def test_the_last_line_of_a_traceback_is_evidence(fleet) -> None:
    """The line that names the exception is shown, and the rest is kept."""
    fleet.die("n2", rank=3)
    evidence = fleet.incident.faults[0].evidence
    assert [one.text for one in evidence] == ["rank 3 was killed by signal 9", "boom"]
    assert evidence[1].after == "E\nboom\n"


def test_an_open_incident_says_what_would_clear_it(make_fleet) -> None:
    """A page that asks for something says for what."""
    fleet = make_fleet(spare_floor=1)
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    told = labels(story.tell(fleet.incident))
    assert told["Clears"] == ["one more spare registers"]
    assert told["Outcome"] == ["not over yet"]


def test_every_fault_class_has_its_words() -> None:
    """No page ends in a bare identifier."""
    assert set(FAULTS) == set(FaultClass)


def test_durations_read_as_people_say_them() -> None:
    """Short ones with a fraction, long ones without."""
    said = [duration(seconds) for seconds in (0.8, 2, 31.26, 60, 125, 3600, 5400)]
    assert said == ["0.8 s", "2 s", "31.3 s", "1 min", "2 min 5 s", "1 h", "1 h 30 min"]
