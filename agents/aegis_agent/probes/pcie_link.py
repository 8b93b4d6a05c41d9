"""PCIe links that run slower or narrower than both their ends can.

What a link can do is the lesser of what its two ends can. A width below that is a fault once it has
held for three readings; a speed below it too, except at a GPU: GPUs drop the speed of an idle link
to save power. There it counts only while ranks train here, or while most links of the same kind on
this node run at full speed, and must hold for longer.

Links of one kind that all run alike below what their ends can, and did so from the first reading of
this boot, are limited by board or firmware settings: that is told where the source is named, and is
no fault.

A link that was found degraded is well again after two full readings. One that cannot be read stays
what it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.pcie import Seat
from aegis_agent.probes.subject import Judgement, Subject

HOLD_SAMPLES = 3
HOLD_SAMPLES_IDLING = 6  # of a speed that may drop by itself
CLEAR_SAMPLES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Speed and width of a link. 0: not readable."""

    speed: float = 0.0  # GT/s
    width: int = 0  # lanes

    def __str__(self) -> str:
        return f"{self.speed:g} GT/s x{self.width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSample:
    """What was read of one link."""

    at: float
    upper: str  # address of the port above: names the link
    lower: str  # of the device or switch below
    model: str = ""  # of what is below: links of one model are compared
    now: Rate = Rate()
    able: Rate = Rate()  # the lesser of what both ends can do
    idles: bool = False  # what is below drops its speed when idle
    training: bool = False  # ranks run on this node
    silent: bool = False  # what is below answers with nothing but ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """How the other links of the same model run."""

    links: int = 0
    full: int = 0  # that run at what they can
    alike: bool = False  # all run just as this one


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMemory:
    """What is remembered of a link between samples and over restarts of the agent."""

    boot_id: str = ""
    device: str = ""
    was_full: bool = False  # in this boot
    accepted: Rate | None = None  # all the platform gives
    low_samples: int = 0  # in a row
    low_since: float = 0.0
    full_samples: int = 0  # in a row
    degraded_at: float = 0.0
    why: tuple[Evidence, ...] = ()

    @property
    def lasting(self) -> tuple[object, ...]:
        """What must outlive the agent: the rest is seen again within a minute."""
        return self.boot_id, self.was_full, self.accepted, self.degraded_at


def peers(sample: LinkSample, samples: Iterable[LinkSample]) -> Peers:
    """Look at the other links of the same model."""
    others = [
        one
        for one in samples
        if one.upper != sample.upper and one.model == sample.model and _is_readable(one)
    ]
    return Peers(
        links=len(others),
        full=sum(not _is_below(one.now, one.able) for one in others),
        alike=bool(others) and all(one.now == sample.now for one in others),
    )


def observe(
    subject: Subject, memory: LinkMemory, sample: LinkSample, others: Peers, seat: Seat
) -> Judgement[LinkMemory]:
    """Judge one sample."""
    if memory.boot_id != subject.boot_id:
        memory = LinkMemory(boot_id=subject.boot_id)
    memory = replace(memory, device=subject.device)
    faults: tuple[Fault, ...] = ()
    if not _is_readable(sample):
        pass
    elif not _is_below(sample.now, memory.accepted or sample.able):
        memory = _full(memory, sample)
    elif (hold := _hold_samples(memory, sample, others)) is None:
        memory = replace(memory, low_samples=0, full_samples=0)
    else:
        memory = _low(memory, sample, hold)
        if memory.low_samples >= hold and not memory.degraded_at:
            memory, faults = _settle(subject, memory, sample, others, seat)
    return Judgement(
        memory=memory, device=None, faults=faults, conditions=_lasting(subject, memory)
    )


def _is_readable(sample: LinkSample) -> bool:
    return all((sample.now.speed, sample.now.width, sample.able.speed, sample.able.width))


def _is_below(now: Rate, able: Rate) -> bool:
    return now.speed < able.speed or now.width < able.width


def _hold_samples(memory: LinkMemory, sample: LinkSample, others: Peers) -> int | None:
    """How many such readings make a fault; None where it may be nothing but idleness."""
    able = memory.accepted or sample.able
    if sample.now.width < able.width or not sample.idles:
        return HOLD_SAMPLES
    busy = sample.training or 2 * others.full > others.links > 0
    return HOLD_SAMPLES_IDLING if busy else None


def _full(memory: LinkMemory, sample: LinkSample) -> LinkMemory:
    memory = replace(
        memory,
        was_full=memory.was_full or not _is_below(sample.now, sample.able),
        low_samples=0,
        full_samples=min(memory.full_samples + 1, CLEAR_SAMPLES),
    )
    if memory.degraded_at and memory.full_samples >= CLEAR_SAMPLES:
        return replace(memory, degraded_at=0.0, why=())
    return memory


def _low(memory: LinkMemory, sample: LinkSample, hold: int) -> LinkMemory:
    since = memory.low_since if memory.low_samples else sample.at
    samples = min(memory.low_samples + 1, hold)
    return replace(memory, low_samples=samples, low_since=since, full_samples=0)


def _settle(
    subject: Subject, memory: LinkMemory, sample: LinkSample, others: Peers, seat: Seat
) -> tuple[LinkMemory, tuple[Fault, ...]]:
    """It has lasted: the platform's limit, or a fault."""
    if others.alike and not memory.was_full:
        return replace(memory, accepted=sample.now, low_samples=0), ()
    evidence = _evidence(memory, sample, others, seat)
    memory = replace(memory, degraded_at=memory.low_since, why=(evidence,))
    fault = subject.fault(
        FaultClass.PCIE_LINK_DEGRADED, Severity.WARNING, memory.low_since, evidence
    )
    details = (
        ("link", f"{sample.upper} - {sample.lower}"),
        ("runs_at", str(sample.now)),
        ("both_can", str(sample.able)),
    )
    return memory, (replace(fault, details=details),)


def _evidence(memory: LinkMemory, sample: LinkSample, others: Peers, seat: Seat) -> Evidence:
    lasted = max(0.0, sample.at - memory.low_since)
    text = (
        f"the link of {seat.words} runs at {sample.now} and both its ends can do {sample.able}, "
        f"for {lasted:.0f} s and {memory.low_samples} readings"
    )
    if others.full:
        text += f"; {others.full} of {others.links} links like it run at what they can"
    return Evidence(
        source=f"sysfs {sample.lower} current_link_speed, current_link_width",
        text=text,
        before=str(sample.able),
        after=str(sample.now),
    )


def _lasting(subject: Subject, memory: LinkMemory) -> tuple[Condition, ...]:
    if not memory.degraded_at:
        return ()
    lasting = Condition(
        fault_class=FaultClass.PCIE_LINK_DEGRADED,
        device=subject.device,
        since=memory.degraded_at,
        severity=Severity.WARNING,
        simulated=subject.simulated,
        evidence=memory.why,
    )
    return (lasting,)
