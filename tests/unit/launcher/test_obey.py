"""What an assignment asks of a launcher."""

from dataclasses import replace

import pytest

from aegis.model.job import Assignment, Member, StopKind, World
from aegis_agent.launcher.obey import NOTHING, Order, Standing, Stop, last_words, obey

NOW = Stop(kind=StopKind.NOW)


def world(*launchers):
    members = tuple(
        Member(node=f"node-{name}", launcher=name, address="10.0.0.1") for name in launchers
    )
    return World(members=members, ranks_per_node=2, master_address="10.0.0.1", master_port=4000)


def assignment(sequence, generation, launchers=None, epoch=1, **fields):
    there = world(*launchers) if launchers else None
    return Assignment(
        job="j", epoch=epoch, sequence=sequence, generation=generation, world=there, **fields
    )


def told(*assignments, launcher="me"):
    """The order that the last of these gives."""
    standing, order = Standing(), NOTHING
    for one in assignments:
        standing, order = obey(standing, one, launcher)
    return order


def test_a_member_starts_its_generation() -> None:
    """Older ranks, if any, end first."""
    first = assignment(1, 1, ["other", "me"])
    assert told(first) == Order(stop=NOW, start=first)


def test_a_generation_is_started_once() -> None:
    """Told again, in the same words or in newer ones, nothing happens."""
    first = assignment(1, 1, ["me"])
    assert told(first, first) is NOTHING
    assert told(first, assignment(2, 1, ["me"])) is NOTHING
    assert told(first, assignment(1, 1, ["me"], epoch=2)) is NOTHING


@pytest.mark.parametrize("old", [(1, 3), (0, 9)], ids=["sequence", "epoch"])
def test_an_old_assignment_changes_nothing(old) -> None:
    """A late word must not stop what a newer one has started."""
    epoch, sequence = old
    assert told(assignment(4, 2, ["me"]), assignment(sequence, 1, epoch=epoch)) is NOTHING


def test_a_new_controller_counts_anew() -> None:
    """The epoch goes before the sequence."""
    order = told(assignment(9, 1, ["me"]), assignment(1, 2, ["me"], epoch=2))
    assert order.start is not None


def test_a_refused_generation_is_never_started() -> None:
    """The controller was told that it is over; whatever arrives later must not revive it."""
    assert told(assignment(2, 1), assignment(3, 1, ["me"])) is NOTHING
    assert told(assignment(2, 1), assignment(3, 2, ["me"])).start is not None


def test_others_generation_ends_ours() -> None:
    """A node that was replaced stops what it has, and starts nothing."""
    assert told(assignment(1, 1, ["me"]), assignment(2, 2, ["other"])) == Order(stop=NOW)


def test_a_namesake_is_not_meant() -> None:
    """A launcher that died and came back is another one: the world names the one before."""
    assert told(assignment(1, 1, ["me-before"])).start is None


def test_what_is_meant_for_another_launcher_is_not_heard() -> None:
    """An agent may still hold what the launcher before this one was told."""
    assert told(assignment(1, 1, finished=True, launcher="me-before")) is NOTHING


def test_a_stop_is_passed_on_as_it_was_asked() -> None:
    """Saving takes its grace along."""
    order = told(
        assignment(1, 1, ["me"]),
        assignment(2, 1, stop=StopKind.SAVING, stop_grace_seconds=30.0),
    )
    assert order == Order(stop=Stop(kind=StopKind.SAVING, grace_seconds=30.0))


def test_a_finished_job_sends_its_launchers_home() -> None:
    """With the exit code that the controller names."""
    order = told(assignment(1, 1, finished=True, exit_code=93, reason="three restarts"))
    assert (order.exit_code, order.reason) == (93, "three restarts")


def test_a_reason_is_said_once() -> None:
    """What was said when the job was being stopped is not said again at its end."""
    given_up = "the job is given up; mend what ended its ranks before you start it again"
    order = Order(exit_code=93, reason="3 restarts without progress")
    assert last_words(order, said=order.reason) == given_up
    assert last_words(order, said="") == f"3 restarts without progress: {given_up}"
    assert last_words(replace(order, exit_code=6), said="") == "3 restarts without progress"
    assert last_words(replace(order, exit_code=6), said=order.reason) == ""
    assert last_words(Order(exit_code=0, reason="done"), said="") == ""
