"""The agent: what its sources tell goes into the ledger, what is true goes to the controller."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable

import aegis
from aegis.model.job import LauncherState
from aegis.model.node import Health, NodeReport, Sender
from aegis.wire import Answer, Report
from aegis_agent.bridge import Bridge
from aegis_agent.ledger import Ledger
from aegis_agent.settings import Settings
from aegis_agent.sources import host, nic
from aegis_agent.sources.prober import DEADLINE_SECONDS, GpuNews, GpusUnavailable, Prober
from aegis_agent.spool import Spool
from aegis_agent.uplink import Uplink

_FAULTS_PER_REPORT = 200
_BEAT_SECONDS_MAX = 1.0
_LAUNCHERS_KEY = "launchers"
_LOOK_SECONDS_MAX = 15.0


class Agent:
    """One node's agent. It may be killed at any moment: launchers and their ranks go on."""

    def __init__(self, settings: Settings, spool: Spool) -> None:
        self._settings = settings
        self._spool = spool
        self._sequence = 0
        self._status = ""
        self._ledger = make_ledger(settings, spool, self._urge)
        self._bridge = Bridge(
            path=settings.socket,
            changed=self._launchers_changed,
            expected=_known_launchers(spool),
        )
        self._uplink = Uplink(
            controller=settings.controller,
            node=settings.node,
            token_file=settings.token_file,
            compose=self._compose,
            heed=self._heed,
        )

    async def run(self) -> None:
        """Until cancelled."""
        settings = self._settings
        await self._bridge.open()
        try:
            notify("READY=1")
            prober = Prober(settings.poll_seconds, self._ledger.gpu_news)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(prober.run())
                tasks.create_task(
                    nic.watch(
                        settings.sys_root,
                        settings.fabric,
                        settings.poll_seconds,
                        self._ledger.link_sample,
                    )
                )
                tasks.create_task(self._speak())
                tasks.create_task(self._beat())
        finally:
            notify("STOPPING=1")
            await self._bridge.close()

    async def _speak(self) -> None:
        await self._bridge.settle()
        await self._uplink.run()

    async def _beat(self) -> None:
        """What must be looked at though nothing happens. The watchdog hangs on it."""
        pause = min(self._settings.poll_seconds, _BEAT_SECONDS_MAX)
        while True:
            self._ledger.tick(host.now())
            self._bridge.expire()
            self._tell_systemd()
            await asyncio.sleep(pause)

    def _tell_systemd(self) -> None:
        devices = self._ledger.devices()
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
        return compose(self._settings, self._ledger, self._bridge.states(), self._sequence)

    def _heed(self, answer: Answer) -> None:
        self._bridge.assign(answer.assignments)
        if self._spool.forget(answer.stored) and len(self._spool):
            self._uplink.urge()


def make_ledger(settings: Settings, spool: Spool, urge: Callable[[], None]) -> Ledger:
    """The ledger of this node, as the spool remembers it."""
    return Ledger(
        node=settings.node,
        boot_id=host.boot_id(),
        spool=spool,
        stale_seconds=max(3 * settings.poll_seconds, DEADLINE_SECONDS + settings.poll_seconds + 1),
        urge=urge,
    )


def compose(
    settings: Settings, ledger: Ledger, launchers: tuple[LauncherState, ...], sequence: int
) -> Report:
    """The whole state of this node, and the faults that wait."""
    report = NodeReport(
        node=settings.node,
        sender=Sender.AGENT,
        session=0,
        sequence=sequence,
        boot_id=ledger.boot_id,
        version=aegis.__version__,
        simulated=ledger.simulated,
        labels=settings.labels,
        sources=(("gpu", ledger.gpu_source),),
        devices=ledger.devices(),
        conditions=ledger.conditions(),
        launchers=launchers,
        events_dropped=ledger.spool.dropped,
    )
    return Report(
        sent_at=host.now(),
        report=report,
        origin=ledger.spool.origin,
        faults=ledger.spool.pending(_FAULTS_PER_REPORT),
    )


async def look_once(settings: Settings) -> Report:
    """Look at every device once, remember nothing, and give the report that would be sent."""
    ledger = make_ledger(settings, Spool(None), lambda: None)
    seen = asyncio.Event()

    def gpu_news(news: GpuNews) -> None:
        ledger.gpu_news(news)
        if isinstance(news, GpusUnavailable) or ledger.all_gpus_seen():
            seen.set()

    prober = asyncio.create_task(Prober(settings.poll_seconds, gpu_news).run())
    try:
        await nic.look(settings.sys_root, settings.fabric, ledger.link_sample)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS_MAX):
                await seen.wait()
    finally:
        prober.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await prober
    return compose(settings, ledger, (), 1)


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
