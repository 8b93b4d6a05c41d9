"""Faults of one rank out of four on one machine, under torchrun and under Aegis."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recovery_parts import watch
from recovery_parts.watch import SCRIPT, LostError, Ranks

RANKS = 4
VICTIM = 2
_STANDBYS_SECONDS = 15.0  # new ones are made once ranks that tell of no step have run for 10
_DEFAULTS_SECONDS = 30.0  # for torchrun with its defaults, which may hang for ever


def repeated(
    command: Sequence[str],
    folder: Path,
    repetitions: int,
    *,
    number: int = signal.SIGKILL,
    calm_seconds: float = watch.CALM_SECONDS,
    **environment: str,
) -> dict[str, Any]:
    """One job, hurt so many times, each time when it has trained on for a while."""
    ranks = Ranks(folder, RANKS)
    process = watch.begin(list(command), folder, **environment)
    found: list[dict[str, Any]] = []
    try:
        ranks.wait(lambda: ranks.first_steps(-1), watch.PATIENCE_SECONDS, "the first step")
        for _ in range(repetitions):
            life = ranks.newest(0)["life"]
            ranks.settle(life, calm_seconds)
            at = time.time()
            os.kill(ranks.newest(VICTIM)["pid"], number)
            found.append(ranks.recovery(life, at))
            progress(command, found[-1])
    except LostError as error:
        tail = (folder / "log").read_text(errors="replace")[-3000:]
        return told(found) | {"lost": str(error), "log": tail}
    finally:
        watch.end(process)
    return told(found)


def apart(command: Sequence[str], folder: Path, repetitions: int) -> dict[str, Any]:
    """A job of its own for each time: what may never come back is given up."""
    outcomes: list[str] = []
    seconds: list[float] = []
    for number in range(repetitions):
        own = folder / str(number)
        own.mkdir(parents=True)
        ranks = Ranks(own, RANKS)
        process = watch.begin([*command, *training(own)], own)
        try:
            ranks.wait(lambda ranks=ranks: ranks.first_steps(-1), watch.PATIENCE_SECONDS, "a step")
            ranks.settle(0)
            at = time.time()
            os.kill(ranks.newest(VICTIM)["pid"], signal.SIGKILL)
            found = ranks.recovery(0, at, _DEFAULTS_SECONDS)
            seconds.append(found["seconds"])
            outcomes.append("burnt a restart" if found["burnt"] else "clean")
        except LostError:
            ended = process.poll() is not None
            outcomes.append("ended" if ended else f"not back in {_DEFAULTS_SECONDS:.0f} s")
        finally:
            watch.end(process)
    counts = {one: outcomes.count(one) for one in sorted(set(outcomes))}
    return {"seconds": watch.summary(seconds), "outcomes": counts}


def told(found: list[dict[str, Any]]) -> dict[str, Any]:
    """All times of one job, and the phases of the one in the middle."""
    if not found:
        return {"seconds": watch.summary([])}
    ordered = sorted(found, key=lambda one: one["seconds"])
    return {
        "seconds": watch.summary([one["seconds"] for one in found]),
        "burnt_restarts": sum(one["burnt"] for one in found),
        "phases_of_the_median": ordered[len(ordered) // 2]["phases"],
    }


def training(folder: Path, *flags: str) -> list[str]:
    """The script with its arguments."""
    return [str(SCRIPT), "--folder", str(folder), *flags]


def progress(command: Sequence[str], found: dict[str, Any]) -> None:
    """For who waits."""
    who = "aegis" if "aegis.cli.main" in command else "torchrun"
    print(f"  {who}: {found['seconds']:.2f} s {found['phases']}", file=sys.stderr)


def new_folder(within: Path, name: str) -> Path:
    """A folder for one part."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=within))


def torchrun_unchanged(within: Path, repetitions: int) -> dict[str, Any]:
    """PyTorch's launcher with the switch that makes its restarts work."""
    return _torchrun(within, repetitions)


def torchrun_early(within: Path, repetitions: int) -> dict[str, Any]:
    """The same with the script that builds first."""
    return _torchrun(within, repetitions, "--early")


def torchrun_inplace(within: Path, repetitions: int) -> dict[str, Any]:
    """The same with the script that survives in place, which is nothing to torchrun."""
    return _torchrun(within, repetitions, "--inplace")


def _torchrun(within: Path, repetitions: int, *flags: str) -> dict[str, Any]:
    folder = new_folder(within, "torchrun")
    command = [*watch.torchrun(RANKS, 1000), *training(folder, *flags)]
    switch = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return repeated(command, folder, repetitions, **switch)


def torchrun_defaults(within: Path, repetitions: int) -> dict[str, Any]:
    """PyTorch's launcher as it comes, three restarts allowed."""
    return apart(watch.torchrun(RANKS, 3), new_folder(within, "defaults"), repetitions)


def aegis_unchanged(within: Path, repetitions: int) -> dict[str, Any]:
    """The same script under Aegis, nothing changed in it."""
    folder = new_folder(within, "aegis")
    return repeated([*watch.aegis(RANKS, folder), *training(folder)], folder, repetitions)


def aegis_early(within: Path, repetitions: int) -> dict[str, Any]:
    """The script that builds its model first, with standbys that have run so far."""
    folder = new_folder(within, "ahead")
    command = [*watch.aegis(RANKS, folder, "--run-ahead"), *training(folder, "--early")]
    return repeated(command, folder, repetitions, calm_seconds=_STANDBYS_SECONDS)


def aegis_inplace(within: Path, repetitions: int) -> dict[str, Any]:
    """The others keep their processes; a standby takes the place of the lost one."""
    folder = new_folder(within, "inplace")
    command = [*watch.aegis(RANKS, folder, "--run-ahead", "--standbys", "1")]
    command += training(folder, "--inplace")
    return repeated(command, folder, repetitions)


def aegis_stopped(within: Path, repetitions: int) -> dict[str, Any]:
    """SIGSTOP of a rank, steps of 100 ms, the least silence that counts as a hang set to 1 s."""
    folder = new_folder(within, "stopped")
    flags = ("--told", "--step-seconds", "0.1")
    command = [*watch.aegis(RANKS, folder, "--hang-floor", "1"), *training(folder, *flags)]
    return repeated(command, folder, repetitions, number=signal.SIGSTOP)
