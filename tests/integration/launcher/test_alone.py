"""`aegis run` on one machine, with the controller that it brings along."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "bytes_lm" / "train.py"

pytest.importorskip("torch", reason="needs torch: run `make setup`")
pytest.importorskip("aegis.controller.app", reason="needs the controller's packages")


@pytest.fixture
def launch(run_alone):
    """Start `aegis run` with two ranks."""
    job = ("--job", "alone", "--nproc-per-node", 2, "--checkpoint-folder", "checkpoints")
    return lambda *words: run_alone(*job, *words)


def rank_pids(process):
    """The ranks: grandchildren of the launcher with sessions of their own that train."""
    tree = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in tree.stdout.splitlines()]
    parents = {
        pid for pid, ppid, args in rows if ppid == str(process.pid) and "worker.parent" in args
    }
    return [int(pid) for pid, ppid, _ in rows if ppid in parents]


def ask_as_told(folder):
    """What the lines to copy give, which `aegis run` prints when it starts."""
    lines = (folder / "run.log").read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("    export AEGIS_"))
    told = "\n".join(lines[begin : begin + 2])
    done = subprocess.run(
        ["/bin/sh", "-c", told.replace("aegis job", f"{sys.executable} -m aegis.cli.main job")],
        capture_output=True, text=True, cwd=folder, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_killed_rank_is_mended_and_a_later_run_goes_on(tmp_path, launch, losses):
    """One command, no controller, no agent: the job survives, and its checkpoints outlive it."""
    path = tmp_path / "losses.jsonl"
    words = ["--checkpoint-every", 5, "--step-seconds", 0.15, "--losses", path]  # time to ask
    process = launch(EXAMPLE, "--steps", 60, *words)
    wait(lambda: losses(path) and losses(path)[-1]["step"] > 12, process)
    assert "alone" in ask_as_told(tmp_path)
    os.kill(max(rank_pids(process)), signal.SIGKILL)
    assert process.wait(120) == 0, (tmp_path / "run.log").read_text()
    assert {one["generation"] for one in losses(path)} == {1, 2}
    assert {one["step"] for one in losses(path)} == set(range(1, 61))
    assert launch(EXAMPLE, "--steps", 70, *words).wait(120) == 0
    last = [one for one in losses(path) if one["step"] > 60]
    assert [one["step"] for one in last] == list(range(61, 71))


def test_a_script_that_fails_at_once_is_given_up(tmp_path, launch):
    """Three restarts without progress are enough: its traceback, and exit code 93."""
    script = tmp_path / "bad.py"
    script.write_text("raise ValueError('no such corpus')\n")
    process = launch("--max-restarts", 2, script)
    assert process.wait(120) == 93, (tmp_path / "run.log").read_text()
    said = (tmp_path / "run.log").read_text()
    assert said.count("ValueError: no such corpus") >= 3
    assert "aegis run: Traceback (most recent call last):" in said
    assert "runpy" not in said, "a traceback begins in the script, as Python's does"
    assert said.count("2 restarts without progress") == 1
    assert said.splitlines()[-1].startswith("aegis run: the job is given up; mend what")


def test_two_runs_of_one_name_do_not_share_a_checkpoint_folder(tmp_path, launch, losses):
    """Each would fence the other's generations out; the second is told, the first trains on."""
    path = tmp_path / "losses.jsonl"
    words = ["--steps", 100_000, "--checkpoint-every", 5, "--step-seconds", 0.02, "--losses", path]
    first = launch(EXAMPLE, *words)
    wait(lambda: losses(path), first)
    assert launch(EXAMPLE, *words).wait(60) == 6
    said = (tmp_path / "run.log").read_text().splitlines()[-1]
    assert f"job alone is running already out of {tmp_path}/checkpoints" in said
    assert f"process {first.pid} on " in said
    assert "name this one otherwise with --job NAME" in said
    step = losses(path)[-1]["step"]
    wait(lambda: losses(path)[-1]["step"] > step + 10, first)
    assert {one["generation"] for one in losses(path)} == {1}


def wait(ready, process, seconds=90):
    until = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < until
        time.sleep(0.02)
