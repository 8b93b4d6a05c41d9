"""What may die without harm: the controller, an agent, the newest checkpoint."""

import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

from aegis.cli.demo.fleet import NODES, read_losses


def ranks(fleet):
    """Every live rank of the job: (node, rank, pid)."""
    return {
        (node, rank["rank"], rank["pid"])
        for node in NODES
        for launcher in (fleet.get(f"/api/v1/nodes/{node}") or {}).get("launchers", [])
        for rank in launcher["ranks"]
        if rank["phase"] != "exited"
    }


def trained_to(fleet):
    """The newest step by the job's own losses, which need no controller."""
    losses = read_losses(fleet.losses)
    return losses[-1].step if losses else 0


def incidents(fleet):
    """Those of ranks that died or were stopped, by id."""
    page = fleet.get("/api/v1/incidents?limit=100") or {"items": []}
    classes = ("job.worker.exited", "job.hang")
    return {one["id"]: one for one in page["items"] if one["fault_class"] in classes}


def recovered(fleet, known):
    """Wait until an incident that was not known before is closed by a new step."""
    return fleet.wait(
        lambda: next(
            (
                one
                for name, one in incidents(fleet).items()
                if name not in known and one["state"] == "closed"
            ),
            None,
        ),
        90,
        "the incident to close",
    )


def test_losing_the_controller_stops_nothing_and_loses_nothing(fleet, kill):
    """The ranks train on without it, and it comes back to the same job and the same processes."""
    before, generation, known = ranks(fleet), fleet.job()["generation"], incidents(fleet)
    kill("controller")
    step = trained_to(fleet)
    fleet.wait(lambda: trained_to(fleet) > step + 20, 60, "training without a controller")
    fleet.start_controller()
    fleet.wait(lambda: fleet.step() > step + 25, 60, "the controller to see the job again")
    assert ranks(fleet) == before
    assert fleet.job()["generation"] == generation
    assert fleet.job()["state"] == "running"
    assert incidents(fleet) == known


def test_a_rank_that_dies_while_the_controller_is_away_is_mended_when_it_is_back(fleet, kill):
    """A failure waits at its launcher: it is a fact about now, not a message that can be lost."""
    victim, known = max(ranks(fleet), key=lambda one: one[1]), incidents(fleet)
    kill("controller")
    os.kill(victim[2], signal.SIGKILL)
    fleet.start_controller()
    incident = recovered(fleet, known)
    assert incident["phases"]["first_step_at"] is not None
    assert incident["nodes_before"] == incident["nodes_after"]


def test_an_agent_that_dies_takes_no_rank_with_it(fleet, kill):
    """Its launcher speaks to the controller itself, and to the agent again when it is back."""
    before = ranks(fleet)
    node = fleet.members()[0]
    kill(f"agent-{node}")
    step = fleet.step()
    fleet.wait(lambda: fleet.step() > step + 20, 60, "progress past the agent's death")
    fleet.start_agent(node)
    fleet.wait(
        lambda: (
            fleet.get(f"/api/v1/nodes/{node}")["devices"]
            and fleet.get(f"/api/v1/nodes/{node}")["devices"][0]["health"] == "healthy"
        ),
        60,
        "the agent to report its GPUs again",
    )
    step = fleet.step()
    fleet.wait(lambda: fleet.step() > step + 10, 60, "progress past the agent's return")
    assert ranks(fleet) == before
    assert fleet.get(f"/api/v1/nodes/{node}")["state"] == "ready"


def test_a_corrupt_newest_checkpoint_is_passed_over_and_named(fleet):
    """The one before it is used, and the incident says which and why."""
    pid, known = max(ranks(fleet), key=lambda one: one[1])[2], incidents(fleet)
    memories = {memory for one in ranks(fleet) for memory in memories_of(one[2])}
    # Stopped, the job makes no newer checkpoint than the one that is damaged here, until its
    # launchers find that it is stopped.
    for one in ranks(fleet):
        os.kill(one[2], signal.SIGSTOP)
    for memory in memories:  # what is there would be as new, and good
        shutil.rmtree(memory, ignore_errors=True)
    newest = newest_checkpoint(fleet)
    shard = max(newest.glob("*.distcp"), key=lambda file: file.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    incident = recovered(fleet, known)
    step = int(newest.name.rpartition("-")[2])
    assert incident["resumed_step"] < step
    [said] = incident["rejected_checkpoints"]
    assert str(step) in said
    assert shard.name in said


def memories_of(pid) -> set[Path]:
    """Where the launcher of a rank keeps shards in memory."""
    mapped = re.findall(r"(/dev/shm/aegis-run-[^/]+)/", Path(f"/proc/{pid}/maps").read_text())
    return {Path(folder, "memory") for folder in mapped}


def newest_checkpoint(fleet) -> Path:
    folders = [
        folder
        for folder in (fleet.folder / "checkpoints").rglob("step-*")
        if (folder / "complete.json").exists()
    ]
    return max(folders, key=lambda folder: int(folder.name.rpartition("-")[2]))
