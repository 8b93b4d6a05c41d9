"""What a checkpoint costs training, beside saving through one rank in the same run.

    python bench/checkpoint.py                      1 GiB over 4 ranks, 6 repetitions (3 minutes)
    python bench/checkpoint.py --short              64 MiB, 2 repetitions, for CI
    python bench/checkpoint.py --json --folder DIR  JSON and nothing else; save on DIR's disk

A model of DTensors and AdamW's two moments, sharded over the ranks on gloo, which train on small
steps. In turn the state is saved by `aegis.worker.Checkpointer`, hashing on, with overlap=True: the
copy goes on beside the next step's computing and the optimizer waits for it (--no-overlap: the loop
does). And by gathering it to rank 0, which writes it by torch.save and fsync. Of both:

    stall     the loop stands still, in the call and where the optimizer waits: the slowest rank's
    durable   from the call to the moment when everything is on disk
    cost      the stall, and by how much the steps after it take longer until all is done

Every ratio is the baseline's median divided by ours. At the end the last checkpoint is restored and
compared with the state it was taken from, bit by bit. `--peers` then measures Aegis once more with
the ranks on two "nodes": each shard also stays in its node's memory and goes over a socket into
that of the other. `copy` is how long that takes, and its cost is apart from the ratios.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TENSORS = 11  # and two moments for each
QUIET_STEPS = 12  # between two saves, to know what a step takes
AFTER_STEPS_MIN = 12  # after a save, and on until it is durable
AIMS = {"stall_ratio": 40, "cost_ratio": 8, "durable_ratio": 3.5}
MEASURES = ("stall", "cost", "durable")


def main() -> int:
    """Start the ranks, read what they measured, print it."""
    arguments = read_arguments()
    if "RANK" in os.environ:
        from checkpoint_rank import run  # noqa: PLC0415  it imports torch

        return run(arguments)
    found = measure(arguments)
    print(json.dumps(found) if arguments.json else told(found))
    return 0


def read_arguments() -> argparse.Namespace:
    """How large, how often, where."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1024, help="of state (default: 1024)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--step-seconds", type=float, default=0.08, help="about, when quiet")
    parser.add_argument(
        "--folder", type=Path, help="save on this disk (default: the temporary one)"
    )
    parser.add_argument("--short", action="store_true", help="64 MiB and 2 repetitions, for CI")
    parser.add_argument(
        "--no-overlap", action="store_true", help="copy before the loop goes on, as by default"
    )
    parser.add_argument("--peers", action="store_true", help="also copy each shard to a peer")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.megabytes, arguments.repetitions = 64, 2
    return arguments


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the ranks and conclude."""
    load = [round(one, 2) for one in os.getloadavg()]
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="aegis-bench-", dir=arguments.folder))
    try:
        report = run_ranks(arguments, folder, [{}] * arguments.ranks)
        if arguments.peers:
            with two_nodes(arguments.ranks) as environments:
                apart = run_ranks(arguments, folder, environments)
            report["aegis_with_peers"] = apart["aegis"]
            report["exact"] = report["exact"] and apart["exact"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report["overlap"] = not arguments.no_overlap
    return {**conclude(report), "load_before": load, "cpus": os.cpu_count()}


@contextlib.contextmanager
def two_nodes(ranks: int) -> Iterator[list[dict[str, str]]]:
    """What ranks find around them on two nodes: pages, and a keeper on each."""
    sys.path.insert(0, str(ROOT))
    from aegis.wire.page import blank  # noqa: PLC0415  only for this

    with contextlib.ExitStack() as stack:
        folders = []
        for _ in range(2):
            where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=where)))
            folders.append(folder)
            keeper = subprocess.Popen(
                [sys.executable, "-m", "aegis.worker.keeper", str(os.getpid()), "127.0.0.1",
                 str(folder / "memory")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            stack.callback(keeper.kill)
            keeper.stdout.readline()  # it listens
        environments = []
        for rank in range(ranks):
            page = folders[rank * 2 // ranks] / f"{rank}.page"
            page.write_bytes(blank())
            environments.append(
                {"AEGIS_PROGRESS_PAGE": str(page), "AEGIS_JOB": "bench", "AEGIS_GENERATION": "1",
                 "AEGIS_EPOCH": "1"}
            )  # fmt: skip
        yield environments


def run_ranks(
    arguments: argparse.Namespace, folder: Path, environments: list[dict[str, str]]
) -> dict[str, Any]:
    """One process for each rank, and the end of all of them."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, __file__, "--megabytes", str(arguments.megabytes), "--folder", str(folder),
        "--repetitions", str(arguments.repetitions), "--step-seconds", str(arguments.step_seconds),
        "--report", str(folder / "report.json"), *(["--peers"] if environments[0] else []),
        *(["--no-overlap"] if arguments.no_overlap else []),
    ]  # fmt: skip
    common = {
        **os.environ, "WORLD_SIZE": str(arguments.ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    ranks = [
        subprocess.Popen(command, env={**common, **around, "RANK": str(rank)})
        for rank, around in enumerate(environments)
    ]
    try:
        while any(rank.poll() is None for rank in ranks):
            if any(rank.poll() for rank in ranks):
                break
            time.sleep(0.1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if not (folder / "report.json").exists():
        sys.exit("a rank failed; what it said is above")
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def conclude(report: dict[str, Any]) -> dict[str, Any]:
    """The ratios first."""
    found: dict[str, Any] = {}
    for name in MEASURES:
        theirs, ours = (median(report[arm][name]) for arm in ("baseline", "aegis"))
        found[f"{name}_ratio"] = round(theirs / ours, 2)
    found["state_bytes"] = report.pop("state_bytes")
    for arm in ("baseline", "aegis", "aegis_with_peers"):
        if arm in report:
            samples = report.pop(arm)
            found[arm] = {f"{name}_s": spread(each) for name, each in samples.items() if each}
    return {**found, **report}


def spread(samples: list[float]) -> dict[str, float]:
    """Min, median, max."""
    return {
        "min": round(min(samples), 4),
        "median": round(median(samples), 4),
        "max": round(max(samples), 4),
    }


def told(found: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{found['state_bytes'] / 2**20:.0f} MiB of state over {found['ranks']} ranks"]
    for arm in ("baseline", "aegis", "aegis_with_peers"):
        for name, one in found.get(arm, {}).items():
            figures = " / ".join(f"{one[key]:.3f}" for key in ("min", "median", "max"))
            lines.append(f"{arm:17} {name:16} {figures}")
    lines += [f"{name:17} {found[name]:<8} aimed for {aim}" for name, aim in AIMS.items()]
    lines.append(f"restored bit by bit: {found['exact']}; load before: {found['load_before']}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
