"""One rank's checkpoints: exact resumption, failed saves, stale generations."""

import gc
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run `make setup`")

import numpy as np  # noqa: E402  after the check
from torch.distributed import checkpoint as dcp  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from aegis.worker import (  # noqa: E402
    Checkpointer,
    StaleGenerationError,
    overlap,
    progress,
)
from aegis.worker.fence import Fence, raise_fence  # noqa: E402
from aegis.worker.folder import candidates  # noqa: E402


def seed(number):
    """All that a script may draw from."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  scripts still do
    torch.manual_seed(number)


class Count:
    """Where a loader is in its data."""

    def __init__(self):
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Run:
    """A tiny training that draws from every source of random numbers."""

    def __init__(self, folder, **fields):
        seed(7)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.data = Count()
        self.checkpointer = Checkpointer(
            folder, model=self.model, optimizer=self.optimizer, data=self.data, **fields
        )

    def train(self, steps):
        losses = []
        for _ in range(steps):
            noise = random.random() + np.random.random()  # noqa: NPY002
            loss = (self.model(torch.randn(8, 4)) + noise).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.data.at += 1
            losses.append(loss.item())
        return losses


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch):
    monkeypatch.delenv("AEGIS_PROGRESS_PAGE", raising=False)
    monkeypatch.delenv("AEGIS_CHECKPOINT_FOLDER", raising=False)
    monkeypatch.setattr(progress, "_opened", [])


def steps(folder):
    return [one.step for one in candidates(folder)]


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
    expected = {name: value.clone() for name, value in run.model.state_dict().items()}
    moments = [one["exp_avg"].clone() for one in run.optimizer.state.values()]
    assert run.checkpointer.save(2)
    run.train(5)
    run.checkpointer._writer._process.send_signal(signal.SIGCONT)
    assert run.checkpointer.wait()
    again = Run(tmp_path)
    assert again.checkpointer.restore() == 2
    for name, value in again.model.state_dict().items():
        assert torch.equal(value, expected[name])
    restored = [one["exp_avg"] for one in again.optimizer.state.values()]
    assert all(map(torch.equal, restored, moments))


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


class Held:
    """A copy that goes on beside training and gets no processor until somebody waits for it."""

    def __init__(self, monkeypatch):
        overlap.copying.acquire()
        self._is_held, wait = True, overlap.Rest.wait

        def waited(rest):
            self.go_on()
            wait(rest)

        monkeypatch.setattr(overlap.Rest, "wait", waited)

    def go_on(self):
        if self._is_held:
            self._is_held = False
            overlap.copying.release()


@pytest.fixture
def held(monkeypatch):
    """Holds each copy when it is called."""
    made = []
    yield lambda: made.append(Held(monkeypatch)) or made[-1]
    for one in made:
        one.go_on()


def test_the_optimizers_step_waits_for_a_copy_that_goes_on_beside_training(tmp_path, held) -> None:
    """Nothing is copied when `save` returns; all is before the step that changes it."""
    run = Run(tmp_path, overlap=True)
    run.train(2)
    assert run.checkpointer.save(1)  # it takes the memory
    assert run.checkpointer.wait()
    hold = held()
    expected = {name: value.clone() for name, value in run.model.state_dict().items()}
    moments = [one["exp_avg"].clone() for one in run.optimizer.state.values()]
    assert run.checkpointer.save(2)
    assert run.checkpointer._overlap.rest._pairs
    assert hold._is_held
    run.train(5)
    assert not hold._is_held
    assert run.checkpointer.wait()
    again = Run(tmp_path)
    assert again.checkpointer.restore() == 2
    for name, value in again.model.state_dict().items():
        assert torch.equal(value, expected[name])
    restored = [one["exp_avg"] for one in again.optimizer.state.values()]
    assert all(map(torch.equal, restored, moments))


def test_what_the_forward_pass_changes_is_copied_at_once(tmp_path, held) -> None:
    """Running statistics are of the step that was saved, not of the pass that followed."""
    run = Run(tmp_path, overlap=True)
    run.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    fields = {"model": run.model, "optimizer": run.optimizer, "overlap": True}
    run.checkpointer = Checkpointer(tmp_path, **fields)
    run.train(2)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    held()
    mean = run.model[1].running_mean.clone()
    assert run.checkpointer.save(2)
    run.train(1)
    assert run.checkpointer.wait()
    assert not torch.equal(run.model[1].running_mean, mean)
    assert Checkpointer(tmp_path, **fields).restore() == 2
    assert torch.equal(run.model[1].running_mean, mean)


def test_a_state_that_is_changed_while_it_is_copied_is_not_saved(tmp_path, held, caplog) -> None:
    """Half of one step and half of the next is no checkpoint; the older ones and the next are."""
    run = Run(tmp_path, overlap=True)
    run.train(1)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    hold = held()
    assert run.checkpointer.save(2)
    with torch.no_grad():
        run.model[0].weight.mul_(2.0)
    hold.go_on()
    assert not run.checkpointer.wait()
    assert "model.0.weight was changed while it was copied, outside of the" in caplog.text
    assert "without overlap=True. Training goes on" in caplog.text
    assert run.checkpointer.save(3)
    assert run.checkpointer.wait()
    assert steps(tmp_path) == [3, 1]


def test_an_optimizer_is_let_go_with_its_checkpointer(tmp_path) -> None:
    """A function that is called again in the same process makes another one each time."""
    run = Run(tmp_path, overlap=True)
    assert len(run.optimizer._optimizer_step_pre_hooks) == 1
    assert len(run.optimizer._optimizer_step_post_hooks) == 1
    run.checkpointer = None
    gc.collect()
    assert not run.optimizer._optimizer_step_pre_hooks
    assert not run.optimizer._optimizer_step_post_hooks


def test_overlap_needs_an_optimizer_that_can_wait(tmp_path) -> None:
    """Anything else would change what is being copied."""
    with pytest.raises(ValueError, match=r"overlap=True needs optimizers of torch\.optim.*object"):
        Checkpointer(tmp_path, model=torch.nn.Linear(1, 1), optimizer=object(), overlap=True)


def test_overlap_is_refused_where_a_step_may_be_replayed(tmp_path) -> None:
    """A CUDA graph runs no hook."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    with pytest.raises(ValueError, match="cannot be with capturable=True"):
        Checkpointer(tmp_path, model=model, optimizer=optimizer, overlap=True)


