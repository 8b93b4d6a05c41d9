"""One launcher at work: assignments in, ranks started and stopped, its whole state out.

It owns two helpers, the rendezvous stores and the ranks' parent, and at most one generation of
ranks. Whatever it hears, from an agent, a controller, a helper or a signal, ends in `_advance`,
which does the next thing that is due.
"""

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aegis.model.job import (
    Assignment,
    LauncherPhase,
    LauncherState,
    StopKind,
    World,
)
from aegis_agent.launcher import process
from aegis_agent.launcher.crew import Crew, Listener
from aegis_agent.launcher.errors import UnusableError
from aegis_agent.launcher.failure import signal_name, told
from aegis_agent.launcher.folders import fenced_generation
from aegis_agent.launcher.generation import Generation, prepare, without_ranks
from aegis_agent.launcher.hangs import Hangs
from aegis_agent.launcher.isolation import Isolation, Verdict
from aegis_agent.launcher.links import Links
from aegis_agent.launcher.log_progress import LogProgress
from aegis_agent.launcher.memory import Memory
from aegis_agent.launcher.obey import NOTHING, Order, Standing, Stop, last_words, obey
from aegis_agent.launcher.options import Options, parse_tee
from aegis_agent.launcher.output import Output, streams
from aegis_agent.launcher.resume import Resume

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
_FLUSH_SECONDS = 1.0
_GONE_SECONDS = 0.005
_CAUSE_SECONDS = 2.0  # for the first cause to be known, on another node too


