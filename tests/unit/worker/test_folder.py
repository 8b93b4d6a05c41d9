"""A checkpoint folder: complete or not there, verified or passed over, never the last one lost."""

import errno
import json
import shutil
from pathlib import Path

import pytest

from aegis.worker import folder as files
from aegis.worker.fence import Fence, StaleGenerationError, raise_fence
from aegis.worker.folder import Damaged, candidates, latest, measure, name_of, prune, saving_path

FENCE = Fence(job="llama", generation=2, epoch=1)


def write(folder, step, fence=FENCE, content="x"):
    """Write the files of a checkpoint, as ranks do; not yet committed."""
    saving = saving_path(folder, step, fence)
    saving.mkdir(parents=True)
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        (saving / name).write_text(f"{name} {step} {content}")
    return {path.name: measure(path) for path in saving.iterdir()}


def commit(folder, step, fence=FENCE, content="x"):
    files.commit(folder, step, fence, write(folder, step, fence, content), world_size=2)
    return folder / name_of(step)


def steps(folder):
    return [one.step for one in candidates(folder)]


def test_the_newest_complete_one_is_the_latest(tmp_path) -> None:
    """Whatever was committed first."""
    for step in (10, 30, 20):
        commit(tmp_path, step)
    found, passed_over = latest(tmp_path)
    assert (found.step, passed_over) == (30, [])
    assert (found.marker.job, found.marker.generation, found.marker.world_size) == ("llama", 2, 2)


def test_no_folder_holds_no_checkpoint(tmp_path) -> None:
    """The first run begins anew."""
    assert latest(tmp_path / "none") == (None, [])


def test_what_is_not_marked_does_not_exist(tmp_path) -> None:
    """A crash before the marker leaves the one before as the latest, and no complaint."""
    commit(tmp_path, 10)
    (commit(tmp_path, 20) / "complete.json").unlink()
    write(tmp_path, 30)
    found, passed_over = latest(tmp_path)
    assert (found.step, passed_over) == (10, [])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: flip(path / "__1_0.distcp"), "shard __1_0.distcp of rank 1: hash differs"),
        (
            lambda path: (path / "__0_0.distcp").unlink(),
            "shard __0_0.distcp of rank 0: it is missing",
        ),
        (lambda path: (path / "__0_0.distcp").write_text("short"), "it has 5 bytes instead of 17"),
        (lambda path: flip(path / ".metadata"), "shard .metadata: hash differs"),
        (lambda path: flip(path / "manifest.json"), "manifest.json: hash differs"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda path: (path / "complete.json").write_text("{"), "its description is damaged"),
        (lambda path: (path / "complete.json").write_text("{}"), "its description is damaged"),
        (lambda path: (path / "complete.json").write_text("[]"), "its description is damaged"),
    ],
)
def test_a_damaged_one_is_named_and_passed_over(tmp_path, harm, reason) -> None:
    """The one before it is used."""
    commit(tmp_path, 10)
    harm(commit(tmp_path, 20))
    found, [damaged] = latest(tmp_path)
    assert found.step == 10
    assert damaged.step == 20
    assert reason in damaged.reason


def test_a_stale_generation_commits_nothing(tmp_path) -> None:
    """The fence went up while it was writing: nothing gets a name."""
    sums = write(tmp_path, 20)
    raise_fence(tmp_path, Fence(job="llama", generation=3, epoch=1))
    with pytest.raises(StaleGenerationError):
        files.commit(tmp_path, 20, FENCE, sums, world_size=2)
    assert steps(tmp_path) == []


def test_a_better_one_of_the_same_step_takes_the_place(tmp_path) -> None:
    """After a corrupt checkpoint training passes the same step again."""
    flip(commit(tmp_path, 20) / "__0_0.distcp")
    commit(tmp_path, 20, content="new")
    found, passed_over = latest(tmp_path)
    assert (found.step, passed_over) == (20, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000020"]


def test_one_that_was_being_replaced_still_counts(tmp_path) -> None:
    """A crash between the two renames loses nothing."""
    commit(tmp_path, 20).rename(tmp_path / ".replaced-step-00000020")
    assert latest(tmp_path)[0].step == 20


def test_the_newest_are_kept(tmp_path) -> None:
    """And what is newer than the one just verified is not touched."""
    for step in (10, 20, 30, 40, 50):
        commit(tmp_path, step)
    prune(tmp_path, newest=40, keep=2, bad=frozenset())
    assert steps(tmp_path) == [50, 40, 30]


def test_bad_ones_do_not_count_as_kept(tmp_path) -> None:
    """Two good ones are asked for, and two good ones stay."""
    paths = {step: commit(tmp_path, step) for step in (10, 20, 30, 40)}
    (paths[20] / "manifest.json").unlink()
    prune(tmp_path, newest=40, keep=2, bad=frozenset({paths[30]}))
    assert steps(tmp_path) == [40, 10]


def test_the_one_just_verified_stays_whatever_is_asked(tmp_path) -> None:
    """Keeping none would leave nothing to resume from."""
    for step in (10, 20):
        commit(tmp_path, step)
    prune(tmp_path, newest=20, keep=0, bad=frozenset())
    assert steps(tmp_path) == [20]


def test_half_written_ones_of_older_generations_are_swept(tmp_path) -> None:
    """Those of this one and of newer ones are in use."""
    for generation in (1, 2, 3):
        write(tmp_path, 10, Fence(job="llama", generation=generation, epoch=1))
    files.sweep(tmp_path, FENCE)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".saving-step-00000010-g2-e1", ".saving-step-00000010-g3-e1"]


def test_the_manifest_says_what_its_hashes_are(tmp_path) -> None:
    """Someone without Aegis can verify it."""
    manifest = json.loads((commit(tmp_path, 10) / "manifest.json").read_text())
    assert manifest["hash"] == "xxh3_128"
    assert sorted(manifest["files"]) == [".metadata", "__0_0.distcp", "__1_0.distcp"]


def test_other_files_in_the_folder_are_left_alone(tmp_path) -> None:
    """It may hold the user's own."""
    (tmp_path / "step-notes").mkdir()
    (tmp_path / "model.pt").touch()
    shutil.copytree(commit(tmp_path, 10), tmp_path / "step-00000010-copy")
    assert steps(tmp_path) == [10]
    assert not any(isinstance(one, Damaged) for one in candidates(tmp_path))


def test_retention_takes_a_link_away_and_not_what_it_leads_to(tmp_path) -> None:
    """Somebody moved a checkpoint into an archive and left a link: it is theirs to delete."""
    folder, archive = tmp_path / "checkpoints", tmp_path / "archive"
    commit(folder, 10).rename(archive)
    (folder / name_of(10)).symlink_to(archive)
    commit(folder, 20)
    prune(folder, newest=20, keep=1, bad=frozenset())
    assert steps(folder) == [20]
    assert (archive / "complete.json").is_file()


def test_a_step_that_cannot_be_looked_into_hides_no_other(tmp_path, monkeypatch) -> None:
    """Its folder is another user's, say: it is named, and the one before is taken."""
    commit(tmp_path, 10)
    secret = commit(tmp_path, 20)
    is_file = Path.is_file

    def refused(path):
        if path.parent == secret:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)  # root may look into everything
    found, passed_over = latest(tmp_path)
    assert found.step == 10
    reason = "it cannot be read: Permission denied"
    assert passed_over == [Damaged(path=secret, step=20, reason=reason)]
