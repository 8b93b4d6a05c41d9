"""Looking at a checkpoint folder beside any training, and clearing it."""

import json
import subprocess
import sys

import pytest

from aegis.worker import folder as files
from aegis.worker.fence import Fence, raise_fence
from aegis.worker.folder import measure, saving_path
from aegis.worker.inspect import UnseenError, findings, prune, verify

FENCE = Fence(job="llama", generation=2, epoch=1)


def write(folder, step, fence=FENCE):
    saving = saving_path(folder, step, fence)
    saving.mkdir(parents=True)
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        (saving / name).write_text(f"{name} {step}")
    return {path.name: measure(path) for path in saving.iterdir()}


def commit(folder, step):
    files.commit(folder, step, FENCE, write(folder, step), 2, taken_at=7.0, stall_seconds=0.05)
    return folder / f"step-{step:08d}"


def told(found):
    return [(one.step, one.state) for one in found]


def test_what_lies_there_is_told_without_reading_shards(tmp_path) -> None:
    """The newest first; what is only half written, or not to be trusted, is called so."""
    commit(tmp_path, 10)
    (commit(tmp_path, 20) / "manifest.json").unlink()
    (commit(tmp_path, 30) / "__0_0.distcp").write_text("__0_0.distcp 31")
    write(tmp_path, 40)
    files.mark_suspect(commit(tmp_path, 50), "taken after an error")
    unfinished, suspect, *found = findings(tmp_path)
    assert told([unfinished, suspect]) == [(40, "unfinished"), (50, "suspect")]
    assert suspect.reason == "taken after an error"
    assert told(found) == [(30, "complete"), (20, "bad"), (10, "complete")]
    assert found[1].reason == "manifest.json is missing"
    assert (found[2].files, found[2].world_size, found[2].generation) == (3, 2, 2)
    assert (found[2].taken_at, found[2].stall_seconds) == (7.0, 0.05)
    assert found[2].bytes == sum(path.stat().st_size for path in tmp_path.glob("*10/[_.]*"))


def test_a_short_or_missing_shard_is_seen_without_reading_it(tmp_path) -> None:
    """By its size: a list that calls it complete would be trusted."""
    (commit(tmp_path, 10) / "__0_0.distcp").write_text("short")
    (commit(tmp_path, 20) / "__1_0.distcp").unlink()
    found = findings(tmp_path)
    assert told(found) == [(20, "bad"), (10, "bad")]
    assert [one.reason for one in found] == [
        "__1_0.distcp is missing",
        "__0_0.distcp has 5 bytes instead of 15",
    ]


def test_every_byte_is_compared(tmp_path) -> None:
    """Of all, or of one step."""
    commit(tmp_path, 10)
    (commit(tmp_path, 20) / "__1_0.distcp").write_text("__1_0.distcp 21")
    found = verify(tmp_path)
    assert told(found) == [(20, "bad"), (10, "verified")]
    assert found[0].reason == "shard __1_0.distcp of rank 1: hash differs"
    assert told(verify(tmp_path, 10)) == [(10, "verified")]


def test_the_newest_that_holds_is_never_deleted(tmp_path) -> None:
    """A newer one that is bad counts for nothing, and is left for people to look at."""
    for step in (10, 20, 30):
        commit(tmp_path, step)
    (commit(tmp_path, 40) / "__1_0.distcp").unlink()
    assert told(prune(tmp_path, keep=1)) == [(20, "complete"), (10, "complete")]
    assert told(findings(tmp_path)) == [(40, "bad"), (30, "complete")]
    (tmp_path / "step-00000030" / ".metadata").unlink()
    assert prune(tmp_path, keep=0) == []


def test_what_older_generations_left_unfinished_is_cleared(tmp_path) -> None:
    """What the present one is writing is not."""
    commit(tmp_path, 10)
    raise_fence(tmp_path, FENCE)
    write(tmp_path, 20, Fence(job="llama", generation=1, epoch=1))
    write(tmp_path, 30)
    assert told(prune(tmp_path, keep=3)) == [(20, "unfinished")]
    assert told(findings(tmp_path)) == [(30, "unfinished"), (10, "complete")]


def test_a_folder_that_is_not_there(tmp_path) -> None:
    """One sentence, also as the controller asks."""
    with pytest.raises(UnseenError, match="there is no folder"):
        findings(tmp_path / "none")
    command = [sys.executable, "-m", "aegis.worker.inspect", "list", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no folder" in json.loads(done.stdout)["reason"]
