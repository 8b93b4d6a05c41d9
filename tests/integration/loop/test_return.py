"""A person returns a node to a real controller; its real agent looks closely at it first."""

import json
import subprocess
import sys

from aegis.cli.demo.fleet import NODES

VALIDATION_SECONDS = 150


def aegis(fleet, *words):
    access = ["--controller", fleet.url]
    if words[:2] != ("nodes", "show"):
        access += ["--token-file", str(fleet.admin_token)]
    command = [sys.executable, "-m", "aegis.cli.main", *words, *access]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def spare(fleet):
    return next(node for node in NODES if node not in fleet.members())


def test_a_returned_node_is_validated_while_the_job_trains_on(fleet):
    """Repairing meanwhile, held by who asked; every step can be read afterwards."""
    node = spare(fleet)
    aegis(fleet, "nodes", "drain", node, "--reason", "a module is exchanged")
    fleet.wait(
        lambda: fleet.get(f"/api/v1/nodes/{node}")["state"] == "quarantined", 30, "the drain"
    )
    told = aegis(fleet, "nodes", "return", node, "--reason", "done", "--validate", "light")
    assert told == f"{node} is being validated: `aegis nodes show {node}` tells how\n"
    assert fleet.get(f"/api/v1/nodes/{node}")["state"] == "repairing"
    step = fleet.step()
    fleet.wait(
        lambda: fleet.get(f"/api/v1/nodes/{node}")["state"] == "ready",
        VALIDATION_SECONDS,
        "the end of the validation",
    )
    fleet.wait(lambda: fleet.step() > step, 60, "the job to train on")
    shown = json.loads(aegis(fleet, "nodes", "show", node, "-o", "json"))
    last = shown["validations"][-1]
    states = {one["name"]: one["state"] for one in last["steps"]}
    assert (last["state"], states["all-reduce"], states["host memory"]) == (
        "unknown",
        "pass",
        "pass",
    )
    assert states["gpu memory"] == "unknown"
    table = aegis(fleet, "nodes", "show", node)
    assert "light, asked for by admin" in table
    assert "all-reduce" in table
