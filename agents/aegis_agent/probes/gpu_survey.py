"""What changes slowly about a GPU: its PCIe link, its heat, its links to the other GPUs.

    narrower or slower than it can be   pcie.link.degraded, as long as it is
    recoveries and NAKs in an hour      pcie.link.degraded, until an hour went without
    throttled by heat, or too hot       gpu.thermal.throttle, until two looks were cool
    an XGMI link is down                gpu.xgmi.error, as long as it is

All are warnings: the GPU works. That it is throttled for its power limit is normal. A value that
was not read changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.subject import Subject

DEGRADED_LOOKS = 2  # in a row: a link trains anew after a reset
CALM_LOOKS = 2
THROTTLED_PERCENT_MIN = 1.0  # of the time
LINK_ERRORS_MAX = 100  # in the window
LINK_WINDOW_SECONDS = 3600.0
_LINK_ERRORS = {"l0_recovery": "L0 recoveries", "nak_sent": "NAKs sent", "nak_received": "NAKs"}
_HEAT = {
    "socket": "the socket's temperature",
    "hbm": "the memory's temperature",
    "vr": "its voltage regulators' temperature",
    "prochot": "PROCHOT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSurvey:
    """What one slow look at one GPU gave; what was not readable is not there, or None."""

    at: float
    failed: Mapping[str, int] = field(default_factory=dict)  # calls that failed, and their status
    bad_pages: int | None = None
    bad_page_threshold: int | None = None
    pcie: Mapping[str, int] = field(default_factory=dict)  # width, max_width, nak_sent, …
    temperatures: Mapping[str, int] = field(default_factory=dict)  # hotspot, hotspot_critical, …
    throttled: Mapping[str, float] = field(default_factory=dict)  # per cent of the time, by reason
    power_w: int | None = None
    links: str = ""  # XGMI: U up, D down, X disabled
    processes: int | None = None
    holders: tuple[tuple[int, str], ...] = ()  # the first of them: pid and name


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """Something that was seen and is not over."""

    since: float = 0.0  # 0: nothing
    looks: int = 0  # in a row that showed it; once it is there, that did not
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyMemory:
    """What is remembered between surveys."""

    link: Lasting = field(default_factory=Lasting)
    errors: Lasting = field(default_factory=Lasting)
    heat: Lasting = field(default_factory=Lasting)
    xgmi: Lasting = field(default_factory=Lasting)
    window_at: float = 0.0  # when the errors of the PCIe link began to be counted
    window: Mapping[str, int] = field(default_factory=dict)  # what the counters were then


_Seen: TypeAlias = "tuple[Evidence, dict[str, str]] | None"


def observe(
    subject: Subject, memory: SurveyMemory, survey: GpuSurvey
) -> tuple[SurveyMemory, tuple[Fault, ...]]:
    """Judge one survey: the new memory, and the faults it shows."""
    degraded, hot, down = _degraded(survey), _hot(survey), _links_down(survey)
    counted, noisy = _count_errors(memory, survey)
    after = replace(
        counted,
        link=_last(memory.link, survey.at, degraded, DEGRADED_LOOKS)
        if _knows_link(survey)
        else memory.link,
        heat=_last(memory.heat, survey.at, hot, 1, CALM_LOOKS)
        if survey.throttled or survey.temperatures
        else memory.heat,
        xgmi=_last(memory.xgmi, survey.at, down, DEGRADED_LOOKS) if survey.links else memory.xgmi,
    )
    edges = (
        (FaultClass.PCIE_LINK_DEGRADED, memory.link, after.link, degraded),
        (FaultClass.PCIE_LINK_DEGRADED, memory.errors, after.errors, noisy),
        (FaultClass.GPU_THERMAL_THROTTLE, memory.heat, after.heat, hot),
        (FaultClass.GPU_XGMI_ERROR, memory.xgmi, after.xgmi, down),
    )
    return after, tuple(
        subject.fault(kind, Severity.WARNING, survey.at, seen[0], details=seen[1])
        for kind, was, now, seen in edges
        if now.since and not was.since and seen is not None
    )


def lasting(subject: Subject, memory: SurveyMemory) -> tuple[Condition, ...]:
    """What is wrong and lasts."""
    link = min((one.since for one in (memory.link, memory.errors) if one.since), default=0.0)
    found = (
        (FaultClass.PCIE_LINK_DEGRADED, link, memory.link.evidence + memory.errors.evidence),
        (FaultClass.GPU_THERMAL_THROTTLE, memory.heat.since, memory.heat.evidence),
        (FaultClass.GPU_XGMI_ERROR, memory.xgmi.since, memory.xgmi.evidence),
    )
    return tuple(
        condition
        for kind, since, evidence in found
        for condition in subject.conditions(evidence, {kind: since}, Severity.WARNING)
    )


def told(memory: SurveyMemory) -> str:
    """The same in words."""
    seen = (memory.link, memory.errors, memory.heat, memory.xgmi)
    return "; ".join(one.evidence[0].text for one in seen if one.since)


def counters(survey: GpuSurvey) -> dict[str, int]:
    """What a report shows of it; `surveyed_at` says how old it is."""
    values: dict[str, float | None] = {
        "temp_hotspot_c": survey.temperatures.get("hotspot"),
        "temp_memory_c": survey.temperatures.get("memory"),
        "power_w": survey.power_w,
        "throttled_power_percent": survey.throttled.get("power"),
        "throttled_heat_percent": max(
            (survey.throttled[name] for name in _HEAT if name in survey.throttled), default=None
        ),
        "processes": survey.processes,
        "pcie_width": survey.pcie.get("width"),
        "pcie_speed_mts": survey.pcie.get("speed"),
        "pcie_replays": survey.pcie.get("replay"),
        "pcie_l0_recoveries": survey.pcie.get("l0_recovery"),
        "pcie_naks_sent": survey.pcie.get("nak_sent"),
        "pcie_naks_received": survey.pcie.get("nak_received"),
        "xgmi_links_up": survey.links.count("U") if survey.links else None,
        "surveyed_at": survey.at,
    }
    return {name: round(value) for name, value in values.items() if value is not None}


def held_by(survey: GpuSurvey) -> str:
    """The processes that hold the GPU: "python3 (4711), python3 (4712)"."""
    told = ", ".join(f"{name or '?'} ({pid})" for pid, name in survey.holders)
    more = (survey.processes or 0) - len(survey.holders)
    return f"{told} and {more} more" if more > 0 else told


def _last(before: Lasting, at: float, seen: _Seen, looks: int, calm_looks: int = 1) -> Lasting:
    """It begins once it was seen in so many looks in a row, and ends after so many without."""
    if seen is None:
        calm = before.looks + 1
        return replace(before, looks=calm) if before.since and calm < calm_looks else Lasting()
    if before.since:
        return replace(before, looks=0)
    begun = before.looks + 1 >= looks
    return Lasting(since=at, evidence=(seen[0],)) if begun else Lasting(looks=before.looks + 1)


# the PCIe link


def _knows_link(survey: GpuSurvey) -> bool:
    return {"width", "max_width"} <= set(survey.pcie) or {"speed", "max_speed"} <= set(survey.pcie)


def _degraded(survey: GpuSurvey) -> _Seen:
    pcie = survey.pcie
    width, speed = pcie.get("width", 0), pcie.get("speed", 0)
    width_max, speed_max = pcie.get("max_width", 0), pcie.get("max_speed", 0)
    narrow = 0 < width < width_max
    # A card without work may slow its link down to save power.
    slow = 0 < speed < speed_max and survey.processes != 0
    if not (narrow or slow):
        return None
    now, best = _link(width, speed), _link(width_max, speed_max)
    evidence = Evidence(
        source="amdsmi pcie_info",
        text=f"its PCIe link runs at {now}, it can do {best}",
        before=best,
        after=now,
    )
    details = {"width": str(width), "max_width": str(width_max)}
    return evidence, details | {"speed_mts": str(speed), "max_speed_mts": str(speed_max)}


def _link(width: int, speed: int) -> str:
    return f"x{width} at {speed / 1000:g} GT/s"


def _count_errors(memory: SurveyMemory, survey: GpuSurvey) -> tuple[SurveyMemory, _Seen]:
    """Within a window of time. A counter that fell was reset, and counts from there."""
    values = {name: survey.pcie[name] for name in _LINK_ERRORS if name in survey.pcie}
    if not values:
        return memory, None
    risen = {name: values[name] - memory.window.get(name, values[name]) for name in values}
    anew = replace(memory, window=values, window_at=survey.at)
    if not memory.window or min(risen.values()) < 0:
        return anew, None
    worst = max(risen, key=lambda name: risen[name])
    over = survey.at - memory.window_at >= LINK_WINDOW_SECONDS
    if risen[worst] <= LINK_ERRORS_MAX:
        return (replace(anew, errors=Lasting()) if over else memory), None
    minutes = max(1.0, (survey.at - memory.window_at) / 60)
    evidence = Evidence(
        source="amdsmi pcie_info",
        text=f"{risen[worst]} {_LINK_ERRORS[worst]} on its PCIe link within {minutes:.0f} min",
        before=str(memory.window[worst]),
        after=str(values[worst]),
    )
    began = memory.errors if memory.errors.since else Lasting(since=survey.at, evidence=(evidence,))
    seen = evidence, {"counter": worst, "errors": str(risen[worst])}
    return replace(anew if over else memory, errors=began), seen


# heat, and the links to the other GPUs


def _hot(survey: GpuSurvey) -> _Seen:
    heat = {name: survey.throttled[name] for name in _HEAT if name in survey.throttled}
    worst = max(heat, key=lambda name: heat[name], default="")
    if worst and heat[worst] >= THROTTLED_PERCENT_MIN:
        evidence = Evidence(
            source="amdsmi violation_status",
            text=f"throttled by {_HEAT[worst]} for {heat[worst]:.0f} % of the time",
            after=f"{heat[worst]:.1f} %",
        )
        return evidence, {"reason": worst, "percent": f"{heat[worst]:.1f}"}
    for place in ("hotspot", "memory"):
        celsius = survey.temperatures.get(place, 0)
        limit = survey.temperatures.get(f"{place}_critical", 0)
        if limit and celsius >= limit:
            evidence = Evidence(
                source="amdsmi temp_metric",
                text=f"its {place} is at {celsius} °C, {limit} °C is critical",
                after=str(celsius),
            )
            return evidence, {"reason": place, "celsius": str(celsius), "limit": str(limit)}
    return None


def _links_down(survey: GpuSurvey) -> _Seen:
    """Where all are down there is no hive."""
    down = [number for number, state in enumerate(survey.links) if state == "D"]
    if not down or "U" not in survey.links:
        return None
    names = ", ".join(map(str, down))
    evidence = Evidence(
        source="amdsmi xgmi_link_status",
        text=f"{len(down)} of {len(survey.links)} XGMI links are down ({names})",
        after=survey.links,
    )
    return evidence, {"links": names}
