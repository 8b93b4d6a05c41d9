"""What the ranks wrote, and what the bench reads out of it."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ON_PROCESSORS = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
SCRIPT = Path(__file__).with_name("train.py")
PATIENCE_SECONDS = 120.0
CALM_SECONDS = 2.0  # between a recovery and the next fault: what stands by is ready again
_LOOK_SECONDS = 0.005


class LostError(Exception):
    """The job did not come back."""


@dataclass
class Ranks:
    """The lines of every rank, read as they grow."""

    folder: Path
    count: int
    lines: list[list[dict[str, Any]]] = field(default_factory=list)
    _read: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = [[] for _ in range(self.count)]
        self._read = [0] * self.count

    def look(self) -> None:
        """Read what has come."""
        for rank in range(self.count):
            path = self.folder / f"steps-{rank}.jsonl"
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read[rank])
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._read[rank] += len(whole) + 1
                self.lines[rank] += [json.loads(line) for line in whole.splitlines()]

    def wait(self, wanted: Callable[[], Any], seconds: float, what: str) -> Any:
        """What is wanted, once there is any."""
        until = time.monotonic() + seconds
        while True:
            self.look()
            if found := wanted():
                return found
            if time.monotonic() > until:
                raise LostError(f"waited {seconds:.0f} s for {what}")
            time.sleep(_LOOK_SECONDS)

    def newest(self, rank: int) -> dict[str, Any]:
        """The rank's newest line."""
        return self.lines[rank][-1] if self.lines[rank] else {}

    def steps(self, rank: int, beyond: int) -> Iterator[dict[str, Any]]:
        """The rank's steps of later lives."""
        for line in self.lines[rank]:
            if line["did"] == "step" and line["life"] > beyond:
                yield line

    def first_steps(self, beyond: int) -> tuple[int, list[dict[str, Any]]] | None:
        """The first life after that one in which every rank took a step, and those steps."""
        by_rank: list[dict[int, dict[str, Any]]] = []
        for rank in range(self.count):
            first: dict[int, dict[str, Any]] = {}
            for line in self.steps(rank, beyond):
                first.setdefault(line["life"], line)
            by_rank.append(first)
        whole = set.intersection(*(set(one) for one in by_rank)) if by_rank else set()
        if not whole:
            return None
        life = min(whole)
        return life, [one[life] for one in by_rank]

    def settle(self, life: int, seconds: float = CALM_SECONDS) -> None:
        """Wait until all have trained on for a while, and stand well between two checkpoints."""
        calm = time.monotonic() + seconds

        def between() -> bool:
            newest = [self.newest(rank) for rank in range(self.count)]
            steps = [line.get("step", 0) for line in newest]
            stands = all(line.get("did") == "step" and line["life"] >= life for line in newest)
            ready = stands and len(set(steps)) == 1 and steps[0] % 10 == 5
            return ready and time.monotonic() > calm

        self.wait(between, PATIENCE_SECONDS, "a calm moment")

    def recovery(self, life: int, at: float, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """How long from that moment to the first new step on every rank, and by what."""
        later, steps = self.wait(lambda: self.first_steps(life), seconds, "the first new step")
        phases: dict[str, float] = {}
        for did in ("began", "group", "built", "loaded"):
            told = [
                next((one for one in lines if one["life"] == later and one["did"] == did), None)
                for lines in self.lines
            ]
            moments = [one["at"] for one in told if one is not None]
            if moments:
                phases[did] = round(max(moments) - at, 3)
        took = max(one["at"] for one in steps) - at
        burnt = later - life - 1
        return {"seconds": round(took, 3), "life": later, "burnt": burnt, "phases": phases}


def begin(command: list[str], folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a program with its words in a log."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | ON_PROCESSORS | environment,
            start_new_session=True,
        )


def torchrun(ranks: int, restarts: int) -> list[str]:
    """PyTorch's own launcher, on this machine."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(ranks), "--max-restarts", str(restarts)),
    ]


def aegis(ranks: int, folder: Path, *flags: str) -> list[str]:
    """Ours, on this machine, with the controller it brings along."""
    return [
        *(sys.executable, "-m", "aegis.cli.main", "run", "--nproc-per-node", str(ranks)),
        *("--max-restarts", "1000", "--log-dir", str(folder / "ranks"), *flags),
    ]


def end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher that we started, and with it what it started."""
    pids = [process.pid, *below(process.pid)]
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    for pid in reversed(pids):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def kill_all_in(namespace: str) -> None:
    """Every process of a network namespace that we made, at once."""
    listed = subprocess.run(
        ["ip", "netns", "pids", namespace], check=True, capture_output=True, text=True
    )
    for pid in listed.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def below(pid: int) -> list[int]:
    """All that live below a process."""
    found: list[int] = []
    queue = [pid]
    while queue:
        for path in Path(f"/proc/{queue.pop()}/task").glob("*/children"):
            try:
                children = [int(word) for word in path.read_text().split()]
            except OSError:
                continue
            found += children
            queue += children
    return found


def summary(seconds: list[float]) -> dict[str, Any]:
    """Of the repetitions."""
    if not seconds:
        return {"count": 0}
    return {
        "count": len(seconds),
        "min": round(min(seconds), 3),
        "median": round(statistics.median(seconds), 3),
        "max": round(max(seconds), 3),
        "all": [round(one, 3) for one in seconds],
    }
