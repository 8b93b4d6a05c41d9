"""Standbys that have run the script ahead, and modules that are imported before any fork."""

import contextlib
import os
import signal

import pytest

from aegis.model.job import LauncherPhase

BUILT_FIRST = """
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

import aegis.worker

print("built by", os.getpid(), flush=True)
if Path("fail").exists():
    raise ValueError("no such corpus")
while Path("linger").exists():
    time.sleep(0.05)
world = os.environ["WORLD_SIZE"]  # the same for all: nobody waits for it
print("of", world, flush=True)
rank = int(os.environ.get("RANK", "-1"))
print("rank", rank, "of generation", os.environ["AEGIS_GENERATION"], flush=True)
dist.init_process_group("gloo")
with aegis.worker.session() as session:
    for step in range(100_000):
        dist.all_reduce(torch.ones(1))
        session.step(step + 1)
        time.sleep(0.02)
"""


@pytest.fixture
def built_first(script):
    return script(BUILT_FIRST)


def waiting(stage, node, number):
    stage.wait(lambda: (state := stage.state(node)) and state.store_port and True)
    stage.wait(lambda: stage.state(node).standbys == number)


def held(stage, node):
    """The standbys there, by what they have printed so far: {pid: text}."""
    texts = [path.read_text() for path in (stage.folder / node / "logs").glob("standby-*.stdout")]
    return {int(text.split()[2]): text for text in texts if text.startswith("built by")}


def printed(stage, node, rank):
    folder = stage.folder / node / "logs" / f"generation-{stage.generation}"
    return (folder / f"rank-{rank}" / "stdout.log").read_text()


def test_a_killed_rank_is_followed_by_standbys(stage, built_first, alive) -> None:
    """They have run the script up to its rank, become the ranks, and others take their place."""
    stage.launch("a", built_first, flags=["--run-ahead"])
    waiting(stage, "a", 2)
    stage.begin("a")
    stage.trains("a")
    waiting(stage, "a", 2)
    standbys = held(stage, "a")
    assert len(standbys) == 2
    assert all(text.endswith("of 2\n") for text in standbys.values())  # it waits for its rank
    os.kill(stage.pids("a")[1], signal.SIGKILL)
    stage.phase("a", LauncherPhase.FAILED)
    assert all(alive(pid) for pid in standbys)  # what ends ranks is not for them
    stage.begin("a")
    stage.trains("a")
    assert set(stage.pids("a")) == set(standbys)
    for rank, pid in enumerate(stage.pids("a")):
        said = printed(stage, "a", rank)
        assert said == f"built by {pid}\nof 2\nrank {rank} of generation 2\n"
    waiting(stage, "a", 2)
    again = held(stage, "a")
    assert len(again) == 2
    assert not set(again) & set(standbys)
    os.kill(stage.processes["a"].pid, signal.SIGKILL)
    stage.wait(lambda: not any(alive(pid) for pid in {*again, *standbys}))


def test_a_standby_that_fails_harms_nothing(stage, built_first) -> None:
    """It is said once, with its reason, and ranks are forked."""
    (stage.folder / "fail").touch()
    stage.launch("a", built_first, flags=["--run-ahead"])
    stage.wait(lambda: "no such corpus" in stage.log("a"))
    (stage.folder / "fail").unlink()
    stage.begin("a")
    stage.trains("a")
    assert stage.log("a").count("no such corpus") == 1
    waiting(stage, "a", 2)  # once ranks train they are tried again
    assert stage.finish("a") == [0]


def test_a_standby_that_never_asks_for_its_rank_harms_nothing(stage, built_first, alive) -> None:
    """It does not count, ranks are forked, and it ends with its parent."""
    (stage.folder / "linger").touch()
    stage.launch("a", built_first, flags=["--run-ahead", "--standbys", "1"])
    stage.wait(lambda: (stage.folder / "a" / "logs").exists() and held(stage, "a"))
    (lingering,) = held(stage, "a")
    assert stage.state("a").standbys == 0
    stage.begin("a")
    stage.wait(lambda: len(stage.pids("a")) == 2)
    assert lingering not in stage.pids("a")
    stage.finish("a")
    assert not alive(lingering)


def test_a_spare_keeps_standbys(stage, built_first) -> None:
    """A node that takes over has them as well."""
    stage.launch("a", built_first, flags=["--run-ahead"])
    stage.launch("b", built_first, flags=["--run-ahead"])
    waiting(stage, "a", 2)
    waiting(stage, "b", 2)
    standbys = held(stage, "b")
    stage.begin("a")
    stage.trains("a")
    stage.stop("a")
    stage.wait(lambda: not stage.pids("a"))
    stage.begin("b")
    stage.trains("b")
    assert set(stage.pids("b")) == set(standbys)


def test_modules_are_imported_once(stage, script) -> None:
    """A module that starts a thread cannot be, and that is said."""
    script("import os; print('imported by', os.getpid(), flush=True)", "heavy.py")
    script(
        "import threading, time; threading.Thread(target=time.sleep, args=(9e4,)).start()", "bad.py"
    )
    path = script("import heavy, os; print(os.getppid(), flush=True)\n" + BUILT_FIRST)
    stage.launch("a", path, flags=["--preload", "heavy,bad"])
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")
    log = stage.log("a")
    assert "the module bad is not preloaded: importing it starts a thread" in log
    parent = printed(stage, "a", 0).split()[0]
    assert f"imported by {parent}\n" in log
    assert "imported by" not in printed(stage, "a", 0) + printed(stage, "a", 1)


def test_a_look_into_the_checkpoint_folder_waits(stage, script) -> None:
    """What a standby found there would be old by the time that it is a rank."""
    path = script(
        "import os, sys\nprint('built by', os.getpid(), flush=True)\n"
        "there = os.path.exists(os.environ['AEGIS_CHECKPOINT_FOLDER'] + '/newest.pt')\n"
        "print('newest', there, flush=True)\n" + BUILT_FIRST
    )
    stage.launch("a", path, flags=["--run-ahead"])
    waiting(stage, "a", 2)
    stage.checkpoints.mkdir(exist_ok=True)
    (stage.checkpoints / "newest.pt").touch()
    assert all("newest" not in text for text in held(stage, "a").values())
    stage.begin("a")
    stage.trains("a")
    assert "newest True" in printed(stage, "a", 0)


def test_processes_that_a_standby_starts_end_with_the_launcher(stage, script, alive) -> None:
    """As a rank's do."""
    path = script(
        "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
        "print('built by', child.pid, flush=True)\n" + BUILT_FIRST
    )
    stage.launch("a", path, flags=["--run-ahead"])
    waiting(stage, "a", 2)
    children = held(stage, "a")
    assert all(alive(pid) for pid in children)
    with contextlib.suppress(ProcessLookupError):
        os.kill(stage.processes["a"].pid, signal.SIGKILL)
    stage.wait(lambda: not any(alive(pid) for pid in children))
