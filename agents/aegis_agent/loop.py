"""The agent: what its senses tell goes into the book, what is true goes to the controller."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

import aegis
from aegis.model.job import LauncherState, RankPhase
from aegis.model.node import Health, NodeReport, Sender
from aegis.wire import Answer, Report
from aegis_agent.book import Book
from aegis_agent.bridge import Bridge
from aegis_agent.orders import Orders
from aegis_agent.probes.clock import ControllerTime
from aegis_agent.senses import all_senses
from aegis_agent.senses.sense import Sense
from aegis_agent.settings import Settings
from aegis_agent.sources import host
from aegis_agent.spool import Spool
from aegis_agent.uplink import Uplink
from aegis_agent.validation import Validations

_FAULTS_PER_REPORT = 200
_BEAT_SECONDS_MAX = 1.0
_LAUNCHERS_KEY = "launchers"
_ASK_WHERE = ("kernel", "pcie")  # they know devices by address: others have to find those first
_LOOK_SECONDS_MAX, _LOOK_AGAIN_SECONDS_MAX = 9.5, 3.5
_SITE, _LOOK_SITE_SECONDS_MAX = "checks", 32.0  # a site's own programs take their own time
_LOOK_POLL_SECONDS = 0.2
_CANCEL_SECONDS_MAX = 1.0


class Agent:
    """One node's agent. It may be killed at any moment: launchers and their ranks go on."""

    def __init__(self, settings: Settings, spool: Spool) -> None:
        self._settings = settings
        self._spool = spool
        self._sequence = 0
        self._status = ""
        self._settled = False  # launchers that were connected before have had the time to return
        self._asked = (0, 0.0)  # the newest report: its sequence, and when it was put together
        self._book = make_book(settings, spool, self._urge)
        self._senses = all_senses(settings, self._book)
        self._bridge = Bridge(
            path=settings.socket,
            changed=self._launchers_changed,
            expected=_known_launchers(spool),
        )
        self._orders = Orders(
            spool=spool,
            node=settings.node,
            boot_id=self._book.boot_id,
            socket=settings.helper_socket,
            now=host.now,
            changed=self._urge,
        )
        self._validations = Validations(settings=settings, book=self._book, now=host.now)
        self._uplink = Uplink(
            controller=settings.controller,
            node=settings.node,
            boot_id=self._book.boot_id,
            token_file=settings.token_file,
            compose=self._compose,
            ready=spool.settled,
            heed=self._heed,
        )

    async def run(self) -> None:
        """Until cancelled."""
        await self._bridge.open()
        self._spool.start()
        try:
            notify("READY=1")
            async with asyncio.TaskGroup() as tasks:
                for sense in self._senses:
                    tasks.create_task(sense.watch())
                tasks.create_task(self._speak())
                tasks.create_task(self._beat())
        finally:
            notify("STOPPING=1")
            self._orders.close()
            self._validations.close()
            await self._bridge.close()

    async def _speak(self) -> None:
        await self._bridge.settle()
        self._settled = True
        await self._uplink.run()

    async def _beat(self) -> None:
        """What must be looked at though nothing happens. The watchdog hangs on it."""
        pause = min(self._settings.poll_seconds, _BEAT_SECONDS_MAX)
        while True:
            now = host.now()
            self._look_at_launchers()
            self._book.tick(now)
            for sense in self._senses:
                sense.tick(now)
            self._validations.tick()
            self._bridge.expire()
            self._tell_systemd()
            await asyncio.sleep(pause)

    def _look_at_launchers(self) -> None:
        """What senses may want to know of the jobs here."""
        states = self._bridge.states()
        training = any(
            rank.phase != RankPhase.EXITED for launcher in states for rank in launcher.ranks
        )
        self._book.training = training if training or self._settled else None
        folders = {launcher.spec.checkpoint_folder for launcher in states} - {""}
        self._book.checkpoint_folders = tuple(sorted(folders))

    def _tell_systemd(self) -> None:
        devices = self._book.devices()
        healthy = sum(device.health == Health.HEALTHY for device in devices)
        words = "connected to" if self._uplink.connected else "no connection to"
        status = (
            f"{healthy} of {len(devices)} devices healthy, "
            f"{len(self._bridge.states())} launchers, {words} {self._settings.controller}"
        )
        notify("WATCHDOG=1" if status == self._status else f"WATCHDOG=1\nSTATUS={status}")
        self._status = status

    def _urge(self) -> None:
        self._uplink.urge()

    def _launchers_changed(self, urgent: bool) -> None:  # noqa: FBT001  a callback
        if not urgent:
            return
        known = json.dumps(sorted(self._bridge.identities()))
        if known != self._spool.recall().get(_LAUNCHERS_KEY):
            self._spool.remember({_LAUNCHERS_KEY: known})
        self._uplink.urge()

    def _compose(self) -> Report:
        self._sequence += 1
        report = compose(
            self._settings, self._book, self._senses, self._bridge.states(), self._sequence
        )
        self._asked = (self._sequence, report.sent_at)
        told = replace(
            report.report,
            order_results=self._orders.results(),
            has_helper=self._orders.has_helper(),
            validates=self._validations.able,
            validation_results=self._validations.results(),
        )
        return replace(report, report=told)

    def _heed(self, answer: Answer) -> None:
        sequence, asked_at = self._asked
        if answer.sequence == sequence:
            self._book.controller_time = ControllerTime(
                asked_at=asked_at, sent_at=answer.sent_at, heard_at=host.now()
            )
            self._orders.take(
                answer.orders, epoch=answer.epoch, sent_at=answer.sent_at, asked_at=asked_at
            )
            self._validations.take(
                answer.validations, epoch=answer.epoch, sent_at=answer.sent_at, asked_at=asked_at
            )
        self._bridge.assign(answer.assignments)
        if self._spool.forget(answer.stored) and len(self._spool):
            self._uplink.urge()


