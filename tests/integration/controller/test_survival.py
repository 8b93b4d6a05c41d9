"""What a controller has acknowledged it still knows after any death."""

import sqlite3
import threading

import pytest

from aegis.wire import encode


def test_a_killed_controller_comes_back_to_the_same_state(make, agent, patiently):
    """Nothing acknowledged is lost, and the replay gives the very same nodes and incidents."""
    program = make().start()
    one, two = agent(program, "n1"), agent(program, "n2", spool="spool-2")
    two.send(launchers=(two.launcher(),))
    patiently(lambda: program.json("/jobs/llama")["state"] == "starting", "the job to start")
    answer = one.send((1, one.fault("gpu0")), (2, one.fault("gpu1")))
    assert answer.stored == 2
    assert program.post("/nodes/n2:cordon", {"reason": "test"}).status_code == 200
    before = program.state()
    assert len(before["incidents"]) == 2
    program.kill()
    program.start()
    after = program.state()
    for state in (before, after):
        for node in state["nodes"]:  # ticks between the look and the kill move these on
            for key in ("seen_at", "agent_seen_at", "contacts"):
                node.pop(key)
    assert after == before
    assert program.json("/summary")["epoch"] == 2


def test_every_acknowledged_fault_survives_a_kill_in_the_middle(make, agent):
    """An agent forgets what was acknowledged, so each such fault must be in the log, once."""
    program = make().start()
    speaker = agent(program, "n1")
    speaker.send()
    acknowledged, sent = 0, 0
    killer = threading.Timer(1.0, program.process.kill)
    killer.start()
    try:
        while True:
            sent += 1
            acknowledged = speaker.send((sent, speaker.fault(f"gpu{sent % 2}"))).stored
    except Exception:  # noqa: BLE001  however the connection broke
        killer.join()
    program.process.wait()
    program.start()
    again = agent(program, "n1", token=speaker.token)
    assert again.send().stored >= acknowledged > 0
    signals = sum(1 + one["suppressed"] for one in program.json("/incidents")["items"])
    assert signals in (sent - 1, sent)
    replayed = again.send((sent, again.fault(f"gpu{sent % 2}")))
    assert replayed.stored == sent
    signals = sum(1 + one["suppressed"] for one in program.json("/incidents")["items"])
    assert signals == sent


def test_a_fault_that_is_sent_again_counts_once(controller, agent):
    """Delivery is at least once; the number within the spool makes it exactly once."""
    speaker = agent(controller, "n1")
    fault = speaker.fault()
    for _ in range(3):
        assert speaker.send((1, fault)).stored == 1
    [incident] = controller.json("/incidents")["items"]
    assert incident["suppressed"] == 0


def test_a_stopped_controller_leaves_a_snapshot_and_exits_with_0(make, agent):
    """A clean end saves the state, so that the next start has nothing to replay."""
    program = make().start()
    agent(program, "n1").send()
    assert program.stop() == 0
    with sqlite3.connect(program.data / "aegis.db") as database:
        newest = database.execute("SELECT max(number) FROM snapshots").fetchone()
        assert newest == database.execute("SELECT max(number) FROM events").fetchone()
    program.start()
    assert [node["name"] for node in program.json("/nodes")["items"]] == ["n1"]


def test_a_damaged_newest_snapshot_falls_back_to_the_one_before(make, agent):
    """The log still reaches back to the older snapshot, so nothing is missing."""
    program = make().start()
    speaker = agent(program, "n1")
    speaker.send()
    program.stop()
    program.start()
    again = agent(program, "n1", token=speaker.token)
    again.send((1, again.fault()))
    again.close()
    program.stop()
    with sqlite3.connect(program.data / "aegis.db") as database:
        assert database.execute("SELECT count(*) FROM snapshots").fetchone() == (2,)
        database.execute(
            "UPDATE snapshots SET body = x'00' WHERE number = (SELECT max(number) FROM snapshots)"
        )
    program.start()
    assert len(program.json("/incidents")["items"]) == 1
    assert "snapshot damaged, the one before it is used" in program.log.read_text()


def test_old_events_go_when_there_are_too_many(make, agent, patiently):
    """The log stays within its limit and the state is what it was."""
    program = make().start("--retention-mebibytes", "0.02", "--snapshot-events", "20")
    speaker = agent(program, "n1")
    for number in range(1, 150):
        speaker.send((number, speaker.fault("gpu0")))
    patiently(lambda: program.metric("aegis_event_log_bytes")[""] < 60_000, "events to go")
    [incident] = program.json("/incidents")["items"]
    assert incident["suppressed"] == 148
    program.kill()
    program.start()
    [incident] = program.json("/incidents")["items"]
    assert incident["suppressed"] == 148
    with sqlite3.connect(program.data / "aegis.db") as database:
        assert database.execute("SELECT min(number) FROM events").fetchone()[0] > 1


def test_an_event_that_breaks_a_promise_is_set_aside_and_aegis_holds(make, agent, patiently):
    """The controller comes back without it and acts on nothing until --release-hold."""
    program = make().start()
    speaker = agent(program, "n1")
    speaker.send()
    program.stop()
    nonsense = encode(speaker.report).replace("NodeReport", "NodeReported", 1)
    with sqlite3.connect(program.data / "aegis.db") as database:
        newest = database.execute("SELECT max(number) FROM events").fetchone()[0]
        database.execute(
            "INSERT INTO events VALUES (?, 0, 'NodeReported', ?)", (newest + 1, nonsense.encode())
        )
    program.start()
    assert "ON HOLD" in program.said
    summary = program.json("/summary")
    assert summary["level"] == "critical"
    assert f"event {newest + 1}" in summary["held"]
    assert summary["policy"]["job_mode"] == "observe"
    assert program.metric("aegis_automation_held")[""] == 1
    assert [node["name"] for node in program.json("/nodes")["items"]] == ["n1"]
    program.stop()
    program.start("--release-hold")
    assert program.json("/summary")["held"] == ""
    assert program.json("/summary")["policy"]["job_mode"] == "enforce"


@pytest.mark.parametrize("signal_first", [True, False], ids=["stopped", "killed"])
def test_sessions_grow_across_restarts(make, agent, signal_first):
    """A late report of a connection before the restart must never pass for a new one."""
    program = make().start()
    first = agent(program, "n1")
    first.send()
    before = program.json("/nodes/n1")["agent_session"]
    program.stop() if signal_first else program.kill()
    program.start()
    agent(program, "n1", token=first.token).send()
    assert program.json("/nodes/n1")["agent_session"] > before
