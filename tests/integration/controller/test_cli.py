"""The commands against a real controller: what they print, and their exit codes."""

import json

from aegis.model.fault import FaultClass
from aegis.model.node import Suppressed


def test_status_goes_from_ok_to_degraded(make, agent):
    """The exit code says it too, for scripts."""
    program = make().start()
    assert program.cli("status").returncode == 0
    speaker = agent(program, "n1")
    speaker.send((1, speaker.fault()))
    done = program.cli("status")
    assert done.returncode == 10
    assert done.stdout.startswith("DEGRADED: 1 open incident")
    assert "mode            observe for nodes" in done.stdout
    as_json = program.cli("status", "-o", "json")
    assert json.loads(as_json.stdout)["open_incidents"] == 1


def test_nodes_are_listed_and_shown(shared, agent):
    """Simulated hardware is called simulated wherever it is shown."""
    agent(shared, "c1").send()
    assert "c1" in shared.cli("nodes").stdout
    assert shared.cli("nodes", "list").stdout.startswith("NODE")
    shown = shared.cli("nodes", "show", "c1").stdout
    assert "c1 (simulated hardware)" in shown
    assert "gpu1" in shown
    assert json.loads(shared.cli("nodes", "show", "c1", "-o", "json").stdout)["name"] == "c1"


def test_a_file_that_holds_no_token(shared, tmp_path):
    """One sentence and no traceback for whoever named the wrong file."""
    for content in (b"\x99\xff", b"two\nlines", "tök".encode()):
        (tmp_path / "wrong").write_bytes(content)
        done = shared.cli("nodes", "token", "c9", token_file=tmp_path / "wrong")
        assert done.returncode == 4
        assert "wrong holds no token" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_operator_takes_a_node_out_and_puts_it_back(shared, agent):
    """Each verb needs a reason and says how the node stands then."""
    agent(shared, "c2").send()
    assert shared.cli("nodes", "cordon", "c2").returncode == 2
    done = shared.cli("nodes", "cordon", "c2", "--reason", "fan is loud")
    assert done.stdout == "c2 is cordoned (state: cordoned)\n"
    assert "fan is loud" in shared.cli("nodes", "show", "c2").stdout
    again = shared.cli("nodes", "cordon", "c2", "--reason", "x")
    assert again.returncode == 6
    assert "c2 is cordoned already" in again.stderr
    assert shared.cli("nodes", "uncordon", "c2", "--reason", "fixed").returncode == 0
    drained = shared.cli("nodes", "drain", "c2", "--reason", "reseat", "-o", "json")
    assert json.loads(drained.stdout)["name"] == "c2"
    returned = shared.cli("nodes", "return", "c2", "--reason", "done")
    assert returned.returncode == 0, returned.stderr


def test_a_minted_token_is_alone_on_stdout(shared, agent):
    """So that it can go straight into a file."""
    token = shared.cli("nodes", "token", "c3").stdout
    agent(shared, "c3", token=token.strip()).send()


def test_tokens_of_people_are_made_listed_and_revoked(make, tmp_path):
    """A name for each person, so that the record says who did what."""
    program = make().start()
    (tmp_path / "ada").write_text(program.cli("tokens", "add", "ada").stdout)
    ada = {"token_file": tmp_path / "ada"}
    assert program.cli("pause", "--reason", "x", **ada).returncode == 0
    assert program.cli("tokens", **ada).returncode == 4
    listed = json.loads(program.cli("tokens", "-o", "json").stdout)
    (mine,) = [one for one in listed if one["name"] == "ada"]
    assert mine["role"] == "operator"
    assert mine["id"] in program.cli("tokens", "list").stdout
    assert program.cli("tokens", "revoke", mine["id"]).returncode == 0
    assert program.cli("resume", "--reason", "x", **ada).returncode == 4
    again = program.cli("tokens", "revoke", mine["id"])
    assert again.returncode == 3


