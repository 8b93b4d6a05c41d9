"""A checkpoint folder: what in it is complete, whether its bytes still hold, what to keep.

    FOLDER/fence-JOB.json                    no older generation may commit (`aegis.worker.fence`)
    FOLDER/step-00000060/__0_0.distcp …      the shards, by torch.distributed.checkpoint
    FOLDER/step-00000060/manifest.json       size and xxh3-128 of every file
    FOLDER/step-00000060/complete.json       the marker: job, generation, epoch, step, and the
                                             manifest's own hash; what lacks it does not exist
    FOLDER/step-00000060/suspect.json        why it is passed over although it is complete
    FOLDER/.saving-step-00000070-g3-e1       being written
    FOLDER/.replaced-step-00000060           an older one of the same step, until the newer counts

No torch here: the folder can be read, verified and pruned by anyone.
"""

import contextlib
import json
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import xxhash

from aegis.worker.fence import Fence, check_fence
from aegis.worker.files import flush_folder, write_durably

MARKER = "complete.json"
MANIFEST = "manifest.json"
SUSPECT = "suspect.json"
HASH = "xxh3_128"
_NAME = re.compile(r"(\.replaced-)?step-(\d+)")
_SAVING = re.compile(r"\.saving-step-(\d+)-g(\d+)-e(\d+)")
_READ_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSum:
    """What a file of a checkpoint must be."""

    size: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Who completed a checkpoint, and of which step it is."""

    job: str
    generation: int
    epoch: int
    step: int
    world_size: int
    at: float  # when it was complete
    manifest_hash: str
    taken_at: float = 0.0  # when its state was copied; 0: not told
    stall_seconds: float = 0.0  # for which the loop of the first rank stood still

    def of(self, fence: Fence) -> bool:
        """Whether this very generation completed it."""
        return self.job == fence.job and (self.generation, self.epoch) == fence.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A complete checkpoint whose bytes may have suffered since."""

    path: Path
    marker: Marker
    files: Mapping[str, FileSum]

    @property
    def step(self) -> int:
        """The step it was taken at."""
        return self.marker.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A checkpoint that was complete and cannot be used any more."""

    path: Path
    step: int
    reason: str


def name_of(step: int) -> str:
    """The name of a checkpoint's folder."""
    return f"step-{step:08d}"


def saving_path(folder: Path, step: int, fence: Fence) -> Path:
    """Where this generation writes a checkpoint before it has its name."""
    return folder / f".saving-{name_of(step)}-g{fence.generation}-e{fence.epoch}"


def candidates(folder: Path) -> list[Candidate | Damaged]:
    """The checkpoints that were completed, newest first. Incomplete ones do not exist."""
    found: list[Candidate | Damaged] = []
    for path, step in _named(folder):
        try:
            complete = (path / MARKER).is_file()
        except OSError as error:
            found.append(Damaged(path=path, step=step, reason=_unreadable(error)))
            continue
        if complete:
            found.append(_read(path, step))
    return found


def _unreadable(error: OSError) -> str:
    return f"it cannot be read: {error.strerror}"


def _named(folder: Path) -> list[tuple[Path, int]]:
    if not folder.is_dir():
        return []
    named = [(path, _NAME.fullmatch(path.name)) for path in folder.iterdir()]
    whole = [(path, int(match[2]), match[1] is None) for path, match in named if match]
    # Of the same step the one with its proper name first: the other was about to be replaced.
    whole.sort(key=lambda one: (one[1], one[2]), reverse=True)
    return [(path, step) for path, step, _ in whole]


