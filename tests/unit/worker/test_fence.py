"""The fence: what an older generation may not do any more."""

import pytest

from aegis.worker.fence import (
    Fence,
    FenceError,
    StaleGenerationError,
    check_fence,
    fence_path,
    raise_fence,
    read_fence,
)


def fence(generation, epoch=1, job="llama"):
    return Fence(job=job, generation=generation, epoch=epoch)


def test_a_fence_goes_up_and_never_down(tmp_path) -> None:
    """Whoever comes late finds it higher, and is told by whom."""
    raise_fence(tmp_path, fence(2))
    raise_fence(tmp_path, fence(3))
    with pytest.raises(
        StaleGenerationError, match=r"generation 2 .*generation 3 \(epoch 1\) has begun"
    ):
        raise_fence(tmp_path, fence(2))
    assert read_fence(tmp_path, "llama") == fence(3)


def test_the_same_fence_may_be_raised_again(tmp_path) -> None:
    """A launcher that is told twice does no harm."""
    raise_fence(tmp_path, fence(2))
    raise_fence(tmp_path, fence(2))
    check_fence(tmp_path, fence(2))


def test_the_epoch_decides_within_a_generation(tmp_path) -> None:
    """Two controllers that both started generation 2: the newer one's counts."""
    raise_fence(tmp_path, fence(2, epoch=5))
    with pytest.raises(StaleGenerationError):
        check_fence(tmp_path, fence(2, epoch=4))


def test_jobs_do_not_fence_each_other(tmp_path) -> None:
    """Each has its own."""
    raise_fence(tmp_path, fence(9, job="other"))
    check_fence(tmp_path, fence(1))


def test_a_damaged_fence_lets_nobody_pass(tmp_path) -> None:
    """What it said is unknown, so nothing is committed, and the sentence says how to go on."""
    fence_path(tmp_path, "llama").write_text("{")
    with pytest.raises(FenceError, match=r"is damaged; .*Remove it once you are sure"):
        check_fence(tmp_path, fence(100))


def test_a_folder_that_cannot_be_made(tmp_path) -> None:
    """A file is in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(FenceError, match="must be writable on every node"):
        raise_fence(tmp_path / "file" / "checkpoints", fence(1))
