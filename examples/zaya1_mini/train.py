"""Trains a small model in the way of ZAYA1 on the source code of Python's own standard library.

The same script on CPU, on ROCm and on CUDA, under `aegis run` and under torchrun. It goes on from
its newest checkpoint, on the same number of ranks or on another.

    aegis run --nproc-per-node 2 --checkpoint-folder /tmp/zaya train.py --steps 200
    torchrun --nproc-per-node 2 train.py --steps 200
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is exact only with it

import torch
import torch.distributed as dist
from model import Zaya
from optimizers import Zero
from text import Text

import aegis.worker


def main():
    """Train from the newest checkpoint to --steps."""
    arguments = read_arguments()
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(arguments.seed)  # the same weights on every rank
    model = Zaya().to(torch.float64 if arguments.float64 else torch.float32)
    zero = Zero(model)
    # All so far is the same on every rank: `aegis run --run-ahead` has it done before a fault.
    device = join(arguments.device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model.to(device)
    zero.share_out()
    data = Text(arguments.seed, arguments.batch, arguments.context, rank, world_size)

    with aegis.worker.session() as session:
        checkpointer, start = None, 0
        if arguments.checkpoint_folder:
            checkpointer = aegis.worker.Checkpointer(
                arguments.checkpoint_folder,
                model=model,
                optimizer=zero.optimizers,
                data=data,
                overlap=True,  # nothing changes a parameter before the next step does
            )
            with zero.owned_only():
                start = checkpointer.restore()
        for step in range(start, arguments.steps):
            due = time.monotonic() + arguments.step_seconds
            loss = train_one(model, zero, data.next().to(device), step)
            session.step(step + 1, loss=loss)
            if rank == 0:
                tell(arguments, step + 1, loss, world_size)
            if checkpointer is not None:
                checkpointer.save_every(arguments.checkpoint_every, step + 1)
            time.sleep(max(0.0, due - time.monotonic()))
        if checkpointer is not None:
            checkpointer.wait()
    # In torch 2.13 a process that ends while a worker of its group still lets go of a tensor may
    # never end (the one holds the interpreter, the other the group's lock).
    time.sleep(0.1)
    dist.destroy_process_group()


def join(kind):
    """This rank's device, and the process group for that kind of device."""
    if kind == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        kind = found.type if found is not None else "cpu"
    if kind == "cpu":
        torch.set_num_threads(1)
        device = torch.device("cpu")
    else:
        number = int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count()
        device = torch.device(kind, number)
        torch.accelerator.set_device_index(number)
    dist.init_process_group(dist.get_default_backend_for_device(device))
    return device


def train_one(model, zero, text, step):
    """One optimizer step; the loss averaged over all ranks."""
    model.train()
    loss = model(text)
    loss.backward()
    zero.step(factor=min(1.0, (step + 1) / 20))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def tell(arguments, step, loss, world_size):
    """Now and then a line to read, and in --losses one for each step, to compare runs by."""
    if step % arguments.print_every == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)
    if arguments.losses:
        with arguments.losses.open("a") as file:
            file.write(json.dumps({"step": step, "loss": loss, "world_size": world_size}) + "\n")


def read_arguments():
    """What to train, on what, and where to keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=8, help="excerpts in each step, over all ranks")
    add("--context", type=int, default=64, help="bytes of an excerpt")
    add("--device", default="auto", help="cpu, cuda (ROCm too) …; auto: what there is")
    add("--float64", action="store_true", help="to compare runs on different numbers of ranks")
    add("--checkpoint-every", type=int, default=10, help="steps; 0: never")
    add(
        "--checkpoint-folder",
        type=Path,
        default=os.environ.get("AEGIS_CHECKPOINT_FOLDER") or None,
        help="default: the one of aegis run; none without it",
    )
    add("--step-seconds", type=float, default=0.0, help="a step takes at least")
    add("--print-every", type=int, default=10, help="steps")
    add("--losses", type=Path, help="append the loss of each step here")
    add("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
