"""`python -m aegis.worker.inspect list|verify|prune FOLDER`: a folder's checkpoints, as JSON.

For people and for the controller, beside any training: it reads, and only `prune` deletes, and
never the newest one whose bytes hold. No torch here.
"""

import argparse
import json
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aegis.worker import folder as files
from aegis.worker.fence import FenceError, read_fence
from aegis.worker.folder import Candidate, Damaged

COMPLETE, VERIFIED, BAD, UNFINISHED = "complete", "verified", "bad", "unfinished"
SUSPECT = "suspect"
_FAILED = 1


class UnseenError(Exception):
    """There is no such folder from here, or it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One checkpoint, as far as it was looked at."""

    step: int
    path: str
    state: str  # complete: all of it is there; verified: every byte holds; bad; unfinished;
    # suspect: whatever its bytes, it is passed over
    reason: str = ""  # why it is bad or suspect
    bytes: int = 0
    files: int = 0
    at: float = 0.0
    taken_at: float = 0.0
    stall_seconds: float = 0.0
    generation: int = 0
    world_size: int = 0


def findings(folder: Path) -> list[Finding]:
    """All checkpoints of a folder, the newest first; no shard is read."""
    try:
        found = [_describe(one) for one in files.candidates(folder)]
        unfinished = sorted(folder.glob(".saving-step-*"), reverse=True)
        if not folder.is_dir():
            raise UnseenError(f"there is no folder {folder} on this machine")
    except OSError as error:
        raise UnseenError(f"the folder {folder} cannot be read: {error.strerror}") from error
    return [*(_unfinished(path) for path in unfinished), *found]


def _describe(one: Candidate | Damaged) -> Finding:
    if isinstance(one, Damaged):
        state = SUSPECT if (one.path / files.SUSPECT).is_file() else BAD
        return Finding(step=one.step, path=str(one.path), state=state, reason=one.reason)
    marker = one.marker
    reason = _lacks(one)
    return Finding(
        step=one.step,
        path=str(one.path),
        state=BAD if reason else COMPLETE,
        reason=reason,
        bytes=sum(file.size for file in one.files.values()),
        files=len(one.files),
        at=marker.at,
        taken_at=marker.taken_at,
        stall_seconds=marker.stall_seconds,
        generation=marker.generation,
        world_size=marker.world_size,
    )


def _lacks(one: Candidate) -> str:
    """What is gone or has another size: as much as can be known without reading it."""
    for name, expected in one.files.items():
        try:
            size = (one.path / name).stat().st_size
        except FileNotFoundError:
            return f"{name} is missing"
        if size != expected.size:
            return f"{name} has {size} bytes instead of {expected.size}"
    return ""


def _unfinished(path: Path) -> Finding:
    return Finding(step=files.saving_step(path), path=str(path), state=UNFINISHED)


def verify(folder: Path, step: int | None = None) -> list[Finding]:
    """Every byte of all checkpoints, or of those of one step, is compared with its manifest."""
    found = []
    for one in files.candidates(folder):
        if step is None or one.step == step:
            described = _describe(one)
            if isinstance(one, Candidate):
                reason = files.verify(one, one.files)
                described = replace(described, state=BAD if reason else VERIFIED, reason=reason)
            found.append(described)
    return found


def prune(folder: Path, keep: int) -> list[Finding]:
    """Delete what is older than the newest that holds, but for the `keep` best; what was deleted.

    What older generations were still writing when they ended goes, too. Where none holds, nothing
    is deleted.
    """
    newest, passed_over = files.latest(folder)
    if newest is None:
        return []
    before = findings(folder)
    bad = frozenset(one.path for one in passed_over)
    files.prune(folder, newest=newest.step, keep=keep, bad=bad)
    for path in folder.glob(".saving-step-*"):
        if _is_abandoned(path, folder, newest.marker.job):
            shutil.rmtree(path, ignore_errors=True)
    return [one for one in before if not Path(one.path).exists()]


def _is_abandoned(path: Path, folder: Path, job: str) -> bool:
    try:
        fence = read_fence(folder, job)
    except FenceError:
        return False
    return fence is not None and (0, 0) <= files.saving_height(path) < fence.height


def main() -> int:
    """Print what was found."""
    parser = argparse.ArgumentParser(prog="aegis.worker.inspect", description=__doc__)
    parser.add_argument("verb", choices=["list", "verify", "prune"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--step", type=int)
    parser.add_argument("--keep", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, Any]
    try:
        found = {"items": [asdict(one) for one in look(arguments)]}
    except (UnseenError, OSError) as error:
        found = {"reason": str(error)}
    sys.stdout.write(json.dumps(found) + "\n")
    return _FAILED if "reason" in found else 0


def look(arguments: argparse.Namespace) -> list[Finding]:
    """Do what was asked for."""
    listed = findings(arguments.folder)
    if arguments.verb == "verify":
        return verify(arguments.folder, arguments.step)
    if arguments.verb == "prune":
        return prune(arguments.folder, arguments.keep)
    return listed


if __name__ == "__main__":
    raise SystemExit(main())
