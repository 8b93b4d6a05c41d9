"""Real Trainers with their callbacks, and scripts that only print, under a real launcher."""

import importlib.util
import os
import signal

import pytest

from aegis.model.job import LauncherPhase, StopKind

HUGGING_FACE = """
import sys, time, torch
from transformers import Trainer, TrainingArguments
from aegis.worker.adapters.huggingface import AegisCallback, newest_checkpoint

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        time.sleep(0.02)
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}

data = [{"x": torch.full((4,), n / 50), "labels": torch.ones(1)} for n in range(50)]
arguments = TrainingArguments(
    sys.argv[1], max_steps=100_000, save_steps=5, logging_steps=2, eval_strategy="steps",
    eval_steps=7, save_total_limit=3, use_cpu=True, report_to=[], disable_tqdm=True,
)
trainer = Trainer(
    Model(), arguments, train_dataset=data, eval_dataset=data[:4], callbacks=[AegisCallback()]
)
trainer.train(resume_from_checkpoint=newest_checkpoint(sys.argv[1]))
"""

LIGHTNING = """
import sys, time, torch
try:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
except ImportError:
    from pytorch_lightning import LightningModule, Trainer
    from pytorch_lightning.callbacks import ModelCheckpoint
from aegis.worker.adapters.lightning import AegisCallback, newest_checkpoint

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        time.sleep(0.02)
        return ((self.layer(batch) - 1) ** 2).mean()
    def validation_step(self, batch, index):
        pass
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

data = torch.utils.data.DataLoader([torch.full((4,), n / 50) for n in range(50)], batch_size=4)
keeper = ModelCheckpoint(dirpath=sys.argv[1], every_n_train_steps=5, save_top_k=-1)
trainer = Trainer(
    max_steps=100_000, accelerator="cpu", devices=2, strategy="ddp", val_check_interval=4,
    callbacks=[AegisCallback(loss_every=2), keeper], logger=False, enable_progress_bar=False,
    enable_model_summary=False, limit_val_batches=1,
)
trainer.fit(Model(), data, data, ckpt_path=newest_checkpoint(sys.argv[1]))
"""


def installed(*names):
    """Whether one of the modules is there; looked for without importing it."""
    return any(importlib.util.find_spec(name) for name in names)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            HUGGING_FACE,
            id="huggingface",
            marks=pytest.mark.skipif(
                not (installed("transformers") and installed("accelerate")),
                reason="needs transformers and accelerate: run `make adapters`",
            ),
        ),
        pytest.param(
            LIGHTNING,
            id="lightning",
            marks=pytest.mark.skipif(
                not installed("lightning", "pytorch_lightning"),
                reason="needs pytorch-lightning: run `make adapters`",
            ),
        ),
    ],
)
def test_a_trainer_tells_its_steps_saves_when_asked_and_resumes(stage, script, tmp_path, text):
    """Steps and losses are told, a stop costs no step, a kill goes back to the newest whole one."""
    stage.launch("n1", script(text), tmp_path / "kept")
    stage.ready("n1")
    stage.begin("n1")
    stage.trains("n1", beyond=6)
    stage.wait(lambda: all(rank.loss is not None for rank in stage.state("n1").ranks))

    stage.stop("n1", kind=StopKind.SAVING, grace=60.0)
    stopped = stage.phase("n1", LauncherPhase.IDLE)
    assert [rank.exit_code for rank in stopped.ranks] == [143, 143], stage.log("n1")
    assert stopped.checkpoint_step == stopped.ranks[0].step == stopped.ranks[1].step

    stage.begin("n1")
    stage.trains("n1", beyond=stopped.checkpoint_step + 6)
    resumed = stage.state("n1")
    assert resumed.resumed_step == stopped.checkpoint_step
    stage.wait(lambda: stage.state("n1").checkpoint_step > stopped.checkpoint_step)
    os.kill(stage.pids("n1")[1], signal.SIGKILL)
    failed = stage.phase("n1", LauncherPhase.FAILED)

    stage.begin("n1")
    stage.trains("n1", beyond=failed.ranks[0].step)
    assert stage.state("n1").resumed_step >= failed.checkpoint_step - 5
    assert stage.state("n1").resumed_step > stopped.checkpoint_step