def _read(path: Path, step: int) -> Candidate | Damaged:
    try:
        if reason := _suspect(path):
            return Damaged(path=path, step=step, reason=reason)
        marker = _marker(json.loads((path / MARKER).read_text()))
        manifest = (path / MANIFEST).read_bytes()
        if xxhash.xxh3_128_hexdigest(manifest) != marker.manifest_hash:
            return Damaged(path=path, step=step, reason=f"{MANIFEST}: hash differs")
        files = {name: FileSum(**one) for name, one in json.loads(manifest)["files"].items()}
    except FileNotFoundError:
        return Damaged(path=path, step=step, reason=f"{MANIFEST} is missing")
    except OSError as error:
        return Damaged(path=path, step=step, reason=_unreadable(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Damaged(path=path, step=step, reason=f"its description is damaged: {error}")
    return Candidate(path=path, marker=marker, files=files)


def _suspect(path: Path) -> str:
    try:
        told = json.loads((path / SUSPECT).read_text())
    except FileNotFoundError:
        return ""
    return str(told.get("reason") or "suspect") if isinstance(told, dict) else "suspect"


def mark_suspect(path: Path, reason: str) -> None:
    """Have it passed over from now on. Where that cannot be written, it is by whoever says so."""
    with contextlib.suppress(OSError):
        write_durably(path / SUSPECT, json.dumps({"reason": reason, "at": time.time()}) + "\n")


def _marker(told: dict[str, Any]) -> Marker:
    """What this version knows of it; a newer one may have written more."""
    known = {field.name for field in fields(Marker)}
    return Marker(**{name: value for name, value in told.items() if name in known})


def verify(checkpoint: Candidate, names: Iterable[str]) -> str:
    """What is wrong with the first bad one of these files; nothing when all are as written."""
    for name in names:
        if reason := _compare(checkpoint.path / name, checkpoint.files[name]):
            return f"shard {name}{_of_rank(name)}: {reason}"
    return ""


def _compare(path: Path, expected: FileSum) -> str:
    try:
        found = measure(path)
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return _unreadable(error)
    if found.size != expected.size:
        return f"it has {found.size} bytes instead of {expected.size}"
    return "" if found.hash == expected.hash else "hash differs"


def _of_rank(name: str) -> str:
    match = re.fullmatch(r"__(\d+)_\d+\.distcp", name)
    return f" of rank {match[1]}" if match else ""


def measure(path: Path, length: int = sys.maxsize) -> FileSum:
    """Size and hash of a file, or of its first `length` bytes, as it is on disk now."""
    hashing, size = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(min(_READ_BYTES, length - size)):
            hashing.update(block)
            size += len(block)
    return FileSum(size=size, hash=hashing.hexdigest())


def latest(folder: Path) -> tuple[Candidate | None, list[Damaged]]:
    """The newest complete checkpoint whose bytes hold, and the newer ones that were passed over."""
    passed_over = []
    for one in candidates(folder):
        if isinstance(one, Damaged):
            passed_over.append(one)
        elif reason := verify(one, one.files):
            passed_over.append(Damaged(path=one.path, step=one.step, reason=reason))
        else:
            return one, passed_over
    return None, passed_over


def commit(
    folder: Path,
    step: int,
    fence: Fence,
    files: Mapping[str, FileSum],
    world_size: int,
    **told: float,
) -> Marker:
    """Give what was written its name and mark it complete, unless a newer generation has begun."""
    saving, path = saving_path(folder, step, fence), folder / name_of(step)
    manifest = _manifest(step, files)
    write_durably(saving / MANIFEST, manifest)
    marker = Marker(
        job=fence.job,
        generation=fence.generation,
        epoch=fence.epoch,
        step=step,
        world_size=world_size,
        at=time.time(),
        manifest_hash=xxhash.xxh3_128_hexdigest(manifest.encode()),
        **told,
    )
    check_fence(folder, fence)
    replaced = _step_aside(path)
    saving.rename(path)
    flush_folder(folder)
    # Once more: between the first look and the rename the fence may have gone up.
    check_fence(folder, fence)
    write_durably(path / MARKER, json.dumps(asdict(marker), indent=1) + "\n")
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)
    return marker


def _manifest(step: int, files: Mapping[str, FileSum]) -> str:
    body: dict[str, Any] = {
        "format": 1,
        "step": step,
        "hash": HASH,
        "files": {name: asdict(files[name]) for name in sorted(files)},
    }
    return json.dumps(body, indent=1) + "\n"


def _step_aside(path: Path) -> Path | None:
    """An older checkpoint of the same step makes way; it counts until the newer is complete."""
    if not path.exists():
        return None
    replaced = path.with_name(f".replaced-{path.name}")
    if (path / MARKER).is_file():
        shutil.rmtree(replaced, ignore_errors=True)
        path.rename(replaced)
        return replaced
    shutil.rmtree(path)
    return replaced if replaced.exists() else None


def prune(folder: Path, *, newest: int, keep: int, bad: frozenset[Path]) -> None:
    """Delete what is older than the newest verified checkpoint, save the `keep` best of it.

    `newest` was verified just now and stays, whatever `keep` says; so does all that is newer.
    """
    older = [one for one in candidates(folder) if one.step < newest]
    good = [one for one in older if isinstance(one, Candidate) and one.path not in bad]
    kept = {one.path for one in good[: max(0, keep - 1)]}
    for one in older:
        if one.path not in kept:
            _remove(one.path)


def sweep(folder: Path, fence: Fence) -> None:
    """Delete what older generations were still writing when they ended."""
    for path in folder.glob(".saving-step-*-g*-e*"):
        if (0, 0) <= saving_height(path) < fence.height:
            shutil.rmtree(path, ignore_errors=True)


def saving_height(path: Path) -> tuple[int, int]:
    """Whose unfinished checkpoint it is: generation and epoch; (-1, -1) for what is none."""
    match = _SAVING.fullmatch(path.name)
    return (int(match[2]), int(match[3])) if match else (-1, -1)


def saving_step(path: Path) -> int:
    """Which step an unfinished checkpoint would be of."""
    match = _SAVING.fullmatch(path.name)
    return int(match[1]) if match else 0


def _remove(path: Path) -> None:
    """The marker goes first: half a checkpoint must not look like a whole one.

    What a link leads to is kept elsewhere, and not ours to delete.
    """
    if path.is_symlink():
        path.unlink()
        return
    (path / MARKER).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
