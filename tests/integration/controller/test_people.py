"""What people say to incidents and to all automation, through the command and a real controller."""

import json


def opened(program, agent, node):
    """An incident about a new node of this name; its id."""
    speaker = agent(program, node)
    speaker.send((1, speaker.fault()))
    listed = json.loads(program.cli("incidents", "--node", node, "-o", "json").stdout)
    return listed[0]["id"], speaker


def approving(make, tmp_path, **limits):
    """A controller whose policy wants a person's word."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("mode: approve\n" + "".join(f"{key}: {limits[key]}\n" for key in limits))
    return make().start("--policy", policy)


def test_a_person_agrees_and_aegis_acts(make, agent, tmp_path):
    """Until then status says who is waited for, and the incident how to agree."""
    program = approving(make, tmp_path)
    incident, _speaker = opened(program, agent, "p1")
    assert "1 waiting: `aegis incidents approve ID`" in program.cli("status").stdout
    assert (
        f"aegis incidents approve {incident}" in program.cli("incidents", "show", incident).stdout
    )
    assert program.cli("incidents", "approve", incident).returncode == 2
    done = program.cli("incidents", "approve", incident, "--reason", "spare is warm")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{incident}  admin agreed: spare is warm\n")
    node = json.loads(program.cli("nodes", "show", "p1", "-o", "json").stdout)
    assert (node["state"], node["held_by"]) == ("quarantined", "aegis")
    again = program.cli("incidents", "approve", incident, "--reason", "again")
    assert again.returncode == 6
    assert "asks for no approval" in again.stderr


def test_two_people_are_two_tokens(make, agent, tmp_path):
    """One person cannot be both."""
    program = approving(make, tmp_path, approvals_needed=2)
    incident, _speaker = opened(program, agent, "p1")
    tokens = {}
    for name in ("alice", "bob"):
        (tmp_path / name).write_text(program.cli("tokens", "add", name).stdout)
        tokens[name] = tmp_path / name

    def agree(name):
        return program.cli(
            "incidents", "approve", incident, "--reason", "yes", token_file=tokens[name]
        )

    assert "waits for 2 people to agree" in program.cli("incidents", "show", incident).stdout
    assert "waits for 1 more (alice did) to agree" in agree("alice").stdout
    twice = agree("alice")
    assert (twice.returncode, "another person must" in twice.stderr) == (6, True)
    assert agree("bob").returncode == 0
    node = json.loads(program.cli("nodes", "show", "p1", "-o", "json").stdout)
    assert node["state"] == "quarantined"


def test_what_is_said_survives_a_crash(make, agent, tmp_path):
    """A pause, an acknowledgement, a note and an opinion are events like any other."""
    program = make().start()
    incident, speaker = opened(program, agent, "p1")
    for words in (
        ("incidents", "ack", incident),
        ("incidents", "note", incident, "--reason", "module sits loose"),
        ("incidents", "feedback", incident, "wrong-node", "--reason", "it was the switch"),
        ("pause", "--reason", "racks are moved"),
    ):
        done = program.cli(*words)
        assert done.returncode == 0, done.stderr
    speaker.close()
    program.kill()
    program.start()
    shown = json.loads(program.cli("incidents", "show", incident, "-o", "json").stdout)
    assert shown["acknowledged_by"] == "admin"
    assert (shown["feedback"], shown["feedback_by"]) == ("wrong_node", "admin")
    assert "admin: module sits loose" in [entry["text"] for entry in shown["entries"]]
    status = program.cli("status")
    assert status.stdout.startswith("DEGRADED: admin paused all automation: racks are moved")
    twice = program.cli("pause", "--reason", "again")
    assert twice.returncode == 6
    assert "admin has paused it already: racks are moved" in twice.stderr
    resumed = program.cli("resume", "--reason", "racks stand")
    assert resumed.stdout == "automation goes on: observe for nodes, enforce for jobs\n"


def test_nobody_speaks_without_a_token(shared, agent, tmp_path):
    """Each verb is refused, and says what is missing."""
    agent(shared, "p9").send()
    (tmp_path / "none").write_text("wrong")
    for words in (
        ("pause", "--reason", "x"),
        ("incidents", "approve", "inc-000001", "--reason", "x"),
    ):
        done = shared.cli(*words, token_file=tmp_path / "none")
        assert done.returncode == 4
        assert "the token is not one of this controller's" in done.stderr


def test_an_incident_that_is_none(shared):
    """It is said which, before anything else is asked."""
    done = shared.cli("incidents", "ack", "inc-999999")
    assert done.returncode == 3
    assert "inc-999999" in done.stderr


def test_a_forecast_makes_nothing_up(shared, agent):
    """Before anything was measured, it says so; in tables and as JSON."""
    agent(shared, "p5").send()
    done = shared.cli("forecast")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("spares")
    spares = json.loads(shared.cli("forecast", "-o", "json").stdout)["spares"]
    assert spares["rate"]["is_bound"]
    assert spares["nodes"] >= 1


def test_a_window_is_announced_listed_and_ended(make, agent):
    """What breaks meanwhile is left alone, and the incident says for what."""
    program = make().start()
    assert program.cli("windows").stdout == "no window is open or to come\n"
    wrong = program.cli("windows", "add", "silence", "--for", "soon", "--reason", "x")
    assert wrong.returncode == 2
    assert "write 90s, 30m, 2h or 1d" in wrong.stderr
    ask = ("windows", "add", "silence", "--for", "1h", "--reason", "x", "--class")
    misspelt = program.cli(*ask, "nic.link.dwon")
    assert misspelt.returncode == 2
    assert "did you mean 'nic.link.down'?" in misspelt.stderr
    assert program.cli("windows").stdout == "no window is open or to come\n"
    words = ("windows", "add", "maintenance", "--node", "p1", "--for", "2h", "--reason", "reseat")
    done = program.cli(*words)
    assert done.stdout.startswith("win-000001: maintenance of p1 until 20"), done.stderr
    assert "reseat" in program.cli("windows", "list").stdout
    incident, speaker = opened(program, agent, "p1")
    assert "nobody is told: maintenance win-000001" in (
        program.cli("incidents", "show", incident).stdout
    )
    speaker.close()
    program.kill()
    program.start()
    assert program.cli("windows", "end", "win-000001", "--reason", "done").returncode == 0
    assert program.cli("windows", "end", "win-000001", "--reason", "done").returncode == 3
