"""The folders of a launcher: progress pages in memory, ranks' output, the checkpoint folder."""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aegis.model.job import RejectedCheckpoint
from aegis_agent.launcher.errors import ConflictError, UnusableError

_MEMORY = Path("/dev/shm")  # noqa: S108  pages belong into memory; the folder has a random name
_PREFIX = "aegis-run-"
_BLOCK_BYTES = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT)


def make_pages_folder() -> Path:
    """A folder for progress pages, in memory where there is such a place."""
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _remove_leftovers(where)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=where))


def _remove_leftovers(where: Path) -> None:
    """A launcher that was killed leaves its pages behind."""
    for path in where.glob(f"{_PREFIX}*"):
        match = re.fullmatch(rf"{_PREFIX}(\d+)-.*", path.name)
        if match and not Path("/proc", match[1]).exists():
            shutil.rmtree(path, ignore_errors=True)


def make_log_folder(wanted: Path | None, job: str) -> Path:
    """Where ranks' output goes."""
    try:
        if wanted is None:
            return Path(tempfile.mkdtemp(prefix=f"aegis-{job}-"))
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableError(
            f"the log folder {wanted or tempfile.gettempdir()} cannot be made ({error.strerror}); "
            "name another with --log-dir"
        ) from error
    return wanted


def check_checkpoint_folder(folder: Path | None) -> None:
    """Find out now, and not at the first save, that nothing can be written there."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_BLOCK_BYTES))
    except OSError as error:
        if error.errno in _FULL:
            raise UnusableError(
                f"the checkpoint folder {folder} is full ({error.strerror}); make room there, or "
                "name another with --checkpoint-folder"
            ) from error
        raise UnusableError(
            f"the checkpoint folder {folder} cannot be written to ({error.strerror}); "
            "give this user the right to, or name another with --checkpoint-folder"
        ) from error


@contextlib.contextmanager
def held(folder: Path | None, job: str, *, alone: bool) -> Iterator[None]:
    """Keep other runs of this name out of the folder, or ConflictError where one is in it.

    Launchers of one job share it: their controller tells runs apart. One that is alone has a
    controller of its own, which knows of no other; each would fence the other's generations out.
    """
    with contextlib.ExitStack() as stack:
        if folder is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                path = folder / f".run-{job}.lock"
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                stack.callback(os.close, descriptor)
                _lock(descriptor, folder, job, alone=alone)
        yield


def _lock(descriptor: int, folder: Path, job: str, *, alone: bool) -> None:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, _BLOCK_BYTES, 0).decode(errors="replace").strip()
        raise ConflictError(
            f"job {job} is running already out of {folder} ({holder}): end that run, or name this "
            "one otherwise with --job NAME"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def fenced_generation(folder: Path | None, job: str) -> int:
    """The generation that the job's fence stands at, as `aegis.worker.fence` wrote it; 0: none.

    A fence that cannot be read is no matter here: whoever raises it says so.
    """
    if folder is None:
        return 0
    try:
        return int(json.loads((folder / f"fence-{job}.json").read_text())["generation"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def read_rejected(page: Path) -> tuple[RejectedCheckpoint, ...]:
    """As `aegis.worker.progress` writes it; half a file is read again at the next look."""
    try:
        told: list[dict[str, Any]] = json.loads(page.with_suffix(".rejected.json").read_text())
        return tuple(RejectedCheckpoint(**one) for one in told)
    except (OSError, ValueError, TypeError):
        return ()