def make_book(settings: Settings, spool: Spool, urge: Callable[[], None]) -> Book:
    """The book of this node, as the spool remembers it."""
    return Book(node=settings.node, boot_id=host.boot_id(), spool=spool, urge=urge)


def compose(
    settings: Settings,
    book: Book,
    senses: Sequence[Sense],
    launchers: tuple[LauncherState, ...],
    sequence: int,
) -> Report:
    """The whole state of this node, and the faults that wait."""
    report = NodeReport(
        node=settings.node,
        sender=Sender.AGENT,
        session=0,
        sequence=sequence,
        boot_id=book.boot_id,
        version=aegis.__version__,
        simulated=book.simulated,
        labels=settings.labels,
        sources=tuple((sense.name, text) for sense in senses if (text := sense.source())),
        devices=book.devices(),
        conditions=book.conditions(),
        launchers=launchers,
        events_dropped=book.spool.dropped,
        suppressed=book.spool.suppressed(),
    )
    return Report(
        sent_at=host.now(),
        report=report,
        origin=book.spool.origin,
        faults=book.spool.pending(_FAULTS_PER_REPORT),
    )


async def look_once(settings: Settings) -> tuple[Report, tuple[str, ...]]:
    """Look at every device once, remember nothing; the report, and the senses that were late."""
    # What is asked seldom is asked some polls after the start: these come fast.
    settings = replace(settings, poll_seconds=min(settings.poll_seconds, _LOOK_POLL_SECONDS))
    book = make_book(settings, Spool(None), lambda: None)
    senses = all_senses(settings, book)
    site = [sense for sense in senses if sense.name == _SITE]
    finders = [sense for sense in senses if sense.name not in (*_ASK_WHERE, _SITE)]
    others = [sense for sense in senses if sense.name in _ASK_WHERE]
    checks = asyncio.create_task(_look(site, _LOOK_SITE_SECONDS_MAX))
    late = await _look(finders, _LOOK_SECONDS_MAX)
    late += await _look(others, _LOOK_AGAIN_SECONDS_MAX)
    late += await checks
    return compose(settings, book, senses, (), 1), tuple(late)


async def _look(senses: Sequence[Sense], seconds: float) -> list[str]:
    """Look through all of these at once; the names of those that did not end in time."""
    looks = {asyncio.create_task(sense.look()): sense.name for sense in senses}
    if not looks:
        return []
    _, late = await asyncio.wait(looks, timeout=seconds)
    for look in late:
        look.cancel()
    if late:
        await asyncio.wait(late, timeout=_CANCEL_SECONDS_MAX)
    return [looks[look] for look in late]


def notify(state: str) -> None:
    """Tell systemd, where it is who started us."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.sendto(state.encode(), address)


def _known_launchers(spool: Spool) -> frozenset[tuple[str, str]]:
    known = json.loads(spool.recall().get(_LAUNCHERS_KEY, "[]"))
    return frozenset((job, launcher) for job, launcher in known)