class Launcher:
    """The launcher of one job on this node."""

    def __init__(self, options: Options, pages: Path, logs: Path) -> None:
        self.options = options
        self.name = secrets.token_hex(8)
        self._pages = pages
        self._logs = logs
        # What an earlier run has fenced is over; nothing at or below it is started again.
        fenced = fenced_generation(options.checkpoint_folder, options.spec.name)
        self._standing = Standing(generation=fenced)
        self._generation: Generation | None = None
        self._pending: Assignment | None = None  # to be started once what runs is over
        self._starting: asyncio.Task[None] | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._leaving: Order | None = None
        self._stays = True  # the next generation may be this node's, too
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reason = ""  # what the controller said last
        self._isolation = Isolation(
            limit_seconds=options.isolation_seconds, moved_at=time.monotonic()
        )
        self._links = Links(
            job=options.spec.name,
            node=options.node,
            agent_socket=options.agent_socket,
            controller=options.controller,
            token_file=options.token_file,
            compose=self.compose,
            heed=self.heed,
        )
        self._hangs = Hangs(
            floor_seconds=options.hang_floor_seconds,
            observes_only=not options.hang_detection,
            changed=self._links.notify,
        )
        self._looking: asyncio.Task[None] | None = None  # at ranks that are about to be killed
        self._output = Output()
        self._lines = LogProgress(options.spec.log_pattern)
        self._crew = Crew(
            options=options,
            listener=Listener(
                changed=self._links.notify,
                rank_said=self._rank_said,
                parent_died=self._parent_died,
                unusable=self._unusable,
            ),
            output_folder=logs,
        )
        self._memory = Memory(options, pages)
        self._resume = Resume.of(options)

    async def run(self) -> int:
        """Be the launcher until the job is over or this command is told to end; the exit status."""
        self._output.start()
        loop = asyncio.get_running_loop()
        ending = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup means it
            ending.remove(signal.SIGHUP)
        for number in ending:
            loop.add_signal_handler(number, self._interrupted, number)
        works = (self._crew.run(), self._memory.run(), self._links.run(), self._watch())
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in works]
        try:
            await asyncio.wait([self._over, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # raises why
            code = await self._over
            await self._links.flush(_FLUSH_SECONDS)
            return code
        finally:
            await self._close(tasks)

    async def _close(self, tasks: list[asyncio.Future[Any]]) -> None:
        await self._crew.close()
        await self._memory.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._generation is not None:
            self._generation.close()
        self._output.close()

    # ── what it is told, and what it says ──

    def compose(self) -> LauncherState:
        """Its whole state."""
        options, number = self.options, self._standing.generation
        state = LauncherState(
            spec=options.spec,
            launcher=self.name,
            address=options.address,
            store_port=self._crew.store_port,
            generation=number,
            epoch=self._standing.epoch,
            standbys=self._crew.standbys,
        )
        generation = self._generation
        if generation is None or (generation.number < number and not generation.alive):
            return state
        return generation.describe(state)

    def heed(self, assignment: Assignment) -> None:
        """An assignment has come."""
        if assignment.job != self.options.spec.name or self._leaving is not None:
            return
        self._standing, order = obey(self._standing, assignment, self.name)
        if order is NOTHING:
            return
        if order.exit_code is not None:
            self._leaving = order
        self._stays = order.start is not None or assignment.world is None
        if not self._stays or self._leaving is not None:
            self._crew.release()
        if order.stop is not None:
            self._pending = None
            self._stop(order.stop)
        if order.start is not None:
            self._pending = order.start
        self._crew.retire(assignment.generation, refused=assignment.world is None)
        if assignment.world is None and assignment.reason != self._reason:
            self._reason = assignment.reason
            _log.info("%s", assignment.reason or "waiting for the controller's word")
        self._advance()

    def _interrupted(self, number: int) -> None:
        """Ctrl-C or a scheduler: let the ranks save, then leave. The second time, leave at once."""
        again = self._leaving is not None
        kind = StopKind.NOW if again else StopKind.SAVING
        _log.info(
            "%s: %s", signal_name(number),
            "the ranks are killed" if again else "the ranks save and end; again kills them",
        )  # fmt: skip
        self._leaving = Order(
            exit_code=128 + number, reason=f"interrupted by {signal_name(number)}"
        )
        self._pending = None
        self._stop(Stop(kind=kind, grace_seconds=self.options.stop_grace_seconds))
        self._advance()

    def _advance(self) -> None:
        """Do what is due, and tell what has changed."""
        self._links.notify()
        if self._generation is not None and self._generation.alive:
            return
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer = None
        if self._leaving is not None:
            self._leave(self._leaving)
        elif self._pending is not None:
            assignment, self._pending = self._pending, None
            assert assignment.world is not None  # noqa: S101  only such are pending
            self._starting = asyncio.create_task(self._start(assignment, assignment.world))

    def _leave(self, order: Order) -> None:
        if self._over.done():
            return
        code = order.exit_code or 0
        if words := last_words(order, said=self._reason):
            _log.error("%s", words)
        self._over.set_result(code)

    # ── starting and stopping ranks ──

    async def _start(self, assignment: Assignment, world: World) -> None:
        """Raise the fence, take the store into use, have the ranks forked."""
        generation = self._prepare(assignment, world)
        self._links.notify()
        if not generation.alive:
            return
        reason = await self._crew.begin(generation) if generation.group_rank == 0 else ""
        reason = reason or await self._resume.settle(generation)
        if not reason:
            await self._crew.parent_ready.wait()
        if reason:
            generation.abort(reason, time.time())
            self._tell_failure(generation)
            self._advance()
            return
        self._isolation.moved(generation.number, time.monotonic())
        generation.ordered = True
        _log.info(
            "generation %d starts: ranks %d to %d of %d",
            generation.number, generation.ranks[0].rank, generation.ranks[-1].rank,
            len(world.members) * world.ranks_per_node,
        )  # fmt: skip
        for rank in generation.ranks:
            self._crew.start(generation, rank)

    def _prepare(self, assignment: Assignment, world: World) -> Generation:
        if self._generation is not None:
            self._generation.close()
        try:
            generation = prepare(assignment, world, self.name, self._pages, self._logs)
        except OSError as error:
            generation = without_ranks(assignment, world, self.name)
            reason = f"pages and output of the ranks cannot be laid out: {error.strerror}"
            generation.abort(f"{reason} ({error.filename})", time.time())
            self._tell_failure(generation)
        self._generation = generation
        self._lines.begin(generation.ranks)
        first = 0 if generation.group_rank == 0 else None
        local = range(world.ranks_per_node)
        for local_rank, number in parse_tee(self.options.tee, local, first).items():
            if generation.ranks:
                rank = generation.ranks[local_rank]
                files = [(getattr(rank, name), to) for name, to in streams(number)]
                self._output.follow(rank.rank, files)
        return generation

    def _stop(self, stop: Stop) -> None:
        """End what runs; a stop that saves becomes one that does not, never the other way."""
        generation = self._generation
        if generation is None or not generation.alive:
            return
        saving = stop.kind is StopKind.SAVING and stop.grace_seconds > 0
        if saving and generation.stopping:
            return
        if not generation.ordered:
            # Nothing was forked yet, and nothing will be.
            if self._starting is not None:
                self._starting.cancel()
            generation.stopping = True
            generation.abort("", time.time())
            return
        if saving:
            generation.announce_stop()
            self._crew.signal_ranks(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            self._kill_timer = loop.call_later(stop.grace_seconds, self._kill)
        else:
            generation.stopping = True
            if stop.take_stacks:
                self._looking = asyncio.create_task(self._look_and_kill(generation))
            else:
                self._kill()

    async def _look_and_kill(self, generation: Generation) -> None:
        """What hung is of use only with the stacks of all ranks."""
        await self._hangs.take_stacks(generation)
        if generation is self._generation and generation.alive:
            self._kill()

    def _kill(self) -> None:
        """End the ranks; who can stays for the next generation, unless there is to be none."""
        self._crew.end_ranks(stay=self._stays and self._leaving is None)
        if self._generation is not None:
            self._generation.let_go()
        self._links.notify()

    # ── what its ranks' parent says ──

    def _rank_said(self, message: Mapping[str, Any]) -> None:
        generation = self._generation
        if generation is None or generation.number != message["generation"]:
            return
        local_rank = message["local_rank"]
        match message["event"]:
            case "started":
                generation.started(local_rank, message["pid"], message["at"])
            case "left":
                generation.left(local_rank, message["at"])
                later = asyncio.get_running_loop().call_later
                later(_CAUSE_SECONDS, self._left_alone, generation, local_rank, message["error"])
            case "refused":
                generation.refused(local_rank, message["reason"], time.time())
                self._failed(generation)
            case _:
                if generation.exited(local_rank, message["status"], message["at"]):
                    self._failed(generation)
        self._advance()

    def _left_alone(self, generation: Generation, local_rank: int, error: str) -> None:
        """A rank has left its group, and nothing has been heard of another that failed."""
        if generation is self._generation and generation.left_alone(local_rank, error):
            self._failed(generation)
            self._advance()

    def _failed(self, generation: Generation) -> None:
        """The first failure here: the other ranks of this node wait for it in vain."""
        self._kill()
        self._tell_failure(generation)

    def _tell_failure(self, generation: Generation) -> None:
        if generation.failure is not None:
            for words in told(generation.failure):
                _log.error("%s", words)

    def _parent_died(self, status: int) -> None:
        generation = self._generation
        if generation is None or not generation.ordered or not generation.alive:
            self._links.notify()
            return
        how = signal_name(-status) if status < 0 else f"exit code {status}"
        reason = f"the process that starts ranks died ({how}), and its ranks with it"
        self._starting = asyncio.create_task(self._orphaned(generation, reason))

    async def _orphaned(self, generation: Generation, reason: str) -> None:
        """The kernel kills ranks with their parent; they are gone once it has done so."""
        # No event tells of it: they are no children of ours.
        while any(process.is_running(rank.pid) for rank in generation.ranks):  # noqa: ASYNC110
            await asyncio.sleep(_GONE_SECONDS)
        generation.lost(reason, time.time())
        self._tell_failure(generation)
        self._advance()

    def _unusable(self, error: UnusableError) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    # ── what it looks at ──

    async def _watch(self) -> None:
        """Read the ranks' pages, and see whether anybody is still there."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            generation = self._generation
            self._crew.keep_standbys(generation)
            if generation is None:
                continue
            if generation.alive:
                generation.look()
                self._lines.look(generation.ranks)
                self._hangs.look(generation)
                self._links.notify()
                self._look_around(generation)
            elif generation.phase is LauncherPhase.DONE:
                self._go_home_alone()

    def _look_around(self, generation: Generation) -> None:
        now, links = time.monotonic(), self._links
        self._isolation.moved(generation.movement(), now)
        verdict = self._isolation.judge(
            now,
            links.heard_at,
            agent_up=links.agent_up,
            can_ask=self.options.controller is not None,
        )
        links.ask_controller(verdict is Verdict.ASK)
        if verdict is Verdict.ISOLATED and generation.ordered and generation.failure is None:
            generation.isolate(self.options.isolation_seconds, time.time())
            self._failed(generation)

    def _go_home_alone(self) -> None:
        """All ranks here are done; where nobody is there to speak of others, that is enough."""
        links = self._links
        silent = time.monotonic() - links.heard_at
        if not links.agent_up and silent >= self.options.isolation_seconds:
            self._leaving = self._leaving or Order(exit_code=0)
            self._advance()
