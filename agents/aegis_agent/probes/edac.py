"""Errors of the host's memory, by module, as the kernel's EDAC driver counts them.

    corrected     the first is told at once, a burst after it folded; a warning once its controller
                  has counted many within a day
    uncorrected   told one by one

Counters that are read for the first time in a boot are taken as they are. One that fell was set
back by somebody: what it counts since is new.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis_agent.probes import burst, trend
from aegis_agent.probes.burst import Burst
from aegis_agent.probes.subject import Subject
from aegis_agent.probes.trend import PER_DAY_MAX, Trend


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleErrors:
    """What one place counts: a module, or what a controller cannot pin to one."""

    corrected: int = 0
    uncorrected: int = 0
    label: str = ""  # "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"


@dataclass(frozen=True, slots=True, kw_only=True)
class EdacSample:
    """What was read of all memory controllers."""

    at: float
    places: Mapping[str, ModuleErrors]  # by "mc0/dimm3", or "mc0" for errors of no known module


@dataclass(frozen=True, slots=True, kw_only=True)
class EdacMemory:
    """What is remembered between samples and over restarts of the agent."""

    counts: dict[str, tuple[int, int]] = field(default_factory=dict)  # by place; of one boot
    bursts: dict[str, Burst] = field(default_factory=dict)  # by place
    uncorrected: dict[str, int] = field(default_factory=dict)  # by place, seen in this boot
    trend: Trend = field(default_factory=Trend)  # of corrected errors by place, over boots


def new_boot(memory: EdacMemory) -> EdacMemory:
    """Counters begin anew; the rate of what was corrected goes on."""
    return EdacMemory(trend=memory.trend)


def observe(
    subject: Subject, memory: EdacMemory, sample: EdacSample
) -> tuple[EdacMemory, tuple[Fault, ...]]:
    """The faults that the new counts show."""
    faults = []
    memory = replace(memory, trend=trend.note(memory.trend, sample.at, {}))
    for place in sample.places:
        if place in memory.counts:
            memory, found = _risen(subject, memory, sample, place)
            faults += found
    counts = {
        place: (errors.corrected, errors.uncorrected) for place, errors in sample.places.items()
    }
    return replace(memory, counts=counts), tuple(faults)


def _risen(
    subject: Subject, memory: EdacMemory, sample: EdacSample, place: str
) -> tuple[EdacMemory, list[Fault]]:
    before_corrected, before_uncorrected = memory.counts[place]
    errors = sample.places[place]
    faults = []
    if uncorrected := _rise(before_uncorrected, errors.uncorrected):
        seen = memory.uncorrected.get(place, 0) + uncorrected
        memory = replace(memory, uncorrected=memory.uncorrected | {place: seen})
        evidence = _evidence("uncorrected", place, errors, uncorrected, errors.uncorrected)
        fault_class = FaultClass.HOST_EDAC_UNCORRECTED
        fault = subject.fault(fault_class, Severity.ERROR, sample.at, evidence, count=uncorrected)
        faults.append(replace(fault, details=_details(place, errors)))
    corrected = _rise(before_corrected, errors.corrected)
    told, due = burst.add(memory.bursts.get(place, Burst()), sample.at, corrected)
    if corrected or due:
        memory = replace(
            memory,
            bursts=memory.bursts | {place: told},
            trend=trend.note(memory.trend, sample.at, {place: corrected}),
        )
    if due:
        faults.append(_corrected(subject, memory, sample, place, due))
    return memory, faults


def _rise(before: int, after: int) -> int:
    return after if after < before else after - before


def _corrected(
    subject: Subject, memory: EdacMemory, sample: EdacSample, place: str, due: int
) -> Fault:
    errors, controller = sample.places[place], place.partition("/")[0]
    places = [one for one in memory.trend.slots if one.partition("/")[0] == controller]
    daily = trend.last_day(memory.trend, places, sample.at)
    many = daily > PER_DAY_MAX
    evidence = _evidence("corrected", place, errors, due, errors.corrected)
    text = evidence.text
    if rate := trend.rate(memory.trend, [place], sample.at):
        text += f"; {trend.told(rate)}"
    if many:
        text += f"; {daily} of controller {controller} within a day, more than {PER_DAY_MAX}"
    severity = Severity.WARNING if many else Severity.INFO
    fault = subject.fault(
        FaultClass.HOST_EDAC_CORRECTED,
        severity,
        sample.at,
        replace(evidence, text=text),
        count=due,
    )
    return replace(fault, details=_details(place, errors))


def _evidence(kind: str, place: str, errors: ModuleErrors, count: int, now: int) -> Evidence:
    where = f"module {errors.label or place}" if "/" in place else f"{place}, at no known module"
    return Evidence(
        source=f"EDAC {place}",
        text=f"{count} {kind} memory error{'' if count == 1 else 's'} in {where}",
        before=str(max(now - count, 0)),
        after=str(now),
    )


def _details(place: str, errors: ModuleErrors) -> tuple[tuple[str, str], ...]:
    controller, _, _module = place.partition("/")
    module = (("module", errors.label or place),) if "/" in place else ()
    return (("controller", controller), *module)
