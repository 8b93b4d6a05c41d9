"""Ranks that come to a halt, on real processes: found, named, and started again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "bytes_lm" / "train.py"
PATIENCE_SECONDS = 120

pytest.importorskip("torch", reason="needs torch: run `make setup`")
pytest.importorskip("aegis.controller.app", reason="needs the controller's packages")


class Job:
    """`aegis run` with the controller that it brings along, looked at through its API."""

    def __init__(self, folder, words):
        self.folder = folder
        self.logs = folder / "logs"
        command = [
            sys.executable, "-m", "aegis.cli.main", "run", "--job", "stuck", "--log-dir", self.logs,
            "--checkpoint-folder", folder / "checkpoints", *words,
        ]  # fmt: skip
        with (folder / "run.log").open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def get(self, path):
        tree = subprocess.run(
            ["ps", "-ww", "--ppid", str(self.process.pid), "-o", "args="],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        listening = re.search(r"--listen (\S+)", tree.stdout)
        if listening is None:
            return None
        try:
            with urllib.request.urlopen(f"http://{listening[1]}/api/v1{path}", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def job(self):
        return self.get("/jobs/stuck") or {}

    def ranks(self):
        """What the launcher says of its ranks, newest first."""
        nodes = (self.get("/nodes") or {"items": []})["items"]
        launchers = [launcher for node in nodes for launcher in node["launchers"]]
        return launchers[0]["ranks"] if launchers else []

    def incident(self, fault_class):
        """The first of its class, whole."""
        found = [
            one for one in (self.get("/incidents") or {"items": []})["items"]
            if one["fault_class"] == fault_class
        ]  # fmt: skip
        return self.get(f"/incidents/{found[-1]['id']}") if found else None

    def closed(self, fault_class):
        return self.wait(
            lambda: (found := self.incident(fault_class)) and found["state"] == "closed" and found
        )

    def trains(self, beyond=0, generation=1):
        self.wait(
            lambda: (
                (job := self.job())
                and job["generation"] == generation
                and job["state"] == "running"
                and job["step"] > beyond
            )
        )

    def wait(self, ready):
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := ready()):
            said = (self.folder / "run.log").read_text()
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {said}"
            assert time.monotonic() < until, f"waited in vain: {self.job()}\n{said}"
            time.sleep(0.05)
        return found

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def launch(tmp_path):
    """Start a job; whatever is left of it ends with the test."""
    started = []

    def start(*words):
        started.append(Job(tmp_path, words))
        return started[-1]

    yield start
    for job in started:
        job.close()


def test_a_stopped_rank_is_seen_by_its_state(launch):
    """Long before any time-out: named, killed with the rest, and training goes on."""
    job = launch(
        "--nproc-per-node", 3, "--hang-floor", 1000, EXAMPLE, "--steps", 100_000,
        "--checkpoint-every", 5, "--step-seconds", 0.05,
    )  # fmt: skip
    job.trains(beyond=7)
    os.kill(next(one["pid"] for one in job.ranks() if one["rank"] == 1), signal.SIGSTOP)
    incident = job.closed("job.hang")
    assert incident["device"] == "rank1"
    assert "rank 1 is stopped by a signal (state T)" in incident["faults"][0]["evidence"][0]["text"]
    assert incident["resumed_step"] % 5 == 0
    job.trains(beyond=incident["resumed_step"], generation=2)
    stacks = job.logs / "generation-1/rank-0/stacks.log"
    assert "train.py" in stacks.read_text()


STUCK = """
import os, sys, time
import torch
import torch.distributed as dist
import aegis.worker

def spin():
    while True:
        pass

def wait_for_nobody(x):
    dist.recv(x, src=0)

def average(x):
    dist.all_reduce(x)

dist.init_process_group("gloo")
rank, first = dist.get_rank(), os.environ["AEGIS_GENERATION"] == "1"
x = torch.ones(4)
for step in range(1, 100_000):
    time.sleep(0.02)
    if first and rank == 1 and step == 30:
        spin() if sys.argv[1] == "spins" else wait_for_nobody(x)
    average(x)
    aegis.worker.step(step)
"""


@pytest.mark.parametrize(
    ("how", "where"), [("spins", "spin, running"), ("leaves a collective out", "wait_for_nobody")]
)
def test_a_rank_for_which_the_others_wait_stands_out(launch, tmp_path, how, where):
    """No process is stopped and none has ended: silence finds it, and stacks say which it is."""
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    job = launch("--nproc-per-node", 3, "--hang-floor", 1, script, how)
    incident = job.closed("job.hang")
    assert incident["headline"].startswith("Rank 1 hangs on ")
    first, second, *_ = [one["text"] for one in incident["faults"][0]["evidence"]]
    assert first.startswith("rank 1 is elsewhere than the others, at step 29")
    assert where.split(",")[0] in first
    assert "the other 2 ranks wait at step 29" in second
    assert "all_reduce" in second
    assert "average" in second
    job.trains(beyond=1, generation=2)


def test_a_person_may_ask_to_be_told_only(launch):
    """--no-hang-detection: a stopped rank is told of, nothing is killed, and it may go on."""
    job = launch(
        "--nproc-per-node", 2, "--no-hang-detection", EXAMPLE, "--steps", 100_000,
        "--step-seconds", 0.05,
    )  # fmt: skip
    job.trains(beyond=5)
    pids = [one["pid"] for one in job.ranks()]
    os.kill(pids[1], signal.SIGSTOP)
    assert "people were told" in job.closed("job.hang")["outcome"]
    os.kill(pids[1], signal.SIGCONT)
    job.trains(beyond=job.job()["step"] + 5)
    assert [one["pid"] for one in job.ranks()] == pids
