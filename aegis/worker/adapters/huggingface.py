"""A callback for the Trainer of Hugging Face's transformers.

    from aegis.worker.adapters.huggingface import AegisCallback, newest_checkpoint

    trainer = Trainer(..., callbacks=[AegisCallback()])
    trainer.train(resume_from_checkpoint=newest_checkpoint(trainer.args.output_dir))

Steps and losses are told (losses as often as the Trainer logs them). When the launcher announces a
stop, all ranks save at the same step and end. The Trainer writes its checkpoint in place, so a kill
in the middle leaves half a one; each rank marks its share once it is written, and
`newest_checkpoint` takes only what every rank has marked.
"""

import os
import re
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from aegis.model.job import RankPhase
from aegis.worker.checkpoint import STOPPED
from aegis.worker.progress import current
from aegis.worker.stop import StopRequest

_FOLDER = re.compile(r"checkpoint-(\d+)")
_MARKER = "aegis-saved-{rank}-of-{world_size}"
_MARKED = re.compile(r"aegis-saved-(\d+)-of-(\d+)")


class AegisCallback(TrainerCallback):  # type: ignore[misc]  # not type-checked here
    """Tells the launcher how far the Trainer is; without a launcher it only marks checkpoints."""

    def __init__(self) -> None:
        self._session = current()
        self._stop = StopRequest(self._session)
        self._stopping = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """The state is there, restored or new."""
        self._session.loaded(state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """A step is completed; at the step that all ranks stop at, the Trainer is asked to save."""
        self._session.step(state.global_step)
        if self._stop.due(state.global_step):
            self._stopping = True
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        self._enter_next(control)
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """An epoch may end with an evaluation or a save too."""
        self._enter_next(control)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """The Trainer has averaged the loss of its last steps."""
        if logs and "loss" in logs:
            phase = self._session.progress.phase
            self._session.step(state.global_step, loss=float(logs["loss"]))
            self._session.enter(phase)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """An evaluation is over; a save may come after it."""
        self._session.enter(RankPhase.SAVING if control.should_save else RankPhase.TRAINING)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """This rank's share is written; with the shares of all, the checkpoint counts."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if folder.is_dir():
            marker = _MARKER.format(rank=args.process_index, world_size=args.world_size)
            (folder / marker).touch()
        if dist.is_initialized():
            dist.barrier()
        self._session.committed(state.global_step, time.time())
        if self._stopping:
            raise SystemExit(STOPPED)
        self._session.enter(RankPhase.TRAINING)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """What the script does now is no training."""
        self._session.enter(RankPhase.ENDING)

    def _enter_next(self, control: TrainerControl) -> None:
        """What the Trainer is about to do; an evaluation comes before a save."""
        if control.should_evaluate:
            self._session.enter(RankPhase.EVALUATING)
        elif control.should_save:
            self._session.enter(RankPhase.SAVING)


def newest_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint whose shares are all written; None where there is none."""
    folders = {
        int(found[1]): path
        for path in Path(output_dir).glob("checkpoint-*")
        if (found := _FOLDER.fullmatch(path.name))
    }
    whole = [step for step, path in folders.items() if _is_whole(path)]
    return str(folders[max(whole)]) if whole else None


def _is_whole(folder: Path) -> bool:
    marked: dict[int, set[int]] = {}
    for path in folder.glob("aegis-saved-*"):
        if found := _MARKED.fullmatch(path.name):
            marked.setdefault(int(found[2]), set()).add(int(found[1]))
    return any(len(ranks) == world_size for world_size, ranks in marked.items())
