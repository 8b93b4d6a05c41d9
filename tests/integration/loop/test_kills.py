"""Any program of the fleet, killed at any moment: the job ends as if nothing had happened.

    AEGIS_KILLS=100 AEGIS_KILLS_SEED=7 pytest -m slow -s tests/integration/loop/test_kills.py

Each kill is of a rank, a launcher, an agent or the controller, while the job steps, saves, loads or
starts; every pair comes up once before one comes up again. A launcher, an agent and a controller
are started again a moment later, as systemd would.
"""

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aegis.cli.demo.fleet import (
    NODES,
    RANKS_PER_NODE,
    Fleet,
    read_losses,
    simulate,
    training_script,
)
from aegis.cli.demo.network import SimulatedSysfs
from aegis.model.job import RankPhase
from aegis.wire import page
from aegis.worker import folder

KILLS = int(os.environ.get("AEGIS_KILLS", "8"))
SEED = int(os.environ.get("AEGIS_KILLS_SEED", "1"))
KILLS_PER_JOB = 10
STEPS_BETWEEN_MIN = 16
STEPS_PER_KILL = 45  # while this process waits for its turn, the job trains on
EVERY, STEP_SECONDS = 4, 0.03
PATIENCE_SECONDS = 180
RESTARTED_SECONDS_MAX = 1.5
WHAT = ("rank", "launcher", "agent", "controller")
WHEN = ("step", "save", "load", "start")


@dataclass(frozen=True)
class Rank:
    """A live rank, found without asking any program of Aegis."""

    node: str
    pid: int
    page: Path

    @property
    def phase(self):
        """What it is doing, by its own page; None once it is gone."""
        try:
            progress = page.read(memoryview(self.page.read_bytes()))
        except OSError:
            return None
        return progress.phase if progress else RankPhase.STARTING


class Job:
    """A job on the demo's fleet, and the programs that are to be started again."""

    def __init__(self, tmp_path, steps):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.fleet = Fleet(
            folder=tmp_path,
            network=SimulatedSysfs(tmp_path / "sys"),
            port=port,
            steps_max=steps,
            checkpoint_every=EVERY,
            step_seconds=STEP_SECONDS,
        )
        self.steps = steps
        self.back = []  # (when, name, how) of programs that were killed
        self.pages = {}  # folders, by the launcher's pid
        self.told = []  # what was done, for whoever reads a failure

    def start(self):
        """Everything, until it trains."""
        simulate("build", str(self.fleet.folder / "rocm"))
        self.fleet.start_controller()
        for node in NODES:
            self.fleet.start_node(node)
        self.until(lambda: self.step() >= EVERY, "the first checkpoint")

    def until(self, wanted, what):
        """Wait for it, while what was killed is started again."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := wanted()):
            self.start_again()
            if time.monotonic() > until:
                pytest.fail(f"waited {PATIENCE_SECONDS} s for {what}\n{self.account()}")
            time.sleep(0.001)
        return found

    def start_again(self):
        """Those whose moment has come."""
        for one in [one for one in self.back if one[0] <= time.monotonic()]:
            self.back.remove(one)
            one[1]()

    def account(self):
        """Everything that helps to understand a failure."""
        logs = sorted(self.fleet.folder.glob("*.log"))
        tails = [f"== {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs]
        return "\n".join([f"seed {SEED}", *self.told, f"the job: {self.fleet.job()}", *tails])

    def step(self):
        """The newest step by the job's own losses."""
        losses = read_losses(self.fleet.losses)
        return losses[-1].step if losses else 0

    def ranks(self):
        """All live ranks: grandchildren of a launcher that write into a file for ranks."""
        found = []
        for node in NODES:
            process = self.fleet.processes.get(f"launcher-{node}")
            for pid in below(below([process.pid])) if process else ():
                if (named := writes_as(pid)) and (pages := self.pages_of(process.pid, pid)):
                    name = f"generation-{named[1]}-rank-{named[2]}.page"
                    found.append(Rank(node, pid, pages / name))
        return found

    def pages_of(self, launcher, rank):
        """Where the launcher's ranks tell of themselves; a process's maps take long to read."""
        if launcher not in self.pages:
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{rank}/maps").read_text()
                if mapped := re.search(r"(\S*)/generation-\d+-rank-\d+\.page", maps):
                    self.pages[launcher] = Path(mapped[1])
        return self.pages.get(launcher)

    def trains(self):
        """Whether all ranks are there and training."""
        phases = [rank.phase for rank in self.ranks()]
        return phases == [RankPhase.TRAINING] * 2 * RANKS_PER_NODE

    def kill(self, what, draw):
        """One program of this kind; it comes back a moment later."""
        again = time.monotonic() + draw.uniform(0, RESTARTED_SECONDS_MAX)
        if what == "rank":
            victim = draw.choice(self.until(self.ranks, "a rank"))
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
            return
        name = what if what == "controller" else f"{what}-{draw.choice(NODES)}"
        process = self.fleet.processes.pop(name, None)
        if process is None:
            return  # it is dead from the kill before
        node = name.partition("-")[2]
        how = {
            "controller": self.fleet.start_controller,
            "agent": lambda: self.fleet.start_agent(node),
            "launcher": lambda: self.fleet.start_launcher(node),
        }[what]
        process.kill()
        process.wait()
        self.back.append((again, how))


