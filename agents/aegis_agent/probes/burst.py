"""Small errors come in bursts: the first is told at once, what follows is folded and counted."""

from dataclasses import dataclass, replace

FOLD_SECONDS = 300.0  # while errors keep coming, they are told together, so often
_HOUR_SECONDS = 3600
_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """What is remembered of one kind of small error of one device."""

    told_at: float = 0.0
    held: int = 0  # counted, and not told yet
    hours: tuple[tuple[int, int], ...] = ()  # (hour since the epoch, errors in it), the last 24


def add(burst: Burst, at: float, risen: int) -> tuple[Burst, int]:
    """Count errors; how many are to be told now. Called at each reading: what is held is due later.

    A clock that went back must not hold errors for ever: then they are told at once.
    """
    if risen:
        burst = replace(burst, held=burst.held + risen, hours=_counted(burst.hours, at, risen))
    due = burst.held > 0 and not 0 <= at - burst.told_at < FOLD_SECONDS
    if not due:
        return burst, 0
    return replace(burst, told_at=at, held=0), burst.held


def within(burst: Burst, at: float, hours: int) -> int:
    """Errors of the last hours, by the clock's full hours."""
    first = int(at // _HOUR_SECONDS) - hours + 1
    return sum(count for hour, count in burst.hours if hour >= first)


def _counted(
    hours: tuple[tuple[int, int], ...], at: float, risen: int
) -> tuple[tuple[int, int], ...]:
    now = int(at // _HOUR_SECONDS)
    counts = {hour: count for hour, count in hours if now - _HOURS < hour <= now}
    counts[now] = counts.get(now, 0) + risen
    return tuple(sorted(counts.items()))
