"""One rank's checkpoints: exact resumption, failed saves, stale generations."""

import shutil
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run `make setup`")

import numpy as np  # noqa: E402
from tiny_training import Run, seed, steps  # noqa: E402
from torch.distributed import checkpoint as dcp  # noqa: E402

from aegis.worker import (  # noqa: E402
    Checkpointer,
    StaleGenerationError,
    progress,
)
from aegis.worker.fence import Fence, raise_fence  # noqa: E402
from aegis.worker.folder import candidates  # noqa: E402


def test_a_resumed_run_goes_on_to_the_last_bit(tmp_path) -> None:
    """Weights, moments, every random state and the data position are as they were."""
    first = Run(tmp_path)
    assert first.checkpointer.restore() == 0
    first.train(3)
    assert first.checkpointer.save(3)
    expected = first.train(3)  # while it is written
    assert first.checkpointer.wait()
    second = Run(tmp_path)
    seed(0)
    assert second.checkpointer.restore() == 3
    assert second.data.at == 3
    assert second.train(3) == expected


def test_saving_draws_no_random_number(tmp_path) -> None:
    """A run that saves has the losses of one that does not."""
    expected = Run(tmp_path / "a").train(4)
    saving, losses = Run(tmp_path / "b"), []
    for step in range(1, 5):
        losses += saving.train(1)
        saving.checkpointer.save(step)
    assert saving.checkpointer.wait()
    assert losses == expected


def test_save_every_saves_at_multiples(tmp_path) -> None:
    """And never when told 0."""
    run = Run(tmp_path, keep=2)
    saved = [step for step in range(1, 8) if run.checkpointer.save_every(2, step)]
    assert saved == [2, 4, 6]
    assert run.checkpointer.wait()
    assert steps(tmp_path) == [6, 4]
    assert not run.checkpointer.save_every(0, 8)


@pytest.mark.parametrize("step", [np.int64(7), torch.tensor(7)])
def test_a_step_may_be_any_whole_number(tmp_path, step) -> None:
    """Loops count with numpy's and torch's, too."""
    run = Run(tmp_path)
    assert run.checkpointer.save(step)
    assert run.checkpointer.wait()
    assert steps(tmp_path) == [7]


@pytest.mark.parametrize("step", [7.0, "7", None, -1])
def test_what_is_no_step_is_refused(tmp_path, step) -> None:
    """It would be a checkpoint that nobody finds again."""
    run = Run(tmp_path)
    with pytest.raises((TypeError, ValueError), match="step is"):
        run.checkpointer.save(step)
    assert steps(tmp_path) == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"keep": 0}, "1 is the least"),
        ({"shared_every": 0}, "1 is the least"),
        ({"random": object()}, "random= is taken"),
    ],
)
def test_what_could_not_be_kept_is_refused_at_once(tmp_path, fields, why) -> None:
    """Not at the first save, and not by losing it."""
    with pytest.raises(ValueError, match=why):
        Run(tmp_path, **fields)


def test_a_save_that_fails_harms_nothing(tmp_path, caplog) -> None:
    """Training goes on, the older checkpoint is intact, and a sentence says what happened."""
    run = Run(tmp_path)
    assert run.checkpointer.save(1)
    blocker = tmp_path / ".saving-step-00000002-g0-e0"
    blocker.touch()  # no folder can be made in its place
    assert not run.checkpointer.save(2)
    assert not run.checkpointer.wait()
    assert "The checkpoint of step 2 was not saved" in caplog.text
    assert "Training goes on" in caplog.text
    assert steps(tmp_path) == [1]
    blocker.unlink(missing_ok=True)
    assert run.checkpointer.save(3)
    assert run.checkpointer.wait()
    assert steps(tmp_path) == [3, 1]


def test_a_stale_generation_must_end(tmp_path) -> None:
    """Its save is refused by an exception that no training loop expects."""
    stale = progress.Session(fence=Fence(job="j", generation=2, epoch=1))
    progress._opened.append(stale)
    run = Run(tmp_path)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    raise_fence(tmp_path, Fence(job="j", generation=3, epoch=1))
    with pytest.raises(StaleGenerationError, match="may no longer commit"):
        run.checkpointer.save(2)
    assert steps(tmp_path) == [1]
    assert not list(tmp_path.glob(".saving-*"))


