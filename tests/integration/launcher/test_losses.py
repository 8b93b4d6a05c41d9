"""What may be lost: the launcher, the agent, the ranks' parent. And what may not."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from aegis.model.job import LauncherPhase


def test_ranks_and_what_they_started_end_with_a_killed_launcher(stage, script, alive):
    """The kernel ends the ranks, the sweeper what they had started: nothing is left over."""
    path = script(
        "import subprocess, time, os\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    stage.launch("a", path)
    stage.ready("a")
    stage.begin("a")
    stage.phase("a", LauncherPhase.RUNNING)
    logs = [stage.folder / "a/logs/generation-1" / f"rank-{rank}/stdout.log" for rank in (0, 1)]
    stage.wait(lambda: all(log.exists() and log.read_text().strip() for log in logs))
    pids = [*stage.pids("a"), *(int(log.read_text()) for log in logs)]
    assert all(alive(pid) for pid in pids)
    stage.processes["a"].send_signal(signal.SIGKILL)
    stage.wait(lambda: not any(alive(pid) for pid in pids))


def test_ranks_go_on_without_an_agent(stage, train):
    """An agent that is gone stops nothing, and one that comes back finds the same ranks."""
    stage.launch("a", *train())
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")
    pids, step = stage.pids("a"), stage.trained()[-1][0]
    stage.agents["a"].close()
    stage.wait(lambda: stage.trained()[-1][0] > step + 10)
    stage.agents["a"].open()
    stage.trains("a", beyond=stage.trained()[-1][0])
    assert stage.pids("a") == pids


def test_ranks_that_do_not_move_end_once_nobody_answers(stage, train, alive):
    """Cut off and standing still, they may have been replaced: their launcher ends them."""
    stage.launch("a", *train(), flags=("--isolation-seconds", "2"))
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")
    pids = stage.pids("a")
    stage.agents["a"].close()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    stage.wait(lambda: not any(alive(pid) for pid in pids))
    stage.agents["a"].open()
    state = stage.phase("a", LauncherPhase.FAILED)
    stage.wait(lambda: stage.state("a").failure)
    assert "neither controller nor agent has answered" in state.failure.text


def test_the_ranks_parent_dies(stage, train, alive):
    """Its ranks end with it, the launcher says so, and a new parent starts the next generation."""
    stage.launch("a", *train())
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")
    pids = stage.pids("a")
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    state = stage.phase("a", LauncherPhase.FAILED)
    assert state.failure.text.startswith("the process that starts ranks died (SIGKILL)")
    assert not any(alive(pid) for pid in pids)
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_an_interrupt_saves_and_leaves(stage, train, number):
    """Interrupted, the ranks save; the command ends with 130 or 131 and leaves nothing behind."""
    stage.launch("a", *train(every=100_000))
    stage.ready("a")
    stage.begin("a")
    stage.trains("a", beyond=5)
    stage.processes["a"].send_signal(number)
    assert stage.processes["a"].wait(60) == 128 + number
    [saved] = stage.checkpoints.glob("step-*")
    assert (saved / "complete.json").exists()
    assert not list(Path("/dev/shm").glob(f"aegis-run-{stage.processes['a'].pid}-*"))


def parent_of(pid):
    done = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True)
    return int(done.stdout)
