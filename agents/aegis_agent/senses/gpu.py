"""GPUs through amdsmi: what the prober says, judged and remembered by identity."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, assert_never

from pydantic import TypeAdapter

from aegis.model.node import Device, Health
from aegis_agent.book import Book
from aegis_agent.probes import gpu
from aegis_agent.probes.gpu import GpuMemory, GpuReading, Silence
from aegis_agent.probes.subject import Judgement, Subject
from aegis_agent.settings import Settings
from aegis_agent.sources.prober import (
    DEADLINE_SECONDS,
    GpuLibrary,
    GpuNews,
    GpuRead,
    GpuSilent,
    GpusListed,
    GpusUnavailable,
    Prober,
)

_log = logging.getLogger(__name__)
Sample = TypeVar("Sample")
_MEMORY = TypeAdapter(GpuMemory)
_KEY, _SIMULATED_KEY = "gpu ", "simulated-gpu "
_LOOK_SECONDS_MAX = 15.0


class GpuSense:
    """The GPUs of this node."""

    name = "gpu"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._book = book
        self._poll_seconds = settings.poll_seconds
        # A GPU not read for so long is unknown.
        self._stale_seconds = max(
            3 * settings.poll_seconds, DEADLINE_SECONDS + settings.poll_seconds + 1
        )
        self._source = ""
        self._library = ""
        self._simulated = False
        self._memories: dict[str, GpuMemory] = {}  # by identity
        self._read_at: dict[str, float] = {}  # by identity
        self._looked = asyncio.Event()  # each GPU was read, or is known not to be readable

    def source(self) -> str:
        """Package, library and driver, or why no GPU is read."""
        return self._source

    async def watch(self) -> None:
        """Until cancelled."""
        await Prober(self._poll_seconds, self.take).run()

    async def look(self) -> None:
        """Once each, as far as they answer in time."""
        prober = asyncio.create_task(self.watch())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS_MAX):
                    await self._looked.wait()
        finally:
            prober.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await prober

    def tick(self, now: float) -> None:
        """Old readings are no readings."""
        for identity, memory in self._memories.items():
            device = self._book.device(memory.name)
            age = now - self._read_at.get(identity, 0.0)
            if device is None or device.health != Health.HEALTHY or age <= self._stale_seconds:
                continue
            detail = f"not read for more than {self._stale_seconds:.0f} s"
            self._book.put(replace(device, health=Health.UNKNOWN, detail=detail))

    def take(self, news: GpuNews) -> None:
        """Take in what the prober says."""
        match news:
            case GpuLibrary():
                self._take_library(news)
            case GpusUnavailable():
                self._unavailable(news)
            case GpusListed():
                self._listed(news)
            case GpuRead():
                self._judge(news.identity, gpu.observe, news.reading)
            case GpuSilent(identity=None):
                self._all_silent(news.silence, expected=True)
            case GpuSilent():
                self._judge(news.identity or "", gpu.silent, news.silence)
            case _:
                assert_never(news)
        if isinstance(news, GpusUnavailable) or self._all_seen():
            self._looked.set()

    def _all_seen(self) -> bool:
        return bool(self._memories) and all(
            self._book.device(memory.name) for memory in self._memories.values()
        )

    def _take_library(self, news: GpuLibrary) -> None:
        self._simulated = news.simulated
        self._book.mark_simulated(self.name, simulated=news.simulated)
        self._library = news.text
        self._memories = self._book.recall(self._key(""), _MEMORY) | self._memories

    def _say_source(self, sentence: str, text: str) -> None:
        if text != self._source:
            self._source = text
            _log.info(sentence, extra={"source": text})

    def _unavailable(self, news: GpusUnavailable) -> None:
        self._say_source("No GPU is read.", news.reason)
        self._all_silent(Silence(at=news.at, reason=news.reason), expected=news.expected)

    def _all_silent(self, silence: Silence, *, expected: bool) -> None:
        for identity in list(self._memories):
            self._judge(identity, gpu.silent, silence)
        if expected and not self._memories:
            # There should be GPUs here and nobody knows how many: unknown, not none.
            unknown = Device(name="gpu", kind="gpu", health=Health.UNKNOWN, detail=silence.reason)
            self._book.put(unknown)

    def _listed(self, news: GpusListed) -> None:
        self._say_source("GPUs are read.", self._library)
        self._book.remove("gpu")
        names = gpu.name_gpus(
            {identity: memory.name for identity, memory in self._memories.items()},
            news.identities,
        )
        for identity in gpu.replaced(list(self._memories), news.identities):
            _log.info("A GPU was replaced.", extra={"gpu": identity})
            del self._memories[identity]
            self._book.spool.erase(self._key(identity))
        for identity in news.identities:
            self._memories.setdefault(identity, GpuMemory(name=names[identity]))
            self._book.place(identity.split(" ", 1)[0], names[identity])
        for identity in list(self._memories):
            if identity not in names:
                self._judge(identity, _missing, news)

    def _judge(
        self,
        identity: str,
        judge: Callable[[Subject, GpuMemory, Sample], Judgement[GpuMemory]],
        sample: Sample,
    ) -> None:
        memory = self._memories.get(identity)
        if memory is None:
            return
        subject = self._book.subject(memory.name, identity, simulated=self._simulated)
        judgement = judge(subject, memory, sample)
        if isinstance(sample, GpuReading):
            self._read_at[identity] = sample.at
        if judgement.device is not None:
            device = replace(judgement.device, read_at=self._read_at.get(identity, 0.0))
            judgement = replace(judgement, device=device)
        self._memories[identity] = judgement.memory
        key = self._key(identity) if judgement.memory != memory else ""
        self._book.keep(self.name, subject, judgement, key, _MEMORY)

    def _key(self, identity: str) -> str:
        return (_SIMULATED_KEY if self._simulated else _KEY) + identity


def _missing(subject: Subject, memory: GpuMemory, news: GpusListed) -> Judgement[GpuMemory]:
    return gpu.missing(subject, memory, news.at, len(news.identities))
