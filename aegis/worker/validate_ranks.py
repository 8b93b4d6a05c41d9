"""The ranks of a validation: forked, one for each GPU that torch sees, or a few without any."""

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from aegis.worker.lifeline import end_with

_CPU_ELEMENTS, _GPU_ELEMENTS = 1 << 22, 1 << 28  # 16 MB, 1 GB of float32
_ROUNDS = 5
_COPY_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 28
_PATTERNS = (0x55, 0xAA, 0x00, 0xFF)
_COUNT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a rank is to do."""

    rank: int
    size: int
    gpu: bool
    fraction: float
    store: Path
    parent: int


def try_all(
    *,
    ranks: int,
    gpus: int,
    fraction: float,
    seconds_max: float,
    gates: Mapping[str, float],
    folder: Path,
) -> Iterator[dict[str, Any]]:
    """The steps `all-reduce` and, where GPUs are watched, `gpu memory`."""
    seen = _count_gpus()
    size = seen or ranks
    began_at = time.monotonic()
    told, silent = _run(size, seen, fraction, seconds_max, folder)
    seconds = round(time.monotonic() - began_at, 3)
    yield allreduce(told, silent, size, seen, gates) | {"seconds": seconds}
    if seen:
        yield gpu_memory(told, silent, gpus, gates)
    elif gpus:
        text = f"{gpus} GPUs are watched, and torch sees none ({torch.__version__})"
        yield {"name": "gpu memory", "state": "unknown", "text": text}


def _count_gpus() -> int:
    """Asked in a process of its own: a fork of one that has touched a GPU cannot use it."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_tell_count, args=(writer, os.getpid()))
    process.start()
    writer.close()
    try:
        return int(reader.recv()) if reader.poll(_COUNT_SECONDS) else 0
    except EOFError:
        return 0
    finally:
        process.kill()
        process.join()


def _tell_count(writer: Connection, parent: int) -> None:
    end_with(parent)
    writer.send(torch.cuda.device_count() if torch.cuda.is_available() else 0)


