"""Streams: of agents, which are answered and pushed to, and of events, which can be resumed."""

import contextlib
import json

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from aegis.model.node import Sender


class Events:
    """A client of the event stream."""

    def __init__(self, controller, cleanup, query="", **headers):
        stream = httpx.stream(
            "GET", f"{controller.url}/api/v1/events{query}", headers=headers, timeout=60
        )
        self.answer = cleanup.enter_context(stream)
        self._lines = self.answer.iter_lines()

    def next(self):
        """The next event: (type, id, data)."""
        fields = {}
        for line in self._lines:
            if not line and "event" in fields:
                return fields["event"], int(fields["id"]), json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError

    def until(self, kind, fits=lambda _data: True):
        while True:
            found, number, data = self.next()
            if found == kind and fits(data):
                return number, data


def test_changes_arrive_as_they_happen(controller, agent, cleanup):
    """A hello, then whole objects, each with the number of its event."""
    events = Events(controller, cleanup)
    assert events.answer.headers["content-type"].startswith("text/event-stream")
    kind, place, _data = events.next()
    assert kind == "hello"
    speaker = agent(controller, "n1")
    speaker.send()
    number, node = events.until("node.updated")
    assert number > place
    assert node["devices"][0]["name"] == "gpu0"
    speaker.send((1, speaker.fault()))
    _number, incident = events.until("incident.updated")
    assert incident["story"][0].startswith("inc-000001")


def test_a_client_that_comes_back_misses_nothing(controller, agent, cleanup):
    """With the id of the last event it gets what has changed since."""
    speaker = agent(controller, "n1")
    speaker.send()
    place = controller.json("/meta")["event"]
    speaker.send((1, speaker.fault()))
    for again in (
        Events(controller, cleanup, **{"last-event-id": str(place)}),
        Events(controller, cleanup, f"?since={place}"),
    ):
        assert again.next()[0] == "hello"
        number, incident = again.until("incident.updated")
        assert number > place
        assert incident["id"] == "inc-000001"


def test_a_client_that_missed_too_much_is_told_so(make, agent, cleanup):
    """After a restart from a snapshot old changes are not known: fetch the lists anew."""
    program = make().start()
    agent(program, "n1").send()
    program.stop()
    program.start()
    events = Events(program, cleanup, **{"last-event-id": "1"})
    assert events.next()[0] == "hello"
    assert events.next()[0] == "resync"


def test_a_stopped_controller_ends_its_event_streams(make, cleanup):
    """An open page must not hold up the end."""
    program = make().start()
    events = Events(program, cleanup)
    assert events.next()[0] == "hello"
    assert program.stop() == 0
    with pytest.raises(EOFError):
        events.next()


def test_an_assignment_is_pushed_the_moment_it_changes(make, agent, policy):
    """A launcher is not made to wait for its next report."""
    program = make().start("--policy", policy("gather_seconds: 0\nsettle_seconds: 3600\n"))
    speaker = agent(program, "n1")
    answer = speaker.send(launchers=(speaker.launcher(),))
    while not (answer.assignments and answer.assignments[0].world):
        answer = speaker.receive()
    [assignment] = answer.assignments
    assert assignment.generation == 1
    assert assignment.world.members[0].launcher == "launcher-n1"
    assert assignment.epoch == program.json("/summary")["epoch"]
    assert program.post("/jobs/llama:stop", {"reason": "enough"}).status_code == 200
    pushed = speaker.receive()
    assert pushed.sequence == 0
    assert pushed.assignments[0].world is None


def test_a_newer_connection_replaces_the_older(controller, agent):
    """A node that came back another way is not held up by a dead connection."""
    older = agent(controller, "n1")
    older.send()
    newer = agent(controller, "n1", token=older.token)
    newer.send()
    with pytest.raises(ConnectionClosed) as closed:
        older.receive()
    assert closed.value.rcvd.code == 4000
    newer.send()


