"""What an unchanged script is to resume from: the newest file of a pattern that loads.

Such a script saves by itself, by torch.save or otherwise, and reads AEGIS_RESUME_FROM. A save that
a fault has interrupted leaves half a file; so each is looked into, without torch, and the newest
one that is whole is handed over, the same to all ranks: the first node decides and tells the
others by a small file beside what matched.

    archives of torch.save (zip)   all members are there; their checksums hold as far as time allows
    pickles                        they end with what ends a pickle
    safetensors                    as long as its own header says
    folders                        every file in them
    others                         not empty
"""

import asyncio
import glob
import json
import logging
import os
import pickletools
import re
import struct
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from aegis_agent.launcher.generation import Generation
from aegis_agent.launcher.options import Options

_WHOLE_SECONDS_MAX = 5.0  # for checksums; after that a file counts once its structure holds
_TOLD_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.02
_BLOCK_BYTES = 1 << 20
_HEADER_BYTES_MAX = 100 << 20  # as safetensors limits it
_ZEROS_BYTES = 4096
_PICKLE = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PICKLES_OF_OLD_TORCH = 5  # magic number, protocol, system, object, storages

_log = logging.getLogger(__name__)


class BrokenError(Exception):
    """A file is not whole; the sentence says how that is known."""


@dataclass
class Resume:
    """What matches, and what is known of it."""

    pattern: str
    job: str
    _known: dict[tuple[str, int, int], str] = field(default_factory=dict)  # reasons; "": it loads

    @classmethod
    def of(cls, options: Options) -> "Resume":
        """A relative pattern begins in the checkpoint folder, or here where there is none."""
        pattern = options.resume_pattern
        if pattern:
            pattern = str((options.checkpoint_folder or Path.cwd()) / pattern)
        return cls(pattern, options.spec.name)

    async def settle(self, generation: Generation) -> str:
        """Decide what a generation resumes from; the reason where that cannot be decided."""
        if not self.pattern:
            return ""
        try:
            if generation.group_rank != 0:
                found = await self._hear(generation.number)
            else:
                found = await asyncio.to_thread(self.find)
                if len(generation.world.members) > 1:
                    await asyncio.to_thread(self._tell, generation.number, found)
        except BrokenError as error:
            return str(error)
        generation.resume_from = found
        if found:
            _log.info("resuming from %s", found)
        else:
            _log.info("the script begins anew: %s", self._why_nothing())
        return ""

    def find(self) -> str:
        """The newest that is whole; those passed over are told, once each."""
        for path in self._newest_first():
            if not self._reason(path):
                return str(path)
        return ""

    def _why_nothing(self) -> str:
        if self._newest_first():
            return f"nothing that matches {self.pattern} is whole"
        return f"nothing matches {self.pattern} yet"

    def _newest_first(self) -> list[Path]:
        found = []
        for name in glob.glob(self.pattern, recursive=True):  # noqa: PTH207  it may be absolute
            path = Path(name)
            try:
                found.append((_changed_at(path), _numbers(path.name), path))
            except OSError:
                continue  # deleted since
        return [path for *_, path in sorted(found, reverse=True)]

    def _reason(self, path: Path) -> str:
        """Why it does not load; nothing when it does. What has not changed is not read again."""
        try:
            status = path.stat()
            seen = (str(path), status.st_mtime_ns, status.st_size)
            if seen in self._known:
                return self._known[seen]
            reason = ""
            check(path)
        except BrokenError as error:
            reason = str(error)
        except OSError as error:
            reason = f"it cannot be read: {error.strerror}"
            seen = (str(path), 0, 0)
        if reason:
            _log.warning("%s is passed over: %s", path, reason)
        self._known[seen] = reason
        return reason

    def _told_path(self, generation: int) -> Path:
        base = Path(self.pattern)
        while glob.has_magic(str(base)):
            base = base.parent
        folder = base if base.is_dir() else base.parent
        return folder / f".aegis-resume-{self.job}-g{generation}.json"

    def _tell(self, generation: int, found: str) -> None:
        path = self._told_path(generation)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in path.parent.glob(f".aegis-resume-{self.job}-g*.json"):
                old.unlink(missing_ok=True)
            written = path.with_name(f"{path.name}.new")
            written.write_text(json.dumps({"path": found, "at": time.time()}))
            written.rename(path)
        except OSError as error:
            raise BrokenError(
                f"the other nodes cannot be told what to resume from ({path}: {error.strerror})"
            ) from error

    async def _hear(self, generation: int) -> str:
        path, until = self._told_path(generation), time.monotonic() + _TOLD_SECONDS_MAX
        while time.monotonic() < until:
            try:
                return str(json.loads(path.read_text())["path"])
            except (OSError, ValueError, KeyError):
                await asyncio.sleep(_LOOK_SECONDS)
        raise BrokenError(
            f"the first node has not said what to resume from ({path} has not come); "
            "--resume-pattern must lead to storage that all nodes share"
        )


