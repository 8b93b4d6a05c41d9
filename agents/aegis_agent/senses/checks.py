"""Site checks: programs of the site's own, run on time and judged like any other sense."""

import asyncio
import time
import zlib
from dataclasses import replace

from pydantic import TypeAdapter

from aegis.model.fault import Severity
from aegis.model.node import Health
from aegis_agent.book import Book
from aegis_agent.probes import checks
from aegis_agent.probes.check_entry import Check
from aegis_agent.probes.check_verdicts import Outcome
from aegis_agent.probes.checks import CheckMemory
from aegis_agent.probes.subject import Subject
from aegis_agent.settings import Settings
from aegis_agent.sources import checks as runs
from aegis_agent.sources.checks import Interrupted, Runner

_MEMORY = TypeAdapter(CheckMemory)
_KEY = "check "
AT_ONCE_MAX = 2
_SPREAD_POLLS = 30  # the first runs of a fleet do not fall together
_AGAIN_SECONDS = 30.0  # a fault that is not believed yet is looked at again so soon
_KEPT_SECONDS = 300.0  # when it last ran is written down for checks that run so seldom
_IDLE_LOOK_SECONDS = 1.0
_STALE_INTERVALS = 3
_LOOK_DEADLINE_SECONDS = 30.0


class CheckSense:
    """All checks of this node."""

    name = "checks"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._book = book
        self._checks = tuple(one for one in settings.checks if not one.on_return)
        self._spread_seconds = _SPREAD_POLLS * settings.poll_seconds
        self._memories = self._recall()
        self._conditioned: dict[str, set[str]] = {}  # devices with conditions, by check
        self._waiting: set[str] = set()  # for a node without ranks
        self._skipped: list[str] = []  # by `look`
        self._runner = Runner(node=book.node)
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)

    def source(self) -> str:
        """Which checks there are, and which of them wait."""
        if not self._checks:
            return ""
        number = len(self._checks)
        names = ", ".join(one.name for one in self._checks)
        text = f"{number} site check{'' if number == 1 else 's'}: {names}"
        if self._waiting:
            text += f"; until no ranks are here these wait: {', '.join(sorted(self._waiting))}"
        if self._skipped:
            text += f"; too long for one look: {', '.join(self._skipped)}"
        return text

    async def watch(self) -> None:
        """Until cancelled."""
        for check in self._checks:
            self._say_conditions(check)
        async with asyncio.TaskGroup() as tasks:
            for check in self._checks:
                tasks.create_task(self._keep_running(check))

    async def look(self) -> None:
        """Each once that is short and needs no idle node; a fault is believed at once."""
        short = [
            one
            for one in self._checks
            if not one.idle and (one.file or one.deadline_seconds <= _LOOK_DEADLINE_SECONDS)
        ]
        self._skipped = [one.name for one in self._checks if one not in short]
        await asyncio.gather(*(self._run(replace(one, failures=1)) for one in short))

    def tick(self, now: float) -> None:
        """A result that is too old is none. Idle checks wait for their time."""
        for check in self._checks:
            device = self._book.device(checks.device_name(check))
            limit = _STALE_INTERVALS * check.interval_seconds + check.deadline_seconds
            if device is None or check.idle or device.health != Health.HEALTHY:
                continue
            if now - device.read_at > limit:
                detail = f"no result for more than {limit:.0f} s"
                self._book.put(replace(device, health=Health.UNKNOWN, detail=detail))

    def _recall(self) -> dict[str, CheckMemory]:
        """Of the checks that there still are."""
        names = {check.name for check in self._checks}
        found = self._book.recall(_KEY, _MEMORY)
        for name in found.keys() - names:
            self._book.spool.erase(_KEY + name)
        boot_id = self._book.boot_id
        return {
            name: found[name]
            if name in found and found[name].boot_id == boot_id
            else CheckMemory(boot_id=boot_id)
            for name in names
        }

    # running

    async def _keep_running(self, check: Check) -> None:
        await asyncio.sleep(self._first_pause(check))
        while True:
            started_at = time.time()
            settled = await self._run(check)
            pause = (
                check.interval_seconds if settled else min(check.interval_seconds, _AGAIN_SECONDS)
            )
            # A clock that was set must neither stop a check nor make it run on and on.
            spent = min(max(time.time() - started_at, 0.0), pause)
            await asyncio.sleep(pause - spent)

    def _first_pause(self, check: Check) -> float:
        """Its own time within the first seconds, or what is left since it last ran."""
        place = zlib.crc32(f"{self._book.node} {check.name}".encode()) / 0xFFFFFFFF
        spread = place * min(self._spread_seconds, check.interval_seconds)
        ran_at = self._memories[check.name].started_at
        left = ran_at + check.interval_seconds - time.time() if ran_at else 0.0
        return max(spread, min(left, check.interval_seconds))

    async def _run(self, check: Check) -> bool:
        """One run, when it may be; whether another soon would say no more."""
        if check.file:
            return self._take(check, time.time(), await asyncio.to_thread(runs.read_file, check))
        while True:
            await self._until_allowed(check)
            async with self._slots:
                if not self._may_run(check):
                    continue
                started_at = time.time()
                try:
                    outcome = await self._runner.run(check, lambda: self._may_run(check))
                except Interrupted:
                    continue
            return self._take(check, started_at, outcome)

    async def _until_allowed(self, check: Check) -> None:
        while not self._may_run(check):
            self._waiting.add(check.name)
            await asyncio.sleep(_IDLE_LOOK_SECONDS)
        self._waiting.discard(check.name)

    def _may_run(self, check: Check) -> bool:
        """A check for idle nodes never runs beside ranks, nor while nobody knows of them."""
        return not check.idle or self._book.training is False

    # judging

    def _take(self, check: Check, started_at: float, outcome: Outcome) -> bool:
        before = self._memories[check.name]
        judgement = checks.observe(self._subject, check, before, outcome)
        memory = replace(judgement.memory, started_at=started_at)
        self._memories[check.name] = memory
        kept = {}
        seldom = check.interval_seconds >= _KEPT_SECONDS
        news = (memory.devices, memory.left_at) != (before.devices, before.left_at)
        if seldom or news:
            kept[_KEY + check.name] = _MEMORY.dump_json(memory).decode()
        self._book.append(judgement.faults, kept)
        name = judgement.device.name
        self._book.place(name, name, matters=self._matters(memory))
        self._book.put(judgement.device)
        self._say_conditions(check)
        return not judgement.unsettled

    def _matters(self, memory: CheckMemory) -> bool:
        """A check that only warns keeps no node out of service."""
        return any(
            one.failing_since
            and one.fault
            and one.fault.severity in (Severity.ERROR, Severity.FATAL)
            for one in memory.devices.values()
        )

    def _subject(self, device: str) -> Subject:
        """The device as the check names it: by its name here, its address or its interface."""
        return self._book.subject(self._book.device_at(device) or device)

    def _say_conditions(self, check: Check) -> None:
        found = checks.lasting(self._subject, check, self._memories[check.name])
        sense = f"{self.name} {check.name}"
        for device in self._conditioned.get(check.name, set()) | found.keys():
            self._book.set_conditions(sense, device, found.get(device, ()))
        self._conditioned[check.name] = set(found)
