"""Runs a site check: one process group with a deadline, low priority and bounded output."""

import asyncio
import contextlib
import os
import pwd
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aegis_agent.probes.check_entry import Check
from aegis_agent.probes.check_verdicts import Outcome

_OUTPUT_BYTES_MAX = 1 << 16
_TERM_SECONDS = 2.0  # between being asked to end and being killed
_DEATH_SECONDS = 2.0  # a killed process that lives longer is stuck in the kernel
_REST_SECONDS = 0.5  # for what it wrote last, while others hold its pipes open
_LOOK_SECONDS = 0.2
_NICE = 15
_OOM_SCORE = "500"  # it goes before the training, whatever the agent's own score is
_OWN = ("NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "AEGIS_TOKEN_FILE", "INVOCATION_ID", "MAINPID")
_OWN_PREFIXES = ("WATCHDOG_", "LISTEN_", "JOURNAL_")


class Interrupted(Exception):  # noqa: N818  it is no error
    """The run was ended because it may not go on; it says nothing."""


@dataclass
class Runner:
    """Runs checks, each one at a time."""

    node: str
    _stuck: dict[str, Process] = field(default_factory=dict)  # by check: not even killed

    async def run(self, check: Check, may_run: Callable[[], bool]) -> Outcome:
        """One run. Raises Interrupted once it may no longer run."""
        stuck = self._stuck.get(check.name)
        if stuck is not None and stuck.returncode is None:
            reason = "its last run cannot be killed: it is stuck in the kernel"
            return Outcome(at=time.time(), reason=reason)
        async with _pipe() as (output, output_end), _pipe() as (errors, errors_end):
            try:
                process = await _start(check, self.node, output_end, errors_end)
            except _NotStartedError as error:
                return Outcome(at=time.time(), reason=str(error))
            finally:
                os.close(output_end)
                os.close(errors_end)
            try:
                reason = await self._follow(check, process, may_run)
                await _rest(process, output, errors)
            finally:
                if process.returncode is None:  # the agent ends, or the node is wanted
                    _signal(process, signal.SIGKILL)
        return Outcome(
            at=time.time(),
            code=None if reason else process.returncode,
            reason=reason,
            output=output.text,
            errors=errors.text,
        )

    async def _follow(self, check: Check, process: Process, may_run: Callable[[], bool]) -> str:
        """Until its end; why it did not come to one of its own."""
        if await _ended(process, check.deadline_seconds, may_run):
            code = process.returncode or 0
            return f"it was ended by {_signal_name(-code)}" if code < 0 else ""
        if not await _kill(process):
            self._stuck[check.name] = process
        return f"it did not end within {check.deadline_seconds:g} s"


def read_file(check: Check) -> Outcome:
    """What another program left: lines, and perhaps a last one `exit N`."""
    if Path(check.file).exists() and not Path(check.file).is_file():
        return Outcome(at=time.time(), reason=f"{check.file} is no file")  # a pipe would not end
    try:
        with Path(check.file).open(errors="replace") as file:
            left_at = os.fstat(file.fileno()).st_mtime
            text = file.read(_OUTPUT_BYTES_MAX)
    except OSError as error:
        return Outcome(at=time.time(), reason=f"{check.file} cannot be read: {error.strerror}")
    age = time.time() - left_at
    limit = check.max_age_seconds or 3 * check.interval_seconds
    if age > limit:
        reason = f"{check.file} is {age:.0f} s old; results older than {limit:g} s say nothing"
        return Outcome(at=time.time(), reason=reason)
    *_, last = text.splitlines() or [""]
    words = last.split()
    code = 0
    if len(words) == 2 and words[0] == "exit" and words[1].isdigit():
        text, code = text.rpartition(last)[0], int(words[1])
    elif not any(line.lstrip().startswith("{") for line in text.splitlines()):
        reason = f"{check.file} holds neither a line of JSON nor a last line `exit N`"
        return Outcome(at=time.time(), reason=reason)
    return Outcome(at=time.time(), code=code, output=text, left_at=left_at)


class _NotStartedError(Exception):
    """The program could not be started; the sentence says why."""


async def _start(check: Check, node: str, output: int, errors: int) -> Process:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _OWN and not name.startswith(_OWN_PREFIXES)
    }
    environment |= {"AEGIS_NODE": node, "AEGIS_CHECK": check.name}
    program = check.command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *check.command,
            stdin=DEVNULL,
            stdout=output,
            stderr=errors,
            env=environment,
            cwd="/",
            start_new_session=True,
            **_identity(check.user),
        )
    except FileNotFoundError as error:
        raise _NotStartedError(f"{program} is not there") from error
    except PermissionError as error:
        whose = f" as {check.user}" if check.user else ""
        raise _NotStartedError(f"{program} may not be run{whose}: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise _NotStartedError(f"{program} cannot be run: {error}") from error
    _lower(process.pid)
    return process


def _identity(user: str) -> dict[str, Any]:
    if not user:
        return {}
    try:
        known = pwd.getpwnam(user)
    except KeyError as error:
        raise _NotStartedError(f"no user is called {user}") from error
    if known.pw_uid == os.geteuid():
        return {}
    if os.geteuid() != 0:
        raise _NotStartedError(f"it is to run as {user}, which takes an agent that is root")
    groups = os.getgrouplist(user, known.pw_gid)
    return {"user": known.pw_uid, "group": known.pw_gid, "extra_groups": groups}


def _lower(pid: int) -> None:
    """The training goes before it, in processor, disk (by the niceness) and memory."""
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(_OOM_SCORE)


async def _ended(process: Process, seconds: float, may_run: Callable[[], bool]) -> bool:
    """Whether it ended in time. Raises Interrupted."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    ended = asyncio.ensure_future(process.wait())
    try:
        while not ended.done():
            if not may_run():
                raise Interrupted
            left = until - loop.time()
            if left <= 0:
                return False
            await asyncio.wait([ended], timeout=min(left, _LOOK_SECONDS))
    finally:
        ended.cancel()
    return True


async def _kill(process: Process) -> bool:
    """End its whole group, first with a word; whether it is gone."""
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _DEATH_SECONDS)):
        _signal(process, number)
        if await _ended(process, seconds, lambda: True):
            # Its children may have outlived the word; they are its group, and go too.
            _signal(process, signal.SIGKILL)
            return True
    return False


async def _rest(process: Process, *outputs: "_Kept") -> None:
    """What was written last. What still holds the pipes was left behind, and ends."""
    _, unread = await asyncio.wait([one.ended for one in outputs], timeout=_REST_SECONDS)
    if unread:
        _signal(process, signal.SIGKILL)


def _signal(process: Process, number: signal.Signals) -> None:
    """To its whole group, which is there as long as one of it is."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Kept(asyncio.Protocol):
    """The first part of what a pipe gives; the rest is read, so that nobody blocks, and dropped."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def text(self) -> str:
        """What was kept."""
        return self._kept.decode(errors="replace")

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._kept += data[: max(0, _OUTPUT_BYTES_MAX - len(self._kept))]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the loop's signature
        """Called by the loop at the end of the pipe."""
        if not self.ended.done():
            self.ended.set_result(None)


@contextlib.asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[_Kept, int]]:
    """What is read from a pipe, and the descriptor to write to.

    Not the loop's own pipes: a program may leave another one behind that holds them, and must not
    cost a descriptor for ever.
    """
    reader, writer = os.pipe()
    try:
        transport, kept = await asyncio.get_running_loop().connect_read_pipe(
            _Kept, os.fdopen(reader, "rb", buffering=0)
        )
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    try:
        yield kept, writer
    finally:
        transport.close()
