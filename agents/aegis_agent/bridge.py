"""The socket on which launchers speak: their state up, what they should be running down.

One line of JSON each way, `LauncherState` and `Assignment`. A launcher's state is the last it said.
When its connection is lost it stays in the report for `GRACE_SECONDS`: it may only be reconnecting,
and a launcher that is missing from a report has lost its ranks. For the same reason an agent that
has just started says nothing until all launchers it knew are back, for `SETTLE_SECONDS` at most.
Where it knew none, it waits only as long as a launcher needs to try again a few times.
"""

import asyncio
import contextlib
import logging
import socket
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aegis.model.job import Assignment, LauncherState
from aegis.wire import WireError, decode_as, encode
from aegis_agent.probes.launcher import is_progress_only

_log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
SETTLE_SECONDS = 2.5  # launchers try to reconnect for two
_STRANGER_SECONDS = 1.0  # the agent's memory was lost; launchers try every quarter second
_LINE_BYTES_MAX = 1 << 20
_PATH_BYTES_MAX = 107  # of a Unix socket, by the kernel
_CONFLICT = 6


class SocketError(Exception):
    """The socket cannot be opened; the sentence says why."""


@dataclass
class _Launcher:
    """One launcher's place; it is kept for a while after its connection is lost."""

    state: LauncherState
    writer: asyncio.StreamWriter
    lost_at: float | None = None  # monotonic
    sent: Assignment | None = None


@dataclass
class Bridge:
    """All launchers of this node, one per job."""

    path: Path
    changed: Callable[[bool], None]  # called with whether it is urgent
    expected: frozenset[tuple[str, str]] = frozenset()  # (job, launcher) before the agent started
    _launchers: dict[str, _Launcher] = field(default_factory=dict)  # by job
    _assignments: dict[str, Assignment] = field(default_factory=dict)  # by job
    _server: asyncio.Server | None = None
    _settled_at: float = 0.0

    async def open(self) -> None:
        """Listen. Whoever may reach the socket may speak: the folder's rights decide."""
        _make_way(self.path)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, self.path, limit=_LINE_BYTES_MAX
            )
            self.path.chmod(0o666)
        except OSError as error:
            raise SocketError(
                f"cannot listen on {self.path} ({error.strerror}); "
                "name a folder the agent may write to with --socket"
            ) from error
        self._settled_at = time.monotonic() + (
            SETTLE_SECONDS if self.expected else _STRANGER_SECONDS
        )

    async def close(self) -> None:
        """Launchers notice at once, and come back to the next agent."""
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)
        for launcher in self._launchers.values():
            launcher.writer.close()

    async def settle(self) -> None:
        """Wait until launchers that were connected before have had the time to come back."""
        while time.monotonic() < self._settled_at:
            if self.expected and self.expected <= self.identities():
                return
            await asyncio.sleep(0.02)

    def states(self) -> tuple[LauncherState, ...]:
        """What each launcher said last, by job."""
        return tuple(self._launchers[job].state for job in sorted(self._launchers))

    def identities(self) -> frozenset[tuple[str, str]]:
        """Which launchers there are, as (job, launcher)."""
        return frozenset((job, known.state.launcher) for job, known in self._launchers.items())

    def assign(self, assignments: Iterable[Assignment]) -> None:
        """What every launcher should be running, whole."""
        self._assignments = {assignment.job: assignment for assignment in assignments}
        for job in self._launchers:
            self._pass_on(job)

    def expire(self) -> None:
        """Let go of launchers whose connection was lost for longer than the grace."""
        now = time.monotonic()
        for job, launcher in list(self._launchers.items()):
            if launcher.lost_at is not None and now - launcher.lost_at >= GRACE_SECONDS:
                del self._launchers[job]
                _log.warning("A launcher is gone.", extra={"job": job})
                self.changed(True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        job = None
        try:
            while line := await reader.readline():
                state = decode_as(LauncherState, line)
                if await self._is_second(state, writer):
                    self._refuse(state, writer)
                    return
                self._accept(state, writer)
                job = state.spec.name
        except WireError as error:
            _log.warning("A launcher said what is no launcher state.", extra={"reason": error})
        except (ConnectionError, ValueError) as error:  # ValueError: a line without an end
            _log.warning("A launcher's connection broke.", extra={"job": job, "reason": error})
        finally:
            self._lost(job, writer)
            writer.close()

    async def _is_second(self, state: LauncherState, writer: asyncio.StreamWriter) -> bool:
        """Whether another launcher of the job is connected, and not just about to be gone."""
        for pause in (0.2, 0.0):
            known = self._launchers.get(state.spec.name)
            if known is None or known.lost_at is not None or known.writer is writer:
                return False
            if known.state.launcher == state.launcher:
                return False
            await asyncio.sleep(pause)
        return True

    def _accept(self, state: LauncherState, writer: asyncio.StreamWriter) -> None:
        job = state.spec.name
        known = self._launchers.get(job)
        if known is None or known.writer is not writer:
            if known is not None:
                known.writer.close()
            self._launchers[job] = _Launcher(state=state, writer=writer)
            _log.info("A launcher connected.", extra={"job": job, "launcher": state.launcher})
            self._pass_on(job)
            self.changed(True)
        elif state != known.state:
            urgent = not is_progress_only(known.state, state)
            known.state = state
            self.changed(urgent)

    def _refuse(self, state: LauncherState, writer: asyncio.StreamWriter) -> None:
        """Two launchers of one job on one node would start the same ranks twice."""
        job = state.spec.name
        _log.warning("A second launcher of the job was turned away.", extra={"job": job})
        refusal = Assignment(
            job=job,
            launcher=state.launcher,
            epoch=state.epoch,
            sequence=0,
            generation=state.generation,
            finished=True,
            exit_code=_CONFLICT,
            reason=f"another launcher of job {job} is running on this node; stop it first",
        )
        writer.write(encode(refusal).encode() + b"\n")

    def _lost(self, job: str | None, writer: asyncio.StreamWriter) -> None:
        launcher = self._launchers.get(job or "")
        if launcher is not None and launcher.writer is writer:
            launcher.lost_at = time.monotonic()

    def _pass_on(self, job: str) -> None:
        launcher, assignment = self._launchers[job], self._assignments.get(job)
        if assignment is None or assignment == launcher.sent or launcher.lost_at is not None:
            return
        if assignment.launcher not in ("", launcher.state.launcher):
            return  # it was meant for the one before
        launcher.sent = assignment
        launcher.writer.write(encode(assignment).encode() + b"\n")


def _make_way(path: Path) -> None:
    """Take away the socket that an agent left behind; never one that someone listens on."""
    if len(str(path).encode()) > _PATH_BYTES_MAX:
        raise SocketError(
            f"the socket's path {path} is longer than the {_PATH_BYTES_MAX} bytes that the kernel "
            "allows; name a shorter one with --socket"
        )
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketError(f"{path} is there and is no socket; name another with --socket")
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketError(f"cannot look at {path} ({error.strerror})") from error
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return
    raise SocketError(
        f"another agent listens on {path}; stop it, or name another socket with --socket"
    )
