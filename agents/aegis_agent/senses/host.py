"""The host: memory, memory modules, machine checks, disks, clock."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from aegis.model.fault import FaultClass
from aegis_agent.book import Book
from aegis_agent.probes import host
from aegis_agent.probes.disk import DiskSample
from aegis_agent.probes.host import HostMemory, HostSample, Interrupts, Limits
from aegis_agent.settings import Settings
from aegis_agent.sources import clock, proc
from aegis_agent.sources.disk import Disks
from aegis_agent.sources.edac import Edac

_MEMORY = TypeAdapter(HostMemory)
_KEY = "host"
_SLOW_POLLS = 10
_SELDOM = 6  # of the slow ones: disks fill slowly, and interrupts are long to read


class HostSense:
    """This node without its devices."""

    name = "host"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._book = book
        self._proc_root = settings.proc_root
        self._pause_seconds = min(_SLOW_POLLS * settings.poll_seconds, 60.0)
        self._limits = Limits(
            disk_full_percent=settings.disk_full_percent,
            clock_skew_seconds=settings.clock_skew_seconds,
        )
        self._state_dir = settings.state_dir
        self._disk_paths = [str(path) for path in settings.disk_paths]
        self._disks = Disks(paths=())
        self._edac = Edac(settings.sys_root)
        self._memory = book.recall(_KEY, _MEMORY).get("", HostMemory())
        self._read_disks: Sequence[DiskSample] = ()
        self._read_interrupts = Interrupts()
        self._oom_counted = 0  # by anybody, at the last look
        self._source = ""

    def source(self) -> str:
        """What is read, and what is not there to be read."""
        return self._source

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            for number in range(_SELDOM):
                await self._poll(seldom=number == 0)
                await asyncio.sleep(self._pause_seconds)

    async def look(self) -> None:
        """Once."""
        await self._poll(seldom=True)

    def tick(self, now: float) -> None:
        """Everything is read again and again."""

    async def _poll(self, *, seldom: bool) -> None:
        if seldom:
            self._read_disks = await self._ask_disks()
            self._read_interrupts = proc.read_interrupts(self._proc_root)
        at = time.time()
        logged = self._book.counted["host", FaultClass.HOST_MEMORY_OOM]
        sample = HostSample(
            at=at,
            clock=clock.read(self._book.controller_time),
            memory=proc.read_memory(self._proc_root),
            oom_kills=proc.read_oom_kills(self._proc_root),
            oom_logged=logged - self._oom_counted,
            interrupts=self._read_interrupts,
            edac=self._edac.read(at),
            disks=self._read_disks,
        )
        self._judge(sample)
        self._oom_counted = self._book.counted["host", FaultClass.HOST_MEMORY_OOM]

    async def _ask_disks(self) -> list[DiskSample]:
        """Those named, the agent's own, and those that the jobs here save to, once there."""
        paths = [*self._disk_paths, str(_existing(self._state_dir))]
        self._disks.paths = list(dict.fromkeys([*paths, *self._book.checkpoint_folders]))
        samples = await self._disks.read()
        return [one for one in samples if one.path in paths or not one.missing]

    def _judge(self, sample: HostSample) -> None:
        subject = self._book.subject("host")
        before = self._memory
        judgement = host.observe(subject, before, sample, self._limits)
        self._memory = judgement.memory
        changed = self._memory.lasting != before.lasting
        self._book.keep(self.name, subject, judgement, _KEY if changed else "", _MEMORY)
        self._say_source(sample)

    def _say_source(self, sample: HostSample) -> None:
        drivers = ", ".join(dict.fromkeys(self._edac.drivers))
        modules = f"memory modules by {drivers}" if drivers else "no driver counts memory errors"
        counted = sample.interrupts.machine_checks is not None
        checks = "machine checks counted" if counted else "no machine checks counted"
        told = {True: "synchronised", False: "not synchronised", None: "nobody says whether it is"}
        self._source = (
            f"Linux {os.uname().release}; {modules}; {checks}; "
            f"clock {told[sample.clock.synchronised]}; "
            f"disks {' '.join(one.path for one in sample.disks)}"
        )


def _existing(folder: Path) -> Path:
    """The folder, or what is there of its path."""
    paths = (folder, *folder.parents)
    # os.path, since Path.exists raises where a folder above may not be entered.
    return next(path for path in paths if os.path.exists(path) or path == path.parent)  # noqa: PTH110
