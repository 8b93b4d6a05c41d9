"""PCIe: what GPUs, network cards and the ports above them count, and how their links run."""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from aegis.model.fault import Condition, Fault
from aegis_agent.book import Book
from aegis_agent.probes import pcie, pcie_link
from aegis_agent.probes.pcie import FunctionMemory, FunctionSample, Seat
from aegis_agent.probes.pcie_link import LinkMemory, LinkSample
from aegis_agent.settings import Settings
from aegis_agent.sources import pci
from aegis_agent.sources.pci import Function, Tree

_FUNCTION, _LINK = TypeAdapter(FunctionMemory), TypeAdapter(LinkMemory)
_FUNCTION_KEY, _LINK_KEY = "pcie ", "pcie-link "
_SLOW_POLLS = 10  # counters change seldom, and reading a link asks the device
_DISCOVER_POLLS = 6  # of the slow ones
_START_SECONDS = 2.0  # GPUs and ports are to be named first
_LOOK_PAUSE_SECONDS = 0.3
_SIMULATED = "aegis_simulated"  # a tree that holds this file is none of the kernel's
_NAMES = {"correctable": "aer_corrected", "nonfatal": "aer_nonfatal", "fatal": "aer_fatal"}


@dataclass
class _News:
    """What one round came to."""

    faults: list[Fault] = field(default_factory=list)
    memory: dict[str, str] = field(default_factory=dict)  # key: JSON
    conditions: dict[str, list[Condition]] = field(default_factory=dict)  # by device