def test_agent_and_launcher_of_a_node_stand_side_by_side(controller, agent):
    """A launcher whose agent is away speaks for itself, with the node's token."""
    speaker = agent(controller, "n1")
    speaker.send()
    launcher = agent(controller, "n1", token=speaker.token, sender=Sender.LAUNCHER)
    launcher.send(devices=(), launchers=(launcher.launcher(),))
    speaker.send()
    node = controller.json("/nodes/n1")
    assert node["launcher_session"] > node["agent_session"] > 0
    assert [one["spec"]["name"] for one in node["launchers"]] == ["llama"]
    assert len(node["devices"]) == 2


def test_two_launchers_of_a_job_do_not_take_each_other_s_place(controller, agent, patiently):
    """The second is refused for as long as the first speaks, and let in once it has gone."""

    def launcher(name):
        speaks = {"sender": Sender.LAUNCHER, "job": "llama", "speaker": name}
        return agent(controller, "n1", token=token, **speaks)

    token = controller.mint("n1")
    first = launcher("first")
    first.send(devices=(), launchers=(first.launcher(launcher="first"),))
    with pytest.raises(InvalidStatus) as refused:
        launcher("second")
    assert refused.value.response.status_code == 409
    assert b"another launcher of job llama speaks for n1" in refused.value.response.body
    first.send()
    again = launcher("first")  # which came back another way, and is itself
    again.send()
    with pytest.raises(ConnectionClosed):
        first.receive()
    again.close()

    def second():
        with contextlib.suppress(InvalidStatus):
            return launcher("second")
        return None

    assert patiently(second, "the place to be free").send().sequence == 1


def test_two_machines_of_one_name_do_not_take_each_other_s_place(controller, agent, patiently):
    """Else each would look like a reboot of the other, and what runs there like gone."""
    first = agent(controller, "n1", speaker="boot-1")
    first.send()
    with pytest.raises(InvalidStatus) as refused:
        agent(controller, "n1", token=first.token, speaker="boot-2")
    assert refused.value.response.status_code == 409
    assert b"another machine speaks for n1" in refused.value.response.body
    first.send()
    again = agent(controller, "n1", token=first.token, speaker="boot-1")  # restarted
    again.send()
    again.close()

    def rebooted():
        with contextlib.suppress(InvalidStatus):
            return agent(controller, "n1", token=first.token, speaker="boot-2")
        return None

    assert patiently(rebooted, "the place to be free").send().sequence == 1


@pytest.mark.parametrize(
    "frame",
    ["not json", '{"v":1,"type":"Tick","at":1}', '{"v":9,"type":"Report"}', b"bytes"],
    ids=["text", "another message", "another version", "bytes"],
)
def test_a_frame_that_is_none_of_ours_closes_the_stream(controller, agent, frame):
    """The reason is in the close, and the node is not touched."""
    speaker = agent(controller, "n1")
    speaker.socket.send(frame)
    with pytest.raises(ConnectionClosed) as closed:
        speaker.receive()
    assert closed.value.rcvd.code == 4001
    assert closed.value.rcvd.reason
    assert controller.json("/nodes")["items"] == []


def test_a_node_cannot_speak_for_another(controller, agent):
    """Neither in a report nor in a fault."""
    speaker = agent(controller, "n1")
    with pytest.raises(ConnectionClosed):
        speaker.send(node="n2")
    again = agent(controller, "n1", token=speaker.token)
    with pytest.raises(ConnectionClosed):
        again.send((1, again.fault(node="n2")))
    assert controller.json("/nodes")["items"] == []


def test_an_unchanged_report_costs_no_event_of_its_own(controller, agent, patiently):
    """It keeps the node fresh through the tick that names it."""
    speaker = agent(controller, "n1")
    speaker.send()
    before = controller.json("/nodes/n1")["agent_seen_at"]
    for _ in range(20):
        speaker.send()
    patiently(lambda: controller.json("/nodes/n1")["agent_seen_at"] > before, "a tick")
    kinds = [node["agent_sequence"] for node in controller.json("/nodes")["items"]]
    assert kinds == [1]
