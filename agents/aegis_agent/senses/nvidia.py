"""NVIDIA GPUs through NVML. Sleeps on a node that has none, and costs it nothing."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

from pydantic import TypeAdapter

from aegis.model.node import Device, Health
from aegis_agent.book import Book
from aegis_agent.probes import gpu_names, nvidia
from aegis_agent.probes.nvidia import NvidiaMemory, NvidiaSilence
from aegis_agent.probes.subject import Judgement, Subject
from aegis_agent.settings import Settings
from aegis_agent.sources import nvidia_here
from aegis_agent.sources.gpu_news import (
    DEADLINE_SECONDS,
    GpuIdentified,
    GpuLibrary,
    GpuSilent,
    GpusListed,
    GpusUnavailable,
)
from aegis_agent.sources.nvml_news import (
    NvidiaExcluded,
    NvidiaNews,
    NvidiaRead,
    NvidiaSilent,
    NvidiaXid,
    NvmlTranslator,
)
from aegis_agent.sources.prober import Prober

_log = logging.getLogger(__name__)
_MEMORY = TypeAdapter(NvidiaMemory)
_KEY, _SIMULATED_KEY = "nvidia ", "simulated-nvidia "
_UNNAMED = "nvidia"  # stands for GPUs of which not even the number is known
_BESIDE_AMD = "nv"  # "nvgpu0" where AMD's GPUs have the other names
_LOOK_SECONDS_MAX = 15.0
_LOOK_AGAIN_SECONDS = 30.0  # while a GPU is missing
_WAKE_SECONDS = 60.0  # between two looks for a driver


class NvidiaSense:
    """The NVIDIA GPUs of this node."""

    name = "nvidia"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._book = book
        self._sys_root = settings.sys_root
        # A GPU not read for so long is unknown.
        self._stale_seconds = max(
            3 * settings.poll_seconds, DEADLINE_SECONDS + settings.poll_seconds + 1
        )
        self._source = ""
        self._library = ""
        self._simulated = False
        self._memories: dict[str, NvidiaMemory] = {}  # by identity, as everything below
        self._same: dict[str, str] = {}  # the identity as listed now: as it is remembered
        self._facts: dict[str, tuple[tuple[str, str], ...]] = {}
        self._sensors: dict[str, dict[str, int]] = {}
        self._read_at: dict[str, float] = {}
        self._missing: set[str] = set()
        self._excluded: tuple[str, ...] = ()  # addresses
        self._looked_again_at = 0.0
        self._looked = asyncio.Event()  # each GPU was read, or is known not to be readable
        self._prober = Prober(
            settings.poll_seconds,
            NvmlTranslator(self.take),
            "aegis_agent.sources.nvml",
            *(["--events"] if settings.nvidia_events else []),
        )

    def source(self) -> str:
        """Package, library and driver, or why no GPU is read; empty on a node without them."""
        return self._source

    async def watch(self) -> None:
        """Until cancelled."""
        while not nvidia_here.is_here(self._sys_root):  # noqa: ASYNC110  nobody tells of a driver
            await asyncio.sleep(_WAKE_SECONDS)
        await self._prober.run()

    async def look(self) -> None:
        """Once each, as far as they answer in time."""
        if not nvidia_here.is_here(self._sys_root):
            return
        prober = asyncio.create_task(self._prober.run())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS_MAX):
                    await self._looked.wait()
        finally:
            prober.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await prober

    def tick(self, now: float) -> None:
        """Old readings are no readings; a GPU that is missing may be back."""
        for identity, memory in self._memories.items():
            device = self._book.device(memory.name)
            age = now - self._read_at.get(identity, 0.0)
            if device and device.health == Health.HEALTHY and age > self._stale_seconds:
                detail = f"not read for more than {self._stale_seconds:.0f} s"
                self._book.put(replace(device, health=Health.UNKNOWN, detail=detail))
        if self._missing and now - self._looked_again_at > _LOOK_AGAIN_SECONDS:
            self._looked_again_at = now
            self._prober.look_again()

    def take(self, news: NvidiaNews) -> None:
        """Take in what the prober says."""
        match news:
            case GpuLibrary():
                self._take_library(news)
            case GpusUnavailable():
                self._say_source("No NVIDIA GPU is read.", news.reason)
                self._all_silent(NvidiaSilence(at=news.at, reason=news.reason))
            case GpusListed():
                self._listed(news)
            case GpuIdentified():
                self._facts[self._known(news.identity)] = news.facts
            case NvidiaRead() | NvidiaSilent() | NvidiaXid():
                self._take_one(news)
            case NvidiaExcluded():
                self._excluded = news.addresses
            case GpuSilent():
                old = news.silence
                self._all_silent(NvidiaSilence(at=old.at, reason=old.reason, stalled=old.stalled))
            case _:
                return  # news of AMD's prober
        if isinstance(news, GpusUnavailable) or self._all_seen():
            self._looked.set()

    def _known(self, identity: str) -> str:
        return self._same.get(identity, identity)

    def _all_seen(self) -> bool:
        return bool(self._memories) and all(
            self._book.device(memory.name) for memory in self._memories.values()
        )

    # what there is

    def _take_library(self, news: GpuLibrary) -> None:
        self._simulated = news.simulated
        self._book.mark_simulated(self.name, simulated=news.simulated)
        self._library = news.text
        self._memories = self._book.recall(self._key(""), _MEMORY) | self._memories

    def _say_source(self, sentence: str, text: str) -> None:
        if text != self._source:
            self._source = text
            _log.info(sentence, extra={"source": text})

    def _all_silent(self, silence: NvidiaSilence) -> None:
        for identity in list(self._memories):
            self._judge(identity, nvidia.silent, silence)
        if not self._memories:
            # There should be GPUs here and nobody knows how many: unknown, not none.
            self._put_unknown(silence.reason)

    def _put_unknown(self, reason: str) -> None:
        self._book.put(Device(name=_UNNAMED, kind="gpu", health=Health.UNKNOWN, detail=reason))

    def _listed(self, news: GpusListed) -> None:
        self._say_source("NVIDIA GPUs are read.", self._library)
        self._book.remove(_UNNAMED)
        self._same = gpu_names.recognise(list(self._memories), news.identities)
        for identity, known in self._same.items():
            if known.count(gpu_names.UNKNOWN_WORD) > identity.count(gpu_names.UNKNOWN_WORD):
                self._memories[identity] = self._forget(known)  # now it is known better
                self._same[identity] = identity
        listed = list(self._same.values())
        for identity in gpu_names.replaced(list(self._memories), listed):
            _log.info("A GPU was replaced.", extra={"gpu": identity})
            self._forget(identity)
        absent = self._absent(listed)
        for identity, name in self._names([*listed, *absent]).items():
            self._memories.setdefault(identity, NvidiaMemory(name=name))
            self._book.place(gpu_names.slot(identity), self._memories[identity].name)
        for identity in absent:
            self._judge(identity, nvidia.absent, news.at)
        self._missing = set(self._memories) - set(listed)
        for identity in self._missing - set(absent):
            self._judge(identity, _missing, news)
        if news.hidden > len(self._missing):
            self._put_unknown(f"{news.hidden} more GPUs do not say which they are")

    def _absent(self, listed: list[str]) -> list[str]:
        """GPUs on the bus that NVML does not list, and of which nothing is known."""
        known = {gpu_names.slot(identity) for identity in (*self._memories, *listed)}
        return [
            gpu_names.unidentified(address)
            for address in nvidia_here.addresses(self._sys_root)
            if address not in known and address not in self._excluded
        ]

    def _names(self, listed: list[str]) -> dict[str, str]:
        known = {
            identity: memory.name.removeprefix(_BESIDE_AMD)
            for identity, memory in self._memories.items()
        }
        prefix = _BESIDE_AMD if nvidia_here.shares_with_amd(self._sys_root) else ""
        names = gpu_names.name_gpus(known, listed)
        return {identity: prefix + names[identity] for identity in listed}

    def _forget(self, identity: str) -> NvidiaMemory:
        self._book.spool.erase(self._key(identity))
        return self._memories.pop(identity)

    # what is read of it

    def _take_one(self, news: NvidiaRead | NvidiaSilent | NvidiaXid) -> None:
        match news:
            case NvidiaRead():
                self._read(news)
            case NvidiaSilent():
                self._judge(self._known(news.identity), nvidia.silent, news.silence)
            case NvidiaXid():
                self._take_xid(news)
            case _:
                assert_never(news)

    def _read(self, news: NvidiaRead) -> None:
        identity = self._known(news.identity)
        self._read_at[identity] = news.reading.at
        # Some sensors are read seldom: between, the last value stands.
        sensors = self._sensors.setdefault(identity, {})
        sensors.update(news.reading.sensors)
        self._judge(identity, nvidia.observe, replace(news.reading, sensors=dict(sensors)))

    def _take_xid(self, news: NvidiaXid) -> None:
        identity = self._known(news.identity)
        memory = self._memories.get(identity)
        if memory is not None:
            subject = self._subject(identity, memory)
            self._book.append([nvidia.xid(subject, news.at, news.number)])

    def _judge(
        self, identity: str, judge: Callable[..., Judgement[NvidiaMemory]], sample: Any
    ) -> None:
        memory = self._memories.get(identity)
        if memory is None:
            return
        subject = self._subject(identity, memory)
        judgement = judge(subject, memory, sample)
        if judgement.device is not None:
            device = replace(
                judgement.device,
                read_at=self._read_at.get(identity, 0.0),
                facts=self._facts.get(identity, ()),
            )
            judgement = replace(judgement, device=device)
        self._memories[identity] = judgement.memory
        key = self._key(identity) if judgement.memory != memory else ""
        self._book.keep(self.name, subject, judgement, key, _MEMORY)

    def _subject(self, identity: str, memory: NvidiaMemory) -> Subject:
        return self._book.subject(memory.name, identity, simulated=self._simulated)

    def _key(self, identity: str) -> str:
        return (_SIMULATED_KEY if self._simulated else _KEY) + identity


def _missing(subject: Subject, memory: NvidiaMemory, news: GpusListed) -> Judgement[NvidiaMemory]:
    return nvidia.missing(subject, memory, news.at, len(news.identities))