class PcieSense:
    """The PCI devices that training may depend on."""

    name = "pcie"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._root = settings.sys_root
        self._pause_seconds = min(_SLOW_POLLS * settings.poll_seconds, 60.0)
        self._book = book
        self._tree = Tree()
        self._functions: dict[str, Function] = {}  # by address, also of what is gone
        self._memories = book.recall(_FUNCTION_KEY, _FUNCTION)  # by address
        self._link_memories = book.recall(_LINK_KEY, _LINK)  # by address of the port above
        self._conditioned: set[str] = set()  # devices with conditions
        self._simulated = False
        self._source = ""

    def source(self) -> str:
        """What is read, and what the platform limits."""
        return self._source

    async def watch(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(min(_START_SECONDS, self._pause_seconds))
        while True:
            for number in range(_DISCOVER_POLLS):
                await self._poll(discover=number == 0)
                await asyncio.sleep(self._pause_seconds)

    async def look(self) -> None:
        """As often as it takes to believe that a link is narrow."""
        for number in range(pcie_link.HOLD_SAMPLES):
            await self._poll(discover=number == 0)
            await asyncio.sleep(_LOOK_PAUSE_SECONDS)

    def tick(self, now: float) -> None:
        """Counters that cannot be read change nothing."""

    async def _poll(self, *, discover: bool) -> None:
        # A device that does not answer holds each question up; the agent has other things to do.
        functions, links = await asyncio.to_thread(self._read, discover=discover)
        self._judge(functions, links)

    def _read(self, *, discover: bool) -> tuple[list[FunctionSample], list[LinkSample]]:
        if discover:
            self._discover()
        at = time.time()
        training = bool(self._book.training)
        links = list(pci.read_links(self._tree.links, at, training=training))
        silent = frozenset(link.lower for link in links if link.silent)
        return list(pci.read_functions(self._functions.values(), at, silent)), links

    def _discover(self) -> None:
        self._tree = pci.discover(self._root)
        self._simulated = (self._root / _SIMULATED).exists()
        found = {one.address: one for one in (*self._tree.endpoints, *self._tree.ports)}
        # What was here in this boot and is no more stays in mind: it is gone, not unknown.
        gone = {
            address: Function(address=address, path=self._root / "bus/pci/devices" / address)
            for address, memory in self._memories.items()
            if memory.boot_id == self._book.boot_id and memory.seen
        }
        self._functions = gone | found

    def _judge(self, functions: Sequence[FunctionSample], links: Sequence[LinkSample]) -> None:
        news = _News()
        for sample in functions:
            self._judge_function(sample, news)
        for link in links:
            self._judge_link(link, links, news)
        self._book.mark_simulated(self.name, simulated=self._simulated and bool(functions))
        self._book.append(news.faults, news.memory)
        for device in self._conditioned | set(news.conditions):
            conditions = tuple(news.conditions.get(device, ()))
            self._book.set_conditions(self.name, device, conditions)
        self._conditioned = set(news.conditions)
        self._say_source(functions, links)

    def _judge_function(self, sample: FunctionSample, news: _News) -> None:
        memory = self._memories.get(sample.address, FunctionMemory())
        device, seat = self._seat(sample.address)
        if (not sample.present or sample.silent) and self._is_resetting(sample.address, device):
            return
        subject = self._book.subject(device, simulated=self._simulated)
        judgement = pcie.observe(subject, memory, sample, seat)
        self._memories[sample.address] = judgement.memory
        news.faults += judgement.faults
        if judgement.memory != memory:
            body = _FUNCTION.dump_json(judgement.memory).decode()
            news.memory[_FUNCTION_KEY + sample.address] = body
        if judgement.conditions:
            news.conditions.setdefault(device, []).extend(judgement.conditions)
        totals = {_NAMES[kind]: pcie.total(counts) for kind, counts in sample.counts.items()}
        if self._book.device(device) is not None and sample.address in self._endpoints():
            counted = {name: count for name, count in totals.items() if count}
            self._book.set_counters(self.name, device, counted)

    def _judge_link(self, sample: LinkSample, links: Sequence[LinkSample], news: _News) -> None:
        memory = self._link_memories.get(sample.upper, LinkMemory())
        device, seat = self._seat(sample.lower)
        if not self._is_resetting(sample.lower, device):
            subject = self._book.subject(device, simulated=self._simulated)
            others = pcie_link.peers(sample, links)
            judgement = pcie_link.observe(subject, memory, sample, others, seat)
            self._link_memories[sample.upper] = judgement.memory
            news.faults += judgement.faults
            if judgement.memory.lasting != memory.lasting:
                body = _LINK.dump_json(judgement.memory).decode()
                news.memory[_LINK_KEY + sample.upper] = body
            if judgement.conditions:
                news.conditions.setdefault(device, []).extend(judgement.conditions)

    # whose it is

    def _endpoints(self) -> set[str]:
        return {one.address for one in self._tree.endpoints}

    def _seat(self, address: str) -> tuple[str, Seat]:
        """The device that errors at the address are told of, and whether training uses it."""
        below = self._tree.below(address)
        if not below:  # gone: as it was known last
            memory = self._memories.get(address, FunctionMemory())
            device = self._book.device_at(address) or memory.device or address
            return device, Seat(used=memory.used or self._is_used(device), words=address)
        names = list(dict.fromkeys(self._named(one) for one in below))
        used = [name for name in names if self._is_used(name)]
        if below[0].address == address:
            return names[0], Seat(used=bool(used), words=address)
        words = f"port {address} above {', '.join(used or names)}"
        first, *others = used or names
        return address if others else first, Seat(used=bool(used), words=words)

    def _named(self, endpoint: Function) -> str:
        """What the endpoint is called: as other senses do, by its interface, or by its address."""
        for key in (endpoint.address, *endpoint.interfaces):
            if (device := self._book.device_at(key)) is not None:
                return device
        return endpoint.interfaces[0] if endpoint.interfaces else endpoint.address

    def _is_used(self, device: str) -> bool:
        """Whether a sense has found the device, and training uses it."""
        found = self._book.device(device)
        return found is not None and found.used

    def _is_resetting(self, address: str, device: str) -> bool:
        """Whether what is behind the address is being reset: it goes away and comes back."""
        names = {device, *(self._named(one) for one in self._tree.below(address))}
        return any(name in self._book.resetting for name in names)

    def _say_source(self, functions: Sequence[FunctionSample], links: Sequence[LinkSample]) -> None:
        if not functions:
            self._source = f"no GPU and no network card on a PCI bus in {self._root}"
            return
        counted = sum(bool(sample.counts) for sample in functions)
        readable = sum(bool(link.now.speed) for link in links)
        text = (
            f"AER counters of {counted} of {len(functions)} functions and the state of "
            f"{readable} of {len(links)} links, in {self._root} of Linux {os.uname().release}"
        )
        limited = [
            f"{link.upper} {memory.accepted}"
            for link in links
            if (memory := self._link_memories.get(link.upper)) and memory.accepted
        ]
        if limited:
            text += "; below what both ends can, all alike, so by the platform: "
        self._source = text + ", ".join(limited)
