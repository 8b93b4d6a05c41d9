"""What bench/recovery.py trains: a script as people write it, for torchrun.

It knows nothing of Aegis unless a flag asks for it. It writes a line of each step and of each thing
it does before the first one, so that the bench reads times from it and from nowhere else.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

WIDTH = 512


class Lines:
    """One file for each rank; a line is written whole."""

    def __init__(self, folder: Path, rank: int) -> None:
        path = folder / f"steps-{rank}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, **fields: object) -> None:
        """What happened now, in this life of the job."""
        line = {"life": life(), "at": time.time(), "pid": os.getpid(), **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def life() -> int:
    """Which attempt of the job this process belongs to, as torchrun counts."""
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer, before anything is known of other ranks."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(4):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 8))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step of the newest checkpoint, its state in place; 0 where there is none."""
    steps = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
    if not steps:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    dcp.load(state, checkpoint_id=folder / str(max(steps)))
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    return max(steps)


def save(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A checkpoint that has its name only once it is whole."""
    weights, moments = get_state_dict(model, optimizer)
    draft = folder / f"{step}.draft-{life()}"
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=draft)
    dist.barrier()
    if dist.get_rank() == 0 and not (folder / str(step)).exists():
        draft.rename(folder / str(step))
    dist.barrier()


def main() -> None:
    """Train until killed, or to the last step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--early", action="store_true", help="build before asking for the rank")
    parser.add_argument("--inplace", action="store_true", help="survive in place (build early)")
    parser.add_argument("--told", action="store_true", help="tell Aegis of each step")
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    built = build() if arguments.early or arguments.inplace else None
    if arguments.inplace:
        surviving(arguments, built)
        return
    lines = Lines(arguments.folder, int(os.environ["RANK"]))
    lines.say(did="began")
    dist.init_process_group("gloo")
    lines.say(did="group")
    plain, optimizer = built or build()
    model = DistributedDataParallel(plain)
    lines.say(did="built")
    first = load(arguments.folder, model, optimizer)
    lines.say(did="loaded", step=first)
    train(arguments, lines, model, optimizer, first)


def surviving(arguments: argparse.Namespace, built: tuple) -> None:
    """The same with the wrapper around it, and checkpoints that leave a copy in memory."""
    from aegis import worker  # noqa: PLC0415  only where it is asked for

    plain, optimizer = built

    @worker.inplace
    def run() -> None:
        lines = Lines(arguments.folder, int(os.environ["RANK"]))
        lines.say(did="began")
        dist.init_process_group("gloo")
        lines.say(did="group")
        model = DistributedDataParallel(plain)
        checkpointer = worker.Checkpointer(
            arguments.folder / "checkpoints", model=model, optimizer=optimizer
        )
        lines.say(did="built")
        first = checkpointer.restore()
        lines.say(did="loaded", step=first)

        def keep(step: int) -> None:
            worker.step(step)
            checkpointer.save_every(arguments.every, step)

        train(arguments, lines, model, optimizer, first, keep=keep)

    run()


def teller() -> Callable[[int, float], None]:
    """The one line that Aegis asks of a script for its steps to be known."""
    from aegis.worker import step  # noqa: PLC0415  only where it is asked for

    return step


def train(arguments, lines, model, optimizer, first, *, keep=None) -> None:
    """The loop."""
    rank = dist.get_rank()
    tell = teller() if arguments.told else None
    for step in range(first + 1, arguments.steps + 1):
        begun = time.monotonic()
        generator = torch.Generator().manual_seed(1000 * step + rank)
        data = torch.randn(16, WIDTH, generator=generator)
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(max(0.0, arguments.step_seconds - (time.monotonic() - begun)))
        lines.say(did="step", step=step, loss=loss.item())
        if keep:
            keep(step)
            continue
        if tell:
            tell(step, loss.item())
        if arguments.every and step % arguments.every == 0:
            save(arguments.folder, step, model, optimizer)


if __name__ == "__main__":
    main()
