"""The two processes that a launcher owns: the one that opens stores, the one that forks ranks."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aegis_agent.launcher import environment
from aegis_agent.launcher.ahead import Moment
from aegis_agent.launcher.errors import UnusableError
from aegis_agent.launcher.generation import Generation, Rank
from aegis_agent.launcher.helpers import Helper
from aegis_agent.launcher.options import Options, import_folder

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told of what the crew says."""

    changed: Callable[[], None]
    rank_said: Callable[[dict[str, Any]], None]  # "started", "exited", "left", "refused"
    parent_died: Callable[[int], None]
    unusable: Callable[[UnusableError], None]


@dataclass
class Crew:
    """Both helpers, and what they have said of themselves."""

    options: Options
    listener: Listener
    output_folder: Path  # of standbys
    store_port: int = 0  # of the unused store; 0: none is open
    parent_ready: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: int = 0  # standbys at the gate
    _moment: Moment = field(default_factory=Moment)
    _said: set[str] = field(default_factory=set)  # what was said of standbys and modules, once
    _preload: list[str] = field(init=False)
    _begun: asyncio.Future[str] | None = None  # the store's answer: why not, or nothing
    _retired: int = 0
    _store: Helper = field(init=False)
    _parent: Helper = field(init=False)

    def __post_init__(self) -> None:
        settled = environment.of_helpers(os.environ, self.options.spec.ranks_per_node)
        address = [self.options.address]
        self._store = Helper(
            "aegis.worker.store", address, settled, self._store_said, self._store_died
        )
        self._preload = []  # the parent's further arguments
        self._set_preload(self.options.ahead.preload)
        self._parent = Helper(
            "aegis.worker.parent", self._preload, settled, self._parent_said, self._parent_died
        )

    def _set_preload(self, modules: Sequence[str]) -> None:
        folder = import_folder(self.options.command)
        self._preload[:] = [",".join(modules), folder] if modules else []

    @property
    def standbys(self) -> int:
        """How many ranks could start here at once."""
        if not self.parent_ready.is_set():
            return 0
        ahead = self.options.ahead.standbys
        return self._waiting if ahead else self.options.spec.ranks_per_node

    async def run(self) -> None:
        """Keep both running until cancelled or closed."""
        await asyncio.gather(self._store.run(), self._parent.run())

    async def close(self) -> None:
        """End both, and with the parent every rank."""
        await self._parent.close()
        await self._store.close()

    # ── what is asked of them ──

    async def begin(self, generation: Generation) -> str:
        """Why the generation cannot meet at our store; nothing when it can."""
        self._begun = asyncio.get_running_loop().create_future()
        self._store.tell(
            op="begin",
            generation=generation.number,
            epoch=generation.assignment.epoch,
            port=generation.world.master_port,
            job=self.options.spec.name,
            folder=self.options.spec.checkpoint_folder,
        )
        try:
            return await self._begun
        finally:
            self._begun = None

    def retire(self, generation: int, *, refused: bool) -> None:
        """Close the store that a generation older than this one has used.

        Where this generation is refused, another is opened: others may have met at the unused one.
        """
        if generation > self._retired:
            self._retired = generation
            self._store.tell(op="retire", generation=generation, refused=refused)

    def keep_standbys(self, generation: Generation | None) -> None:
        """Have standbys made when it is time to."""
        count = self.options.ahead.standbys
        if not count or not self.parent_ready.is_set():
            return
        if not self._moment.has_come(generation, time.monotonic()):
            return
        command, folder = self.options.command, self.options.checkpoint_folder
        self._parent.tell(
            op="standbys",
            count=count,
            kind=command.kind,
            target=command.target,
            arguments=list(command.arguments),
            environment=environment.of_job(self.options.spec),
            gated=environment.GATED,
            guarded=[] if folder is None else [str(folder)],
            folder=str(Path.cwd()),
            output=str(self.output_folder),
        )

    def start(self, generation: Generation, rank: Rank) -> None:
        """Have a standby become a rank, or a rank forked."""
        command, spec = self.options.command, self.options.spec
        settled = environment.of_rank(
            spec, generation.assignment, generation.world, generation.group_rank, rank.local_rank
        )
        settled["AEGIS_PROGRESS_PAGE"] = str(rank.page_path)
        settled["TORCHELASTIC_ERROR_FILE"] = str(rank.error_file)
        settled["AEGIS_RESUME_FROM"] = generation.resume_from
        self._parent.tell(
            op="start",
            generation=generation.number,
            local_rank=rank.local_rank,
            kind=command.kind,
            target=command.target,
            arguments=list(command.arguments),
            environment=settled,
            folder=str(Path.cwd()),
            stdout=str(rank.stdout),
            stderr=str(rank.stderr),
        )

    def signal_ranks(self, number: int) -> None:
        """Send a signal to every rank; SIGKILL to all that they have started, too."""
        self._parent.tell(op="signal", number=number)

    def end_ranks(self, *, stay: bool) -> None:
        """End every rank; those that can may leave and keep their processes."""
        if stay:
            self._parent.tell(op="leave")
        else:
            self.signal_ranks(signal.SIGKILL)

    def release(self) -> None:
        """End the processes that wait for another place: there is none for them."""
        self._parent.tell(op="release")

    # ── what they say ──

    def _parent_said(self, message: dict[str, Any]) -> None:
        match message["event"]:
            case "ready":
                self.parent_ready.set()
                self.listener.changed()
            case "failed":
                self.listener.unusable(_needs(message["reason"]))
            case "standbys":
                self._waiting = message["ready"]
                self.listener.changed()
            case "standby_failed":
                reason = message["reason"]
                self._say_once(f"a standby failed, ranks are forked instead: {reason}")
            case "unfit":
                self._drop(message["module"], message["reason"])
            case "started" | "exited" | "left" | "refused":
                self.listener.rank_said(message)
            case _:
                pass

    def _drop(self, module: str, reason: str) -> None:
        """The parent ends over a module; the next one does without it."""
        left = [name for name in self._preload[0].split(",") if name != module]
        self._set_preload(left)
        self._say_once(f"the module {module} is not preloaded: {reason}")

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            _log.warning("%s", sentence)

    def _parent_died(self, status: int) -> None:
        self.parent_ready.clear()
        self._waiting, self._moment = 0, Moment()
        self.listener.parent_died(status)

    def _store_said(self, message: dict[str, Any]) -> None:
        match message["event"]:
            case "fresh":
                self.store_port = message["port"]
                self.listener.changed()
            case "begun":
                self._answer("")
            case "refused":
                self._answer(message["reason"])
            case "failed":
                self.listener.unusable(_needs(message["reason"]))
            case _:
                pass

    def _store_died(self, status: int) -> None:
        """Ranks that have met need it no more; the next generation meets at the next one."""
        self.store_port = 0
        self._answer(f"the process of the rendezvous store died (status {status})")
        self.listener.changed()

    def _answer(self, reason: str) -> None:
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(reason)


def _needs(reason: str) -> UnusableError:
    if not reason.startswith("torch"):
        return UnusableError(reason)
    return UnusableError(f"this needs torch: pip install 'aegis-supervisor[train]' ({reason})")
