"""Copying beside training: what is saved is the step that was saved, or nothing is."""

import gc
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run `make setup`")

from tiny_training import Run, steps  # noqa: E402  after the check
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from aegis.worker import Checkpointer, overlap  # noqa: E402


@pytest.fixture
def held(monkeypatch):
    """From the call on copies get no processor until somebody waits for one; the event says so."""
    waited, wait, copy = threading.Event(), overlap.Rest.wait, overlap._copy

    def enter(rest):
        waited.set()
        wait(rest)

    def hold():
        monkeypatch.setattr(overlap.Rest, "wait", enter)
        monkeypatch.setattr(overlap, "_copy", lambda pairs: (waited.wait(), copy(pairs)))
        return waited

    yield hold
    waited.set()


def test_the_optimizers_step_waits_for_a_copy_that_goes_on_beside_training(tmp_path, held) -> None:
    """Nothing is copied when `save` returns; all is before the step that changes it."""
    run = Run(tmp_path, overlap=True)
    run.train(2)
    assert run.checkpointer.save(1)  # it takes the memory
    assert run.checkpointer.wait()
    hold = held()
    expected = run.state()
    assert run.checkpointer.save(2)
    assert run.checkpointer._overlap.rest._pairs
    assert not hold.is_set()
    run.train(5)
    assert hold.is_set()
    assert run.checkpointer.wait()
    again = Run(tmp_path)
    assert again.checkpointer.restore() == 2
    assert again.holds(expected)


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
    hold.set()
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


def test_the_step_waits_also_when_the_checkpointer_is_gone(tmp_path, held) -> None:
    """One that lives in a function only: fused optimizers leave no version that would tell."""
    run = Run(tmp_path)
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1, momentum=0.9, fused=True)
    run.train(2)
    fields = {"model": run.model, "optimizer": run.optimizer, "data": run.data}
    expected = run.model[0].weight.detach().clone()

    def phase():
        checkpointer = Checkpointer(tmp_path, overlap=True, **fields)
        assert checkpointer.save(2)
        return checkpointer._saves._outcome

    held()
    outcome = phase()
    gc.collect()
    run.train(1)
    outcome.result(timeout=60)
    assert not torch.equal(run.model[0].weight, expected)
    assert Checkpointer(tmp_path, **fields).restore() == 2
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
