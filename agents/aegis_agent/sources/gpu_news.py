"""What the GPU prober says, as news: its lines know GPUs by number, the agent by identity."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from aegis_agent.probes.cper_records import CperReading
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import GpuReading, Silence
from aegis_agent.probes.gpu_names import unidentified
from aegis_agent.probes.gpu_survey import GpuSurvey
from aegis_agent.sources.gpu_cper import reading

DEADLINE_SECONDS = 2.0  # of one call
_DEATHS_STALLED = 3  # in a row: the GPU cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLibrary:
    """What reads the GPUs."""

    text: str  # one sentence: package, library, driver, with their versions
    simulated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusUnavailable:
    """No GPU can be read, and why. `expected` where there should be some."""

    at: float
    reason: str
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusListed:
    """All GPUs in amdsmi's order, each as "BDF UUID serial"; told again when more is known."""

    at: float
    identities: tuple[str, ...]
    hidden: int = 0  # so many more do not say where they are


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentified:
    """What one GPU is."""

    identity: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRead:
    """One GPU was read."""

    identity: str
    reading: GpuReading
    vram_used_mb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSurveyed:
    """One GPU was looked at slowly."""

    identity: str
    survey: GpuSurvey


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecorded:
    """One error record of a GPU was read, not for the first time perhaps."""

    identity: str
    reading: CperReading


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecordsRead:
    """One GPU's error records were looked for."""

    identity: str
    status: int  # of the call; 0 where it succeeded
    found: Mapping[str, int]  # so far, by age


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSilent:
    """One GPU was not read; without an identity: none of them."""

    identity: str | None
    silence: Silence


GpuNews: TypeAlias = (
    GpuLibrary
    | GpusUnavailable
    | GpusListed
    | GpuIdentified
    | GpuRead
    | GpuRecorded
    | GpuRecordsRead
    | GpuSurveyed
    | GpuSilent
)


class Translator:
    """Takes the prober's lines, tells the news."""

    def __init__(self, tell: Callable[[GpuNews], None]) -> None:
        self._tell = tell
        self._library: dict[str, Any] = {}
        self._addresses: dict[int, str] = {}  # of the GPUs that are listed
        self._hidden = 0
        self._identities: dict[int, str] = {}
        self._spoken: set[int] = set()  # have said what they are, or could not
        self._deaths: Counter[int] = Counter()  # in a row, by number
        self._unavailable = False  # and it was said why

    def __call__(self, line: dict[str, Any]) -> None:
        """Take one line."""
        match line["type"]:
            case "library":
                self._library = line
                self._tell(_library(line))
            case "unavailable":
                self._unavailable = True
                self._tell(
                    GpusUnavailable(at=time.time(), reason=line["reason"], expected=line["gpus"])
                )
            case "found":
                self._unavailable = False
                self._addresses = {int(index): bdf for index, bdf in line["addresses"].items()}
                self._hidden = line["hidden"]
                self._list()
            case "gpu":
                self._identified(line)
            case "reading":
                self._deaths[line["index"]] = 0
                identity = self._identity(line["index"])
                used = line.get("vram_used_mb")
                self._tell(GpuRead(identity=identity, reading=_read(line), vram_used_mb=used))
            case "survey":
                identity = self._identity(line["index"])
                self._tell(GpuSurveyed(identity=identity, survey=_survey(line)))
            case "record":
                identity = self._identity(line["index"])
                self._tell(GpuRecorded(identity=identity, reading=reading(line)))
            case "records":
                identity = self._identity(line["index"])
                status, found = line["status"], line["found"]
                self._tell(GpuRecordsRead(identity=identity, status=status, found=found))
            case "stalled" | "died" | "failed":
                self._silent(line)

    def ended(self, reason: str) -> bool:
        """The prober is gone: nothing is read until the next one. True if it had said why."""
        said, self._unavailable = self._unavailable, False
        self._identities.clear()
        self._addresses.clear()
        self._spoken.clear()
        if not said:
            silence = Silence(at=time.time(), reason=f"the GPU prober ended: {reason}")
            self._tell(GpuSilent(identity=None, silence=silence))
        return said

    def _identity(self, index: int) -> str:
        return self._identities.get(index) or unidentified(self._addresses.get(index, ""))

    def _list(self) -> None:
        """Once each has spoken: one that hangs must not make the others wait longer than that."""
        if self._addresses.keys() <= self._spoken:
            identities = tuple(self._identity(index) for index in self._addresses)
            self._tell(GpusListed(at=time.time(), identities=identities, hidden=self._hidden))

    def _identified(self, line: dict[str, Any]) -> None:
        index, facts = line["index"], line["facts"]
        identity = " ".join((line["bdf"], line["uuid"], line["serial"]))
        if "driver" in facts and "driver" not in self._library:
            self._library["driver"] = facts["driver"]
            self._tell(_library(self._library))
        if index not in self._spoken or self._identities.get(index) != identity:
            self._spoken.add(index)
            self._identities[index] = identity
            self._list()
        self._tell(GpuIdentified(identity=identity, facts=tuple(facts.items())))

    def _silent(self, line: dict[str, Any]) -> None:
        index, kind = line["index"], line["type"]
        stalled = kind == "stalled"
        if kind == "died":
            self._deaths[index] += 1
            stalled = self._deaths[index] >= _DEATHS_STALLED
        silence = Silence(
            at=line["at"],
            reason=_reason(line),
            stalled=stalled,
            source=f"amdsmi {line['call']}" if "call" in line else "amdsmi",
        )
        if index in self._addresses and index not in self._spoken:
            self._spoken.add(index)
            self._list()
        known = index in self._addresses
        self._tell(GpuSilent(identity=self._identity(index) if known else None, silence=silence))


