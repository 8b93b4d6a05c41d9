"""Launchers at the agent's socket: whole state up, assignments down."""

import signal
import socket
import time
from dataclasses import replace

import pytest

from aegis.model.job import Assignment, JobSpec, LauncherPhase, LauncherState
from aegis.wire import decode_as, encode

STATE = LauncherState(
    spec=JobSpec(name="llama", nodes=2, ranks_per_node=2), launcher="l-1", address="127.0.0.1"
)
ASSIGNMENT = Assignment(job="llama", epoch=1, sequence=1, generation=1, reason="first start")


class Launcher:
    """The wire side of `aegis run`."""

    def __init__(self, path):
        until = time.monotonic() + 30
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(str(path))
                break
            except OSError:
                self.socket.close()
                assert time.monotonic() < until, "the agent does not listen"
                time.sleep(0.02)
        self.socket.settimeout(30)
        self.lines = self.socket.makefile("rb")

    def say(self, state):
        self.socket.sendall(encode(state).encode() + b"\n")

    def hear(self):
        return decode_as(Assignment, self.lines.readline())

    def close(self):
        self.lines.close()
        self.socket.close()


@pytest.fixture
def connect():
    opened = []

    def connect(agent, state=STATE):
        opened.append(Launcher(agent.socket))
        opened[-1].say(state)
        return opened[-1]

    yield connect
    for launcher in opened:
        launcher.close()


def ids(controller):
    return [launcher.launcher for launcher in controller.last.launchers]


def test_state_goes_up_and_assignments_come_down(start_agent, controller, connect):
    """Whole state, told when it changes; only what is meant for the job comes back."""
    controller.push(ASSIGNMENT, replace(ASSIGNMENT, job="other"))
    launcher = connect(start_agent())
    assert launcher.hear() == ASSIGNMENT
    running = replace(STATE, phase=LauncherPhase.RUNNING, generation=1)
    launcher.say(running)
    controller.wait(lambda: controller.last.launchers == (running,), "the new phase")
    newer = replace(ASSIGNMENT, sequence=2, reason="a spare takes over")
    controller.push(newer)
    assert launcher.hear() == newer


def test_an_assignment_waits_for_its_launcher(start_agent, controller, connect):
    """It is told once on connection, also to the launcher that comes later."""
    agent = start_agent()
    first = connect(agent)
    controller.push(ASSIGNMENT)
    assert first.hear() == ASSIGNMENT
    first.close()
    assert connect(agent).hear() == ASSIGNMENT


def test_what_was_meant_for_the_launcher_before_is_not_passed_on(start_agent, controller, connect):
    """A job that is run again must not hear the end of the run before."""
    controller.push(replace(ASSIGNMENT, launcher="l-0", finished=True))
    launcher = connect(start_agent())
    controller.wait(lambda: ids(controller) == ["l-1"], "the launcher")
    mine = replace(ASSIGNMENT, launcher="l-1", sequence=2)
    controller.push(mine)
    assert launcher.hear() == mine


def test_a_launcher_that_reconnects_was_never_away(start_agent, controller, connect):
    """A lost connection is no death: the report keeps the launcher for its grace."""
    agent = start_agent()
    first = connect(agent)
    controller.wait(lambda: ids(controller) == ["l-1"], "the launcher")
    seen = len(controller.reports)
    first.close()
    again = connect(agent, replace(STATE, generation=3))
    controller.wait(lambda: controller.last.launchers[0].generation == 3, "its new state")
    assert all(report.report.launchers for report in controller.reports[seen:])
    again.close()
    controller.wait(lambda: ids(controller) == [], "the end of the grace")


def test_a_launcher_that_came_back_as_another_replaces_the_dead_one(
    start_agent, controller, connect
):
    """Its ranks died with it: the controller must see the new id at once."""
    agent = start_agent()
    first = connect(agent)
    controller.wait(lambda: ids(controller) == ["l-1"], "the first launcher")
    first.close()
    connect(agent, replace(STATE, launcher="l-2"))
    controller.wait(lambda: ids(controller) == ["l-2"], "the second launcher")


def test_a_second_launcher_of_a_job_is_told_to_leave(start_agent, controller, connect):
    """Two of them on one node would start the same ranks twice."""
    agent = start_agent()
    connect(agent)
    controller.wait(lambda: ids(controller) == ["l-1"], "the first launcher")
    refusal = connect(agent, replace(STATE, launcher="l-2")).hear()
    assert (refusal.finished, refusal.exit_code) == (True, 6)
    assert "another launcher of job llama is running on this node" in refusal.reason
    assert ids(controller) == ["l-1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_new_agent_reports_nothing_before_the_launchers_are_back(
    start_agent, controller, connect, number
):
    """A report without them would say that their ranks are gone."""
    first = start_agent()
    launcher = connect(first)
    controller.wait(lambda: ids(controller) == ["l-1"], "the launcher")
    first.end(number)
    launcher.close()
    controller.reports.clear()
    connect(start_agent())
    controller.wait(lambda: True, "a report of the new agent")
    assert ids(controller) == ["l-1"]
    assert all(report.report.launchers for report in controller.reports)


def test_nonsense_on_the_socket_costs_only_its_connection(start_agent, controller, connect):
    """Anybody on the node may reach the socket."""
    agent = start_agent()
    connect(agent)
    stranger = Launcher(agent.socket)
    stranger.socket.sendall(b"GET / HTTP/1.1\n")
    assert stranger.lines.readline() == b""
    stranger.close()
    endless = Launcher(agent.socket)
    try:
        endless.socket.sendall(b"x" * (1 << 21))
        assert endless.lines.readline() == b""
    except (BrokenPipeError, ConnectionResetError):
        pass
    endless.close()
    controller.wait(lambda: ids(controller) == ["l-1"], "the good launcher")
    agent.wait_log("A launcher said what is no launcher state.")