def test_a_generation_replaced_while_it_saves_commits_nothing(tmp_path) -> None:
    """What was copied before the fence went up is refused at the commit."""
    progress._opened.append(progress.Session(fence=Fence(job="j", generation=2, epoch=1)))
    run = Run(tmp_path)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    run.checkpointer._writer._process.send_signal(signal.SIGSTOP)
    assert run.checkpointer.save(2)
    raise_fence(tmp_path, Fence(job="j", generation=3, epoch=1))
    run.checkpointer._writer._process.send_signal(signal.SIGCONT)
    with pytest.raises(StaleGenerationError, match="may no longer commit"):
        run.checkpointer.wait()
    with pytest.raises(StaleGenerationError):
        run.checkpointer.save_every(0, 3)
    assert steps(tmp_path) == [1]
    assert not list(tmp_path.glob(".saving-*"))


def test_what_was_copied_is_saved_however_training_goes_on(tmp_path) -> None:
    """The tensors change while the writer has not even begun; what is read back did not."""
    run = Run(tmp_path)
    run.train(2)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    run.checkpointer._writer._process.send_signal(signal.SIGSTOP)
    expected = run.state()
    assert run.checkpointer.save(2)
    run.train(5)
    run.checkpointer._writer._process.send_signal(signal.SIGCONT)
    assert run.checkpointer.wait()
    again = Run(tmp_path)
    assert again.checkpointer.restore() == 2
    assert again.holds(expected)


def test_a_writer_that_dies_costs_one_checkpoint(tmp_path, caplog) -> None:
    """The next save has another."""
    run = Run(tmp_path)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    run.checkpointer._writer._process.send_signal(signal.SIGSTOP)
    assert run.checkpointer.save(2)
    run.checkpointer._writer._process.kill()
    assert not run.checkpointer.wait()
    assert "the process that writes checkpoints has died" in caplog.text
    assert run.checkpointer.save(3)
    assert run.checkpointer.wait()
    assert steps(tmp_path) == [3, 1]


def test_what_nobody_has_foreseen_costs_one_checkpoint(tmp_path, monkeypatch, caplog) -> None:
    """It is told with its traceback, `wait` says that it was not saved, and the next one is."""
    run = Run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(run.checkpointer._saves, "_conclude", lambda *_: 1 / 0)
        assert run.checkpointer.save(1)
        assert not run.checkpointer.wait()
    assert "ZeroDivisionError" in caplog.text
    assert run.checkpointer.save(2)
    assert run.checkpointer.wait()
    assert steps(tmp_path) == [2]


def test_memory_is_taken_once(tmp_path) -> None:
    """Every save goes into the same, also when what is no tensor has grown a little."""
    run = Run(tmp_path)
    assert run.checkpointer.save(1)
    stage = run.checkpointer._stage
    run.data.at = 10**100
    assert run.checkpointer.save(2)
    assert run.checkpointer._stage is stage
    run.data.at = bytes(5_000_000)  # it needs more now
    assert run.checkpointer.save(3)
    assert run.checkpointer.wait()
    again = Run(tmp_path)
    assert again.checkpointer.restore() == 3
    assert again.data.at == bytes(5_000_000)


def test_a_state_that_changes_its_shape_is_laid_out_anew(tmp_path) -> None:
    """Momentum that appears with the first step, a layer that is added."""
    run = Run(tmp_path)
    assert run.checkpointer.save(1)
    run.model.register_buffer("seen", torch.arange(7, dtype=torch.int16))
    run.model.register_buffer("halves", torch.full((3, 5), 1.5, dtype=torch.bfloat16).t())
    run.model.register_buffer("empty_one", torch.empty(0))
    assert run.checkpointer.save(2)
    assert run.checkpointer.wait()
    state = {"model": {name: torch.zeros_like(one) for name, one in run.model.state_dict().items()}}
    dcp.load(state, checkpoint_id=tmp_path / "step-00000002", no_dist=True)  # plain dcp reads it
    for name, one in run.model.state_dict().items():
        assert torch.equal(state["model"][name], one)


