"""What is known of this node's devices: samples in, judged by the probes, kept in the spool.

Each sample is judged against what is remembered of its device; the faults it shows and the new
memory go to the spool in one transaction.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from pydantic import TypeAdapter, ValidationError

from aegis.model.fault import Condition, Evidence, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes import gpu, nic
from aegis_agent.probes.gpu import GpuMemory, GpuReading, Silence
from aegis_agent.probes.nic import LinkMemory, LinkSample
from aegis_agent.probes.subject import Judgement, Memory, Subject
from aegis_agent.sources.prober import (
    GpuLibrary,
    GpuNews,
    GpuRead,
    GpuSilent,
    GpusListed,
    GpusUnavailable,
)
from aegis_agent.spool import Spool

_log = logging.getLogger(__name__)
Sample = TypeVar("Sample")
_GPU = TypeAdapter(GpuMemory)
_LINK = TypeAdapter(LinkMemory)
_GPU_KEY, _SIMULATED_KEY, _LINK_KEY = "gpu ", "simulated-gpu ", "nic "


@dataclass
class Ledger:
    """The devices of this node as they stand."""

    node: str
    boot_id: str
    spool: Spool
    stale_seconds: float  # a GPU not read for so long is unknown
    urge: Callable[[], None]  # called when something must be told at once
    gpu_source: str = ""  # what reads the GPUs, or why nothing does
    _gpu_library: str = ""
    _gpus_simulated: bool = False
    _gpus: dict[str, GpuMemory] = field(default_factory=dict)  # by identity
    _read_at: dict[str, float] = field(default_factory=dict)  # by identity
    _links: dict[str, LinkMemory] = field(default_factory=dict)  # by interface
    _links_simulated: bool = False
    _devices: dict[str, Device] = field(default_factory=dict)  # by name
    _conditions: dict[str, tuple[Condition, ...]] = field(default_factory=dict)  # by device
    _disk_full_at: float = 0.0

    def __post_init__(self) -> None:
        for key, body in self.spool.recall().items():
            if key.startswith(_LINK_KEY) and (link := _recalled(_LINK, key, body)) is not None:
                self._links[key.removeprefix(_LINK_KEY)] = link

    @property
    def simulated(self) -> bool:
        """Whether some of this node's devices are."""
        return self._gpus_simulated or self._links_simulated

    def devices(self) -> tuple[Device, ...]:
        """Every device, GPUs first, in the order of their numbers."""
        return tuple(sorted(self._devices.values(), key=_order))

    def conditions(self) -> tuple[Condition, ...]:
        """What is wrong and lasts."""
        return tuple(
            condition for name in sorted(self._conditions) for condition in self._conditions[name]
        )

    # GPUs

    def all_gpus_seen(self) -> bool:
        """Whether the GPUs are known and each was read, or is known not to be readable."""
        return bool(self._gpus) and all(
            memory.name in self._devices for memory in self._gpus.values()
        )

    def gpu_news(self, news: GpuNews) -> None:
        """Take in what the prober says."""
        match news:
            case GpuLibrary():
                self._library(news)
            case GpusUnavailable():
                self._unavailable(news)
            case GpusListed():
                self._listed(news)
            case GpuRead():
                self._judge_gpu(news.identity, gpu.observe, news.reading)
            case GpuSilent(identity=None):
                self._all_silent(news.silence, expected=True)
            case GpuSilent():
                self._judge_gpu(news.identity or "", gpu.silent, news.silence)
            case _:
                assert_never(news)

    def _library(self, news: GpuLibrary) -> None:
        self._gpus_simulated = news.simulated
        self._gpu_library = news.text
        prefix = self._gpu_key("")
        for key, body in self.spool.recall().items():
            if key.startswith(prefix) and (memory := _recalled(_GPU, key, body)) is not None:
                self._gpus.setdefault(key.removeprefix(prefix), memory)

    def _say_gpu_source(self, sentence: str, text: str) -> None:
        if text != self.gpu_source:
            self.gpu_source = text
            _log.info(sentence, extra={"source": text})

    def _unavailable(self, news: GpusUnavailable) -> None:
        self._say_gpu_source("No GPU is read.", news.reason)
        self._all_silent(Silence(at=news.at, reason=news.reason), expected=news.expected)

    def _all_silent(self, silence: Silence, *, expected: bool) -> None:
        for identity in list(self._gpus):
            self._judge_gpu(identity, gpu.silent, silence)
        if expected and not self._gpus:
            # There should be GPUs here and nobody knows how many: unknown, not none.
            self._devices["gpu"] = Device(
                name="gpu", kind="gpu", health=Health.UNKNOWN, detail=silence.reason
            )
            self.urge()

    def _listed(self, news: GpusListed) -> None:
        self._say_gpu_source("GPUs are read.", self._gpu_library)
        self._devices.pop("gpu", None)
        names = gpu.name_gpus(
            {identity: memory.name for identity, memory in self._gpus.items()}, news.identities
        )
        for identity in gpu.replaced(list(self._gpus), news.identities):
            _log.info("A GPU was replaced.", extra={"gpu": identity})
            del self._gpus[identity]
            self.spool.erase(self._gpu_key(identity))
        for identity in news.identities:
            self._gpus.setdefault(identity, GpuMemory(name=names[identity]))
        for identity in list(self._gpus):
            if identity not in names:
                self._judge_gpu(identity, _missing, news)

    def _judge_gpu(
        self,
        identity: str,
        judge: Callable[[Subject, GpuMemory, Sample], Judgement[GpuMemory]],
        sample: Sample,
    ) -> None:
        memory = self._gpus.get(identity)
        if memory is None:
            return
        subject = self._subject(memory.name, identity, simulated=self._gpus_simulated)
        judgement = judge(subject, memory, sample)
        if isinstance(sample, GpuReading):
            self._read_at[identity] = sample.at
        device = replace(judgement.device, read_at=self._read_at.get(identity, 0.0))
        self._gpus[identity] = judgement.memory
        key = self._gpu_key(identity) if judgement.memory != memory else ""
        self._keep(replace(judgement, device=device), key, _GPU)

    def _gpu_key(self, identity: str) -> str:
        return (_SIMULATED_KEY if self._gpus_simulated else _GPU_KEY) + identity

    # links

    def link_sample(self, interface: str, sample: LinkSample) -> None:
        """Take in what was read of a network port."""
        memory = self._links.get(interface, LinkMemory())
        self._links_simulated = sample.simulated
        subject = self._subject(interface, simulated=sample.simulated)
        judgement = nic.observe(subject, memory, sample)
        self._links[interface] = judgement.memory
        key = _LINK_KEY + interface if judgement.memory != memory else ""
        self._keep(judgement, key, _LINK)

    # all

    def tick(self, now: float) -> None:
        """Time passed: old readings are no readings, and the disk may have room again."""
        for identity, memory in self._gpus.items():
            device = self._devices.get(memory.name)
            age = now - self._read_at.get(identity, 0.0)
            if device is None or device.health != Health.HEALTHY or age <= self.stale_seconds:
                continue
            detail = f"not read for more than {self.stale_seconds:.0f} s"
            self._devices[memory.name] = replace(device, health=Health.UNKNOWN, detail=detail)
            self.urge()
        self.spool.retry()
        self._watch_disk(now)

    def _watch_disk(self, now: float) -> None:
        if bool(self.spool.trouble) == bool(self._disk_full_at):
            return
        self._disk_full_at = now if self.spool.trouble else 0.0
        self._conditions.pop("host", None)
        if self.spool.trouble:
            evidence = Evidence(source="spool", text=self.spool.trouble)
            subject = self._subject("host")
            kind = FaultClass.HOST_DISK_FULL
            self.spool.append([subject.fault(kind, Severity.WARNING, now, evidence)], {})
            self._conditions["host"] = (
                Condition(fault_class=kind, device="host", since=now, evidence=(evidence,)),
            )
        self.urge()

    def _subject(self, device: str, identity: str = "", *, simulated: bool = False) -> Subject:
        return Subject(
            node=self.node,
            device=device,
            boot_id=self.boot_id,
            identity=identity,
            simulated=simulated,
        )

    def _keep(self, judgement: Judgement[Memory], key: str, adapter: TypeAdapter[Memory]) -> None:
        """Faults and memory in one transaction; then tell whoever must know at once."""
        if key or judgement.faults:
            body = adapter.dump_json(judgement.memory).decode()
            self.spool.append(judgement.faults, {key: body} if key else {})
        for fault in judgement.faults:
            _log.warning(
                "A fault was seen.",
                extra={
                    "class": fault.fault_class.value,
                    "severity": fault.severity.value,
                    "device": fault.device,
                    "evidence": "; ".join(evidence.text for evidence in fault.evidence),
                },
            )
        name = judgement.device.name
        before = self._devices.get(name)
        self._devices[name] = judgement.device
        changed = before is None or before.health != judgement.device.health
        if judgement.conditions != self._conditions.get(name, ()):
            changed = True
            self._conditions[name] = judgement.conditions
        if changed or judgement.faults:
            self.urge()


def _recalled(adapter: TypeAdapter[Memory], key: str, body: str) -> Memory | None:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        # Written by another version: the device is seen for the first time again.
        _log.warning(
            "What was remembered of a device cannot be read and starts anew.",
            extra={"device": key, "reason": str(error).splitlines()[0]},
        )
        return None


def _missing(subject: Subject, memory: GpuMemory, news: GpusListed) -> Judgement[GpuMemory]:
    return gpu.missing(subject, memory, news.at, len(news.identities))


def _order(device: Device) -> tuple[str, int, str]:
    number = re.search(r"\d+$", device.name)
    return device.kind, int(number[0]) if number else -1, device.name
