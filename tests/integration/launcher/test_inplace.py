"""A rank is lost and the others keep their processes and what they have in memory."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aegis.model.job import LauncherPhase, Tier
from aegis.worker import shelf
from tests.integration.launcher.conftest import EXAMPLE, kept_steps, memory_of

SCRIPT = f"""
import ctypes
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, {str(EXAMPLE.parent)!r})
import train as example
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import aegis.worker

STEPS, EVERY = int(sys.argv[1]), int(sys.argv[2])
STUCK, HOLD = Path("stuck"), Path("hold")
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
example.seed_everything(1)
bare = example.ByteModel()
optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-3)
print("built by", os.getpid(), flush=True)


@aegis.worker.inplace(seconds=2.0)
def train():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(bare)
    example.seed_everything(2 + rank)
    data = example.Text(2 + rank)
    example.settle(model)
    with aegis.worker.session() as session:
        checkpointer = aegis.worker.Checkpointer(
            os.environ.get("AEGIS_CHECKPOINT_FOLDER") or "plain",
            model=model, optimizer=optimizer, data=data,
        )
        for step in range(checkpointer.restore(), STEPS):
            loss = example.train_one(model, optimizer, data.next())
            session.step(step + 1, loss=loss)
            if rank == 0:
                with open("losses.jsonl", "a") as file:
                    file.write(json.dumps([step + 1, loss, os.getpid()]) + "\\n")
            checkpointer.save_every(EVERY, step + 1)
            time.sleep(0.02)
            while HOLD.exists() and step + 1 >= int(HOLD.read_text()):
                time.sleep(0.02)
            if STUCK.exists() and os.environ["AEGIS_GENERATION"] == "1":
                if rank == 1:
                    Path("is-stuck").touch()
                    sum(range(10**12))  # holds the interpreter and hears of no signal
        checkpointer.wait()
    return loss


assert train() is not None
time.sleep(0.1)
"""


@pytest.fixture
def path(script):
    return script(SCRIPT)


def losses(stage):
    """What the first rank has written: {step: its losses}."""
    found = {}
    for line in (stage.folder / "losses.jsonl").read_text().splitlines():
        step, loss, _ = json.loads(line)
        found.setdefault(step, set()).add(loss)
    return found


def undisturbed(stage, path, steps):
    """The losses of four ranks that torchrun starts once."""
    (stage.folder / "losses.jsonl").rename(stage.folder / "disturbed.jsonl")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
        str(path), str(steps), "0",
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, cwd=stage.folder, env=environment, timeout=240)
    found = losses(stage)
    assert sorted(found) == list(range(1, steps + 1))
    return found


def kill(stage, node, local_rank, number=signal.SIGKILL):
    """End a rank; the pids before."""
    before = stage.pids(node)
    os.kill(before[local_rank], number)
    stage.phase(node, LauncherPhase.FAILED)
    return before


def kept(before, after):
    return [old == new for old, new in zip(before, after, strict=True)]


def checkpointed(stage, node, beyond=0):
    stage.wait(lambda: stage.state(node).checkpoint_step > beyond)


def test_survivors_keep_their_process_and_lose_nothing(stage, path) -> None:
    """Whoever dies, also the first rank; the losses are those of a run that nothing disturbed."""
    stage.launch("a", path, 60, 5, ranks=4)
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")
    for victim in (2, 0):
        checkpointed(stage, "a", stage.state("a").checkpoint_step)
        before = kill(stage, "a", victim)
        assert not stage.pids("a")  # they hold no rank
        state = stage.state("a")
        assert state.failure.rank == victim
        assert [rank.signal for rank in state.ranks].count(9) == 1
        stage.begin("a")
        stage.trains("a")
        assert kept(before, stage.pids("a")) == [rank != victim for rank in range(4)]
    stage.phase("a", LauncherPhase.DONE)
    assert stage.finish("a") == [0]
    disturbed = losses(stage)
    assert disturbed == undisturbed(stage, path, 60)


def test_a_survivor_does_not_grow(stage, path) -> None:
    """After twenty restarts it has the threads and open files that it had after the third."""
    stage.launch("a", path, 100_000, 5)
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")
    sizes = []
    for _ in range(20):
        checkpointed(stage, "a", stage.state("a").checkpoint_step)
        survivor = kill(stage, "a", 1)[0]
        stage.begin("a")
        stage.trains("a")
        assert stage.pids("a")[0] == survivor
        sizes.append([count(survivor, "task"), count(survivor, "fd"), count(survivor, "maps")])
    early = [max(one) for one in zip(*sizes[:4], strict=True)]
    late = [min(one) for one in zip(*sizes[-4:], strict=True)]
    assert all(now <= before + 4 for before, now in zip(early[:2], late[:2], strict=True)), sizes


def count(pid, what):
    """How many threads, open files or mappings a process has."""
    path = Path("/proc", str(pid), what)
    return len(path.read_text().splitlines()) if what == "maps" else len(list(path.iterdir()))


def test_a_rank_without_a_checkpoint_starts_anew(stage, path) -> None:
    """What it has trained so far cannot be undone in its memory."""
    stage.launch("a", path, 100_000, 0)
    stage.ready("a")
    stage.begin("a")
    stage.trains("a", beyond=5)
    before = kill(stage, "a", 1)
    stage.begin("a")
    stage.trains("a", beyond=5)
    assert kept(before, stage.pids("a")) == [False, False]
    assert all(len(values) == 1 for values in losses(stage).values())


def test_who_does_not_get_out_in_time_is_killed(stage, path, alive) -> None:
    """One that is stopped at once, one that is stuck after its time; the others stay."""
    stage.launch("a", path, 100_000, 5, ranks=4, flags=["--no-hang-detection"])
    stage.ready("a")
    stage.begin("a")
    stage.trains("a")
    checkpointed(stage, "a")
    (stage.folder / "stuck").touch()
    stage.wait((stage.folder / "is-stuck").exists)
    os.kill(stage.pids("a")[3], signal.SIGSTOP)
    before = kill(stage, "a", 2)
    stage.begin("a")
    stage.trains("a")
    assert kept(before, stage.pids("a")) == [True, False, False, False]
    assert not any(alive(pid) for pid in before[1:])


def test_survivors_on_other_nodes(stage, path, alive) -> None:
    """They stay as well, and end where the next generation has no place for them."""
    for node in "ab":
        stage.launch(node, path, 100_000, 5, nodes=2)
    stage.ready("a", "b")
    stage.begin("a", "b")
    stage.trains("a", "b")
    checkpointed(stage, "a")
    there = stage.pids("b")
    here = kill(stage, "a", 0)
    stage.stop("b")
    stage.wait(lambda: not stage.pids("b"))
    stage.begin("a", "b")
    stage.trains("a", "b")
    assert kept(here, stage.pids("a")) == [False, True]
    assert kept(there, stage.pids("b")) == [True, True]
    stage.launch("c", path, 100_000, 5, nodes=2)
    stage.ready("c")
    kill(stage, "a", 1)
    stage.stop("b")
    stage.wait(lambda: not stage.pids("b"))
    assignment = stage.begin("b", "c")
    stage.agents["a"].assign(assignment)
    stage.trains("b", "c")
    assert kept(there, stage.pids("b")) == [True, True]
    stage.wait(lambda: not alive(here[1]))


def test_what_is_lost_comes_from_a_peer_s_memory(stage, path) -> None:
    """A rank with its shard, then a node with all of its own; there is no checkpoint on disk."""
    hold(stage, 12)
    for node in "abc":
        stage.launch(node, path, 40, 5, nodes=2)
    stage.ready("a", "b", "c")
    stage.begin("a", "b")
    copied(stage, 10, "a", "b")
    here, there = stage.pids("a"), kill(stage, "b", 1)
    shelf.drop(shelf.own_path(memory_of(stage, "b"), 3))
    hold(stage, 22)
    goes_on(stage, "a", "b")
    assert (stage.pids("a"), stage.pids("b")[0]) == (here, there[0])
    assert restored(stage, "a") == (10, (Tier.MEMORY,))
    assert restored(stage, "b") == (10, (Tier.MEMORY, Tier.PEER))

    copied(stage, 20, "a", "b")
    stage.processes["b"].kill()
    stage.processes["b"].wait()
    shutil.rmtree(memory_of(stage, "b"))
    hold(stage, 1000)
    goes_on(stage, "a", "c")
    assert stage.pids("a") == here
    assert restored(stage, "a") == (20, (Tier.MEMORY,))
    assert restored(stage, "c") == (20, (Tier.PEER,))

    stage.phase("a", LauncherPhase.DONE)
    disturbed = losses(stage)
    assert disturbed == undisturbed(stage, path, 40)


def hold(stage, step):
    """Have the ranks stand still after this step, if they come so far."""
    (stage.folder / "hold.new").write_text(str(step))
    (stage.folder / "hold.new").rename(stage.folder / "hold")


def copied(stage, step, *nodes):
    """Wait until each shard of this step is in memory and in a peer's, and all writing is over."""
    stage.wait(lambda: stage.state(nodes[0]).checkpoint_step == step)
    whole = dict.fromkeys(range(4), step)
    stage.wait(lambda: all(kept_in(stage, nodes, tier) == whole for tier in ("own", "peer")))


