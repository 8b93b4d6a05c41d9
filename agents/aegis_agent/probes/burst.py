"""Small errors come in bursts: the first is told at once, what follows is folded and counted."""

from dataclasses import dataclass, replace

FOLD_SECONDS = 300.0  # while errors keep coming, they are told together, so often


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """What is remembered of one kind of small error of one device."""

    told_at: float = 0.0
    held: int = 0  # counted, and not told yet


def add(burst: Burst, at: float, risen: int) -> tuple[Burst, int]:
    """Count errors; how many are to be told now. Called at each reading: what is held is due later.

    A clock that went back must not hold errors for ever: then they are told at once.
    """
    held = burst.held + risen
    if not held or 0 <= at - burst.told_at < FOLD_SECONDS:
        return replace(burst, held=held), 0
    return Burst(told_at=at), held
