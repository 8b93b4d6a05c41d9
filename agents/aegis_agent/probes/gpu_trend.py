"""The trend of one GPU's corrected errors and retired pages, and what it makes of their faults."""

from collections.abc import Mapping
from dataclasses import replace

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis_agent.probes import trend as trends
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.trend import Trend

_PAGES = "pages"
_BLOCK = "ecc "
_LINKS = "xgmi_wafl"  # its errors are faults of their own
_HOUR_SECONDS = 3600.0


def note(
    trend: Trend,
    at: float,
    ecc: tuple[Mapping[str, EccCounts], Mapping[str, EccCounts]],
    pages: tuple[int | None, int | None],
) -> Trend:
    """Count what came between two readings, before and after. A first sight is no rise."""
    before, after = ecc
    added = {
        _BLOCK + block: _risen(before[block].correctable, counts.correctable)
        for block, counts in after.items()
        if block in before and block != _LINKS
    }
    if pages[0] is not None and pages[1] is not None:
        added[_PAGES] = pages[1] - pages[0]
    return trends.note(trend, at, added)


def _risen(before: int, after: int) -> int:
    """A smaller number than before is a counter that began anew."""
    return after - before if after >= before else after


def weigh(
    faults: tuple[Fault, ...], trend: Trend, at: float, pages: int | None, threshold: int | None
) -> tuple[Fault, ...]:
    """Faults with their trend as evidence; many corrected errors in a day are a warning."""
    return tuple(_weigh(fault, trend, at, pages, threshold) for fault in faults)


def _weigh(
    fault: Fault, trend: Trend, at: float, pages: int | None, threshold: int | None
) -> Fault:
    match fault.fault_class:
        case FaultClass.GPU_ECC_CORRECTABLE:
            many = trends.last_day(trend, _blocks(trend), at)
            text = _told_ecc(trend, at)
            if many >= trends.PER_DAY_MAX:
                text = f"{many} within a day, {trends.PER_DAY_MAX} are many; {text}".rstrip("; ")
                fault = replace(fault, severity=Severity.WARNING)
        case FaultClass.GPU_MEMORY_BAD_PAGE:
            text = _told_pages(trend, at, pages, threshold)
        case _:
            return fault
    if not text:
        return fault
    return replace(fault, evidence=(*fault.evidence, Evidence(source="trend", text=text)))


def told(trend: Trend, at: float, pages: int | None, threshold: int | None) -> str:
    """One sentence for the device's page; empty while there is nothing to say.

    Only as fine as an hour, so that it does not change with every reading.
    """
    at -= at % _HOUR_SECONDS
    parts = [_told_pages(trend, at, pages, threshold), _told_ecc(trend, at)]
    return "; ".join(part for part in parts if part)


def _told_ecc(trend: Trend, at: float) -> str:
    blocks = _blocks(trend)
    rate = trends.rate(trend, blocks, at)
    if rate is None:
        return ""
    week = at - trends.WINDOW_SECONDS
    named = [
        name.removeprefix(_BLOCK).upper()
        for name in blocks
        if any(slot.at > week for slot in trend.slots[name])
    ]
    return f"correctable errors in {', '.join(named)}: {trends.told(rate)}"


def _told_pages(trend: Trend, at: float, pages: int | None, threshold: int | None) -> str:
    rate = trends.rate(trend, [_PAGES], at)
    if rate is None:
        return ""
    text = f"retired memory pages: {trends.told(rate)}"
    if pages is None or not threshold:
        return text
    soon = trends.forecast(rate, pages, threshold, f"bad-page threshold ({threshold})")
    return f"{text}; {soon}" if soon else text


def _blocks(trend: Trend) -> list[str]:
    return sorted(name for name in trend.slots if name.startswith(_BLOCK))
