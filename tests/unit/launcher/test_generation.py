"""The ranks of one generation on a node, told by their parent and read from their pages."""

import pytest

from aegis.model.job import Assignment, LauncherPhase, Member, RankPhase, World
from aegis.wire import page
from aegis.worker.progress import Session
from aegis_agent.launcher.generation import prepare, without_ranks


@pytest.fixture
def generation(tmp_path):
    """The second node of two, two ranks each."""
    members = tuple(
        Member(node=name, launcher=name, address="10.0.0.1") for name in ("other", "me")
    )
    world = World(members=members, ranks_per_node=2, master_address="10.0.0.1", master_port=4000)
    assignment = Assignment(job="j", epoch=1, sequence=1, generation=3, world=world)
    made = prepare(assignment, world, "me", tmp_path, tmp_path / "logs")
    made.ordered = True
    yield made
    made.close()


def run(generation):
    for local_rank in (0, 1):
        generation.started(local_rank, 100 + local_rank, 10.0)


def test_a_whole_life(generation) -> None:
    """Starting until all are alive, done once all have exited with 0."""
    assert [rank.rank for rank in generation.ranks] == [2, 3]
    assert generation.phase is LauncherPhase.STARTING
    generation.started(0, 100, 10.0)
    assert generation.phase is LauncherPhase.STARTING
    generation.started(1, 101, 10.1)
    assert generation.phase is LauncherPhase.RUNNING
    assert not generation.exited(0, 0, 20.0)
    assert generation.phase is LauncherPhase.RUNNING
    assert not generation.exited(1, 0, 21.0)
    assert generation.phase is LauncherPhase.DONE
    assert generation.stopped_at == 21.0


def test_the_first_failure_is_kept(generation) -> None:
    """The sibling that was killed for it is its victim."""
    run(generation)
    (generation.ranks[1].stderr).write_text("RuntimeError: broken\n")
    assert generation.exited(1, 1, 20.0)
    assert generation.phase is LauncherPhase.STOPPING
    assert not generation.exited(0, -9, 20.1)
    assert generation.phase is LauncherPhase.FAILED
    assert generation.failure.text == "rank 3 exited with code 1: RuntimeError: broken"
    assert generation.stopped_at == 20.1


def test_a_rank_that_has_raised_already_is_the_first(generation) -> None:
    """Its traceback is written, but its process lives on a little; another dies of it meanwhile."""
    run(generation)
    generation.ranks[0].error_file.write_text("ValueError: bad data")
    (generation.ranks[1].stderr).write_text("RuntimeError: [gloo] Connection closed by peer\n")
    assert generation.exited(1, 1, 20.0)
    assert generation.failure.text == "rank 2 failed: ValueError: bad data"
    assert generation.failure.victims == (3,)
    assert not generation.exited(0, 1, 20.5)
    assert generation.failure.text == "rank 2 exited with code 1: ValueError: bad data"
    assert generation.failure.victims == (3,)


def test_who_ends_by_itself_after_its_victim_is_the_first(generation) -> None:
    """The kernel takes its time to bury a large process; its peers notice sooner."""
    run(generation)
    for rank in generation.ranks:
        rank.pid = 2**30  # nobody: gone already
    (generation.ranks[1].stderr).write_text("RuntimeError: [gloo] Connection closed by peer\n")
    assert generation.exited(1, 1, 20.0)
    assert generation.failure.rank == 3
    assert not generation.exited(0, -9, 20.1)
    assert (generation.failure.rank, generation.failure.victims) == (2, (3,))


def test_a_kill_by_the_kernel_is_told_from_a_kill_by_hand(generation) -> None:
    """Both are SIGKILL; the kernel counts its own."""
    run(generation)
    generation.count_kills = lambda: generation.kills_before + 1
    generation.exited(0, -9, 20.0)
    assert generation.failure.oom_killed


def test_what_ends_after_it_was_told_to_is_no_failure(generation) -> None:
    """Whatever its exit status."""
    run(generation)
    generation.announce_stop()
    generation.exited(0, 143, 20.0)
    generation.exited(1, -9, 20.1)
    assert generation.phase is LauncherPhase.IDLE
    assert generation.failure is None


def test_a_start_that_is_called_off(generation) -> None:
    """Without a reason it is no failure; with one it is."""
    generation.abort("", 5.0)
    assert (generation.phase, generation.stopped_at) == (LauncherPhase.IDLE, 5.0)


def test_ranks_that_could_not_be_laid_out(generation) -> None:
    """A full disk is a failure of the first rank here, with a reason."""
    empty = without_ranks(generation.assignment, generation.world, "me")
    empty.abort("no space", 5.0)
    assert empty.phase is LauncherPhase.FAILED
    assert (empty.failure.rank, empty.failure.text) == (2, "no space")


def test_progress_is_read_from_the_pages(generation) -> None:
    """What a rank writes through `aegis.worker` is what the launcher reports."""
    run(generation)
    sessions = [Session(page_path=rank.page_path, _page=rank.page) for rank in generation.ranks]
    assert generation.resumed_step is None
    for session in sessions:
        session.enter(RankPhase.LOADING)
        session.loaded(50)
    sessions[0].committed(60, 7.0)
    sessions[0].step(61, 2.5)
    generation.look()
    first, second = (rank.state() for rank in generation.ranks)
    assert (first.phase, first.step, first.loss) == (RankPhase.TRAINING, 61, 2.5)
    assert first.loaded_at <= first.first_step_at == first.last_step_at
    assert (second.step, second.first_step_at) == (50, 0.0)
    assert generation.resumed_step == 50
    assert generation.checkpoint == (60, 7.0)


def test_a_script_that_restores_by_itself(generation) -> None:
    """Its first step says where it resumed."""
    session = Session(page_path=generation.ranks[0].page_path, _page=generation.ranks[0].page)
    session.step(41)
    generation.look()
    assert generation.ranks[0].progress.resumed_step == 40
    assert generation.ranks[0].progress.loaded_at > 0


def test_a_loss_that_is_no_number_is_said_where_the_job_was_started(generation, caplog) -> None:
    """Once, with its step: not only on the dashboard of a controller."""
    session = Session(page_path=generation.ranks[0].page_path, _page=generation.ranks[0].page)
    session.step(41, float("nan"))
    generation.look()
    generation.look()
    assert caplog.messages == ["generation 3: the loss of rank 2 became NaN at step 41"]


def test_an_earlier_runs_error_is_not_this_ones(generation, tmp_path) -> None:
    """The same log folder may be used again."""
    generation.ranks[0].error_file.write_text("of long ago")
    generation.ranks[0].stderr.write_text("of long ago")
    again = prepare(generation.assignment, generation.world, "me", tmp_path, tmp_path / "logs")
    again.exited(0, 1, 5.0)
    assert again.failure.error == ""
    again.close()


def test_a_page_that_nobody_wrote_on_says_nothing() -> None:
    """Nor does what is no page."""
    assert page.read(page.blank()) is None
    assert page.read(bytes(page.PAGE_BYTES)) is None


def test_an_announced_stop_is_read_by_the_rank(generation) -> None:
    """Only then is SIGTERM a wish to save."""
    session = Session(page_path=generation.ranks[0].page_path, _page=generation.ranks[0].page)
    assert not session.stop_announced()
    generation.announce_stop()
    assert session.stop_announced()
