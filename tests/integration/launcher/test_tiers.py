"""Checkpoints in memory: what outlives a rank, what outlives a node, and what is not trusted."""

import contextlib
import json
import os
import random
import shutil
import signal
import time

from aegis.model.job import LauncherPhase, Tier
from aegis.worker import shelf
from aegis.worker.inspect import findings
from tests.integration.launcher.conftest import kept_steps, memory_of


def forget_disk(stage):
    """Nothing but memory is left."""
    for path in stage.checkpoints.glob("step-*"):
        shutil.rmtree(path)


def test_memory_outlives_its_rank(stage, train, uninterrupted):
    """Killed ranks go on from their launcher's memory, to the bit, with no checkpoint on disk."""
    stage.launch("a", *train(steps=60, every=5), ranks=4)
    stage.ready("a")
    stage.begin("a")
    stage.wait(lambda: stage.state("a").checkpoint_step >= 20)
    os.kill(stage.pids("a")[1], signal.SIGKILL)
    stage.phase("a", LauncherPhase.FAILED)
    forget_disk(stage)
    stage.begin("a")
    stage.trains("a")
    assert stage.state("a").resumed_step >= 20
    assert stage.state("a").resumed_from == (Tier.MEMORY,)
    assert stage.phase("a", LauncherPhase.DONE).checkpoint_step == 60
    trained = stage.trained()
    assert [loss for _, loss, _ in trained] == [uninterrupted[step] for step, _, _ in trained]


def test_a_peer_s_copy_outlives_its_node(stage, train, uninterrupted):
    """The node, its launcher and its memory are gone: a spare goes on from the peer's copy."""
    for node in ("a", "b", "c"):
        stage.launch(node, *train(steps=60, every=5, pace=0.2), nodes=2)
    stage.ready("a", "b", "c")
    stage.begin("a", "b")
    stage.wait(lambda: stage.state("a").checkpoint_step >= 20)
    stage.wait(lambda: set(kept_steps(stage, "a", "peer")) == {2, 3})
    stage.wait(lambda: min(kept_steps(stage, "a", "peer").values()) >= 20)
    stage.processes["b"].kill()
    stage.processes["b"].wait()
    shutil.rmtree(memory_of(stage, "b"))
    stage.phase("a", LauncherPhase.FAILED)
    forget_disk(stage)
    stage.begin("a", "c")
    stage.trains("a", "c")
    assert stage.state("c").resumed_step >= 20
    assert stage.state("c").resumed_from == (Tier.PEER,)
    assert stage.phase("c", LauncherPhase.DONE).checkpoint_step == 60
    trained = stage.trained()
    assert [loss for _, loss, _ in trained] == [uninterrupted[step] for step, _, _ in trained]


def test_a_bad_shard_in_memory_gives_way_to_its_copy(stage, train):
    """The peer's is as new, so no step is lost; what was bad is said."""
    for node in ("a", "b"):
        stage.launch(node, *train(every=20, pace=0.1), nodes=2)  # killed between two saves
    stage.ready("a", "b")
    stage.begin("a", "b")
    stage.wait(lambda: stage.state("a").checkpoint_step >= 20)
    stage.wait(lambda: set(kept_steps(stage, "b", "peer")) == {0, 1})
    for node in ("a", "b"):
        for pid in stage.pids(node):
            os.kill(pid, signal.SIGKILL)
    for node in ("a", "b"):
        stage.phase(node, LauncherPhase.FAILED)
    forget_disk(stage)
    own = kept_steps(stage, "a", "own") | kept_steps(stage, "b", "own")
    copies = kept_steps(stage, "a", "peer") | kept_steps(stage, "b", "peer")
    step = min(*own.values(), *copies.values())
    for rank in (0, 1):
        damage(shelf.own_path(memory_of(stage, "a"), rank))
    stage.begin("a", "b")
    stage.trains("a", "b")
    assert stage.state("a").resumed_step >= step
    assert stage.state("a").rejected == ()
    if min(own.values()) == step:
        assert "another copy is used" in stage.log("a")


def damage(place):
    with (place / "shard").open("r+b") as file:
        file.seek(4000)
        file.write(b"not what was there")


def test_a_bad_shard_in_memory_is_named_and_survived(stage, train):
    """With the checkpoint on disk where there is no other copy."""
    stage.launch("a", *train(every=40, pace=0.05))  # the kill falls between two saves
    stage.ready("a")
    stage.begin("a")
    stage.wait(lambda: stage.state("a").checkpoint_step == 40)
    stage.wait(lambda: kept_steps(stage, "a", "own") == {0: 40, 1: 40})
    os.kill(stage.pids("a")[1], signal.SIGKILL)
    stage.phase("a", LauncherPhase.FAILED)
    shard = shelf.own_path(memory_of(stage, "a"), 1)
    step = json.loads((shard / "entry.json").read_text())["step"]
    damage(shard)
    stage.begin("a")
    stage.trains("a")
    state = stage.state("a")
    assert state.resumed_step <= step
    rejected = state.rejected[0]
    assert rejected.step == step
    assert rejected.reason == "shard of rank 1 in memory: hash differs"


def test_memory_is_given_back(stage, train):
    """Nothing of a job is left in memory after it, however many generations it had."""
    stage.launch("a", *train(steps=30, every=5))
    stage.ready("a")
    stage.begin("a")
    stage.wait(lambda: stage.state("a").checkpoint_step >= 10)
    os.kill(stage.pids("a")[0], signal.SIGKILL)
    stage.phase("a", LauncherPhase.FAILED)
    stage.begin("a")
    stage.phase("a", LauncherPhase.DONE)
    folder = memory_of(stage, "a")
    assert {path.name for path in folder.glob("own/*")} == {"rank-0", "rank-1"}
    assert stage.finish("a") == [0]
    assert not folder.exists()


def test_kills_at_any_moment_cost_no_bit(stage, train, uninterrupted):
    """In a step, in a save, while it is written or sent, in a load: the losses stay the same."""
    draw = random.Random(5)
    for node in ("a", "b"):
        stage.launch(node, *train(steps=60, every=2, pace=0.05), nodes=2)
    stage.ready("a", "b")
    stage.begin("a", "b")
    reached = 0
    for _ in range(8):
        stage.trains("a", "b")
        time.sleep(draw.uniform(0.0, 0.4))
        assert stage.state("a").resumed_step >= reached
        reached = stage.state("a").resumed_step
        victim = draw.choice(["a", "b"])
        for pid in stage.pids(victim)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended = [stage.wait(lambda node=node: how_ended(stage, node)) for node in ("a", "b")]
        if LauncherPhase.FAILED not in ended:
            break
        stage.begin("a", "b")
    stage.phase("a", LauncherPhase.DONE)
    trained = stage.trained()
    assert [loss for _, loss, _ in trained] == [uninterrupted[step] for step, _, _ in trained]
    assert trained[-1][0] == 60
    assert not [one for one in findings(stage.checkpoints) if one.state == "bad"]


def how_ended(stage, node):
    state, ends = stage.state(node), (LauncherPhase.FAILED, LauncherPhase.DONE)
    return state.generation == stage.generation and state.phase in ends and state.phase
