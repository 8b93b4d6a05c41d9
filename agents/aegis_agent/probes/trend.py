"""How fast errors come that were put right, whether it gets worse, and when a limit is reached.

    counts since the last reading -> slots of six hours, a week of them -> rate, direction, forecast

Errors come in bursts: one bad row of memory gives many at once. So what counts as evidence is the
number of occasions, not of errors, and the range of a rate comes from the spread of the occasions.
With too few of them, or less than a day, nothing is said. Times without the agent count as watched:
what the counters gained meanwhile is noted when they are read again, and what a reboot took from
them is not, so that a rate is too low rather than too high.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

DAY_SECONDS = 86400.0
SLOT_SECONDS = DAY_SECONDS / 4
WINDOW_SECONDS = 7 * DAY_SECONDS
SERIES_MAX = 64  # a GPU has some 20 blocks
# Corrected errors of one device in a day from which people are told. mcelog, the classic accountant
# of host memory, warns of a processor socket at "mem-ce-error-threshold = 100 / 24h"; makers of
# GPUs publish no number.
PER_DAY_MAX = 100
_OCCASIONS_MIN = 3
_OCCASIONS_FEW = 8  # below, a forecast is a guess and says so
_SPREAD = 1.64  # of a normal distribution: nine of ten lie within
_YEAR_DAYS = 365.0


class Direction(StrEnum):
    """Where a rate goes within the week."""

    RISING = "rising"
    STEADY = "steady"
    FALLING = "falling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What came in one quarter of a day."""

    at: float  # its beginning
    added: int = 0
    occasions: int = 0
    squares: int = 0  # of what came at each occasion, summed: its spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """What is remembered of one device. It changes only when something is counted."""

    since: float = 0.0  # when counting began; 0.0: not yet
    slots: Mapping[str, tuple[Slot, ...]] = field(default_factory=dict)  # by series, oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast one series grows."""

    per_day: float
    low: float  # nine times of ten it is between these
    high: float
    days: float  # watched
    occasions: int
    direction: Direction


def note(trend: Trend, at: float, added: Mapping[str, int]) -> Trend:
    """Count what came since the last reading, by series. The first reading begins the count."""
    if not trend.since or trend.since > at:
        trend = replace(trend, since=at)
    grown = {name: number for name, number in added.items() if number > 0}
    if not grown:
        return trend
    slots = dict(trend.slots)
    for name, number in grown.items():
        if name in slots or len(slots) < SERIES_MAX:
            slots[name] = _added(slots.get(name, ()), at, number)
    return replace(trend, slots=slots)


def _added(slots: tuple[Slot, ...], at: float, number: int) -> tuple[Slot, ...]:
    begin = at - at % SLOT_SECONDS
    kept = tuple(slot for slot in slots if slot.at > at - WINDOW_SECONDS)
    last = kept[-1] if kept and kept[-1].at >= begin else Slot(at=begin)
    earlier = kept[:-1] if kept and kept[-1] is last else kept
    grown = replace(
        last,
        added=last.added + number,
        occasions=last.occasions + 1,
        squares=last.squares + number * number,
    )
    return (*earlier, grown)


def last_day(trend: Trend, names: Iterable[str], at: float) -> int:
    """What came within a day, of all these series."""
    return sum(
        slot.added
        for name in names
        for slot in trend.slots.get(name, ())
        if slot.at > at - DAY_SECONDS
    )


def rate(trend: Trend, names: Iterable[str], at: float) -> Rate | None:
    """How fast these series grow together; None with too little to say."""
    begin = max(trend.since, at - WINDOW_SECONDS)
    days = (at - begin) / DAY_SECONDS
    slots = [
        slot
        for name in names
        for slot in trend.slots.get(name, ())
        if slot.at > begin - SLOT_SECONDS
    ]
    occasions = sum(slot.occasions for slot in slots)
    if not trend.since or days < 1 or occasions < _OCCASIONS_MIN:
        return None
    added = sum(slot.added for slot in slots)
    spread = _SPREAD * math.sqrt(sum(slot.squares for slot in slots))
    return Rate(
        per_day=added / days,
        low=max(0.0, added - spread) / days,
        high=(added + spread) / days,
        days=days,
        occasions=occasions,
        direction=_direction(slots, (begin + at) / 2),
    )


def _direction(slots: list[Slot], middle: float) -> Direction:
    """Whether the later half differs from the earlier by more than chance."""
    later = sum(slot.added for slot in slots if slot.at + SLOT_SECONDS / 2 > middle)
    earlier = sum(slot.added for slot in slots) - later
    chance = 2 * math.sqrt(sum(slot.squares for slot in slots))
    if abs(later - earlier) <= chance:
        return Direction.STEADY
    return Direction.RISING if later > earlier else Direction.FALLING


def told(rate: Rate) -> str:
    """The rate in words: "40 a day over 6 days, rising"."""
    days = f"{rate.days:.0f} days" if rate.days >= 1.5 else "a day"
    direction = "" if rate.direction is Direction.STEADY else f", {rate.direction}"
    return f"{_number(rate.per_day)} a day over {days}{direction}"


def forecast(rate: Rate, level: int, limit: int, what: str) -> str:
    """When `what` is reached: "bad-page threshold in about 9 days at this rate (6 to 17)"."""
    left = limit - level
    if left <= 0 or not rate.per_day:
        return ""
    days = left / rate.per_day
    if days > _YEAR_DAYS:
        return f"{what} not within a year at this rate"
    soonest = _number(left / rate.high)
    range_told = f"{soonest} to {_number(left / rate.low)}" if rate.low else f"{soonest} or more"
    guess = ", a guess from few events" if rate.occasions < _OCCASIONS_FEW else ""
    unit = "day" if _number(days) == "1" else "days"
    return f"{what} in about {_number(days)} {unit} at this rate ({range_told}{guess})"


def _number(value: float) -> str:
    """Two digits are all that such a number holds."""
    if value < 3:
        return f"{value:.2g}"
    digits = len(str(round(value))) - 2
    return str(round(value, -digits) if digits > 0 else round(value)).removesuffix(".0")