def test_a_local_disk_keeps_what_does_not_go_into_the_folder(tmp_path) -> None:
    """Every save there, every third into the folder; the newest that holds is taken."""
    where = {"local_folder": tmp_path / "local", "shared_every": 3}
    run, weights = Run(tmp_path / "shared", **where), {}
    for step in range(1, 6):
        run.train(1)
        weights[step] = run.model[0].weight.detach().clone()
        assert run.checkpointer.save(step)
        assert run.checkpointer.wait()
    assert steps(tmp_path / "shared") == [3]
    again = Run(tmp_path / "shared", **where)
    assert again.checkpointer.restore() == 5
    assert torch.equal(again.model[0].weight, weights[5])
    [shard] = (tmp_path / "local").glob("disk/rank-0-step-00000005/shard")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    again = Run(tmp_path / "shared", **where)
    assert again.checkpointer.restore() == 4
    assert torch.equal(again.model[0].weight, weights[4])
    [passed_over] = again.checkpointer._restoring.passed_over
    assert passed_over.reason == "shard of rank 0 on local disk: hash differs"
    shutil.rmtree(tmp_path / "local")
    again = Run(tmp_path / "shared", **where)
    assert again.checkpointer.restore() == 3
    assert torch.equal(again.model[0].weight, weights[3])


def test_suspect_checkpoints_are_passed_over(tmp_path, monkeypatch) -> None:
    """By what the launcher says, and from then on by a file beside the marker."""
    run = Run(tmp_path)
    for step in (1, 2):
        assert run.checkpointer.save(step)
        assert run.checkpointer.wait()
    taken = {one.step: one.marker.taken_at for one in candidates(tmp_path)}
    monkeypatch.setenv("AEGIS_SUSPECT", f"{taken[2]}:0")
    again = Run(tmp_path)
    assert again.checkpointer.restore() == 1
    monkeypatch.delenv("AEGIS_SUSPECT")
    assert Run(tmp_path).checkpointer.restore() == 1
    (tmp_path / "step-00000002" / "suspect.json").unlink()  # somebody is sure that it is good
    assert Run(tmp_path).checkpointer.restore() == 2


def test_what_a_save_has_cost_is_told(tmp_path) -> None:
    """In its marker, and to the launcher."""
    run = Run(tmp_path)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    [one] = candidates(tmp_path)
    assert one.marker.stall_seconds > 0
    assert one.marker.taken_at < one.marker.at
    told = progress.current().progress
    assert told.checkpoint_stall_seconds == one.marker.stall_seconds
    assert told.checkpoint_durable_seconds > 0


def test_a_checkpointer_needs_a_folder() -> None:
    """Of its own, or the launcher's."""
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="aegis run --checkpoint-folder"):
        Checkpointer(model=model, optimizer=torch.optim.SGD(model.parameters()))


def test_nothing_of_torch_is_imported_for_progress() -> None:
    """`import aegis.worker` alone must not cost seconds."""
    code = "import sys, aegis.worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ENDING = """
import subprocess, sys, torch
from aegis.worker import Checkpointer
model = torch.nn.Linear(2000, 2000)
checkpointer = Checkpointer(sys.argv[1], model=model, optimizer=torch.optim.SGD(model.parameters()))
checkpointer.save(1)
checkpointer.wait()
checkpointer._writer._process.send_signal(19)  # it writes nothing until it is let
checkpointer.save(2)
goes_on = ["sh", "-c", f"sleep 2; kill -CONT {checkpointer._writer._process.pid}"]
subprocess.Popen(goes_on, start_new_session=True)
if sys.argv[2] == "fail":
    raise RuntimeError("boom")
"""


@pytest.mark.parametrize(("how", "status", "saved"), [("fail", 1, [1]), ("end", 0, [2, 1])])
def test_the_last_save_is_waited_for_unless_the_script_fails(tmp_path, how, status, saved) -> None:
    """A launcher hears of a failure at once; a script that is done loses nothing."""
    script, folder = tmp_path / "script.py", tmp_path / "checkpoints"
    script.write_text(ENDING)
    with (tmp_path / "said").open("w") as said:
        command = [sys.executable, str(script), str(folder), how]
        done = subprocess.run(command, stdout=said, stderr=said, check=False, timeout=120)
    told = (tmp_path / "said").read_text()
    assert done.returncode == status, told
    assert ("RuntimeError: boom" in told) == (how == "fail")
    assert steps(folder) == saved