def test_half_a_checkpoint_is_passed_over(tmp_path):
    """One that only some ranks have marked was cut short; one without marks is not ours."""
    pytest.importorskip("transformers", reason="needs transformers: run `make adapters`")
    from aegis.worker.adapters.huggingface import newest_checkpoint  # noqa: PLC0415

    assert newest_checkpoint(tmp_path / "none") is None
    for step, marks in {5: ["0-of-2", "1-of-2"], 10: ["0-of-2"], 15: [], 100: ["1-of-2"]}.items():
        (tmp_path / f"checkpoint-{step}").mkdir()
        for mark in marks:
            (tmp_path / f"checkpoint-{step}" / f"aegis-saved-{mark}").touch()
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-5")


LIKE_MEGATRON = """
import os, signal, sys, time
import torch.distributed as dist

received = []
signal.signal(signal.SIGTERM, lambda *_: received.append(True))
dist.init_process_group("gloo")
last = dist.get_rank() == dist.get_world_size() - 1
iteration = 100
if dist.get_rank() == 0:
    print("  successfully loaded checkpoint from /kept [ t 1/1, p 1/1 ] at iteration 100")
while True:
    time.sleep(0.02)
    iteration += 1
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, bool(received))
    if iteration % 5 == 0 and last:
        print(f" [now] iteration {iteration:8d}/    9999 | lm loss: {1 / iteration:.6E} |")
    if any(everyone):
        print("[exiting program after receiving SIGTERM.]")
        sys.exit(0)
"""


def test_an_unchanged_script_tells_its_steps_by_its_lines(stage, script):
    """One rank's lines speak for all; the script's own handler ends it when it is asked to stop."""
    stage.launch("n1", script(LIKE_MEGATRON), flags=("--log-pattern", "megatron"))
    stage.ready("n1")
    stage.begin("n1")
    stage.trains("n1", beyond=110)
    state = stage.state("n1")
    assert state.resumed_step == 100
    assert len({(rank.step, rank.loss) for rank in state.ranks}) == 1
    assert state.ranks[0].loss == pytest.approx(1 / state.ranks[0].step, rel=1e-5)
    stage.stop("n1", kind=StopKind.SAVING, grace=30.0)
    ended = stage.phase("n1", LauncherPhase.DONE)
    assert [rank.exit_code for rank in ended.ranks] == [0, 0]
    assert stage.finish("n1") == [0]


TORCHTITAN = """
import os, time
from types import SimpleNamespace as Some
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.tools.logging import init_logger
from torchtitan.tools.utils import Color

class Peaks:
    def __getattr__(self, name):
        return 0.0

init_logger()
processor = Some(  # without a GPU it cannot be made; its line is made as always
    num_flops_per_token=1, time_last_log=0.0, ntokens_since_last_log=8, has_quantization=False,
    gpu_peak_flops=1.0, config=Some(log_freq=1), data_loading_times=[0.0], color=Color(),
    parallel_dims=Some(non_data_parallel_size=1), logger=Some(log=lambda *_: None),
    device_memory_monitor=Some(get_peak_stats=Peaks, reset_peak_stats=lambda: None),
    validation_metrics=None,
)
for step in range(1, 100_000):
    time.sleep(0.05)
    processor.data_loading_times.append(0.0)
    if os.environ["RANK"] == "0":
        MetricsProcessor.log(processor, step, 7.5, 8.5, 1.5)
        if step % 2 == 0:
            MetricsProcessor.log_validation(processor, 9.5, step)
"""


@pytest.mark.skipif(not installed("torchtitan"), reason="needs torchtitan: run `make adapters`")
def test_torchtitans_own_lines_are_read(stage, script):
    """The lines of its own MetricsProcessor, coloured; a validation's loss is passed over."""
    stage.launch("n1", script(TORCHTITAN), flags=("--log-pattern", "torchtitan"))
    stage.ready("n1")
    stage.begin("n1")
    stage.trains("n1", beyond=5)
    assert [rank.loss for rank in stage.state("n1").ranks] == [7.5, 7.5]