def _library(line: dict[str, Any]) -> GpuLibrary:
    kind = "simulated library" if line["simulated"] else "library"
    text = (
        f"amdsmi {line['package']} ({line['package_path']}) over the {kind} {line['path']} "
        f"{line['version']}, driver {line.get('driver', 'unknown')}"
    )
    if line["warning"]:
        text += f"; {line['warning']}"
    return GpuLibrary(text=text, simulated=line["simulated"])


def _read(line: dict[str, Any]) -> GpuReading:
    counts = {
        block: EccCounts(correctable=correctable, uncorrectable=uncorrectable, deferred=deferred)
        for block, (correctable, uncorrectable, deferred) in line["ecc"].items()
    }
    worked = {f"ecc_count({block})" for block in counts if block != "all"}
    return GpuReading(
        at=line["at"],
        ecc=counts,
        failed=line["failed"],
        worked=frozenset(worked | {"vram_usage"} if line["vram"] else worked),
        hung=tuple(line["hung"]),
    )


def _survey(line: dict[str, Any]) -> GpuSurvey:
    return GpuSurvey(
        at=line["at"],
        failed=line["failed"],
        bad_pages=line["pages"],
        bad_page_threshold=line["threshold"],
        pcie=line["pcie"],
        temperatures=line["temperatures"],
        throttled=line["throttled"],
        power_w=line["power_w"],
        links=line["links"],
        processes=line["processes"],
        holders=tuple((pid, name) for pid, name in line["holders"]),
    )


def _reason(line: dict[str, Any]) -> str:
    match line["type"]:
        case "stalled" if line["abandoned"]:
            return (
                f"amdsmi {line['call']} has not answered for {line['seconds']} s and its process "
                "cannot be killed: it is stuck in the kernel, and was abandoned"
            )
        case "stalled":
            return (
                f"amdsmi {line['call']} did not answer within {DEADLINE_SECONDS:.0f} s; "
                "its process was ended and will be started again"
            )
        case "died":
            return (
                f"the process that reads it died of signal {line['signal']} in amdsmi "
                f"{line['call']} and will be started again"
            )
        case _:
            return str(line["reason"])