def test_a_node_says_what_reads_it_and_what_was_suppressed(shared, agent):
    """Who doubts a number sees where it comes from, and what did not come one by one."""
    suppressed = Suppressed(fault_class=FaultClass.GPU_ECC_CORRECTABLE, merged=9_999, dropped=3)
    agent(shared, "c4").send(
        sources=(("gpu", "amdsmi 7.0.2 over a library"),), suppressed=(suppressed,)
    )
    shown = shared.cli("nodes", "show", "c4").stdout
    assert "amdsmi 7.0.2 over a library" in shown
    assert "gpu.ecc.correctable: 9999 merged into the count of others, 3 dropped" in shown
    scraped = shared.get("/metrics").text
    labels = 'class="gpu.ecc.correctable",how="merged",node="c4"'
    assert f"aegis_agent_faults_suppressed_total{{{labels}}} 9999.0" in scraped


def test_incidents_tell_their_story(make, agent):
    """The list has a headline for each; `show` tells it whole with its timeline."""
    program = make().start()
    assert program.cli("incidents", "--state", "open").stdout == "no incident is open\n"
    speaker = agent(program, "n1")
    speaker.send((1, speaker.fault("gpu0")), (2, speaker.fault("gpu1")))
    listed = program.cli("incidents").stdout.splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["inc-000002", "inc-000001"]
    one = program.cli("incidents", "list", "--limit", "1", "-o", "json").stdout
    assert [incident["id"] for incident in json.loads(one)] == ["inc-000002"]
    story = program.cli("incidents", "show", "inc-000001").stdout
    assert story.startswith("inc-000001")
    assert "Evidence" in story
    assert "What to look at" in story
    assert "Timeline" in story


def test_jobs_are_listed_shown_and_stopped(make, agent):
    """The reason is kept."""
    program = make().start()
    speaker = agent(program, "n1")
    speaker.send(launchers=(speaker.launcher(),))
    assert "llama" in program.cli("jobs").stdout
    assert "nodes 1, ranks on each 1" in program.cli("jobs", "show", "llama").stdout
    shown = program.cli("job", "llama").stdout
    assert "0 steps, 0.0 s stood" in shown
    assert "0 of 3 without progress" in shown
    told = json.loads(program.cli("job", "llama", "-o", "json").stdout)
    assert told["history"]["downtime_seconds"] == 0
    why = ("--reason", "a slow disk")
    kept_off = program.cli("jobs", "exclude-node", "llama", "n1", *why)
    assert kept_off.returncode == 6
    assert "start `aegis run` on another node first" in kept_off.stderr
    assert program.cli("jobs", "exclude-node", "llama", "n2", *why).returncode == 6
    assert program.cli("jobs", "include-node", "llama", "n1", *why).returncode == 6
    foretold = program.cli("jobs", "exclude-node", "llama", "n1", "--dry-run")
    assert foretold.returncode == 6
    assert foretold.stdout.startswith("refused: job llama needs 1 node")
    assert "only `aegis run` starts it" in program.cli("jobs", "stop", "llama", "--dry-run").stdout
    unreasoned = program.cli("jobs", "stop", "llama")
    assert (unreasoned.returncode, "--dry-run" in unreasoned.stderr) == (2, True)
    done = program.cli("jobs", "restart", "llama", *why)
    assert done.returncode in {0, 6}  # it may still wait for a node
    done = program.cli("jobs", "stop", "llama", "--reason", "wrong data")
    assert done.stdout.startswith("llama is being stopped")
    assert "wrong data" in program.cli("jobs", "show", "llama").stdout


def test_errors_are_a_sentence_and_a_hint(shared, tmp_path):
    """On stderr, with the exit code of their kind, and never a traceback."""
    missing = shared.cli("nodes", "show", "none")
    assert missing.returncode == 3
    assert missing.stderr.startswith("aegis: there is no node named 'none'\nhint: ")
    wrong = tmp_path / "wrong.token"
    wrong.write_text("aegis_operator_none")
    assert shared.cli("nodes", "token", "x", token_file=wrong).returncode == 4
    absent = shared.cli("nodes", "token", "x", token_file=tmp_path / "absent")
    assert absent.returncode == 4
    assert "cannot be read" in absent.stderr


def test_a_controller_that_is_away(make):
    """The address is named, and how to name another."""
    program = make()
    program.url = "http://127.0.0.1:9"
    program.data.mkdir()
    away = program.cli("status")
    assert away.returncode == 5
    assert away.stderr.startswith("aegis: there is no controller at http://127.0.0.1:9")
    assert "--controller" in away.stderr