def _changed_at(path: Path) -> float:
    """Of a folder the newest file counts: its own time is that of its first file."""
    if not path.is_dir():
        return path.stat().st_mtime
    times = [one.stat().st_mtime for one in path.rglob("*") if one.is_file()]
    return max(times, default=0.0)


def _numbers(name: str) -> list[int]:
    """Of two that are equally new the one with the higher number."""
    return [int(digits) for digits in re.findall(r"\d+", name)]


def check(path: Path) -> None:
    """Raise BrokenError where the file, or one in the folder, is not whole."""
    until = time.monotonic() + _WHOLE_SECONDS_MAX
    if path.is_dir():
        within = sorted(one for one in path.rglob("*") if one.is_file())
        if not within:
            raise BrokenError("it is an empty folder")
        for one in within:
            _check_file(one, until, may_be_empty=True)
        return
    _check_file(path, until, may_be_empty=False)


def _check_file(path: Path, until: float, *, may_be_empty: bool) -> None:
    size = path.stat().st_size
    if size == 0:
        if may_be_empty:
            return
        raise BrokenError("it is empty")
    with path.open("rb") as file:
        first = file.read(_ZEROS_BYTES)
    begin = first[:4]
    if not any(first):  # its blocks were given and never written: the power went
        raise BrokenError(f"{path.name} begins with nothing but zeros")
    if path.suffix == ".safetensors":
        _check_safetensors(path, size)
    elif begin == b"PK\x03\x04":
        _check_zip(path, until)
    elif begin[:2] in _PICKLE:
        _check_pickle(path)


def _check_zip(path: Path, until: float) -> None:
    """The directory of a zip stands at its end, so half a file has none."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if time.monotonic() > until:
                    return
                with archive.open(member) as stream:
                    while stream.read(_BLOCK_BYTES):
                        pass  # the end of a member compares its checksum
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise BrokenError(f"{path.name} is no whole archive: {error}") from error


def _check_pickle(path: Path) -> None:
    """One pickle, or as many as torch.save wrote before it made archives; nothing is unpickled."""
    with path.open("rb") as file:
        for number in range(_PICKLES_OF_OLD_TORCH):
            if file.tell() == os.fstat(file.fileno()).st_size:
                return
            try:
                for _ in pickletools.genops(file):
                    pass
            except (ValueError, IndexError) as error:
                if number:  # what follows a pickle is its owner's matter
                    return
                raise BrokenError(f"{path.name} is no whole pickle: {error}") from error


def _check_safetensors(path: Path, size: int) -> None:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _HEADER_BYTES_MAX:
                raise BrokenError(f"{path.name} has no header")
            tensors = json.loads(file.read(length))
        ends = [one["data_offsets"][1] for name, one in tensors.items() if name != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenError(f"{path.name} has no header") from error
    if size != 8 + length + max(ends, default=0):
        raise BrokenError(f"{path.name} has {size} bytes, and its header speaks of others")
