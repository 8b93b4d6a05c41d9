"""Network ports: which there are and what for, their links, their RDMA side.

links                  pushed, or polled                    each `poll_seconds`
InfiniBand's state     polled: no interface tells of it     each `poll_seconds`
RDMA counters, speed   ten times as seldom                  at most 10 s
which ports there are  at the start, once a minute, and when a link that is not known comes or goes
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import TypeAdapter

from aegis.model.node import Health
from aegis_agent.book import Book
from aegis_agent.probes import nic, nic_peers, rdma
from aegis_agent.probes.nic import LinkMemory, LinkSample
from aegis_agent.probes.nic_peers import AloneMemory
from aegis_agent.probes.rdma import RdmaMemory, RdmaSample
from aegis_agent.probes.rdma_statistic import PortKey
from aegis_agent.probes.roles import Assigned, Place, Role, assign
from aegis_agent.probes.subject import Subject
from aegis_agent.senses.nic_port import (
    WatchedPort,
    infiniband,
    missing,
    reader_of,
    told,
    unseen,
)
from aegis_agent.settings import Settings
from aegis_agent.sources import nic as links
from aegis_agent.sources import ports
from aegis_agent.sources import rdma as rdma_source
from aegis_agent.sources.patience import Patience, StuckError
from aegis_agent.sources.rdma import Reading

_log = logging.getLogger(__name__)
_LINK, _RDMA = TypeAdapter(LinkMemory), TypeAdapter(RdmaMemory)
_LINK_KEY, _RDMA_KEY = "nic ", "rdma "
_ALONE = TypeAdapter(AloneMemory)
_ALONE_KEY = "nic-beside "
_RDMA_SENSE = "rdma"  # keeps its own conditions and counters beside those of the link
_SLOW_POLLS = 10
_SLOW_SECONDS_MAX = 10.0
_DISCOVER_SECONDS = 60.0
_DISCOVER_PAUSE_SECONDS = 1.0  # links may come and go by the hundred
_DEADLINE_SECONDS = 5.0  # of one port's counters
_SETTLE_SECONDS = 30.0  # after the first look, links may still be training


class NicSense:
    """The network ports of this node."""

    name = "nic"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._book = book
        self._root = settings.sys_root
        self._proc_root = settings.proc_root
        self._named = () if settings.fabric == ("auto",) else settings.fabric
        self._poll_seconds = settings.poll_seconds
        self._slow_seconds = min(_SLOW_POLLS * settings.poll_seconds, _SLOW_SECONDS_MAX)
        self._link_memories = book.recall(_LINK_KEY, _LINK)  # by name
        self._rdma_memories = book.recall(_RDMA_KEY, _RDMA)  # by name
        self._alone = book.recall(_ALONE_KEY, _ALONE)  # by the address of a GPU without a port
        self._missing: Mapping[str, str] = {}  # the same, with a sentence
        self._ports: dict[str, WatchedPort] = {}  # by name
        self._interfaces: set[str] = set()  # those that links are asked of
        self._others: list[Assigned] = []  # not watched
        self._patience = Patience(_DEADLINE_SECONDS)
        self._changed = asyncio.Event()  # there may be other ports than before
        self._hanging: set[str] = set()  # InfiniBand ports whose state could not be read in time
        self._simulated = False
        self._looked_at = 0.0  # monotonic; when the last look at which ports there are began
        self._compared_at = 0.0  # monotonic; when all ports were seen for the first time
        self._source = ""

    def source(self) -> str:
        """Which ports, what for, and what is read of them."""
        return self._source

    async def watch(self) -> None:
        """Until cancelled."""
        await self._discover()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                links.watch(
                    self._root, self._interfaces, self._poll_seconds, self.take, self._changed.set
                )
            )
            tasks.create_task(self._watch_infiniband())
            tasks.create_task(self._watch_counters())
            tasks.create_task(self._watch_ports())

    async def look(self) -> None:
        """Once."""
        await self._discover()
        await links.look(self._root, self._interfaces, self.take)
        await self._read_infiniband()
        await self._read_counters()
        self._compare()
        self._say_source()

    def tick(self, now: float) -> None:
        """Links are pushed and polled: a sample is never old."""

    # which ports there are

    async def _watch_ports(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DISCOVER_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            await self._discover()
            await asyncio.sleep(_DISCOVER_PAUSE_SECONDS)

    async def _discover(self) -> None:
        began = time.monotonic()
        try:
            found = await self._patience.read("ports", self._find)
        except StuckError:
            _log.warning("Looking for network ports takes too long.", extra={"root": self._root})
            return
        finally:
            self._looked_at = began
        self._simulated = found.simulated
        named = [] if self._named == ("none",) else self._named
        assigned = assign(found.ports, found.gpus, self._named)
        known = {one.name for one in assigned}
        assigned += [unseen(name) for name in named if name not in known]
        if not self._named:
            assigned += [missing(name) for name in self._remembered() if name not in known]
        self._others = []
        for one in assigned:
            self._meet(one)
        self._missing = self._never_there(found.gpus)
        self._follow_moves(assigned)
        self._say_source()

    def _remembered(self) -> list[str]:
        """Fabric ports that were here in this boot, and an agent before us saw."""
        return [
            name
            for name, memory in self._link_memories.items()
            if memory.boot_id == self._book.boot_id and memory.used and name not in self._ports
            if memory.up or memory.down_at or memory.removed_at
        ]

    def _never_there(self, gpus: Sequence[Place]) -> Mapping[str, str]:
        """GPUs without a port beside them. One that was there and went is told of by its name."""
        ports = [one.assigned for one in self._ports.values()]
        if self._named or any(one.role is Role.FABRIC and not one.gpu for one in ports):
            return {}
        return nic_peers.alone(ports, gpus)

    def _find(self) -> ports.Found:
        """In a tree that is simulated, /proc is, too."""
        proc_root = self._root / "proc"
        return ports.find(self._root, proc_root if proc_root.is_dir() else self._proc_root)

    def _meet(self, assigned: Assigned) -> None:
        port, name = assigned.port, assigned.name
        used = assigned.role is Role.FABRIC
        if (known := self._ports.get(name)) is not None:
            assigned = known.settle(self._root, assigned)
            used = assigned.role is Role.FABRIC
        elif used or not (self._named or port.physical_function):
            self._add(assigned)
        else:
            self._others.append(assigned)
        for address in filter(None, (port.place.address, port.interface, port.rdma, name)):
            self._book.place(address, name, matters=used)

    def _add(self, assigned: Assigned) -> WatchedPort:
        name, port = assigned.name, assigned.port
        memory = self._link_memories.get(name, LinkMemory())
        watched = WatchedPort(
            assigned=assigned,
            reader=reader_of(self._root, port),
            link=replace(
                nic.of_boot(memory, self._book.boot_id), used=assigned.role is Role.FABRIC
            ),
            rdma=self._rdma_memories.get(name, RdmaMemory()),
        )
        self._ports[name] = watched
        if not watched.is_told_by_rdma:
            self._interfaces.add(name)
        return watched

    def _follow_moves(self, assigned: Iterable[Assigned]) -> None:
        """An interface that is gone under its name may have another, or be elsewhere."""
        seats = {(one.port.place.address, one.port.number): one for one in assigned}
        for watched in list(self._ports.values()):
            place, port = watched.assigned.port.place, watched.assigned.port
            here = seats.get((place.address, port.number)) if place.address else None
            watched.moved = ""
            if here is None or here.name == watched.name or watched.is_there:
                continue
            has_link = bool(here.port.interface) or watched.is_told_by_rdma
            if has_link and not watched.assigned.named:
                self._rename(watched, here)
            elif has_link:
                watched.moved = f"it is called {here.name} now"
            elif here.port.rdma == port.rdma and watched.reading is not None:
                state = watched.reading.state
                watched.moved = (
                    f"the interface is in another network namespace; {port.rdma} is {state}"
                    if state == rdma.ACTIVE
                    else ""
                )

    def _rename(self, before: WatchedPort, assigned: Assigned) -> None:
        _log.info("A port got another name.", extra={"before": before.name, "after": assigned.name})
        self._forget(before.name)
        self._link_memories[assigned.name] = before.link
        self._rdma_memories[assigned.name] = before.rdma
        if assigned.name in self._ports:
            self._ports[assigned.name].link = before.link
        else:
            self._add(assigned)

    def _forget(self, name: str) -> None:
        del self._ports[name]
        self._interfaces.discard(name)
        self._book.remove(name)
        for sense in (self.name, _RDMA_SENSE):
            self._book.set_conditions(sense, name, ())
        for key in (_LINK_KEY, _RDMA_KEY):
            self._book.spool.erase(key + name)

    def _say_source(self) -> None:
        by = "netlink" if self._root == links.SYS and links.has_netlink() else "sysfs"
        if self._named == ("none",):
            self._source = "no port is watched: the settings name none"
        else:
            self._source = told(list(self._ports.values()), self._others, by)

    # links

    def take(self, name: str, sample: LinkSample) -> None:
        """Take in what was read of a port's link."""
        watched = self._ports.get(name)
        if watched is None and name in self._named:
            watched = self._add(unseen(name))
        if watched is None:  # it was forgotten while it was asked of
            return
        if not sample.present:
            sample = self._absent(watched, sample)
        if watched.is_as_before(sample) and watched.device is not None:
            watched.device = replace(watched.device, read_at=sample.at)
            self._book.put(watched.device)
            return
        watched.take(sample)
        self._judge(watched)
        if not self._compared_at and all(one.sample for one in self._ports.values()):
            self._compared_at = time.monotonic()
            self._compare()

    def _absent(self, watched: WatchedPort, sample: LinkSample) -> LinkSample:
        if watched.link.absent_samples == 0:
            self._changed.set()
        function = ports.function_at(self._root, watched.assigned.port.place.address)
        return replace(sample, function=function, moved=watched.whereabouts(self._looked_at))

    def _judge(self, watched: WatchedPort) -> None:
        if watched.sample is None:
            return
        watched.judged_at = watched.sample.at
        name, before = watched.name, watched.link
        simulated = watched.sample.simulated or self._simulated
        self._book.mark_simulated(self.name, simulated=simulated)
        self._book.place(name, name, matters=watched.is_fabric)
        identity = watched.assigned.port.identity
        subject = self._book.subject(name, identity, simulated=simulated)
        judgement = nic.observe(subject, before, watched.sample, watched.stance())
        watched.link = judgement.memory
        if not watched.is_listed:
            judgement = replace(judgement, device=None)
        watched.device = judgement.device
        key = _LINK_KEY + name if judgement.memory != self._link_memories.get(name) else ""
        self._link_memories[name] = judgement.memory
        self._book.keep(self.name, subject, judgement, key, _LINK)

    def _compare(self) -> None:
        """Look at each port beside the others of its kind, and for ports that are not there."""
        for gpu in {**self._alone, **self._missing}:
            self._judge_missing(gpu, self._missing.get(gpu, ""))
        fabric = [one for one in self._ports.values() if one.is_fabric]
        compared = nic_peers.compare([one.peer() for one in fabric])
        for watched in fabric:
            if watched.compared != compared[watched.name]:
                watched.compared = compared[watched.name]
                self._judge(watched)

    def _judge_missing(self, gpu: str, text: str) -> None:
        before = self._alone.get(gpu, AloneMemory())
        device = f"port beside {self._book.device_at(gpu) or gpu}"
        subject = self._book.subject(device, gpu, simulated=self._simulated)
        judgement = nic_peers.without(subject, before, time.time(), text)
        self._alone[gpu] = judgement.memory
        key = _ALONE_KEY + gpu if judgement.memory != before else ""
        self._book.keep(self.name, subject, judgement, key, _ALONE)

    async def _watch_infiniband(self) -> None:
        while True:
            await self._read_infiniband()
            await asyncio.sleep(self._poll_seconds)

    async def _read_infiniband(self) -> None:
        """All in one thread, without those that hang."""
        asked = {
            name: one.reader
            for name, one in self._ports.items()
            if one.is_told_by_rdma and name not in self._hanging
        }
        if not asked:
            return
        read: dict[str, Reading] = {}
        try:
            key = f"states without {sorted(self._hanging)}"
            await self._patience.read(key, rdma_source.read_states, asked, read)
        except StuckError:
            self._hanging.update([name for name in asked if name not in read][:1])
        for name, reading in list(read.items()):
            self.take(name, infiniband(reading, simulated=self._simulated))

    # RDMA

    async def _watch_counters(self) -> None:
        while True:
            await self._read_counters()
            if time.monotonic() - self._compared_at > _SETTLE_SECONDS:
                self._compare()
            self._say_source()
            await asyncio.sleep(self._slow_seconds)

    async def _read_counters(self) -> None:
        asked: Mapping[PortKey, Mapping[str, int]] | None = None
        for watched in list(self._ports.values()):
            try:
                key = f"counters of {watched.name}"
                reading = await self._patience.read(key, watched.reader.all)
            except StuckError:
                self._silent(watched)
                continue
            if reading.present and not reading.has_counters and self._root == links.SYS:
                asked = await rdma_source.ask_command() if asked is None else asked
                port = watched.assigned.port
                reading = replace(reading, counters=asked.get((port.rdma, port.rdma_port), {}))
            self._counted(watched, reading)

    def _counted(self, watched: WatchedPort, reading: Reading) -> None:
        watched.reading = reading
        self._hanging.discard(watched.name)
        if watched.assigned.port.rdma and not reading.present:
            self._changed.set()  # it may have another name
        port, before = watched.assigned.port, watched.rdma
        if not port.rdma:
            return
        sample = RdmaSample(
            at=time.time(),
            source="sysfs" if reading.has_counters or not reading.counters else "rdma statistic",
            device=port.rdma,
            present=reading.present,
            interface_present=watched.is_told_by_rdma or watched.is_there,
            link_up=watched.is_up and not watched.is_told_by_rdma,
            state=reading.state,
            counters=reading.counters,
        )
        subject = self._subject(watched)
        judgement = rdma.observe(subject, before, sample)
        self._keep_rdma(watched, judgement.memory)
        key = _RDMA_KEY + watched.name if judgement.memory != before else ""
        self._book.keep(_RDMA_SENSE, subject, judgement, key, _RDMA)
        if errors := rdma.errors(reading.counters):
            self._book.set_counters(_RDMA_SENSE, watched.name, {"rdma_errors": errors})

    def _silent(self, watched: WatchedPort) -> None:
        device = watched.assigned.port.rdma or watched.name
        subject = self._subject(watched)
        judgement = rdma.silent(subject, watched.rdma, time.time(), device)
        self._keep_rdma(watched, judgement.memory)
        self._book.keep(_RDMA_SENSE, subject, judgement)
        if watched.is_told_by_rdma and watched.device is not None:
            detail = f"{device} does not answer"
            self._book.put(replace(watched.device, health=Health.UNKNOWN, detail=detail))

    def _subject(self, watched: WatchedPort) -> Subject:
        identity = watched.assigned.port.identity
        return self._book.subject(watched.name, identity, simulated=self._simulated)

    def _keep_rdma(self, watched: WatchedPort, memory: RdmaMemory) -> None:
        watched.rdma = memory
        self._rdma_memories[watched.name] = memory
