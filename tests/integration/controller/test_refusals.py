"""Each way to start it wrong: one sentence that says what to do, and a fitting exit code."""

import os
import signal
import sqlite3


def test_a_second_controller_on_the_same_folder(controller, make):
    """Two writers on one log would be the end of it."""
    second = make(controller.data.name)
    code, said = second.refused()
    assert code == 6
    assert str(controller.data) in said
    assert f"pid {controller.process.pid}" in said
    assert "--data" in said
    assert controller.get("/readyz").status_code == 200


def test_a_taken_port(controller, make):
    """The address is named, and the flag that changes it."""
    code, said = make("other", listen=controller.listen).refused()
    assert code == 6
    assert f"{controller.listen} is already in use by another program" in said
    assert "--listen" in said


def test_no_address(make):
    """A wrong word is a matter of usage, and the form is shown."""
    code, said = make("other", listen="here").refused()
    assert code == 2
    assert "write HOST:PORT" in said


def test_wrong_rules(make, tmp_path):
    """The file, the line and the word that was meant."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "mine.yaml").write_text(
        "apiVersion: aegis/v1\nkind: RuleSet\nname: mine\nrules:\n"
        "  - {id: a, title: A, class: gpu.lost, remedy: drain_nwo}\n"
    )
    code, said = make().refused("--rules", rules)
    assert code == 2
    assert "mine.yaml:5:" in said
    assert "drain_now" in said


def test_a_folder_without_rules(make, tmp_path):
    """No rules at all is a mistake, not a policy."""
    code, said = make().refused("--rules", tmp_path / "nowhere")
    assert code == 2
    assert "--rules" in said


def test_a_policy_with_an_unknown_key(make, policy):
    """The nearest key is suggested."""
    code, said = make().refused("--policy", policy("nodes_out_maximum: 3\n"))
    assert code == 2
    assert "did you mean 'nodes_out_max'" in said


def test_a_policy_with_a_wrong_mode(make, policy):
    """All modes are named."""
    code, said = make().refused("--policy", policy("mode: enforced\n"))
    assert code == 2
    assert "observe, notify, approve, enforce" in said


def test_a_database_that_is_none(make):
    """Something else lies where the log should be: it is not overwritten."""
    program = make()
    program.data.mkdir()
    (program.data / "aegis.db").write_bytes(b"this is no database, but somebody's file" * 100)
    code, said = program.refused()
    assert code == 1
    assert "aegis.db" in said
    assert (program.data / "aegis.db").read_bytes().startswith(b"this is no database")


def test_a_database_of_a_newer_aegis(make):
    """A downgrade must not misread what it does not know."""
    program = make().start()
    program.stop()
    with sqlite3.connect(program.data / "aegis.db") as database:
        database.execute("PRAGMA user_version = 99")
    code, said = program.refused()
    assert code == 1
    assert "newer Aegis" in said


def test_a_reload_takes_good_files_and_refuses_bad_ones(make, policy, patiently):
    """A mistake in the policy changes nothing and is said: in the log, the metrics, the rules."""
    file = policy("mode: observe\n")
    program = make().start("--policy", file)
    file.write_text("mode: enforce\n")
    os.kill(program.process.pid, signal.SIGHUP)
    patiently(lambda: program.json("/policy")["policy"]["mode"] == "enforce", "the new policy")
    file.write_text("mode: everything\n")
    os.kill(program.process.pid, signal.SIGHUP)
    patiently(lambda: program.metric("aegis_config_last_reload_successful")[""] == 0, "the refusal")
    assert program.json("/policy")["policy"]["mode"] == "enforce"
    assert "write one of" in program.json("/rules")["reload_error"]
    file.write_text("mode: notify\n")
    os.kill(program.process.pid, signal.SIGHUP)
    patiently(lambda: program.json("/policy")["policy"]["mode"] == "notify", "the mended policy")
    assert program.json("/rules")["reload_error"] == ""
