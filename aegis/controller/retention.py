"""Which events and snapshots are kept.

The log begins at its first event or, once old ones are forgotten, at a snapshot: whoever replays it
knows how things stood at its beginning. So some older snapshots are kept too, spread evenly, and it
is cut at one of them. What the newest two need is never forgotten: if the newest is damaged, the
one before it and the events after it must be there.
"""

from collections.abc import Iterable, Sequence

NEWEST_KEPT = 2
SNAPSHOTS_KEPT = 12


def superfluous(snapshots: Sequence[int]) -> list[int]:
    """Of the snapshots by number, oldest first: those that leave the smallest gaps."""
    kept, gone = list(snapshots), list[int]()
    while len(kept) > SNAPSHOTS_KEPT:
        between = range(1, len(kept) - NEWEST_KEPT)
        place = min(between, key=lambda place: kept[place + 1] - kept[place - 1])
        gone.append(kept.pop(place))
    return gone


def cut(
    snapshots: Sequence[tuple[int, float]],
    sizes: Iterable[tuple[int, int]],
    *,
    before: float,
    surplus_bytes: int,
) -> int:
    """The snapshot up to which events may go; 0: none.

    `snapshots` are number and time, `sizes` number and bytes of each event, all oldest first. What
    is young enough stays, and with it some that is not; but never the surplus, unless the newest
    snapshots need it.
    """
    if len(snapshots) < NEWEST_KEPT:
        return 0
    places = snapshots[: 1 - NEWEST_KEPT]
    last = max((number for number, at in places if at < before), default=0)
    for event, size in sizes:
        if surplus_bytes <= 0 or event > places[-1][0]:
            break
        surplus_bytes -= size
        last = max(last, event)
    return min((number for number, _at in places if number >= last), default=0) if last else 0
