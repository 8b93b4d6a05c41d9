"""What may be done ahead of a restart, and when."""

import argparse
import time
from types import SimpleNamespace

import pytest

from aegis.model.job import Assignment, JobSpec, Member, World
from aegis_agent.launcher import ahead, environment
from aegis_agent.launcher.ahead import Ahead, Moment
from aegis_agent.launcher.errors import UsageError


def read(*words, path=()):
    parser = argparse.ArgumentParser()
    ahead.add_arguments(parser)
    return ahead.read(parser.parse_args(words), 4, path)


def test_nothing_runs_ahead_unless_asked_to() -> None:
    """Its first lines would run before anything has happened."""
    assert read() == Ahead()
    assert read("--run-ahead").standbys == 4
    assert read("--run-ahead", "--standbys", "2").standbys == 2


def test_modules_are_found_beside_the_script(tmp_path) -> None:
    """A name that is nowhere is told of at once."""
    (tmp_path / "mine.py").touch()
    assert read("--preload", "mine,mine.part", path=[str(tmp_path)]).preload == (
        "mine",
        "mine.part",
    )
    with pytest.raises(UsageError, match="--preload mine: no such module"):
        read("--preload", "mine")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--standbys", "2"], "it needs --run-ahead"),
        (["--run-ahead", "--standbys", "some"], "say a number, or auto"),
    ],
)
def test_a_wrong_flag(words, said) -> None:
    """The sentence says what to say instead."""
    with pytest.raises(UsageError, match=said):
        read(*words)


def test_a_standby_knows_all_but_its_place() -> None:
    """What is not the same for every rank is behind the gate, and nothing is missing."""
    spec = JobSpec(name="j", nodes=2, ranks_per_node=3, checkpoint_folder="/c")
    members = tuple(Member(node=n, launcher=n, address=n) for n in "ab")
    world = World(members=members, ranks_per_node=3, master_address="a", master_port=1)
    assignment = Assignment(job="j", epoch=1, sequence=1, generation=2, world=world)
    rank = environment.of_rank(spec, assignment, world, 1, 2)
    before = environment.of_job(spec)
    assert {name: rank[name] for name in before} == before
    others = set(rank) - set(before) - set(environment.GATED)
    assert all(name.startswith("AEGIS_") for name in others)
    assert not set(before) & set(environment.GATED)
    assert rank["RANK"] == "5"


def generation(number=1, first_step_at=0.0, started_at=0.0, *, alive=True, failure=None):
    progress = SimpleNamespace(first_step_at=first_step_at)
    rank = SimpleNamespace(progress=progress, started_at=started_at)
    return SimpleNamespace(
        number=number, alive=alive, ranks=[rank], failure=failure, stopping=False
    )


def test_standbys_are_made_once_ranks_train() -> None:
    """Not while ranks start, and once for each generation."""
    moment = Moment()
    assert not moment.has_come(generation(), 10.0)
    assert not moment.has_come(generation(started_at=time.time()), 10.0)
    assert moment.has_come(generation(started_at=time.time(), first_step_at=5.0), 10.0)
    assert not moment.has_come(generation(started_at=time.time(), first_step_at=5.0), 11.0)
    assert moment.has_come(generation(2, started_at=time.time() - 60), 12.0)  # it tells of none
    assert not moment.has_come(generation(3, first_step_at=5.0, failure="it died"), 13.0)


def test_standbys_are_made_on_a_node_that_has_no_ranks() -> None:
    """At once on a fresh one; after a generation only if no other follows soon."""
    assert Moment().has_come(None, 10.0)
    moment = Moment()
    assert moment.has_come(generation(first_step_at=5.0), 10.0)
    over = generation(alive=False)
    assert not moment.has_come(over, 11.0)
    assert not moment.has_come(over, 15.9)
    assert moment.has_come(over, 16.0)
    assert not moment.has_come(over, 30.0)
