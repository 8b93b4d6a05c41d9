"""From one generation to the next: a rank dies, the job goes on, and no bit is different."""

import os
import signal

from aegis.model.job import LauncherPhase, StopKind


def test_a_killed_rank_costs_a_generation_and_no_bit(stage, train, uninterrupted):
    """Kill -9 on one node: its siblings go at once, the next generation resumes, losses agree."""
    for node in ("a", "b"):
        stage.launch(node, *train(steps=60, every=5), nodes=2)
    stage.ready("a", "b")
    stage.begin("a", "b")
    stage.trains("a", "b", beyond=12)
    victim = stage.pids("b")[1]
    os.kill(victim, signal.SIGKILL)
    failed = stage.phase("b", LauncherPhase.FAILED)
    assert failed.failure.text.startswith("rank 3 was killed by SIGKILL (sent by somebody")
    assert (failed.failure.rank, failed.failure.signal) == (3, 9)
    assert failed.failure.last_step >= 12
    assert failed.stopped_at >= failed.failure.at
    stage.phase("a", LauncherPhase.FAILED)  # its ranks lost their peers
    stage.begin("a", "b")
    stage.trains("a", "b")
    resumed = stage.state("a").resumed_step
    assert resumed is not None
    assert resumed >= 10
    assert stage.state("b").resumed_step == resumed
    for node in ("a", "b"):
        assert stage.phase(node, LauncherPhase.DONE).checkpoint_step == 60
    assert stage.finish("a", "b") == [0, 0]
    trained = stage.trained()
    assert {generation for _, _, generation in trained} == {1, 2}
    assert [loss for _, loss, _ in trained] == [uninterrupted[step] for step, _, _ in trained]
    assert {step for step, _, _ in trained} == set(range(1, 61))


def test_a_generation_is_started_once_and_only_by_its_members(stage, train, alive):
    """Repeated, late and foreign assignments start nothing and stop nothing."""
    stage.launch("a", *train())
    stage.ready("a")
    first = stage.begin("a")
    stage.trains("a")
    pids = stage.pids("a")
    for repeated in (first, stage.assignment(world=first.world)):
        stage.agents["a"].assign(repeated)
    stage.sequence -= 2
    stage.stop("a")  # older than what was obeyed: it arrives late
    stage.sequence += 2
    stage.trains("a", beyond=stage.state("a").ranks[0].step + 5)
    assert stage.pids("a") == pids
    os.kill(pids[0], signal.SIGKILL)
    stage.phase("a", LauncherPhase.FAILED)
    stage.agents["a"].assign(stage.assignment(world=first.world))
    stage.stop("a")
    stage.begin("a")
    stage.trains("a", generation=2)
    assert {state.generation for state in stage.agents["a"].states} <= {0, 1, 2}
    assert not any(alive(pid) for pid in pids)


def test_a_stop_that_saves_loses_no_step(stage, train):
    """SIGTERM on both nodes: all ranks save at the same step and end; the next resumes there."""
    for node in ("a", "b"):
        stage.launch(node, *train(every=100_000), nodes=2, ranks=1)
    stage.ready("a", "b")
    stage.begin("a", "b")
    stage.trains("a", "b", beyond=5)
    stage.stop("a", "b", kind=StopKind.SAVING, grace=60.0)
    a, b = (stage.phase(node, LauncherPhase.IDLE) for node in ("a", "b"))
    assert a.failure is None
    assert b.failure is None
    step = a.ranks[0].step
    assert a.checkpoint_step == step
    stage.begin("a", "b")
    stage.trains("a", "b")
    assert stage.state("a").resumed_step == step


def test_the_newest_checkpoint_is_corrupt(stage, train, monkeypatch):
    """The one before it is used, and the launcher says which shard of which was bad."""
    monkeypatch.setenv("AEGIS_CHECKPOINT_MEMORY", "off")  # it would have a good one
    stage.launch("a", *train(every=5))
    stage.ready("a")
    stage.begin("a")
    stage.wait(lambda: stage.state("a").checkpoint_step >= 10)
    for pid in stage.pids("a"):
        os.kill(pid, signal.SIGSTOP)
    stage.stop("a")
    stage.phase("a", LauncherPhase.IDLE)
    complete = [
        path for path in stage.checkpoints.glob("step-*") if (path / "complete.json").exists()
    ]
    newest = max(complete)
    shard = newest / "__1_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content)
    stage.begin("a")
    stage.trains("a")
    state = stage.state("a")
    step = int(newest.name.removeprefix("step-"))
    assert state.resumed_step == step - 5
    [rejected] = state.rejected
    assert rejected.step == step
    assert rejected.path == str(newest)
    assert rejected.reason == "shard __1_0.distcp of rank 1: hash differs"
    stage.wait(lambda: stage.state("a").checkpoint_step >= step)  # it is replaced by a good one
