"""One rank of bench/checkpoint.py: it trains, saves in both ways, and takes the time."""

import argparse
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from checkpoint import AFTER_STEPS_MIN, QUIET_STEPS, TENSORS
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from aegis.worker import Checkpointer

WIDTH = 256  # of the matrices that a step multiplies


class Sharded(nn.Module):
    """Parameters that are spread over all ranks."""

    def __init__(self, bytes_total: int) -> None:
        super().__init__()
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        numbers = bytes_total // 4 // 3 // TENSORS // dist.get_world_size()
        self.tensors = nn.ParameterList(
            nn.Parameter(
                DTensor.from_local(torch.randn(numbers), self.mesh, [Shard(0)], run_check=False)
            )
            for _ in range(TENSORS)
        )


class Rank:
    """The training, and the two ways to save it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.manual_seed(1 + dist.get_rank())
        self.folder = arguments.folder
        self.model = Sharded(arguments.megabytes << 20)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        for one in self.model.tensors:
            one.grad = torch.zeros_like(one)
        self.optimizer.step()  # the moments appear
        for state in self.optimizer.state.values():
            state["exp_avg"].to_local().normal_()
        for one in self.model.tensors[1:]:
            one.grad = None  # a step changes the first one only, so that it costs little
        self.waited, self.step_at = 0.0, 0.0
        self.checkpointer = self.make_checkpointer(overlap=not arguments.no_overlap)
        self.optimizer.register_step_pre_hook(lambda *_: self.note_waited())
        self.left = torch.randn(WIDTH, WIDTH)
        self.products = self.count_products(arguments.step_seconds)
        self.saves = 0

    def make_checkpointer(self, *, overlap: bool) -> Checkpointer:
        """Where the last two stay."""
        return Checkpointer(
            self.folder / "aegis",
            model=self.model,
            optimizer=self.optimizer,
            keep=1,
            overlap=overlap,
        )

    def note_waited(self) -> None:
        """The last hook before the optimizer's step: all others have waited."""
        self.waited += time.perf_counter() - self.step_at

    def count_products(self, seconds: float) -> int:
        """How many products of matrices make a step of about so many seconds, on all ranks."""
        dist.barrier()
        begun, count = time.perf_counter(), 40
        for _ in range(count):
            self.left = torch.tanh(self.left @ self.left)
        each = (time.perf_counter() - begun) / count
        agreed = torch.tensor([seconds / each])
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
        return max(1, int(agreed))

    def step(self) -> None:
        """Compute, change some of the state by a step of the optimizer, meet the others."""
        for _ in range(self.products):
            self.left = torch.tanh(self.left @ self.left)
        self.step_at = time.perf_counter()
        self.optimizer.step()
        dist.all_reduce(self.left[0])

    def steps(self, count: int) -> float:
        """What a step takes, on average."""
        begun = time.perf_counter()
        for _ in range(count):
            self.step()
        return (time.perf_counter() - begun) / count

    def measure(self, save: Callable[[], None], durable: Callable[[], float | None]) -> dict:
        """One save between steps: the figures of this rank, the whole job's where it is slower."""
        self.steps(3)
        quiet = self.steps(QUIET_STEPS)
        dist.barrier()
        self.waited = 0.0
        begun, wall = time.perf_counter(), time.time()
        save()
        stall, taken, durable_at = time.perf_counter() - begun, 0, None
        while taken < AFTER_STEPS_MIN or not self.everywhere(durable_at is not None):
            self.step()
            taken += 1
            durable_at = durable_at or durable()
        cost = time.perf_counter() - begun - taken * quiet
        slowest = torch.tensor([stall + self.waited, cost, durable_at - wall])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return dict(zip(("stall", "cost", "durable"), slowest.tolist(), strict=True))

    def everywhere(self, done: bool) -> bool:  # noqa: FBT001
        """Whether it is done on every rank."""
        told = torch.tensor([int(done)])
        dist.all_reduce(told, op=dist.ReduceOp.MIN)
        return bool(told)

    # ── through one rank ──

    def save_through_one(self) -> None:
        """Gather each tensor to rank 0, write all with torch.save, flush; the others wait."""
        whole = {}
        for number, one in enumerate(self.model.tensors):
            moments = self.optimizer.state[one]
            for name, tensor in (
                ("p", one),
                ("m", moments["exp_avg"]),
                ("v", moments["exp_avg_sq"]),
            ):
                whole[f"{name}{number}"] = gather(tensor.to_local().detach())
        if dist.get_rank() == 0:
            with (self.folder / "through_one.pt").open("wb") as file:
                torch.save(whole, file)
                file.flush()
                os.fsync(file.fileno())
        dist.barrier()
        self.one_at = time.time()

    def one_durable(self) -> float:
        """It was when the call returned."""
        return self.one_at

    # ── by Aegis ──

    def save_ours(self) -> None:
        """Copy and go on."""
        self.saves += 1
        assert self.checkpointer.save(self.saves)

    def ours_durable(self) -> float | None:
        """When it was marked complete, once it is."""
        path = self.folder / "aegis" / f"step-{self.saves:08d}" / "complete.json"
        try:
            return json.loads(path.read_text())["at"]
        except (OSError, ValueError):
            return None

    def digest(self) -> str:
        """All numbers of this rank's part of the state."""
        found = hashlib.sha256()
        for one in self.model.tensors:
            moments = self.optimizer.state[one]
            for tensor in (one, moments["exp_avg"], moments["exp_avg_sq"]):
                found.update(tensor.to_local().detach().numpy())
        return found.hexdigest()

    def is_exact(self) -> bool:
        """Whether what is restored is what was saved, although training went on."""
        expected = self.digest()
        self.save_ours()
        self.steps(3)
        assert self.checkpointer.wait()
        changed = self.digest() != expected
        self.make_checkpointer(overlap=False).restore()
        return self.everywhere(changed and self.digest() == expected)


