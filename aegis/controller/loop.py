"""The single writer: it alone logs events, steps the cluster and lets the effects out.

One turn takes what has arrived, in this order:

1. Reports become events. A report that says nothing new becomes a name in the next Tick.
2. The events are written in one transaction. Only when they are on disk ...
3. ... each is stepped; then answers, pushes and notifications go out.

Whatever is stepped is logged first, ticks without exception. Leaving out the ticks that change
nothing would be cheaper, but to know that a tick changes nothing one must step it, and then the
state is ahead of the log: a full disk or a crash at that moment would leave a decision that no
replay makes. Ticks are cheap instead: four a second while something is under way, one a second
otherwise, none while no node is known; retention forgets them with the rest.

The clock is read once per event. It runs on the monotonic clock from the moment of the start, so a
step of the wall clock neither makes a fleet look silent nor stops time.

When nothing can be written, nothing is decided: reports are answered without acknowledging faults,
commands are refused, and each turn tries again. When an event breaks a promise, the process ends;
at the next start that event is left out and the controller is on hold: it observes, and does not
listen to what broke the promise, until an operator starts it with --release-hold.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from aegis.controller.changes import Changes
from aegis.controller.intake import Intake
from aegis.controller.notify import Notifier
from aegis.controller.state import PromiseBrokenError, State, freeze, set_aside
from aegis.controller.store import CannotWriteError, Store
from aegis.controller.streams import Streams
from aegis.controller.systemd import Watchdog
from aegis.controller.tally import Tally
from aegis.core import returning
from aegis.core.cluster import ENDED
from aegis.core.operate import refusal
from aegis.core.recover import assignments
from aegis.core.repair import orders
from aegis.model.action import Action, Assign, Notify
from aegis.model.event import (
    ControllerStarted,
    Event,
    NodeHungUp,
    PolicyChanged,
    RulesLoaded,
)
from aegis.model.fault import Severity
from aegis.model.incident import IncidentState
from aegis.model.job import JobState
from aegis.model.policy import Mode, Policy
from aegis.rules import RuleSet
from aegis.wire import Answer, Report

log = logging.getLogger(__name__)

QUEUE_MAX = 4096
BATCH_MAX = 256
QUICK_SECONDS = 0.1  # while the ranks of a job are stopping
TICK_SECONDS = 0.25  # while something is under way
REST_SECONDS = 1.0
SNAPSHOT_SECONDS = 600.0


class RefusedError(Exception):
    """A command that may not be carried out now; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much of the event log is kept, and how often the state is saved."""

    days: float = 30.0
    bytes_max: int = 1 << 30
    snapshot_events: int = 5000


@dataclass(frozen=True, slots=True)
class _Arrival:
    report: Report
    session: int
    done: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class _Command:
    make: Callable[[float], Event]
    done: "asyncio.Future[None]"


class Loop:
    """The controller's heart. `begin` once, then `run` until cancelled."""

    def __init__(
        self,
        *,
        store: Store,
        state: State,
        changes: Changes,
        streams: Streams,
        notifier: Notifier,
        version: str,
        retention: Retention,
        watchdog: Watchdog,
    ) -> None:
        self.state, self.tally, self.version = state, Tally(), version
        self.watchdog = watchdog
        self.full = ""  # why nothing can be written
        self.held = store.meta("hold")  # why nothing is acted on
        self.beat_at = 0.0  # when the loop last went round, monotonic
        self.beat_wall_at = 0.0
        self._store, self._changes, self._streams = store, changes, streams
        self._notifier, self._retention = notifier, retention
        self._queue: asyncio.Queue[_Arrival | _Command] = asyncio.Queue(QUEUE_MAX)
        self._start_at = max(time.time(), state.cluster.now)
        self._start_monotonic = time.monotonic()
        self._next_tick = 0.0
        self._snapshot_monotonic = self._start_monotonic
        self._snapshot_bytes = store.bytes
        aside = store.quarantined()
        self.quarantined = len(aside)  # events left out
        self._intake = Intake(state, aside, self.now)

    # What others ask of it

    async def report(self, report: Report, session: int) -> None:
        """Take a report; returns once it is stored, or cannot be."""
        done = asyncio.get_running_loop().create_future()
        await self._queue.put(_Arrival(report, session, done))
        await done

    async def command(self, make: Callable[[float], Event]) -> None:
        """Log and carry out what an operator wants. Raises RefusedError or CannotWriteError."""
        done = asyncio.get_running_loop().create_future()
        await self._queue.put(_Command(make, done))
        await done

    def hung_up(self, node: str, session: int) -> None:
        """A node has closed its last connection. Only a hint: with a full queue it is left out."""
        done = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda one: one.cancelled() or one.exception())
        with contextlib.suppress(asyncio.QueueFull):
            made = partial(NodeHungUp, node=node, session=session)
            self._queue.put_nowait(_Command(lambda at: made(at=at), done))

    def answer(self, node: str, *, sequence: int = 0, spool: str = "") -> Answer:
        """What the node should be running, and what of its spool is on disk."""
        return Answer(
            epoch=self.state.cluster.epoch,
            sent_at=time.time(),
            sequence=sequence,
            stored=self._intake.stored(spool),
            assignments=assignments(self.state.cluster, node),
            orders=orders(self.state.cluster, node),
            validations=returning.orders(self.state.cluster, node),
        )

    # Its life

    async def begin(self, rules: RuleSet, policy: Policy) -> None:
        """Take the log over: a new epoch, and rules and policy as they are now."""
        self.tally.begin(self.state.cluster)
        epoch = self.state.cluster.epoch + 1
        epoch = max(epoch, int(self._store.meta("epoch") or 0) + 1)
        events: list[Event] = [ControllerStarted(at=self.now(), epoch=epoch, version=self.version)]
        if rules.digest != self.state.rules.digest:
            events.append(RulesLoaded(at=self.now(), digest=rules.digest, text=rules.text))
        if (bounded := self.bounded(policy)) != self.state.cluster.policy:
            events.append(PolicyChanged(at=self.now(), policy=bounded, actor="policy file"))
        await self._carry_out(events, {"epoch": str(epoch)})
        self.beat_at = time.monotonic()
        if self.held:
            self._notifier.post(
                Notify(
                    kind="controller.held",
                    severity=Severity.FATAL,
                    text=f"Aegis holds and acts on nothing: {self.held}",
                )
            )

    def bounded(self, policy: Policy) -> Policy:
        """The policy, or while on hold one that acts on nothing."""
        if not self.held:
            return policy
        held = Mode.OBSERVE
        return replace(policy, mode=held, job_mode=held, mode_max=held)

    async def run(self) -> None:
        """Go round until cancelled. Raises PromiseBrokenError when the process must end."""
        while True:
            work = await self._gather()
            try:
                await self._turn(work)
            except PromiseBrokenError:
                for one in work:
                    one.done.cancel()
                raise
            self.beat_at, self.beat_wall_at = time.monotonic(), time.time()
            self.watchdog.beat()
            await self._keep_house()

    async def save(self) -> None:
        """Write a snapshot, so that the next start has little to replay."""
        if self.state.number == self._store.snapshot_number:
            return
        snapshot = freeze(self.state, self.version)
        await self._store.call(self._store.save_snapshot, snapshot)
        self._snapshot_bytes = self._store.bytes

    # One turn

    async def _gather(self) -> list[_Arrival | _Command]:
        """What has arrived; nothing when it is time for a tick."""
        wait = min(max(self._next_tick - time.monotonic(), 0.0), REST_SECONDS)
        try:
            work = [await asyncio.wait_for(self._queue.get(), wait)]
        except TimeoutError:
            return []
        while len(work) < BATCH_MAX and not self._queue.empty():
            work.append(self._queue.get_nowait())
        return work

    async def _turn(self, work: Sequence[_Arrival | _Command]) -> None:
        arrivals = [one for one in work if isinstance(one, _Arrival)]
        events = self._intake.events((one.report, one.session) for one in arrivals)
        await self._log_reports([*events, *self._tick()])
        for one in arrivals:
            if not one.done.done():
                one.done.set_result(None)
        for command in work:
            if isinstance(command, _Command):
                await self._obey(command)

    async def _log_reports(self, events: Sequence[Event]) -> None:
        try:
            if events:
                await self._carry_out(events)
            elif self.full:
                await self._carry_out([], {"tried_at": str(self.now())})
            self._intake.accepted()
        except CannotWriteError as error:
            self._cannot_write(error)

    async def _obey(self, command: _Command) -> None:
        event = command.make(self.now())
        error: Exception | None = None
        if reason := refusal(self.state.cluster, event):
            error = RefusedError(reason)
        else:
            try:
                await self._carry_out([event])
            except CannotWriteError as trouble:
                self._cannot_write(trouble)
                error = trouble
        if command.done.done():  # whoever asked has gone away
            return
        if error:
            command.done.set_exception(error)
        else:
            command.done.set_result(None)

    async def _carry_out(self, events: Sequence[Event], meta: dict[str, str] | None = None) -> None:
        """Log, step, let the effects out."""
        numbers = await self._store.call(self._store.append, events, meta)
        if self.full:
            log.warning("event log can be written again")
            self.full = ""
        actions: list[Action] = []
        for number, event in zip(numbers, events, strict=True):
            actions += await self._apply(number, event)
        self._changes.tell()
        self._streams.tell(action.node for action in actions if isinstance(action, Assign))
        for action in actions:
            if isinstance(action, Notify):
                self._notifier.post(action)

    async def _apply(self, number: int, event: Event) -> list[Action]:
        try:
            actions = self.state.apply(number, event)
        except PromiseBrokenError as error:
            aside = set_aside(number, event.at, type(event).__name__, event, error)
            await self._store.call(self._store.put_in_quarantine, aside)
            log.exception(
                "event broke a promise, the controller ends and comes back on hold without it: "
                "number=%d kind=%s",
                number,
                aside.kind,
            )
            raise
        touched = self.state.cluster.touched
        self.tally.observe(self.state.cluster, touched)
        self._changes.note(number, touched)
        touched.clear()
        return actions

    # Time

    def _tick(self) -> list[Event]:
        """A Tick, when it is time for one."""
        now = time.monotonic()
        if now < self._next_tick:
            return []
        self._next_tick = now + self._pause()
        return self._intake.tick()

    def _pause(self) -> float:
        if any(job.state is JobState.STOPPING for job in self.state.cluster.jobs.values()):
            return QUICK_SECONDS
        if self._is_busy():
            return TICK_SECONDS
        silence = self.state.cluster.policy.silence_seconds  # a short one is measured finely
        return min(REST_SECONDS, max(QUICK_SECONDS, silence / 6))

    def _is_busy(self) -> bool:
        """Whether something waits for time to pass."""
        cluster = self.state.cluster
        passing = (IncidentState.WATCHING, IncidentState.RECOVERING)
        resting = (JobState.RUNNING, *ENDED)
        return any(one.state in passing for one in cluster.unresolved()) or any(
            job.state not in resting for job in cluster.jobs.values()
        )

    def now(self) -> float:
        """The controller's clock: seconds since the Unix epoch, never backwards."""
        return self._start_at + (time.monotonic() - self._start_monotonic)

    # Disk

    def _cannot_write(self, error: CannotWriteError) -> None:
        if not self.full:
            log.error("event log cannot be written, nothing is decided until it can: %s", error)
        self.full = str(error)

    async def _keep_house(self) -> None:
        """Save the state when enough has happened since; forget what is old."""
        since = self.state.number - self._store.snapshot_number
        grown = self._store.bytes - self._snapshot_bytes > self._retention.bytes_max // 4
        idle = time.monotonic() - self._snapshot_monotonic
        due = since >= self._retention.snapshot_events or grown or idle > SNAPSHOT_SECONDS
        if self.full or not due:
            return
        self._snapshot_monotonic = time.monotonic()
        before = self.now() - self._retention.days * 86400
        try:
            await self.save()
            gone = await self._store.call(
                self._store.retain, before=before, bytes_max=self._retention.bytes_max
            )
        except CannotWriteError as error:
            self._cannot_write(error)
            return
        if gone:
            log.info("old events forgotten: count=%d", gone)
