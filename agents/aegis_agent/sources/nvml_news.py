"""What the NVML prober says, as news: like that of amdsmi, with NVIDIA's readings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.nvidia import NvidiaReading, NvidiaSilence
from aegis_agent.probes.nvidia_parts import Link, Retired
from aegis_agent.sources.gpu_news import DEADLINE_SECONDS, GpuLibrary, GpuNews, Translator

_DEATHS_STALLED = 3  # in a row: the GPU cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaRead:
    """One GPU was read."""

    identity: str
    reading: NvidiaReading


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaSilent:
    """One GPU was not read."""

    identity: str
    silence: NvidiaSilence


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaXid:
    """The driver told of an Xid."""

    identity: str
    at: float
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaExcluded:
    """GPUs, by address, that someone has told the driver to leave alone."""

    addresses: tuple[str, ...]


NvidiaNews: TypeAlias = GpuNews | NvidiaRead | NvidiaSilent | NvidiaXid | NvidiaExcluded


class NvmlTranslator(Translator):
    """Takes the prober's lines, tells the news."""

    def __init__(self, tell: Callable[[NvidiaNews], None]) -> None:
        super().__init__(tell)
        self._tell_nvidia = tell

    def __call__(self, line: dict[str, Any]) -> None:
        """Take one line."""
        match line["type"]:
            case "library":
                self._tell_nvidia(_library(line))
            case "gpu":
                # What the driver's version is was said with the library.
                self._library = {"driver": line["facts"].get("driver", "")}
                super().__call__(line)
            case "reading":
                self._deaths[line["index"]] = 0
                identity = self._identity(line["index"])
                self._tell_nvidia(NvidiaRead(identity=identity, reading=_read(line)))
            case "excluded":
                self._tell_nvidia(NvidiaExcluded(addresses=tuple(line["addresses"])))
            case "xid":
                identity = self._identity(line["index"])
                news = NvidiaXid(identity=identity, at=line["at"], number=line["number"])
                self._tell_nvidia(news)
            case "stalled" | "died" | "failed" if line["index"] in self._addresses:
                self._one_silent(line)
            case _:
                super().__call__(line)

    def _one_silent(self, line: dict[str, Any]) -> None:
        index, kind = line["index"], line["type"]
        if kind == "died":
            self._deaths[index] += 1
        if index not in self._spoken:
            self._spoken.add(index)
            self._list()
        silence = NvidiaSilence(
            at=line["at"],
            reason=_reason(line),
            stalled=kind == "stalled" or self._deaths[index] >= _DEATHS_STALLED,
            status=line.get("status", 0),
            source=f"NVML {line['call']}" if "call" in line else "NVML",
        )
        self._tell_nvidia(NvidiaSilent(identity=self._identity(index), silence=silence))


def _library(line: dict[str, Any]) -> GpuLibrary:
    kind = "simulated library" if line["simulated"] else "library"
    text = (
        f"nvidia-ml-py {line['package']} over the {kind} {line['path']} "
        f"{line['version'] or 'of unknown version'}, driver {line['driver'] or 'unknown'}"
    )
    return GpuLibrary(text=text, simulated=line["simulated"])


def _read(line: dict[str, Any]) -> NvidiaReading:
    fields: dict[str, int] = line["fields"]
    links = line.get("links")
    sensors = dict(line.get("sensors") or {})
    if "pcie_replays" in fields:
        sensors["pcie_replays"] = fields["pcie_replays"]
    return NvidiaReading(
        at=line["at"],
        errors={
            location: EccCounts(correctable=corrected, uncorrectable=uncorrected)
            for location, (corrected, uncorrected) in line["errors"].items()
        },
        uncorrectable_ever=fields.get("uncorrectable_ever"),
        retired=_retired(fields),
        clocks_event_reasons=line["reasons"],
        recovery_action=fields.get("recovery_action"),
        links=None if links is None else {int(key): _link(told) for key, told in links.items()},
        sensors=sensors,
        failed=line["failed"],
        worked=frozenset(line["worked"]),
        hung=tuple(line["hung"]),
    )


def _retired(fields: dict[str, int]) -> Retired | None:
    names = ("retired_sbe", "retired_dbe", "remapped_correctable", "remapped_uncorrectable")
    if not any(name in fields for name in names):
        return None
    single, double, correctable, uncorrectable = (fields.get(name, 0) for name in names)
    return Retired(
        pages=single + double,
        pages_pending=bool(fields.get("retired_pending")),
        rows=correctable + uncorrectable,
        rows_pending=bool(fields.get("remapped_pending")),
        rows_failed=bool(fields.get("remapped_failure")),
    )


def _link(told: list[int]) -> Link:
    active, replays, recoveries, crc_errors = told
    return Link(active=bool(active), replays=replays, recoveries=recoveries, crc_errors=crc_errors)


def _reason(line: dict[str, Any]) -> str:
    match line["type"]:
        case "stalled" if line["abandoned"]:
            return (
                f"NVML {line['call']} has not answered for {line['seconds']} s and its process "
                "cannot be killed: it is stuck in the kernel, and was abandoned"
            )
        case "stalled":
            return (
                f"NVML {line['call']} did not answer within {DEADLINE_SECONDS:.0f} s; "
                "its process was ended and will be started again"
            )
        case "died":
            return (
                f"the process that reads it died of signal {line['signal']} in NVML "
                f"{line['call']} and will be started again"
            )
        case _:
            return str(line["reason"])
