"""Ranks that leave a generation and keep their processes."""

import pytest

from aegis.model.job import Assignment, LauncherPhase, Member, RankPhase, World
from aegis_agent.launcher.generation import prepare


@pytest.fixture
def generation(tmp_path):
    world = World(
        members=(Member(node="a", launcher="a", address="a"),),
        ranks_per_node=2, master_address="a", master_port=1,
    )  # fmt: skip
    assignment = Assignment(job="j", epoch=1, sequence=1, generation=1, world=world)
    made = prepare(assignment, world, "a", tmp_path, tmp_path)
    for rank in range(2):
        made.started(rank, 100 + rank, 1.0)
    yield made
    made.close()


def test_who_has_left_holds_no_rank_once_another_has_failed(generation) -> None:
    """It was neither killed nor does it count as ended well."""
    generation.left(0, 5.0)
    assert generation.alive  # nobody is known to have failed
    assert generation.exited(1, 3, 5.1)
    generation.let_go()
    assert not generation.alive
    assert generation.phase is LauncherPhase.FAILED
    assert generation.failure.rank == 1
    state = generation.ranks[0].state()
    assert (state.phase, state.exit_code, state.signal) == (RankPhase.EXITED, None, None)
    assert generation.stopped_at
    assert not generation.exited(0, -9, 6.0)  # what becomes of its process later is no matter
    assert generation.failure.rank == 1


def test_who_leaves_while_the_generation_is_stopped(generation) -> None:
    """That is how it ends: nothing has failed."""
    generation.stopping = True
    generation.left(0, 5.0)
    generation.left(1, 5.2)
    assert not generation.alive
    assert generation.phase is LauncherPhase.IDLE
    assert generation.stopped_at == pytest.approx(5.2)


def test_who_leaves_alone_has_failed(generation) -> None:
    """A rank cannot stay and nobody else is to blame."""
    generation.left(1, 5.0)
    assert generation.left_alone(1, "RuntimeError: Connection closed by peer\n")
    said = "rank 1 lost its process group: RuntimeError: Connection closed by peer"
    assert generation.failure.text == said
    assert not generation.left_alone(1, "again")
