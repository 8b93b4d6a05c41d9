"""`aegis demo`: set the stage, play the acts, prove that the training was right."""

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO

from aegis.cli.demo import acts, show
from aegis.cli.demo.acts import Say
from aegis.cli.demo.fleet import (
    JOB,
    NODES,
    POLICY,
    RANKS_PER_NODE,
    DemoFailedError,
    Fleet,
    read_losses,
    simulate,
    training_script,
)
from aegis.cli.demo.network import Namespaces, Network, NetworkUnavailableError, SimulatedSysfs
from aegis.cli.demo.show import Progress, say

STEPS_MAX = 100_000  # the demo ends the job itself
CHECKPOINT_EVERY = 10
STEP_SECONDS = 0.1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def configure(parser: argparse.ArgumentParser) -> None:
    """Show a training job surviving three faults on this machine, no GPU needed."""
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the controller up afterwards and print the dashboard's address",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/demo"),
        help="where logs, checkpoints and report.json go; emptied first (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=_port, default=0, help="the dashboard's port (default: free)"
    )
    parser.add_argument(
        "--network",
        choices=["auto", "namespaces", "sysfs"],
        default="auto",
        help="namespaces: real links, needs root; sysfs: a simulated link (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Play the demo; 0 when each act went as told."""
    started_at, folder = time.time(), arguments.folder.resolve()
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        _check_machine()
        with prepare_folder(folder), contextlib.closing(_stage(arguments, folder)) as fleet:
            try:
                return _play(fleet, started_at, keep=arguments.keep)
            finally:
                _end_undisturbed()
    except DemoFailedError as error:
        print(f"\naegis demo: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, for one
        where = error.filename or folder
        print(f"\naegis demo: {error.strerror} ({where}); the demo is over", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\naegis demo: interrupted; everything it started has been ended", file=sys.stderr)
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _end_undisturbed()
    raise KeyboardInterrupt


def _end_undisturbed() -> None:
    """From here on all is being ended: a second Ctrl-C must not leave half of it."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: say a number from 0 to 65535")
    return int(text)


def _check_machine() -> None:
    """What the demo cannot do without, said before anything starts."""
    # In a process of its own: the command itself never imports torch.
    torch = subprocess.run(
        [sys.executable, "-c", "import torch"], check=False, capture_output=True, text=True
    )
    if torch.returncode != 0:
        last = torch.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise DemoFailedError(
            f"the training job needs torch, which does not import here ({last[0]}); "
            "`make setup` installs it"
        )
    if not any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
        raise DemoFailedError(
            "the simulated GPU library is built with a C compiler and there is none: "
            "apt-get install gcc"
        )
    training_script()


def prepare_folder(folder: Path) -> IO[bytes]:
    """An empty folder for this run, which is ours until what is returned is closed.

    Never empties one that is not a demo's, nor one whose demo still runs.
    """
    marker = folder / ".aegis-demo"
    if folder.exists() and not folder.is_dir():
        raise DemoFailedError(f"{folder} is a file; name a folder with --folder")
    try:
        if marker.exists():
            _lock(marker).close()
        elif folder.exists() and any(folder.iterdir()):
            raise DemoFailedError(
                f"{folder} holds files that are not a demo's; choose another with --folder"
            )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return _lock(marker)
    except OSError as error:
        raise DemoFailedError(
            f"cannot write to {folder} ({error.strerror}); choose another with --folder"
        ) from error


def _lock(marker: Path) -> IO[bytes]:
    file = marker.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise DemoFailedError(
            f"another demo runs in {marker.parent}: end that one, or choose another with --folder"
        ) from error
    return file


def _stage(arguments: argparse.Namespace, folder: Path) -> Fleet:
    return Fleet(
        folder=folder,
        network=_network(arguments.network, folder),
        port=arguments.port or _free_port(),
        steps_max=STEPS_MAX,
        checkpoint_every=CHECKPOINT_EVERY,
        step_seconds=STEP_SECONDS,
    )


def _network(wanted: str, folder: Path) -> Network:
    if wanted == "sysfs":
        return SimulatedSysfs(folder / "sys")
    try:
        return Namespaces(NODES)
    except NetworkUnavailableError as error:
        if wanted == "namespaces":
            raise DemoFailedError(f"{error}; without --network the demo does without") from error
        say(f"No network namespaces here ({error}): the fabric link is simulated instead.")
        return SimulatedSysfs(folder / "sys")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _play(fleet: Fleet, started_at: float, *, keep: bool) -> int:
    _open(fleet)
    played = [_act(fleet, "Act 1 · ECC", acts.ecc)]
    acts.give_back(fleet, played[0].incident["node"], say)
    played.append(_act(fleet, "Act 2 · A rank dies", acts.rank))
    played.append(_act(fleet, "Act 3 · NIC", acts.nic))
    _train_on(fleet, steps=2 * CHECKPOINT_EVERY, what="a few more steps")
    fleet.stop_kind("launcher")
    say("\nThe same training without interruption, started with plain torchrun, for comparison:")
    difference = _prove(fleet)
    say("\nResult\n")
    show.table(played)
    say("")
    losses = {entry.step: entry.loss for entry in read_losses(fleet.losses)}
    show.curve(losses, {act.incident["resumed_step"]: act.name for act in played})
    show.report(fleet.folder / "report.json", played, started_at, fleet.network.kind, difference)
    say(f"\nThe report is {fleet.folder / 'report.json'}; all GPUs were simulated.")
    say(f"The demo took {time.time() - started_at:.0f} s.")
    if difference != 0.0:
        raise DemoFailedError(f"the losses differ by up to {difference}")
    if keep:
        _keep(fleet)
    return 0


def _open(fleet: Fleet) -> None:
    where = {
        "namespaces": "each node is a network namespace with a management and a fabric link",
        "sysfs": "all nodes are on 127.0.0.1 and the fabric link is a simulated sysfs tree",
    }[fleet.network.kind]
    say(f"One controller, {len(NODES)} nodes of 8 simulated MI300X, one job of 2 nodes x 2 ranks.")
    say(f"Network: {where}.")
    say("\nThe policy (a fresh install only observes):\n")
    for line in POLICY.splitlines()[1:]:
        say(f"  {line}")
    say("\nStarting …")
    simulate("build", str(fleet.folder / "rocm"))
    fleet.start_controller()
    say(f"  dashboard: {fleet.url}/")
    for node in NODES:
        fleet.start_node(node)
    _train_on(fleet, steps=2 * CHECKPOINT_EVERY + 5, what="the job to train")
    say(f"  {JOB} trains on {' and '.join(fleet.members())}; step {fleet.step()}.")


def _act(fleet: Fleet, title: str, play: Callable[[Fleet, Say], acts.Act]) -> acts.Act:
    _train_on(fleet, steps=CHECKPOINT_EVERY + 3, what="training before the act")
    say(f"\n── {title} " + "─" * (72 - len(title)))
    act = play(fleet, say)
    show.story(act)
    return act


def _train_on(fleet: Fleet, *, steps: int, what: str) -> None:
    """Wait until the job has gone on by so many steps, showing the way."""
    progress, start = Progress(), fleet.step()

    def reached() -> bool:
        job = fleet.job()
        if not job:
            return False
        loss = "" if job["loss"] is None else f" · loss {job['loss']:.4f}"
        progress.show(f"{job['state']} · step {job['step']}{loss}")
        return bool(job["state"] == "running" and job["step"] >= start + steps)

    fleet.wait(reached, 90, what)
    progress.clear()


def _prove(fleet: Fleet) -> float:
    """The largest difference between a loss of the interrupted run and the undisturbed one's.

    Exact equality is asked for: the same ranks reduce in the same order, each on one thread, and
    the checkpoint keeps optimizer, random states and data position, so every bit must agree. Steps
    that were lost and trained again are compared too.
    """
    interrupted = read_losses(fleet.losses)
    plain = fleet.folder / "losses-uninterrupted.jsonl"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = [str(training_script()), "--steps", str(interrupted[-1].step)]
    script += ["--losses", str(plain), "--checkpoint-every", "0"]
    _run_shown(
        [*torchrun, "--nproc-per-node", str(2 * RANKS_PER_NODE), *script],
        log=fleet.folder / "uninterrupted.log",
        losses=plain,
    )
    reference = {entry.step: entry.loss for entry in read_losses(plain)}
    if missing := {entry.step for entry in interrupted} - set(reference):
        raise DemoFailedError(f"the uninterrupted run has no loss for step {min(missing)}")
    difference = max(abs(entry.loss - reference[entry.step]) for entry in interrupted)
    again = len(interrupted) - len({entry.step for entry in interrupted})
    say(
        f"  {len(reference)} steps and the {again} that were trained twice: the largest difference "
        f"is {difference!r}.\n"
        "  Exactly 0 is asked for: the same ranks add in the same order, on one thread each."
    )
    return difference


def _run_shown(command: list[str], *, log: Path, losses: Path) -> None:
    """Run the training to its end, showing how far it is."""
    progress = Progress()
    with log.open("wb") as output:
        training = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        try:
            while training.poll() is None:
                if trained := read_losses(losses):
                    progress.show(f"step {trained[-1].step} · loss {trained[-1].loss:.4f}")
                time.sleep(0.5)
        finally:
            training.terminate()
            training.wait()
    progress.clear()
    if training.returncode != 0:
        raise DemoFailedError(f"the uninterrupted run failed; its log is {log}")


def _keep(fleet: Fleet) -> None:
    say(f"\nThe dashboard stays at {fleet.url}/ until you press Ctrl-C.")
    signal.pause()
