"""The lines on which a launcher says how it is and hears what it should be running.

It speaks through its node's agent. When the agent's socket has been away for two seconds it opens a
stream to the controller itself, and closes it once the agent is back. Everything said is the whole
state, so nothing is queued and nothing is lost: at once when it matters, with each heartbeat
otherwise.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from aegis import __version__
from aegis.model.job import Assignment, LauncherState
from aegis.model.node import NodeReport, Sender
from aegis.wire import Answer, Report, WireError, decode_as, encode
from aegis_agent.probes.launcher import is_progress_only
from aegis_agent.stream import DENIED, HELD, TokenError, open_stream

_log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
AGENT_AWAY_SECONDS = 2.0
_RETRY_SECONDS = 0.25
_PAUSE_SECONDS_MAX = 5.0
_HELD_SECONDS_MAX = 10.0  # longer than one that is gone is taken for being there
_LINE_BYTES_MAX = 1 << 20


class HeldError(Exception):
    """Another launcher of the job speaks for this node; the sentence says what to do."""


Say = Callable[[str], Awaitable[None]]


class DeniedError(Exception):
    """The controller refuses this node's token; the sentence says what to do."""


@dataclass
class Links:
    """Both lines. `compose` is asked for the state, `heed` is told of each assignment."""

    job: str
    node: str
    agent_socket: Path | None
    controller: str | None
    token_file: Path | None
    compose: Callable[[], LauncherState]
    heed: Callable[[Assignment], None]
    heard_at: float = field(default_factory=time.monotonic)  # the last word of anyone
    controller_heard_at: float = 0.0  # the last word of the controller itself
    _agent_up: bool = False
    _agent_seen_at: float = field(default_factory=time.monotonic)
    _agent_missed: bool = False  # and that it is away has been said
    _asking: bool = False  # the controller itself is to be asked although the agent is there
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _held_since: float = 0.0  # another launcher has this one's place; 0: none
    _told: LauncherState | None = None
    _told_event: asyncio.Event = field(default_factory=asyncio.Event)
    _sequence: int = 0
    _standing: str = ""  # the trouble that was said last

    @property
    def agent_up(self) -> bool:
        """Whether this node's agent is connected."""
        return self._agent_up

    def notify(self) -> None:
        """The state may have changed."""
        self._news.set()
        self._news = asyncio.Event()

    def ask_controller(self, asking: bool) -> None:  # noqa: FBT001  a switch
        """Whether to open a line to the controller although the agent is there."""
        self._asking = asking

    async def flush(self, seconds: float) -> None:
        """Wait until the state as it is now has been told, but not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._told != self.compose():
                    self._told_event.clear()
                    await self._told_event.wait()

    async def run(self) -> None:
        """Keep a line open until cancelled. Raises DeniedError where nobody will ever answer."""
        lines = [self._keep_agent()] if self.agent_socket is not None else []
        if self.controller is not None:
            lines.append(self._keep_controller())
        await asyncio.gather(*lines)

    async def _keep_agent(self) -> None:
        assert self.agent_socket is not None  # noqa: S101  it is why this runs
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(
                    self.agent_socket, limit=_LINE_BYTES_MAX
                )
            except OSError as error:
                self._miss_agent(error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._agent_up, self._agent_missed = True, False
            try:
                await self._speak_to_agent(reader, writer)
            except (OSError, WireError, ValueError) as error:
                self._trouble("the line to the agent broke", str(error))
            finally:
                self._agent_up, self._agent_seen_at = False, time.monotonic()
                writer.close()
            await asyncio.sleep(_RETRY_SECONDS)

    def _miss_agent(self, error: OSError) -> None:
        """Said once for as long as it is away; without a word a wrong path would wait for ever."""
        if self._agent_missed or time.monotonic() - self._agent_seen_at < AGENT_AWAY_SECONDS:
            return
        self._agent_missed = True
        instead = ", and the controller is asked" if self.controller is not None else ""
        _log.warning(
            "no agent answers at %s (%s); trying on%s",
            self.agent_socket, error.strerror or error, instead,
        )  # fmt: skip

    async def _speak_to_agent(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async def say(state: LauncherState) -> None:
            writer.write(encode(state).encode() + b"\n")
            await writer.drain()

        async def listen() -> None:
            while line := await reader.readline():
                self.heard_at = time.monotonic()
                self.heed(decode_as(Assignment, line))

        await self._converse(say, listen)

    async def _keep_controller(self) -> None:
        assert self.controller is not None  # noqa: S101  it is why this runs
        pause = _RETRY_SECONDS
        while True:
            await self._until_needed()
            try:
                stream = await open_stream(
                    self.controller,
                    self.token_file,
                    node=self.node,
                    sender=Sender.LAUNCHER,
                    job=self.job,
                    speaker=self.compose().launcher,
                )
                async with stream as connection:
                    pause, self._standing, self._held_since = _RETRY_SECONDS, "", 0.0
                    await self._speak_to_controller(connection)
            except TokenError as error:
                self._denied(
                    f"the token file {self.token_file} {error}; "
                    f"`aegis nodes token {self.node}` mints a token"
                )
            except (OSError, TimeoutError, WebSocketException, WireError) as error:
                self._refused(error)
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311  only jitter
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def _until_needed(self) -> None:
        while not self._is_needed():  # noqa: ASYNC110  it depends on how much time has passed
            await asyncio.sleep(_RETRY_SECONDS / 2)

    def _is_needed(self) -> bool:
        if self.agent_socket is None or self._asking:
            return True
        return not self._agent_up and time.monotonic() - self._agent_seen_at >= AGENT_AWAY_SECONDS

    async def _speak_to_controller(self, connection: ClientConnection) -> None:
        async def say(state: LauncherState) -> None:
            await connection.send(encode(self._report(state)))

        async def listen() -> None:
            async for frame in connection:
                answer = decode_as(Answer, frame)
                self.heard_at = self.controller_heard_at = time.monotonic()
                for assignment in answer.assignments:
                    if assignment.job == self.job:
                        self.heed(assignment)

        async def until_agent_is_back() -> None:
            while self._is_needed() or not self._agent_up:  # noqa: ASYNC110  as above
                await asyncio.sleep(_RETRY_SECONDS)

        await self._converse(say, listen, until_agent_is_back)

    async def _converse(
        self,
        say: Callable[[LauncherState], Awaitable[None]],
        *others: Callable[[], Awaitable[None]],
    ) -> None:
        """Tell the state, until one of the others ends."""
        tasks = [asyncio.ensure_future(one()) for one in others]
        tasks.append(asyncio.create_task(self._tell(say)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, say: Callable[[LauncherState], Awaitable[None]]) -> None:
        """Say the state at once when it matters, and with each heartbeat."""
        while True:
            state, sent_at = self.compose(), time.monotonic()
            await say(state)
            self._told = state
            self._told_event.set()
            while (left := sent_at + HEARTBEAT_SECONDS - time.monotonic()) > 0:
                news = self._news
                if not is_progress_only(state, self.compose()):
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), left)

    def _report(self, state: LauncherState) -> Report:
        self._sequence += 1
        report = NodeReport(
            node=self.node,
            sender=Sender.LAUNCHER,
            session=0,
            sequence=self._sequence,
            boot_id=_boot_id(),
            version=__version__,
            launchers=(state,),
        )
        return Report(sent_at=time.time(), report=report)

    def _refused(self, error: Exception) -> None:
        if isinstance(error, InvalidStatus) and error.response.status_code == HELD:
            self._wait_for_place()
            return
        self._held_since = 0.0
        if isinstance(error, InvalidStatus) and error.response.status_code in DENIED:
            file = self.token_file
            held = f"the token in {file}" if file else "a call without a token"
            self._denied(
                f"the controller refuses {held}: `aegis nodes token {self.node}` mints one "
                "for this node; pass its file with --token-file"
            )
            return
        if isinstance(error, ConnectionClosed):
            self._trouble("the controller closed the line; training goes on", "")
            return
        self._trouble(
            f"the controller at {self.controller} cannot be reached; trying on", str(error)
        )

    def _wait_for_place(self) -> None:
        """The other may just have died; one that goes on speaking has come first."""
        now = time.monotonic()
        self._held_since = self._held_since or now
        another = f"another launcher of job {self.job} speaks for node {self.node}"
        alone = self.agent_socket is None and not self.controller_heard_at
        if alone and now - self._held_since >= _HELD_SECONDS_MAX:
            raise HeldError(f"{another}: stop it first, or give this one another --job or --node")
        self._trouble(f"{another}; waiting for it to end", "")

    def _denied(self, reason: str) -> None:
        """The end where nobody has ever answered; else only the controller is not to be asked."""
        if self.agent_socket is None and not self.controller_heard_at:
            raise DeniedError(reason)
        self._trouble(reason, "")

    def _trouble(self, sentence: str, reason: str) -> None:
        """Said once for as long as it stands."""
        if sentence != self._standing:
            self._standing = sentence
            _log.warning("%s%s", sentence, f" ({reason})" if reason else "")


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
