"""Looking at ranks that are stuck, before anything is killed: stacks, states, flight recordings.

Each rank is asked by a signal and answers into a file beside its output (`aegis.wire.stacks`). One
that cannot answer, because it is stopped or is no Python, is read with py-spy where that is
installed; what the kernel knows of it is read in any case.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aegis.wire.stacks import FILE, FLIGHT_PREFIX, SIGNAL, main_thread
from aegis_agent.launcher import process
from aegis_agent.launcher.generation import Rank

_ANSWER_SECONDS = 0.5
_POLL_SECONDS = 0.01
_PY_SPY_SECONDS = 2.0
_FLIGHT_SECONDS = 2.0
_TEXT_CHARACTERS = 4000
_STACK_FRAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one look at a rank's process has shown."""

    state: str
    kernel: str = ""
    stack: tuple[str, ...] = ()
    text: str = ""


async def inspect(ranks: Sequence[Rank]) -> dict[int, Sight]:
    """Look at all living ranks at once; by local rank. What cannot be read stays empty."""
    living = [rank for rank in ranks if rank.pid and rank.status is None]
    states = {rank.local_rank: process.state(rank.pid) for rank in living}
    texts = await _ask([one for one in living if states[one.local_rank] != process.STOPPED])
    spied = await asyncio.gather(*(_spy(rank) for rank in living if not texts.get(rank.local_rank)))
    texts |= {local_rank: text for local_rank, text in spied if text}
    return {
        rank.local_rank: Sight(
            state=states[rank.local_rank],
            kernel=process.kernel_wait(rank.pid),
            stack=tuple(map(str, main_thread(texts.get(rank.local_rank, ""))))[:_STACK_FRAMES],
            text=texts.get(rank.local_rank, "")[:_TEXT_CHARACTERS],
        )
        for rank in living
    }


async def _ask(ranks: Sequence[Rank]) -> dict[int, str]:
    """What each rank writes when it is asked where it is."""
    begins = {}
    for rank in ranks:
        if not process.answers(rank.pid):
            continue
        begins[rank.local_rank] = _size(rank.folder / FILE)
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank.pid, SIGNAL)
    texts: dict[int, str] = {}
    clock = asyncio.get_running_loop().time
    until = clock() + _ANSWER_SECONDS
    waiting = {rank.local_rank: rank for rank in ranks if rank.local_rank in begins}
    while waiting and clock() < until:
        await asyncio.sleep(_POLL_SECONDS)
        for local_rank, rank in list(waiting.items()):
            text = _tail(rank.folder / FILE, begins[local_rank])
            if text and text == texts.get(local_rank):
                del waiting[local_rank]  # it has written no more since the last look
            texts[local_rank] = text
    return texts


async def _spy(rank: Rank) -> tuple[int, str]:
    """The stacks by py-spy, kept beside the rank's output too; nothing where there is none."""
    program = shutil.which("py-spy")
    if program is None:
        return rank.local_rank, ""
    command = [program, "dump", "--nonblocking", "--pid", str(rank.pid)]
    spy = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        said, _ = await asyncio.wait_for(spy.communicate(), _PY_SPY_SECONDS)
    except TimeoutError:
        spy.kill()
        await spy.wait()
        return rank.local_rank, ""
    text = said.decode(errors="replace")
    with contextlib.suppress(OSError), (rank.folder / FILE).open("a") as file:
        file.write(text)
    return rank.local_rank, text


async def flights(ranks: Sequence[Rank]) -> list[Path]:
    """Have torch write what its flight recorder holds, and wait for it; where NCCL or RCCL runs.

    Torch listens on a pipe for the wish. gloo has no recorder, so there is nothing to wait for.
    """
    asked = [rank for rank in ranks if rank.status is None and _wish(rank)]
    clock = asyncio.get_running_loop().time
    until = clock() + _FLIGHT_SECONDS
    while asked and clock() < until:
        await asyncio.sleep(_POLL_SECONDS)
        asked = [rank for rank in asked if not _size(_recording(rank))]
    return [path for rank in ranks if _size(path := _recording(rank))]


def _wish(rank: Rank) -> bool:
    """Whether somebody reads the pipe on which recordings are asked for."""
    pipe = Path(f"{_recording(rank)}.pipe")
    try:
        if not stat.S_ISFIFO(pipe.stat().st_mode):
            return False
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        return False
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file.write(b"1\n")
    return True


def _recording(rank: Rank) -> Path:
    return rank.folder / f"{FLIGHT_PREFIX}{rank.rank}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tail(path: Path, begin: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
