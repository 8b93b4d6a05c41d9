"""Trains a small byte-level transformer on the source code of Python's own standard library.

It runs under `aegis run` and under torchrun, and goes on from its newest checkpoint. The
arithmetic is exact: interrupted and resumed on the same number of ranks, it has the very losses of
a run that was not.

    aegis run --nproc-per-node 2 --checkpoint-folder /tmp/bytes train.py --steps 200
    torchrun --nproc-per-node 2 train.py --steps 200
"""

import argparse
import json
import os
import random
import sysconfig
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aegis.worker

CONTEXT = 64
WIDTH = 96
HEADS = 4
LAYERS = 2
BATCH = 4
BYTES = 256


class Block(nn.Module):
    """Attention to what came before, then a feed-forward layer."""

    def __init__(self):
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.norm_feed = nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x):
        """One layer on the residual stream."""
        batch, length, _ = x.shape
        heads = self.qkv(self.norm_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed(self.norm_feed(x))


class ByteModel(nn.Module):
    """Predicts the next byte."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(BYTES, WIDTH)
        self.position = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, BYTES)

    def forward(self, text):
        """The loss of predicting each byte of the text from those before it."""
        x = self.embedding(text[:, :-1]) + self.position
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.reshape(-1, BYTES), text[:, 1:].reshape(-1))


class Text:
    """Random excerpts of the text; its own random state is this rank's position in the data."""

    def __init__(self, seed):
        library = Path(sysconfig.get_path("stdlib"))
        source = b"".join(path.read_bytes() for path in sorted(library.glob("*.py")))
        self.bytes = np.frombuffer(source, dtype=np.uint8)
        self.draw = np.random.default_rng(seed)

    def next(self):
        """The next excerpts of this rank."""
        starts = self.draw.integers(0, len(self.bytes) - CONTEXT - 1, BATCH)
        excerpts = [self.bytes[start : start + CONTEXT + 1] for start in starts]
        return torch.from_numpy(np.stack(excerpts)).long()

    def state_dict(self):
        """Where this rank is in the data."""
        return {"draw": self.draw.bit_generator.state}

    def load_state_dict(self, state):
        """Go on from there."""
        self.draw.bit_generator.state = state["draw"]


def main():
    """Train from the newest checkpoint to --steps."""
    arguments = read_arguments()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seed_everything(arguments.seed)
    model = DistributedDataParallel(ByteModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seed_everything(arguments.seed + 1 + rank)
    data = Text(arguments.seed + 1 + rank)
    settle(model)

    with aegis.worker.session() as session:
        checkpointer, start = None, 0
        if arguments.checkpoint_folder:
            checkpointer = aegis.worker.Checkpointer(
                arguments.checkpoint_folder, model=model, optimizer=optimizer, data=data
            )
            start = checkpointer.restore()
        model.train()
        for step in range(start, arguments.steps):
            due = time.monotonic() + arguments.step_seconds
            loss = train_one(model, optimizer, data.next())
            session.step(step + 1, loss=loss)
            if rank == 0 and arguments.losses:
                note(arguments.losses, step + 1, loss)
            if checkpointer is not None:
                checkpointer.save_every(arguments.checkpoint_every, step + 1)
            time.sleep(max(0.0, due - time.monotonic()))
    # In torch 2.13 a process that ends while a worker of its group still lets go of a tensor may
    # never end (the one holds the interpreter, the other the group's lock).
    time.sleep(0.1)
    dist.destroy_process_group()


def train_one(model, optimizer, text):
    """One optimizer step; the loss averaged over all ranks."""
    loss = model(text)
    optimizer.zero_grad()
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / dist.get_world_size()


def settle(model):
    """Have DDP lay out its buckets now, without training on anything.

    After its first backward pass DDP sorts the gradients anew, and another layout adds them in
    another order. A resumed run would so take one step in the first layout that a run without
    interruption takes in the second, and differ from it in the last bit.
    """
    model.eval()  # draws no random number
    for _ in range(2):
        model(torch.zeros(1, CONTEXT + 1, dtype=torch.long)).backward()
    model.zero_grad()


def seed_everything(seed):
    """All sources of random numbers."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def note(path, step, loss):
    """One line for each step, so that runs can be compared."""
    generation = int(os.environ.get("AEGIS_GENERATION", "0"))
    with path.open("a") as file:
        file.write(json.dumps({"step": step, "loss": loss, "generation": generation}) + "\n")


def read_arguments():
    """What to train and where to keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-every", type=int, default=10, help="steps; 0: never")
    parser.add_argument(
        "--checkpoint-folder",
        type=Path,
        default=os.environ.get("AEGIS_CHECKPOINT_FOLDER") or None,
        help="default: the one of aegis run; none without it",
    )
    parser.add_argument("--step-seconds", type=float, default=0.0, help="a step takes at least")
    parser.add_argument("--losses", type=Path, help="append the loss of each step here")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
