"""How long and how often a link was down, by two timers.

    down for `down_seconds`              an outage that counts
    then up for `up_seconds`             it is over: a recovery
    `recoveries` within `lookback`       the link flaps
    down for `drop_seconds`              the link has dropped; it does not come back by itself

A link that comes up for a moment and falls again is still in the same outage. The raw edges are
told elsewhere and at once; what is said here comes after them.
"""

from dataclasses import dataclass, replace

_KEPT = 32
_STEP_SECONDS = 10  # a downtime that lasts is told in steps: each telling costs the controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Defaults as published for fleets of InfiniBand: gpud's ib_port_flap and ib_port_drop."""

    down_seconds: float = 25.0
    up_seconds: float = 5.0
    recoveries: int = 3
    lookback_seconds: float = 12 * 3600.0
    drop_seconds: float = 240.0
    window_seconds: float = 3600.0  # of the downtime that is summed


LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """From the first loss to the lasting return."""

    began: float
    ended: float
    down_seconds: float  # less than the whole where the link came up between


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """What is remembered of a link's outages. Times are the node's clock, 0.0 for not."""

    past: tuple[Outage, ...] = ()  # newest last
    began: float = 0.0  # of the one that is not over
    fell_at: float = 0.0  # the link is down since
    back_at: float = 0.0  # the link is up since, and the outage not over yet
    before_seconds: float = 0.0  # down in the running outage before `fell_at`
    dropped: bool = False  # told of the running one
    flap_told_at: float = 0.0  # recoveries until then were told of


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the timers came to."""

    kind: str  # "flap" | "drop"
    text: str


def fell(outages: Outages, at: float) -> Outages:
    """The link went down, or was found down."""
    if outages.fell_at:
        return outages
    return replace(outages, began=outages.began or at, fell_at=at, back_at=0.0)


def rose(outages: Outages, at: float) -> Outages:
    """The link came up."""
    if not outages.fell_at:
        return outages
    seconds = outages.before_seconds + max(0.0, at - outages.fell_at)
    return replace(outages, fell_at=0.0, back_at=at, before_seconds=seconds)


def passed(outages: Outages, now: float, limits: Limits = LIMITS) -> tuple[Outages, Verdict | None]:
    """What time has made of it."""
    if outages.fell_at:
        return _down(outages, now, limits)
    if outages.back_at and now - outages.back_at >= limits.up_seconds:
        return _over(outages, now, limits)
    return outages, None


def down_seconds(outages: Outages, now: float, limits: Limits = LIMITS) -> int:
    """How long the link was down in the last window, outages told whole."""
    since = now - limits.window_seconds
    total = sum(one.down_seconds for one in outages.past if one.ended >= since)
    running = outages.before_seconds
    if outages.fell_at:
        running += max(0.0, now - outages.fell_at) // _STEP_SECONDS * _STEP_SECONDS
    return min(-int(-(total + running) // 1), int(limits.window_seconds))


def recoveries(outages: Outages, now: float, limits: Limits = LIMITS) -> int:
    """How often it came back from an outage that counts, within the lookback."""
    return len(_counted(outages, now - limits.lookback_seconds, limits))


def _counted(outages: Outages, since: float, limits: Limits) -> list[Outage]:
    return [
        one for one in outages.past if one.ended > since and one.down_seconds >= limits.down_seconds
    ]


def _down(outages: Outages, now: float, limits: Limits) -> tuple[Outages, Verdict | None]:
    seconds = now - outages.fell_at
    if outages.dropped or seconds < limits.drop_seconds:
        return outages, None
    text = f"the link has been down for {seconds:.0f} s without a break: it dropped, look at it"
    return replace(outages, dropped=True), Verdict(kind="drop", text=text)


def _over(outages: Outages, now: float, limits: Limits) -> tuple[Outages, Verdict | None]:
    ended = Outage(began=outages.began, ended=outages.back_at, down_seconds=outages.before_seconds)
    oldest = now - limits.lookback_seconds
    past = [one for one in (*outages.past, ended) if one.ended > oldest]
    outages = Outages(past=tuple(past[-_KEPT:]), flap_told_at=outages.flap_told_at)
    counted = _counted(outages, max(oldest, outages.flap_told_at), limits)
    if len(counted) < limits.recoveries:
        return outages, None
    text = (
        f"the link came back {len(counted)} times within {limits.lookback_seconds / 3600:g} h from "
        f"being down for {limits.down_seconds:g} s or longer, "
        f"{sum(one.down_seconds for one in counted):.0f} s in all"
    )
    return replace(outages, flap_told_at=ended.ended), Verdict(kind="flap", text=text)
