"""`aegis checkpoints` on a folder, without a controller."""

import pytest

from aegis.cli.checkpoints import advice
from aegis.cli.main import main
from aegis.worker import folder as files
from aegis.worker.fence import Fence

FENCE = Fence(job="llama", generation=1, epoch=1)


@pytest.fixture
def folder(tmp_path):
    """One checkpoint of a step, whole."""
    saving = files.saving_path(tmp_path, 10, FENCE)
    saving.mkdir(parents=True)
    (saving / "__0_0.distcp").write_text("a shard")
    measured = {path.name: files.measure(path) for path in saving.iterdir()}
    files.commit(tmp_path, 10, FENCE, measured, 1, taken_at=7.0, stall_seconds=0.05)
    return tmp_path


def test_a_step_that_is_not_there_is_no_success(folder, capsys) -> None:
    """Who verifies step 12 before deleting others must not be told that it holds."""
    assert main(["checkpoints", "--folder", str(folder), "verify", "--step", "10"]) == 0
    assert main(["checkpoints", "--folder", str(folder), "verify", "--step", "12"]) == 3
    assert "there is no checkpoint of step 12" in capsys.readouterr().out


def test_prune_says_why_nothing_was_deleted(folder, capsys) -> None:
    """The newest that holds stays."""
    words = ["prune", "--keep", "1", "--reason", "room"]
    assert main(["checkpoints", "--folder", str(folder), *words]) == 0
    assert "older than the newest that holds" in capsys.readouterr().out


def test_a_short_interval_is_no_0_s() -> None:
    """A job of quick steps is advised parts of a second."""
    interval = {
        "now_seconds": 1.2, "advised_seconds": 0.34, "advised_steps": 2, "is_bound": False,
        "stall_seconds": 0.014, "durable_seconds": 0.1, "failure_seconds": 700.0, "reason": "",
    }  # fmt: skip
    told = dict(advice(interval))
    assert told["saves now"] == "every 1.2 s"
    assert told["save every"] == "0.3 s, 2 steps (Young-Daly)"
    assert told["because"].endswith("the job fails every 12 min")