def test_the_step_waits_also_when_the_checkpointer_is_gone(tmp_path, monkeypatch) -> None:
    """One that lives in a function only: fused optimizers leave no version that would tell."""
    run = Run(tmp_path)
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1, momentum=0.9, fused=True)
    run.train(2)
    expected = run.model[0].weight.detach().clone()

    def phase():
        Checkpointer(
            tmp_path, model=run.model, optimizer=run.optimizer, overlap=True, data=run.data
        ).save(2)

    copy = overlap._copy
    monkeypatch.setattr(overlap, "_copy", lambda pairs: (time.sleep(0.3), copy(pairs)))
    phase()
    gc.collect()
    run.train(1)
    assert not torch.equal(run.model[0].weight, expected)
    again = Checkpointer(tmp_path, model=run.model, optimizer=run.optimizer, data=run.data)
    for _ in range(1000):
        if steps(tmp_path) == [2]:
            break
        time.sleep(0.01)
    assert again.restore() == 2
    assert torch.equal(run.model[0].weight, expected)


def test_a_closure_may_save(tmp_path) -> None:
    """What is saved within a step is copied before the step goes on."""
    run = Run(tmp_path, overlap=True)
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1, momentum=0.9, fused=True)
    fields = {"model": run.model, "optimizer": run.optimizer}
    checkpointer = Checkpointer(tmp_path, overlap=True, **fields)
    run.train(2)
    expected = run.model[0].weight.detach().clone()

    def closure():
        loss = run.model(torch.randn(8, 4)).square().mean()
        loss.backward()
        assert checkpointer.save(2)
        assert not checkpointer._overlap.rest._pairs
        return loss

    run.optimizer.step(closure)
    assert checkpointer.wait()
    assert not torch.equal(run.model[0].weight, expected)
    assert checkpointer.restore() == 2
    assert torch.equal(run.model[0].weight, expected)
    assert checkpointer.save(3)
    assert checkpointer._stage is not None
    assert not checkpointer._overlap._stepping


def test_a_hook_of_the_scripts_own_comes_after_the_copy(tmp_path, held) -> None:
    """It may change parameters: it is part of the step, whenever it was registered."""
    run = Run(tmp_path)

    def halve(*_):
        run.model[0].weight.data.mul_(0.5)

    run.optimizer.register_step_pre_hook(halve)
    fields = {"model": run.model, "optimizer": run.optimizer, "data": run.data}
    run.checkpointer = Checkpointer(tmp_path, overlap=True, **fields)
    run.train(1)
    assert run.checkpointer.save(1)
    assert run.checkpointer.wait()
    held()
    expected = run.model[0].weight.detach().clone()
    assert run.checkpointer.save(2)
    run.train(1)
    assert run.checkpointer.wait()
    assert run.checkpointer.restore() == 2
    assert torch.equal(run.model[0].weight, expected)


def test_what_has_no_memory_of_its_own_is_copied_at_once(tmp_path) -> None:
    """A tensor made of others; and a buffer that only shares a parameter's storage."""
    both = TwoTensor(torch.eye(3), torch.eye(3))
    assert overlap.key_of(both) is None
    flat = torch.zeros(24)
    assert overlap.key_of(flat[:16]) != overlap.key_of(flat[20:])
    assert overlap.key_of(torch.empty(0)) is None


def test_a_save_in_inference_mode_is_like_any_other(tmp_path) -> None:
    """In an evaluation, say."""
    run = Run(tmp_path, overlap=True)
    run.train(1)
    with torch.inference_mode():
        assert run.checkpointer.save(1)
        assert run.checkpointer.wait()
    run.train(1)
    assert run.checkpointer.save(2)
    assert run.checkpointer.wait()


def test_a_fork_waits_for_no_save_of_its_parent(tmp_path) -> None:
    """A child has no thread but the one that forked: it ends, steps and saves all the same."""
    script = f"""
import os, sys, torch
from aegis.worker import Checkpointer, overlap
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
step()
saver = Checkpointer({str(tmp_path)!r}, model=model, optimizer=optimizer, overlap=True)
assert saver.save(1) and saver.wait()
overlap.copying.acquire()
saver.save(2)
if (pid := os.fork()) == 0:
    step()
    assert saver.wait() is False
    sys.exit(7)
overlap.copying.release()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert saver.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert steps(tmp_path) == [2, 1]
