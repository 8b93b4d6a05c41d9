"""The kernel log: its lines followed, and told of the devices that they are about.

- Faults, the place where reading stopped and what is remembered of the lines go to the spool in one
  transaction. What is remembered belongs to exactly that place: killed at any moment, the agent
  reads on from there, and nothing is lost or told twice.
- What was in the log before the agent's first start on this node is known before: it may long be
  mended, and is no news. Only a reset that is under way is still followed.
- Lines of the time when the agent was away are told with their own times.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.book import Book
from aegis_agent.probes.kernel.classify import classify
from aegis_agent.probes.kernel.context import merge
from aegis_agent.probes.kernel.follow import Follow, FollowMemory
from aegis_agent.probes.kernel.reset import SILENCE, SILENCE_SECONDS
from aegis_agent.probes.kernel.signals import Signal
from aegis_agent.senses.kernel_devices import KernelDevices
from aegis_agent.settings import Settings
from aegis_agent.sources.kernel_log import Batch, KernelLog, Position

_KEY = "kernel log"
_SOURCE = "kernel log"
_START_SECONDS = 5.0  # so long others may take to find the devices that old lines are about
_START_PAUSE_SECONDS = 0.1
_SAVE_SECONDS = 30.0  # the place is saved though nothing happened: a restart reads less
_LOOK_FAULTS_MAX = 200
_UNREADABLE = "kernel-log"
_ANSWERS = "the GPU is read again and healthy: its reset seems over, though the log does not say so"


@dataclass(slots=True, kw_only=True)
class KernelMemory:
    """Where reading stopped, and what was under way there."""

    position: Position
    follow: FollowMemory = field(default_factory=FollowMemory)


_MEMORY = TypeAdapter(KernelMemory)


class KernelSense:
    """This node's kernel log."""

    name = "kernel"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._book = book
        self._devices = KernelDevices(book, settings.sys_root, time.monotonic)
        recalled = book.recall(_KEY, _MEMORY).get("")
        position = recalled.position if recalled else None
        same_boot = position is not None and position.boot_id == book.boot_id
        self._log = KernelLog(settings.kernel_log, book.boot_id, position)
        self._follow = Follow(classify, recalled.follow if recalled and same_boot else None)
        self._position = position or Position()
        self._saved, self._saved_at = self._position, 0.0
        self._began_at: float | None = None if position else time.monotonic()  # known before
        self._started_at = time.monotonic()
        self._signals: list[Signal] = []
        self._lost = 0  # records
        self._timer: asyncio.TimerHandle | None = None
        self._marked: set[str] = set()  # as being reset

    def source(self) -> str:
        """What is read, or why nothing is."""
        return self._log.source()

    async def watch(self) -> None:
        """Until cancelled."""
        self._settle()
        try:
            await self._log.watch(self._take)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._save_place()

    async def look(self) -> None:
        """All that the log of this boot holds: each fault once, with how often it came."""
        batch = await self._log.look()
        self._say_readable()
        follow, now = Follow(classify), time.monotonic()
        signals: list[Signal] = []
        for line, happened in batch.lines:
            signals += follow.feed(line, happened=happened, now=now)
        signals += follow.tick(now) + follow.finish()
        summed = sorted(_summed(signals), key=_happened)
        self._book.append(self._faults(summed[-_LOOK_FAULTS_MAX:]))

    def tick(self, now: float) -> None:
        """The place where reading stopped is saved now and then."""
        self._say_readable()
        if now - self._saved_at >= _SAVE_SECONDS and not self._signals:
            self._saved_at = now
            self._save_place()

    # lines and time

    def _take(self, batch: Batch) -> None:
        now = time.monotonic()
        if self._log.lost > self._lost:
            self._lost = self._log.lost
            self._follow.missed()
        for line, happened in batch.lines:
            signals = self._follow.feed(line, happened=happened, now=now)
            if signals and (self._began_at is None or happened >= self._began_at):
                self._signals += signals
        self._position = batch.position
        if self._began_at is not None and batch.caught_up:
            self._know_before(now)
        self._settle()

    def _know_before(self, now: float) -> None:
        """What the log held before our first start is no news."""
        self._follow.tick(now)
        self._follow.finish()
        self._began_at = None
        self._save_place()

    def _settle(self) -> None:
        """Tell what is to be told, and look again when there will be more."""
        now = time.monotonic()
        due = self._follow.due()
        if due is not None and due <= now:
            signals = self._follow.tick(now)
            self._signals += signals if self._began_at is None else []
        waits = bool(self._signals) and self._waits_for_devices(now)
        if self._signals and not waits:
            faults, self._signals = self._faults(self._signals), []
            self._book.append(faults, self._memory())
        self._mark_resets(now)
        due = self._follow.due()
        if waits:
            due = now + _START_PAUSE_SECONDS
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - now), self._settle)

    def _waits_for_devices(self, now: float) -> bool:
        """At the start, old lines are about devices that nobody has found yet."""
        if now - self._started_at > _START_SECONDS:
            return False
        return not all(self._devices.is_ready(signal) for signal in self._signals)

    def _memory(self) -> dict[str, str]:
        memory = KernelMemory(position=self._position, follow=self._follow.memory)
        self._saved = self._position
        return {_KEY: _MEMORY.dump_json(memory).decode()}

    def _save_place(self) -> None:
        if self._position != self._saved and not self._signals:
            self._book.append((), self._memory())

    # what is told

    def _faults(self, signals: Sequence[Signal]) -> list[Fault]:
        booted_at = time.time() - time.monotonic()
        return [self._fault(signal, booted_at) for signal in signals]

    def _fault(self, signal: Signal, booted_at: float) -> Fault:
        name, severity = self._devices.find(signal)
        details = dict(signal.details)
        if signal.device and signal.device != name:
            details.setdefault("address", signal.device)
        if behind := self._book.device_at(details.get("pci", "")):  # of a record of the host
            details["device"] = behind
        device = self._book.device(name)
        simulated = self._log.simulated
        evidence = [Evidence(source=_SOURCE, text=text) for text in signal.evidence]
        if signal.details.get("ended") == SILENCE and _answers(device, booted_at + signal.happened):
            # Silence is no data; a good reading is. People are told, and nothing else is done.
            severity = Severity.WARNING
            evidence.append(Evidence(source="amdsmi", text=_ANSWERS))
        subject = self._book.subject(name, device.identity if device else "", simulated=simulated)
        if signal.fault_class == FaultClass.GPU_RESET_SUCCEEDED:
            self._book.reset_at[name] = booted_at + signal.happened
        return subject.fault(
            signal.fault_class,
            severity,
            booted_at + signal.happened,
            *evidence,
            count=signal.count,
            details=details,
        )

    def _mark_resets(self, now: float) -> None:
        """GPUs that others cannot read now, and why.

        A reset is that of a whole hive, and the log does not say early which GPUs belong to it:
        while one is under way, all are taken to be.
        """
        under_way = self._follow.resetting()
        marked: set[str] = set()
        if under_way:
            since = time.time() - (now - min(under_way.values()))
            addresses = set(under_way)
            named = {self._book.device_at(address) or address for address in addresses}
            marked = named | addresses | set(self._devices.gpus())
            for name in marked:
                self._book.resetting.setdefault(name, since)
        for name in self._marked - marked:
            self._book.resetting.pop(name, None)
        self._marked = marked

    def _say_readable(self) -> None:
        """A log that may not be read is no healthy log."""
        self._book.mark_simulated(self.name, simulated=self._log.simulated)
        if self._log.readable is False:
            self._book.put(
                Device(
                    name=_UNREADABLE,
                    kind="log",
                    health=Health.UNKNOWN,
                    detail=self._log.source(),
                )
            )
        elif self._log.readable:
            self._book.remove(_UNREADABLE)


def _summed(signals: list[Signal]) -> list[Signal]:
    """One signal of each class, severity and device: the first, and what updates add to it."""
    summed: dict[tuple[FaultClass, str, str, str], Signal] = {}
    for signal in signals:
        block = signal.details.get("block", "")
        key = (signal.fault_class, signal.severity, signal.device, block)
        first = summed.get(key)
        if first is None:
            summed[key] = signal
            continue
        details = dict(first.details)
        merge(details, signal.details)
        summed[key] = replace(
            first,
            count=first.count + signal.count,
            details=details,
            evidence=(*first.evidence, *signal.evidence)[:20],
        )
    return list(summed.values())


def _answers(device: Device | None, silent_at: float) -> bool:
    """Whether the GPU was read well at the end of the silence."""
    if device is None or device.health is not Health.HEALTHY:
        return False
    return device.read_at > silent_at - SILENCE_SECONDS / 2


def _happened(signal: Signal) -> float:
    return signal.happened
