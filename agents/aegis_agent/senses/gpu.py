"""GPUs through amdsmi: what the prober says, judged and remembered by identity."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, assert_never

from pydantic import TypeAdapter

from aegis.model.node import Device, Health
from aegis_agent.book import Book
from aegis_agent.probes import gpu, gpu_names, gpu_survey
from aegis_agent.probes.gpu import GpuMemory, Silence
from aegis_agent.probes.gpu_survey import GpuSurvey
from aegis_agent.probes.subject import Judgement, Subject
from aegis_agent.senses.gpu_cper import CperDesk
from aegis_agent.settings import Settings
from aegis_agent.sources.gpu_news import (
    DEADLINE_SECONDS,
    GpuIdentified,
    GpuLibrary,
    GpuNews,
    GpuRead,
    GpuRecorded,
    GpuRecordsRead,
    GpuSilent,
    GpusListed,
    GpusUnavailable,
    GpuSurveyed,
    Translator,
)
from aegis_agent.sources.prober import Prober, slow_seconds

_log = logging.getLogger(__name__)
Sample = TypeVar("Sample")
_MEMORY = TypeAdapter(GpuMemory)
_KEY, _SIMULATED_KEY = "gpu ", "simulated-gpu "
_LOOK_SECONDS_MAX = 15.0
_LOOKS_MIN = 2  # heat and links are judged by what changed, or did not, between two


class GpuSense:
    """The GPUs of this node."""

    name = "gpu"

    def __init__(self, settings: Settings, book: Book) -> None:
        self._book = book
        # A GPU not read for so long is unknown.
        self._stale_seconds = max(
            3 * settings.poll_seconds, DEADLINE_SECONDS + settings.poll_seconds + 1
        )
        self._look_again_seconds = 3 * slow_seconds(settings.poll_seconds)  # while one is missing
        self._survey_seconds_max = 3 * slow_seconds(settings.poll_seconds) + DEADLINE_SECONDS
        self._source = ""
        self._library = ""
        self._simulated = False
        self._memories: dict[str, GpuMemory] = {}  # by identity, as everything below
        self._same: dict[str, str] = {}  # the identity as listed now: as it is remembered
        self._devices: dict[str, Device] = {}  # as they were put into the book
        self._facts: dict[str, tuple[tuple[str, str], ...]] = {}
        self._vram_used_mb: dict[str, int] = {}
        self._read_at: dict[str, float] = {}
        self._surveys: dict[str, GpuSurvey] = {}  # that are not too old
        self._looks: Counter[str] = Counter()  # surveys so far
        self._missing = False  # a GPU is not listed, or does not say which it is
        self._resets: dict[str, float] = {}  # until when: later ones are news
        self._looked_again_at = 0.0
        self._looked = asyncio.Event()  # each GPU was read, or is known not to be readable
        self._records = CperDesk(book)
        self._prober = Prober(settings.poll_seconds, Translator(self.take))

    def source(self) -> str:
        """Package, library and driver, or why no GPU is read; and why no error records are."""
        return "; ".join(filter(None, (self._source, self._records.trouble())))

    async def watch(self) -> None:
        """Until cancelled."""
        await self._prober.run()

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
        """Old readings are no readings; a GPU that is missing may be back."""
        for identity, memory in self._memories.items():
            device = self._devices.get(identity)
            age = now - self._read_at.get(identity, 0.0)
            if device and device.health == Health.HEALTHY and age > self._stale_seconds:
                detail = f"not read for more than {self._stale_seconds:.0f} s"
                self._put(identity, replace(device, health=Health.UNKNOWN, detail=detail))
            survey = self._surveys.get(identity)
            if survey and now - survey.at > self._survey_seconds_max:
                del self._surveys[identity]
                self._book.set_counters(self.name, memory.name, {})
        if self._missing and now - self._looked_again_at > self._look_again_seconds:
            self._looked_again_at = now
            self._prober.look_again()

    def take(self, news: GpuNews) -> None:
        """Take in what the prober says."""
        match news:
            case GpuLibrary():
                self._take_library(news)
            case GpusUnavailable():
                self._unavailable(news)
            case GpusListed():
                self._listed(news)
            case GpuIdentified():
                self._facts[self._known(news.identity)] = news.facts
            case GpuRead():
                self._read(news)
            case GpuRecorded() | GpuRecordsRead():
                self._recorded(news)
            case GpuSurveyed():
                self._surveyed(news)
            case GpuSilent():
                self._silenced(news)
            case _:
                assert_never(news)
        if not self._looked.is_set() and self._is_enough(news):
            self._looked.set()

    def _known(self, identity: str) -> str:
        return self._same.get(identity, identity)

    def _is_enough(self, news: GpuNews) -> bool:
        all_seen = bool(self._memories) and all(map(self._is_seen, self._memories))
        return all_seen or isinstance(news, GpusUnavailable)

    def _is_seen(self, identity: str) -> bool:
        device = self._book.device(self._memories[identity].name)
        if device is None:
            return False
        return device.health != Health.HEALTHY or self._looks[identity] >= _LOOKS_MIN

    # what there is

    def _take_library(self, news: GpuLibrary) -> None:
        self._simulated = news.simulated
        self._book.mark_simulated(self.name, simulated=news.simulated)
        self._library = news.text
        if self._same:  # it is told again with the driver's version
            self._say_source("GPUs are read.", news.text)
        self._memories = self._book.recall(self._key(""), _MEMORY) | self._memories
        self._records.recall(simulated=news.simulated)

    def _say_source(self, sentence: str, text: str) -> None:
        if text != self._source:
            self._source = text
            _log.info(sentence, extra={"source": text})

    def _unavailable(self, news: GpusUnavailable) -> None:
        self._say_source("No GPU is read.", news.reason)
        self._all_silent(Silence(at=news.at, reason=news.reason), expected=news.expected)

    def _all_silent(self, silence: Silence, *, expected: bool) -> None:
        for identity in list(self._memories):
            self._silent(identity, silence)
        if expected and not self._memories:
            # There should be GPUs here and nobody knows how many: unknown, not none.
            self._put_unknown(silence.reason)

    def _put_unknown(self, reason: str) -> None:
        self._book.put(Device(name="gpu", kind="gpu", health=Health.UNKNOWN, detail=reason))

    def _listed(self, news: GpusListed) -> None:
        self._say_source("GPUs are read.", self._library)
        self._book.remove("gpu")
        self._same = gpu_names.recognise(list(self._memories), news.identities)
        for identity, known in self._same.items():
            if gpu_names.is_better(identity, known):
                self._memories[identity] = self._forget(known)  # now it is known better
                self._same[identity] = identity
        listed = list(self._same.values())
        names = gpu_names.name_gpus(
            {identity: memory.name for identity, memory in self._memories.items()}, listed
        )
        for identity in gpu_names.replaced(list(self._memories), listed):
            _log.info("A GPU was replaced.", extra={"gpu": identity})
            self._forget(identity)
        for identity in listed:
            self._memories.setdefault(identity, GpuMemory(name=names[identity]))
            self._book.place(gpu_names.slot(identity), names[identity])
        self._find_missing(news, set(self._memories) - set(listed))

    def _forget(self, identity: str) -> GpuMemory:
        self._book.spool.erase(self._key(identity))
        self._records.forget(identity)
        self._devices.pop(identity, None)
        return self._memories.pop(identity)

    def _find_missing(self, news: GpusListed, missing: set[str]) -> None:
        """One of those that hide may be one that is missing: then nothing is known of it."""
        self._missing = bool(missing or news.hidden)
        count = len(news.identities) + news.hidden
        reason = f"{news.hidden} of {count} GPUs do not say which they are"
        for identity in missing:
            if news.hidden:
                silence = Silence(at=news.at, reason=reason, stalled=True)
                self._silent(identity, silence)
            else:
                self._judge(identity, _missing, news)
        if news.hidden > len(missing):
            self._put_unknown(reason)

    # what is read of it

    def _read(self, news: GpuRead) -> None:
        identity = self._known(news.identity)
        memory = self._memories.get(identity)
        if memory is None:
            return
        reset_at = self._book.reset_at.get(memory.name, 0.0)
        if self._resets.get(identity, 0.0) < reset_at < news.reading.at:
            self._resets[identity] = reset_at
            self._memories[identity] = gpu.was_reset(memory)
        self._read_at[identity] = news.reading.at
        if news.vram_used_mb is not None:
            self._vram_used_mb[identity] = news.vram_used_mb
        self._judge(identity, gpu.observe, news.reading)

    def _silenced(self, news: GpuSilent) -> None:
        if news.identity is None:
            self._all_silent(news.silence, expected=True)
        else:
            self._silent(self._known(news.identity), news.silence)

    def _silent(self, identity: str, silence: Silence) -> None:
        self._judge(identity, gpu.silent, silence)

    def _recorded(self, news: GpuRecorded | GpuRecordsRead) -> None:
        identity = self._known(news.identity)
        memory = self._memories.get(identity)
        if memory is None:
            return
        if isinstance(news, GpuRecorded):
            self._records.record(self._subject(identity, memory), news.reading)
        else:
            self._records.looked(memory.name, news.status, news.found)

    def _surveyed(self, news: GpuSurveyed) -> None:
        identity, survey = self._known(news.identity), news.survey
        memory = self._memories.get(identity)
        if memory is None:
            return
        subject = self._subject(identity, memory)
        judgement = gpu.surveyed(subject, memory, survey)
        self._memories[identity] = judgement.memory
        key = self._key(identity) if judgement.memory != memory else ""
        self._book.keep(self.name, subject, judgement, key, _MEMORY)
        counters = gpu_survey.counters(survey)
        if identity in self._vram_used_mb:
            counters["vram_used_mb"] = self._vram_used_mb[identity]
        self._book.set_counters(self.name, memory.name, counters)
        self._surveys[identity] = survey
        self._looks[identity] += 1

    def _judge(
        self,
        identity: str,
        judge: Callable[..., Judgement[GpuMemory]],
        sample: Sample,
    ) -> None:
        memory = self._memories.get(identity)
        if memory is None:
            return
        resetting = memory.name in self._book.resetting
        subject = self._subject(identity, memory)
        judgement = judge(subject, memory, sample, resetting=resetting)
        if judgement.device is not None:
            device = replace(
                judgement.device,
                read_at=self._read_at.get(identity, 0.0),
                facts=(*self._facts.get(identity, ()), *self._held_by(identity)),
            )
            self._devices[identity] = device
            judgement = replace(judgement, device=device)
        self._memories[identity] = judgement.memory
        key = self._key(identity) if judgement.memory != memory else ""
        self._book.keep(self.name, subject, judgement, key, _MEMORY)

    def _held_by(self, identity: str) -> tuple[tuple[str, str], ...]:
        survey = self._surveys.get(identity)
        held = gpu_survey.held_by(survey) if survey else ""
        return (("held_by", held),) if held else ()

    def _put(self, identity: str, device: Device) -> None:
        self._devices[identity] = device
        self._book.put(device)

    def _subject(self, identity: str, memory: GpuMemory) -> Subject:
        return self._book.subject(memory.name, identity, simulated=self._simulated)

    def _key(self, identity: str) -> str:
        return (_SIMULATED_KEY if self._simulated else _KEY) + identity


def _missing(
    subject: Subject, memory: GpuMemory, news: GpusListed, *, resetting: bool
) -> Judgement[GpuMemory]:
    return gpu.missing(subject, memory, news.at, len(news.identities), resetting=resetting)