def gather(local: torch.Tensor) -> torch.Tensor | None:
    """The whole tensor on rank 0."""
    if dist.get_rank() != 0:
        dist.gather(local, dst=0)
        return None
    parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.gather(local, parts, dst=0)
    return torch.cat(parts)


def run(arguments: argparse.Namespace) -> int:
    """Save in turn; rank 0 writes the report."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = Rank(arguments)
    ways = {"aegis": (rank.save_ours, rank.ours_durable)}
    if not arguments.peers:
        ways = {"baseline": (rank.save_through_one, rank.one_durable), **ways}
    found = {way: {"stall": [], "cost": [], "durable": []} for way in ways}
    copies = found["aegis"]["copy"] = []
    for repetition in range(arguments.repetitions + 1):
        for way, (save, durable) in ways.items():
            figures = rank.measure(save, durable)
            rank.checkpointer.wait()
            if repetition and way == "aegis" and arguments.peers:
                copies.append(slowest(rank.checkpointer.copy_seconds))
            settle(rank.folder / "through_one.pt")
            if repetition:  # the first of each takes memory, and starts what it needs
                for name, seconds in figures.items():
                    found[way][name].append(seconds)
    exact = rank.is_exact()
    if dist.get_rank() == 0:
        size = sum(one.numel() * 4 * 3 for one in rank.model.tensors)
        report = {
            **found,
            "state_bytes": size,
            "ranks": dist.get_world_size(),
            "repetitions": arguments.repetitions,
            "hash": "xxh3_128",
            "exact": exact,
            "quiet_step_s": round(median(rank.steps(1) for _ in range(5)), 4),
        }
        arguments.report.write_text(json.dumps(report))
    else:
        rank.steps(5)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def slowest(seconds: float | None) -> float:
    """That of the rank which took longest."""
    assert seconds is not None, "there is no copy at the peer"
    told = torch.tensor([seconds])
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return float(told)


def settle(through_one: Path) -> None:
    """Let the disk come to rest, with no more on it than at the begin."""
    dist.barrier()
    if dist.get_rank() == 0:
        through_one.unlink(missing_ok=True)
        for path in through_one.parent.glob("aegis/.replaced-*"):
            shutil.rmtree(path, ignore_errors=True)
        os.sync()
    dist.barrier()
