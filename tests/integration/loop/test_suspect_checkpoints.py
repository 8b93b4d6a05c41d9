"""A device breaks under real ranks: what was saved since its last good reading is not used."""

import json
import os
import signal

import pytest

from aegis.cli.demo.fleet import simulate

pytestmark = pytest.mark.slow

CHECKPOINT_EVERY = 40  # some seconds: few are saved between the error and the end of the ranks


def saved(fleet):
    """The complete checkpoints on disk: when the state of each step was taken."""
    return {
        int(marker.parent.name.rpartition("-")[2]): json.loads(marker.read_text())["taken_at"]
        for marker in (fleet.folder / "checkpoints").rglob("complete.json")
    }


def last_good_reading(fleet, node, device):
    """When its agent read the device last, and found it healthy."""
    devices = fleet.get(f"/api/v1/nodes/{node}")["devices"]
    return next(one["read_at"] for one in devices if one["name"] == device)


def test_what_was_saved_since_the_last_good_reading_is_passed_over(fleet):
    """The job goes back to an older checkpoint; the incident and the folder say why."""
    before = fleet.job()
    node = before["members"][-1]["node"]
    group = fleet.processes[f"agent-{node}"].pid
    os.killpg(group, signal.SIGSTOP)  # nobody reads the device while the job trains and saves on
    try:
        good_at = last_good_reading(fleet, node, "gpu1")
        unread = fleet.wait(lambda: later(saved(fleet), good_at + 1), 60, "another checkpoint")
        simulate("ecc", str(fleet.folder / node / "gpus"), "1", "umc", "0", "1", "0")
    finally:
        os.killpg(group, signal.SIGCONT)
    incident = fleet.wait(lambda: mended(fleet), 120, "the job to go on elsewhere")
    assert fleet.job()["generation"] == before["generation"] + 1
    assert node not in fleet.members()
    assert node in incident["nodes_before"]
    story = " ".join(entry["text"] for entry in incident["entries"])
    assert f"before the error: {node} gpu1 was read as good then for the last time" in story

    suspects = marked(fleet)
    assert unread in suspects
    assert incident["resumed_step"] == min(suspects) - CHECKPOINT_EVERY
    told = incident["rejected_checkpoints"]
    for step in suspects:
        assert any(f"checkpoint of step {step} is suspect: taken" in one for one in told)


def mended(fleet):
    """The incident of the error, once the job has done a step again."""
    page = fleet.get("/api/v1/incidents?limit=100") or {"items": []}
    found = [one for one in page["items"] if one["fault_class"] == "gpu.ecc.uncorrectable"]
    return next((one for one in found if one["phases"]["first_step_at"]), None)


def marked(fleet):
    """The steps whose folders say that they are suspect."""
    found = (fleet.folder / "checkpoints").rglob("suspect.json")
    return {int(path.parent.name.rpartition("-")[2]) for path in found}


def later(checkpoints, moment):
    """The first step that was saved after this moment; 0 while there is none."""
    return min((step for step, at in checkpoints.items() if at > moment), default=0)
