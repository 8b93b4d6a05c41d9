"""A callback for the Trainer of PyTorch Lightning, by either name of its package.

    from aegis.worker.adapters.lightning import AegisCallback, newest_checkpoint

    trainer = Trainer(..., callbacks=[AegisCallback(), ModelCheckpoint(dirpath=folder, ...)])
    trainer.fit(model, ckpt_path=newest_checkpoint(folder))

Steps are told, and the loss at every tenth: reading it waits for the device. When the launcher
announces a stop, all ranks save at the same step and end. Lightning's own handler of SIGTERM talks
to the other ranks from within the signal, where they may be in the middle of a step; this callback
takes its place while a launcher watches.
"""

import importlib.util
import os
import signal
import threading
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aegis.model.job import RankPhase
from aegis.worker.checkpoint import STOPPED
from aegis.worker.progress import current
from aegis.worker.stop import StopRequest

if TYPE_CHECKING or importlib.util.find_spec("lightning") is None:
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    from lightning.pytorch import Callback, LightningModule, Trainer

LOSS_EVERY = 10


class AegisCallback(Callback):  # type: ignore[misc]  # the library is not type-checked here
    """Tells the launcher how far the Trainer is; without a launcher nothing of it shows."""

    def __init__(self, *, loss_every: int = LOSS_EVERY) -> None:
        self._loss_every = loss_every
        self._session = current()
        self._stop: StopRequest | None = None
        self._saved: int | None = None  # a checkpoint of this step is being written

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The state is there, restored or new."""
        in_main = threading.current_thread() is threading.main_thread()
        if self._session.launched and in_main:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Lightning puts back what it found
        self._stop = StopRequest(self._session)
        self._session.loaded(trainer.global_step)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """What was saved since the last batch is written by now."""
        self._written()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """A batch is done, and with it perhaps a step."""
        step = trainer.global_step
        if step == self._session.progress.step and step:
            return  # gradients are gathered over several batches
        loss = None
        if step % self._loss_every == 0 and (given := _loss(outputs)) is not None:
            loss = float(given)
        self._session.step(step, loss=loss)
        if self._stop is not None and self._stop.due(step):
            self._session.enter(RankPhase.SAVING)
            trainer.save_checkpoint(_folder(trainer) / f"aegis-step={step}.ckpt")
            self._session.committed(step, time.time())
            raise SystemExit(STOPPED)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """A checkpoint is about to be written."""
        self._saved = trainer.global_step
        self._session.enter(RankPhase.SAVING)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """No steps come for a while."""
        self._session.enter(RankPhase.EVALUATING)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """On to training, or to the loading that follows the check of the validation."""
        checking = trainer.sanity_checking
        self._session.enter(RankPhase.LOADING if checking else RankPhase.TRAINING)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """What the script does now is no training."""
        self._written()
        self._session.enter(RankPhase.ENDING)

    def _written(self) -> None:
        if self._saved is not None:
            self._session.committed(self._saved, time.time())
            self._session.enter(RankPhase.TRAINING)
            self._saved = None


def newest_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """The checkpoint file last written that is whole; None where there is none.

    With `aegis run --resume-pattern` the launcher has looked already, and all nodes take the same.
    """
    if given := os.environ.get("AEGIS_RESUME_FROM"):
        return given
    found = sorted(Path(folder).glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    return next((str(path) for path in reversed(found) if zipfile.is_zipfile(path)), None)


def _loss(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, dict) else outputs


def _folder(trainer: Trainer) -> Path:
    kept = trainer.checkpoint_callback
    return Path(getattr(kept, "dirpath", None) or trainer.default_root_dir)