def below(pids) -> Iterator[int]:
    """The children of these processes."""
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                yield from map(int, path.read_text().split())


def writes_as(pid):
    """Generation and rank whose output the process's is, if it is one's."""
    with contextlib.suppress(OSError):
        return re.search(
            r"/generation-(\d+)/rank-(\d+)/", str(Path(f"/proc/{pid}/fd/1").readlink())
        )
    return None


class Moments:
    """Waits for the moment that a kill is meant for.

    The sleeps here only draw the moment; whatever it is, what the test asks for must hold.
    """

    def __init__(self, job, draw):
        self.job = job
        self.draw = draw

    def step(self):
        """Somewhere within a step."""
        time.sleep(self.draw.uniform(0, STEP_SECONDS))

    def save(self):
        """While a checkpoint is being written."""
        checkpoints = self.job.fleet.folder / "checkpoints"
        self.job.until(lambda: any(checkpoints.rglob(".saving-step-*")), "a save")
        time.sleep(self.draw.uniform(0, 0.01))

    def load(self):
        """While ranks read their checkpoint, after one of them was killed."""
        before = self._restart()

        def loads():
            new = [rank for rank in self.job.ranks() if rank.pid not in before]
            return any(rank.phase not in (RankPhase.STARTING, None) for rank in new)

        self.job.until(loads, "a load")

    def start(self):
        """Somewhere between a rank's death and the next one's first step."""
        self._restart()
        time.sleep(self.draw.uniform(0, 0.5))

    def _restart(self):
        ranks = self.job.ranks()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.draw.choice(ranks).pid, signal.SIGKILL)
        return {rank.pid for rank in ranks}


class Watch(threading.Thread):
    """Verifies every checkpoint as soon as it would be named as the latest."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.verified = set()
        self.bad = []
        self.over = threading.Event()

    def run(self):
        """Until it is over."""
        while not self.over.wait(0.01):
            for one in folder.candidates(self.path):
                self.look(one)

    def look(self, one):
        """Read all of it, unless that was done."""
        if isinstance(one, folder.Candidate):
            name = (one.path, one.marker.generation, one.marker.epoch)
            if name in self.verified:
                return
            reason = folder.verify(one, one.files)
            self.verified.add(name)
        else:
            reason = one.reason
        # Older ones are deleted, and one is replaced by the same step of a later generation.
        if reason and one in folder.candidates(self.path):
            self.bad.append(f"{one.path.name}: {reason}")


def undisturbed(tmp_path, steps):
    """The loss of each step of the same job on one machine, where nothing goes wrong."""
    losses = tmp_path / "losses.jsonl"
    command = [
        *(sys.executable, "-m", "aegis.cli.main", "run", "--log-dir", str(tmp_path / "logs")),
        *("--nproc-per-node", str(2 * RANKS_PER_NODE), str(training_script())),
        *("--steps", str(steps), "--losses", str(losses)),
    ]
    with (tmp_path / "run.log").open("wb") as log:
        subprocess.run(
            command, check=True, stdout=log, stderr=log, cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
    return {one.step: one.loss for one in read_losses(losses)}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The losses as they must be."""
    pytest.importorskip("torch", reason="needs torch: run `make setup`")
    steps = KILLS_PER_JOB * STEPS_PER_KILL
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), steps)


def deck(draw):
    """All pairs in some order, again and again."""
    while True:
        pairs = list(itertools.product(WHAT, WHEN))
        draw.shuffle(pairs)
        yield from pairs


@pytest.mark.slow
@pytest.mark.parametrize("number", range(-(-KILLS // KILLS_PER_JOB)))
def test_a_job_ends_with_the_very_losses_it_would_have_had(number, expected, tmp_path):
    """Whatever was killed, and whenever: no loss differs, and no complete checkpoint is bad."""
    draw = random.Random(SEED)
    count = min(KILLS_PER_JOB, KILLS - number * KILLS_PER_JOB)
    kills = list(itertools.islice(deck(draw), KILLS))[number * KILLS_PER_JOB :][:count]
    draw = random.Random(SEED + number)
    job = Job(tmp_path, count * STEPS_PER_KILL)
    watch, moments = Watch(tmp_path / "checkpoints"), Moments(job, draw)
    try:
        job.start()
        watch.start()
        for index, (what, when) in enumerate(kills, 1):
            least = job.step() + STEPS_BETWEEN_MIN  # no job is given up that gets on between them
            job.until(lambda least=least: job.step() >= least and job.trains(), "progress")
            getattr(moments, when)()
            job.told.append(f"{index}. at step {job.step()}: {what} during {when}")
            job.kill(what, draw)
        job.until(lambda: job.step() == job.steps and not job.back, "the end")
        for node in NODES:
            launcher = job.fleet.processes.pop(f"launcher-{node}")
            assert launcher.wait(PATIENCE_SECONDS) == 0, job.account()
    finally:
        watch.over.set()
        job.fleet.close()
    watch.join(PATIENCE_SECONDS)
    losses = read_losses(job.fleet.losses)
    assert {one.step for one in losses} == set(range(1, job.steps + 1))
    assert [one for one in losses if one.loss != expected[one.step]] == []
    assert watch.bad == []
    assert len(watch.verified) > len(kills)
