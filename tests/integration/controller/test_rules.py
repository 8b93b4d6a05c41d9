"""The rules of a running controller: layers, reloads, modes, explanations, replays."""

import json
import os
import re
import signal
from dataclasses import replace

HEAD = "apiVersion: aegis/v1\nkind: RuleSet\nname: site\nrules:\n"
OWN = "  - {id: site.coredump, title: Core dump, class: gpu.coredump, remedy: notify}\n"
SOFTER = "  - {id: gpu.ecc.uncorrectable, override: append, mode: observe}\n"


def site(tmp_path, text):
    folder = tmp_path / "rules.d"
    folder.mkdir(exist_ok=True)
    (folder / "site.yaml").write_text(HEAD + text)
    return folder


def enforcing(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("mode: enforce\n")
    return policy


def opened(program, agent, node, **changes):
    """An incident about a new node of this name; its id."""
    speaker = agent(program, node, spool=f"spool-{node}")
    speaker.report = replace(speaker.report, **changes)
    speaker.send((1, speaker.fault()))
    listed = json.loads(program.cli("incidents", "--node", node, "-o", "json").stdout)
    return listed[0]["id"]


def test_the_site_s_rules_lie_over_the_shipped_ones(make, agent, tmp_path):
    """Its own are asked first; by `append` it changes one thing about a shipped rule."""
    flags = ("--rules", site(tmp_path, OWN + SOFTER), "--policy", enforcing(tmp_path))
    program = make().start(*flags)
    rules = program.json("/rules")["rules"]
    assert (rules[0]["id"], rules[0]["layer"]) == ("site.coredump", 1)
    softened = next(one for one in rules if one["id"] == "gpu.ecc.uncorrectable")
    assert (softened["mode"], softened["remedy"]) == ("observe", "drain_now")
    incident = opened(program, agent, "p1")
    assert program.json(f"/incidents/{incident}")["decisions"][-1]["result"] == "would_act"
    program.stop()
    again = program.start(*flags)
    assert again.json("/rules")["rules"] == rules


def test_a_bad_file_keeps_the_rules_that_were(make, tmp_path, patiently):
    """The answer, the log, the metric and the notice say line and column; mending it mends all."""
    folder = site(tmp_path, OWN)
    program = make().start("--rules", folder)
    digest = program.json("/rules")["digest"]
    site(tmp_path, OWN.replace("gpu.coredump", "gpu.coredmp"))
    done = program.cli("rules", "reload")
    assert done.returncode == 1
    assert (
        "site.yaml:5:50: unknown class 'gpu.coredmp': did you mean 'gpu.coredump'?" in done.stderr
    )
    assert program.json("/rules")["digest"] == digest
    assert program.metric("aegis_config_last_reload_successful")[""] == 0
    assert "gpu.coredmp" in program.cli("rules").stdout
    status = program.cli("status")
    assert status.returncode == 10
    assert status.stdout.startswith("DEGRADED: The last reload was refused, and what was in force")
    assert "site.yaml:5:50: unknown class 'gpu.coredmp'" in status.stdout
    site(tmp_path, OWN.replace("Core dump", "A core dump"))
    os.kill(program.process.pid, signal.SIGHUP)
    patiently(lambda: program.json("/rules")["digest"] != digest, "the mended rules")
    assert program.metric("aegis_config_last_reload_successful")[""] == 1
    assert program.cli("rules", "reload").stdout.endswith(
        f"version {program.json('/rules')['digest']}\n"
    )


def test_a_controller_comes_back_with_the_rules_it_had(make, tmp_path):
    """A mistake in a file that a restart finds must not leave a cluster without a controller."""
    folder = site(tmp_path, OWN)
    program = make().start("--rules", folder)
    rules = program.json("/rules")["rules"]
    program.stop()
    site(tmp_path, OWN.replace("gpu.coredump", "gpu.coredmp"))
    program.start("--rules", folder)
    view = program.json("/rules")
    assert view["rules"] == rules
    assert "site.yaml:5:50" in view["reload_error"]
    assert program.metric("aegis_config_last_reload_successful")[""] == 0
    fresh = make("fresh")
    assert fresh.refused("--rules", folder)[0] == 2


def test_one_rule_is_promoted_on_one_group(make, agent, tmp_path):
    """While the policy only observes, a canary group acts; a typing mistake is refused."""
    program = make().start()
    first = opened(program, agent, "p1", labels=(("group", "canary"),))
    assert program.json(f"/incidents/{first}")["decisions"][-1]["result"] == "would_act"
    unknown = program.cli("rules", "mode", "gpu.ecc.uncorectable", "enforce", "--reason", "x")
    assert unknown.returncode == 3
    strange = ("rules", "mode", "gpu.ecc.uncorrectable", "enforce", "--group", "canari")
    assert "known: canary" in program.cli(*strange, "--reason", "x").stderr
    done = program.cli(
        "rules", "mode", "gpu.ecc.uncorrectable", "enforce", "--group", "canary", "--reason", "try"
    )
    assert "may enforce on nodes of the group canary" in done.stdout
    second = opened(program, agent, "p2", labels=(("group", "canary"),))
    third = opened(program, agent, "p3")
    assert program.json(f"/incidents/{second}")["decisions"][-1]["mode"] == "enforce"
    assert program.json(f"/incidents/{third}")["decisions"][-1]["mode"] == "observe"
    assert (
        "enforce; set to enforce on canary"
        in program.cli("rules", "show", "gpu.ecc.uncorrectable").stdout
    )
    shown = program.cli("rules", "show", "gpu.ecc.uncorrectable").stdout
    assert re.search(r"set by +admin, \d+ s ago: try", shown)
    program.cli(
        "rules", "mode", "gpu.ecc.uncorrectable", "policy", "--group", "canary", "--reason", "done"
    )
    assert program.json("/rules")["modes"] == {}


def test_an_incident_s_rules_are_explained(make, agent):
    """Each rule that speaks of the class, each part with its value, and which one decides."""
    program = make().start()
    incident = opened(program, agent, "p1")
    done = program.cli("rules", "explain", incident)
    assert done.returncode == 0, done.stderr
    assert "▶ gpu.ecc.uncorrectable" in done.stdout
    assert "✓ class: gpu.ecc.uncorrectable" in done.stdout
    assert program.cli("rules", "explain", "inc-999999").returncode == 3


def test_the_past_is_replayed_with_changed_rules(make, agent, tmp_path):
    """Which nodes the changed rules would have left alone, from the controller's own log."""
    program = make().start("--policy", enforcing(tmp_path))
    incident = opened(program, agent, "p1")
    assert program.json(f"/incidents/{incident}")["decisions"][-1]["result"] == "acted"
    folder = site(tmp_path, SOFTER.replace("mode: observe", "unless: {labels: {rack: r1}}"))
    same = program.cli("rules", "simulate", "--rules", str(folder))
    assert same.returncode == 0, same.stderr
    assert "no decision would have been another" in same.stdout
    site(tmp_path, SOFTER)
    done = program.cli("rules", "simulate", "--rules", str(folder), "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["nodes"], found["unreadable"]) == ({"old": ["p1"], "new": []}, 0)
    (row,) = found["incidents"]
    assert (row["old"]["result"], row["new"]["result"]) == ("acted", "would_act")
    lines = program.get("/api/v1/events/export").text
    exported = tmp_path / "events.jsonl"
    exported.write_text(lines)
    table = program.cli("rules", "simulate", "--rules", str(folder), "--events", str(exported))
    assert "drain_now: acted" in table.stdout
    assert "only by the old  p1" in table.stdout
    asked = program.cli(
        "rules", "simulate", "--rules", str(folder), "--as-mode", "approve", "-o", "json"
    )
    (row,) = json.loads(asked.stdout)["incidents"]
    assert (row["old"]["result"], row["new"]["result"]) == ("needs_approval", "would_act")