def _run(
    size: int, seen: int, fraction: float, seconds_max: float, folder: Path
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """What each rank told by rank, and why others told nothing."""
    context = multiprocessing.get_context("fork")
    readers: dict[Connection, int] = {}
    processes = []
    for rank in range(size):
        reader, writer = context.Pipe(duplex=False)
        task = Task(
            rank=rank,
            size=size,
            gpu=seen > 0,
            fraction=fraction,
            store=folder / "store",
            parent=os.getpid(),
        )
        process = context.Process(target=_work, args=(task, writer))
        process.start()
        writer.close()
        readers[reader] = rank
        processes.append(process)
    told, silent = _listen(readers, time.monotonic() + seconds_max)
    for rank in set(range(size)) - set(told) - set(silent):
        silent[rank] = f"it did not end within {seconds_max:.0f} s"
    for process in processes:
        process.kill()
        process.join()
    return told, silent


def _listen(
    readers: dict[Connection, int], until: float
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    told: dict[int, dict[str, Any]] = {}
    silent: dict[int, str] = {}
    while readers and (left := until - time.monotonic()) > 0:
        ready = wait(list(readers), timeout=left)
        for reader in [one for one in readers if one in ready]:
            rank = readers.pop(reader)
            try:
                told[rank] = reader.recv()
            except EOFError:
                silent[rank] = "its process died"
    return told, silent


def _work(task: Task, writer: Connection) -> None:
    end_with(task.parent)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    found: dict[str, Any] = {}
    try:
        if task.gpu:
            torch.cuda.set_device(task.rank)
        found |= _reduce(task)
    except (RuntimeError, OSError) as error:  # torch's own errors are RuntimeErrors
        found["error"] = " ".join(str(error).split())[:300]
    try:
        if task.gpu:
            found |= _try_gpu(task)
    except (RuntimeError, OSError) as error:
        found["gpu_error"] = " ".join(str(error).split())[:300]
    writer.send(found)


# the all-reduce


def _reduce(task: Task) -> dict[str, Any]:
    """Sum over all ranks, compared to the sum that it must be, and timed."""
    dist.init_process_group(
        "nccl" if task.gpu else "gloo",
        init_method=f"file://{task.store}",
        rank=task.rank,
        world_size=task.size,
    )
    device = torch.device("cuda", task.rank) if task.gpu else torch.device("cpu")
    elements = _GPU_ELEMENTS if task.gpu else _CPU_ELEMENTS
    values = torch.empty(elements, dtype=torch.float32, device=device)
    expected = task.size * (task.size + 1) / 2
    wrong = 0
    times = []
    for _ in range(_ROUNDS + 1):
        values.fill_(task.rank + 1)
        _settle(task)
        began_at = time.perf_counter()
        dist.all_reduce(values)
        _settle(task)
        times.append(time.perf_counter() - began_at)
        wrong += int((values != expected).sum())
    seconds = sum(times[1:]) / _ROUNDS
    moved = 2 * (task.size - 1) / task.size * elements * 4
    return {"wrong": wrong, "allreduce_gbps": moved / seconds / 1e9}


def _settle(task: Task) -> None:
    if task.gpu:
        torch.cuda.synchronize()


def allreduce(
    told: Mapping[int, Mapping[str, Any]],
    silent: Mapping[int, str],
    size: int,
    seen: int,
    gates: Mapping[str, float],
) -> dict[str, Any]:
    """The step `all-reduce`, from what the ranks told."""
    over = f"{size} GPUs" if seen else f"{size} ranks on the CPU, torch sees no GPU"
    step = {"name": "all-reduce", "text": f"over {over}: every sum was right"}
    errors = [f"rank {rank}: {why}" for rank, why in sorted(silent.items())]
    errors += [f"rank {n}: {one['error']}" for n, one in sorted(told.items()) if "error" in one]
    wrong = [f"rank {n}: {one['wrong']} sums are wrong" for n, one in sorted(told.items())
             if one.get("wrong")]  # fmt: skip
    if errors or wrong:
        # What keeps ranks on the CPU from meeting is this process's surroundings, not the node.
        state = "fail" if wrong or seen else "unknown"
        return step | {"state": state, "text": f"over {over}: {'; '.join([*wrong, *errors])[:400]}"}
    least = min(float(one["allreduce_gbps"]) for one in told.values())
    gate = gates.get("allreduce_gbps") if seen > 1 else None  # one GPU alone moves nothing
    low = gate is not None and least < gate
    return step | {
        "state": "fail" if low else "pass",
        "text": f"over {over}: {'too slow' if low else 'every sum was right'}",
        "value": f"{least:.2f} GB/s" if size > 1 else "",
        "gate": f">= {gate:g} GB/s" if gate is not None else "",
    }


# the memory of a GPU


def _try_gpu(task: Task) -> dict[str, Any]:
    device = torch.device("cuda", task.rank)
    torch.cuda.empty_cache()
    free, _total = torch.cuda.mem_get_info(device)
    chunks = max(1, int(free * task.fraction) // _CHUNK_BYTES)
    blocks = [torch.empty(_CHUNK_BYTES, dtype=torch.uint8, device=device) for _ in range(chunks)]
    bad = 0
    for pattern in _PATTERNS:
        for block in blocks:
            block.fill_(pattern)
        for block in blocks:
            bad += int((block != pattern).sum())
    del blocks
    host = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    block = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device)
    return {
        "bad_bytes": bad,
        "tried_bytes": chunks * _CHUNK_BYTES,
        "h2d_gbps": _copy_gbps(block, host),
        "d2h_gbps": _copy_gbps(host, block),
    }


def _copy_gbps(target: torch.Tensor, source: torch.Tensor) -> float:
    best = 0.0
    for _ in range(_ROUNDS):
        torch.cuda.synchronize()
        began_at = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        best = max(best, _COPY_BYTES / (time.perf_counter() - began_at) / 1e9)
    return best


def gpu_memory(
    told: Mapping[int, Mapping[str, Any]],
    silent: dict[int, str],
    gpus: int,
    gates: Mapping[str, float],
) -> dict[str, Any]:
    """The step `gpu memory`, from what the ranks told."""
    tried = {rank: one for rank, one in sorted(told.items()) if "tried_bytes" in one}
    failed = [f"GPU {rank}: {one['bad_bytes']} bytes are wrong" for rank, one in tried.items()
              if one["bad_bytes"]]  # fmt: skip
    untried = sorted({*told, *silent} - set(tried))
    why = {rank: str(one.get("gpu_error", "no word")) for rank, one in told.items()} | silent
    failed += [f"GPU {rank} could not be tried: {why[rank]}" for rank in untried]
    if gpus and len(told) + len(silent) < gpus:
        failed.append(f"torch sees {len(told) + len(silent)} GPUs, {gpus} are watched")
    measured = {
        name: min((float(one[name]) for one in tried.values()), default=0.0)
        for name in ("h2d_gbps", "d2h_gbps")
    }
    for name, way in (("h2d_gbps", "to"), ("d2h_gbps", "from")):
        if tried and measured[name] < gates.get(name, 0.0):
            failed.append(f"copies {way} the slowest GPU are too slow")
    tried_gigabytes = sum(int(one["tried_bytes"]) for one in tried.values()) / 1e9
    wanted = [f"{gates[name]:g}" for name in measured if name in gates]
    return {
        "name": "gpu memory",
        "state": "fail" if failed else "pass",
        "text": "; ".join(failed) or f"{tried_gigabytes:.0f} GB read back as they were written",
        "value": " / ".join(f"{one:.1f}" for one in measured.values()) + " GB/s to / from the host",
        "gate": f">= {' / '.join(wanted)} GB/s" if wanted else "",
    }
