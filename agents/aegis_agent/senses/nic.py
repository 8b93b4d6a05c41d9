"""Network ports: their links."""

from pydantic import TypeAdapter

from aegis_agent.book import Book
from aegis_agent.probes import nic
from aegis_agent.probes.nic import LinkMemory, LinkSample
from aegis_agent.settings import Settings
from aegis_agent.sources import nic as links

_MEMORY = TypeAdapter(LinkMemory)
_KEY = "nic "


class NicSense:
    """The ports that training uses."""

    name = "nic"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._settings = settings
        self._book = book
        self._memories = book.recall(_KEY, _MEMORY)  # by interface

    def source(self) -> str:
        """Links are always readable."""
        return ""

    async def watch(self) -> None:
        """Until cancelled."""
        settings = self._settings
        await links.watch(settings.sys_root, settings.fabric, settings.poll_seconds, self.take)

    async def look(self) -> None:
        """Once."""
        await links.look(self._settings.sys_root, self._settings.fabric, self.take)

    def tick(self, now: float) -> None:
        """Links are pushed and polled: a sample is never old."""

    def take(self, interface: str, sample: LinkSample) -> None:
        """Take in what was read of a port."""
        memory = self._memories.get(interface, LinkMemory())
        self._book.mark_simulated(self.name, simulated=sample.simulated)
        self._book.place(interface, interface)
        subject = self._book.subject(interface, simulated=sample.simulated)
        judgement = nic.observe(subject, memory, sample)
        self._memories[interface] = judgement.memory
        key = _KEY + interface if judgement.memory != memory else ""
        self._book.keep(self.name, subject, judgement, key, _MEMORY)