def kept_in(stage, nodes, tier):
    """The newest step that lies there, by rank."""
    return {rank: step for node in nodes for rank, step in kept_steps(stage, node, tier).items()}


def goes_on(stage, *nodes):
    """With nothing on disk."""
    stage.stop(*nodes)
    stage.wait(lambda: not any(stage.pids(node) for node in nodes))
    for folder in stage.checkpoints.glob("step-*"):
        shutil.rmtree(folder)
    stage.begin(*nodes)
    stage.trains(*nodes)


def restored(stage, node):
    """What its ranks have restored: the step, and where they had their shards from."""
    state = stage.state(node)
    return state.resumed_step, state.resumed_from


def test_a_failure_of_its_own_is_not_survived(stage, script) -> None:
    """The function's own exception ends its rank, with its traceback."""
    path = script(
        "import aegis.worker, os, time\n"
        "@aegis.worker.inplace\n"
        "def train():\n"
        "    aegis.worker.step(1)\n"
        "    if os.environ['RANK'] == '1': raise ValueError('mine')\n"
        "    time.sleep(1000)\n"
        "train()\n"
    )
    stage.launch("a", path)
    stage.ready("a")
    stage.begin("a")
    state = stage.phase("a", LauncherPhase.FAILED)
    assert state.failure.rank == 1
    assert "ValueError: mine" in state.failure.error


def test_a_group_that_breaks_without_a_fault_is_one(stage, script) -> None:
    """Where nobody is known to have failed, the ranks that lost their group are what failed."""
    path = script(
        "import aegis.worker\n"
        "@aegis.worker.inplace\n"
        "def train():\n"
        "    aegis.worker.step(1)\n"
        "    raise RuntimeError('[gloo/transport/tcp/pair.cc] Connection closed by peer')\n"
        "train()\n"
    )
    stage.launch("a", path)
    stage.ready("a")
    stage.begin("a")
    state = stage.phase("a", LauncherPhase.FAILED)
    assert "lost its process group" in state.failure.text
