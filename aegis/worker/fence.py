"""The fence in a checkpoint folder: no generation older than this may commit there.

It is raised before a generation's ranks start, and it never goes down. A commit asks it twice:
before a checkpoint gets its name, and before it is marked complete.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from aegis.worker.files import write_durably


class FenceError(Exception):
    """The fence cannot be read or raised; the sentence says why."""


class StaleGenerationError(FenceError):
    """A newer generation has taken over: this one must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The oldest generation of a job that may still commit."""

    job: str
    generation: int
    epoch: int

    @property
    def height(self) -> tuple[int, int]:
        """What is compared: the generation, then the controller's epoch."""
        return (self.generation, self.epoch)


def fence_path(folder: Path, job: str) -> Path:
    """Where the job's fence stands."""
    return folder / f"fence-{job}.json"


def read_fence(folder: Path, job: str) -> Fence | None:
    """The fence as it stands, None where none was ever raised."""
    path = fence_path(folder, job)
    try:
        fields = json.loads(path.read_text())
        return Fence(
            job=fields["job"], generation=int(fields["generation"]), epoch=int(fields["epoch"])
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FenceError(f"the fence {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FenceError(
            f"the fence {path} is damaged; nothing is committed past it. Remove it once you are "
            "sure that no other run uses the folder"
        ) from error


def raise_fence(folder: Path, fence: Fence) -> None:
    """Raise the fence to this generation. One that stands higher stays: this one is stale."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f".fence-{fence.job}.lock"):
            check_fence(folder, fence)
            if read_fence(folder, fence.job) != fence:
                write_durably(fence_path(folder, fence.job), json.dumps(asdict(fence)) + "\n")
    except OSError as error:
        raise FenceError(
            f"the fence in {folder} cannot be raised: {error.strerror}; the checkpoint folder "
            "must be writable on every node"
        ) from error


def check_fence(folder: Path, mine: Fence) -> None:
    """Raise StaleGenerationError where the fence stands higher than this generation."""
    there = read_fence(folder, mine.job)
    if there is not None and there.height > mine.height:
        raise StaleGenerationError(
            f"generation {mine.generation} of job {mine.job} (epoch {mine.epoch}) may no longer "
            f"commit in {folder}: generation {there.generation} (epoch {there.epoch}) has begun"
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two launchers raise one after the other. Where a file system has no locks, without one."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
