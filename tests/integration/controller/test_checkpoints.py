"""`aegis checkpoints` against a real controller and a real folder."""

import json
from dataclasses import replace

import pytest

from aegis.worker import folder as files
from aegis.worker.fence import Fence
from aegis.worker.folder import measure, saving_path

FENCE = Fence(job="llama", generation=2, epoch=1)


def commit(folder, step):
    saving = saving_path(folder, step, FENCE)
    saving.mkdir(parents=True)
    (saving / "__0_0.distcp").write_text(f"step {step}")
    files.commit(folder, step, FENCE, {"__0_0.distcp": measure(saving / "__0_0.distcp")}, 1)
    return folder / f"step-{step:08d}"


@pytest.fixture
def job(shared, agent, tmp_path):
    """A job whose folder holds three checkpoints; its name and the folder."""
    name, folder = f"job-{tmp_path.name[-12:]}".replace("_", "-"), tmp_path / "checkpoints"
    speaker = agent(shared, f"n-{name}")
    launcher = speaker.launcher(name)
    spec = replace(launcher.spec, checkpoint_folder=str(folder))
    speaker.send(launchers=(replace(launcher, spec=spec),))
    for step in (10, 20, 30):
        commit(folder, step)
    return name, folder


def test_they_are_listed_with_advice(shared, job):
    """Where nothing is known of failures and costs, no figure is made up."""
    name, folder = job
    done = shared.cli("checkpoints", name)
    assert done.returncode == 0, done.stderr
    assert str(folder) in done.stdout
    assert "save every  not known yet" in done.stdout
    page = json.loads(shared.cli("checkpoints", name, "-o", "json").stdout)
    assert [one["step"] for one in page["items"]] == [30, 20, 10]
    assert page["items"] == shared.json(f"/jobs/{name}/checkpoints")["items"]


def test_a_bad_one_is_named(shared, job):
    """The exit code says it too, for scripts; one step may be asked for."""
    name, folder = job
    assert shared.cli("checkpoints", name, "verify").returncode == 0
    (folder / "step-00000020" / "__0_0.distcp").write_text("step 21")
    done = shared.cli("checkpoints", name, "verify")
    assert done.returncode == 1
    assert "shard __0_0.distcp of rank 0: hash differs" in done.stdout
    assert shared.cli("checkpoints", name, "verify", "--step", "30").returncode == 0
    answer = shared.post(f"/jobs/{name}/checkpoints:verify", {"step": 20}).json()
    assert [(one["step"], one["state"]) for one in answer["items"]] == [(20, "bad")]


def test_pruning_needs_a_reason_and_keeps_the_newest(shared, job):
    """What was deleted is told."""
    name, folder = job
    assert shared.cli("checkpoints", name, "prune").returncode == 2
    done = shared.cli("checkpoints", name, "prune", "--keep", "1", "--reason", "disk is full")
    assert done.returncode == 0, done.stderr
    assert "2 deleted" in done.stdout
    assert [path.name for path in folder.glob("step-*")] == ["step-00000030"]
    answer = shared.post(f"/jobs/{name}/checkpoints:prune", {"reason": "x"}, token="")
    assert answer.status_code == 401


def test_what_cannot_be_looked_at_is_said(shared, agent, job, tmp_path):
    """Each with what to do instead."""
    name, folder = job
    speaker = agent(shared, f"m-{name}")
    speaker.send(launchers=(speaker.launcher(f"none-{name}"),))
    done = shared.cli("checkpoints", f"none-{name}", "verify")
    assert done.returncode == 6
    assert "without a checkpoint folder" in done.stderr
    assert shared.cli("checkpoints", "nobody").returncode == 3
    folder.rename(tmp_path / "moved")
    done = shared.cli("checkpoints", name)
    assert done.returncode == 6
    assert "there is no folder" in done.stderr
    assert f"aegis checkpoints --folder {folder} list" in done.stderr
    assert shared.cli("checkpoints", "--folder", tmp_path / "moved", "verify").returncode == 0
