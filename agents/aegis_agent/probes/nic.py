"""A network port's link: edges, conditions, and flaps that no reader was fast enough to see.

    up -> down     nic.link.down, and the condition as long as it lasts
    down -> up     nic.link.up
    counter rose   nic.link.flap: the carrier was lost more often than edges were seen
    gone           nic.removed after three samples

Edges are raw: how long a link must be down to matter is the controller's policy.
"""

from dataclasses import dataclass, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes.subject import Judgement, Subject

REMOVED_SAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSample:
    """What was read of one port. None: not readable."""

    at: float
    source: str  # "netlink", "sysfs"
    simulated: bool = False
    present: bool = True
    up: bool = False
    operstate: str = "unknown"
    carrier_changes: int | None = None
    carrier_downs: int | None = None
    speed: int | None = None  # Mb/s


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMemory:
    """What is remembered of a port between samples and over restarts of the agent."""

    boot_id: str = ""
    up: bool | None = None  # None: never seen in this boot
    carrier_changes: int | None = None
    carrier_downs: int | None = None
    down_at: float = 0.0
    absent_samples: int = 0  # in a row
    removed_at: float = 0.0
    why: tuple[Evidence, ...] = ()  # of what lasts: down or removed


def observe(subject: Subject, memory: LinkMemory, sample: LinkSample) -> Judgement[LinkMemory]:
    """Judge one sample."""
    if memory.boot_id != subject.boot_id:
        memory = LinkMemory(boot_id=subject.boot_id)
    if not sample.present:
        return _absent(subject, memory, sample)
    memory = replace(memory, absent_samples=0, removed_at=0.0)
    faults = []
    if flaps := _flaps(memory, sample):
        faults.append(_flap(subject, memory, sample, flaps))
    memory, edge = _edge(subject, memory, sample)
    memory = _count(memory, sample, fell=edge is not None and not sample.up)
    return Judgement(
        memory=replace(memory, up=sample.up),
        device=_device(subject, sample),
        faults=(*faults, *([edge] if edge else [])),
        conditions=_lasting(subject, memory),
    )


def _flaps(memory: LinkMemory, sample: LinkSample) -> int:
    """How often the carrier was lost and came back since the last sample, beyond what was seen."""
    if memory.up is None:
        return 0
    seen = int(memory.up and not sample.up)
    if memory.carrier_downs is not None and sample.carrier_downs is not None:
        return max(0, sample.carrier_downs - memory.carrier_downs - seen)
    if memory.carrier_changes is not None and sample.carrier_changes is not None:
        edge = int(memory.up != sample.up)
        return max(0, (sample.carrier_changes - memory.carrier_changes - edge) // 2)
    return 0


def _flap(subject: Subject, memory: LinkMemory, sample: LinkSample, flaps: int) -> Fault:
    counter = "carrier_changes" if sample.carrier_downs is None else "carrier_down_count"
    before = memory.carrier_changes if sample.carrier_downs is None else memory.carrier_downs
    after = sample.carrier_changes if sample.carrier_downs is None else sample.carrier_downs
    times = "once" if flaps == 1 else f"{flaps} times"
    evidence = Evidence(
        source=f"{sample.source} {counter}",
        text=f"the carrier was lost {times} between two readings",
        before=str(before),
        after=str(after),
    )
    return subject.fault(
        FaultClass.NIC_LINK_FLAP, Severity.WARNING, sample.at, evidence, count=flaps
    )


def _edge(
    subject: Subject, memory: LinkMemory, sample: LinkSample
) -> tuple[LinkMemory, Fault | None]:
    if sample.up:
        memory, before = replace(memory, down_at=0.0, why=()), memory
        if before.up is not False:
            return memory, None
        evidence = Evidence(
            source=sample.source, text="the link is up", before="down", after=sample.operstate
        )
        return memory, subject.fault(FaultClass.NIC_LINK_UP, Severity.INFO, sample.at, evidence)
    if memory.up is False:
        return memory, None
    evidence = Evidence(
        source=sample.source,
        text="the link went down" if memory.up else "the link was down at the first look",
        before="up" if memory.up else None,
        after=sample.operstate,
    )
    memory = replace(memory, down_at=sample.at, why=(evidence,))
    return memory, subject.fault(FaultClass.NIC_LINK_DOWN, Severity.ERROR, sample.at, evidence)


def _count(memory: LinkMemory, sample: LinkSample, *, fell: bool) -> LinkMemory:
    """The counters to compare with next. A loss seen before it was counted is counted once."""
    downs, changes = sample.carrier_downs, sample.carrier_changes
    if fell and downs is not None and downs == memory.carrier_downs:
        downs += 1
    if fell and changes is not None and changes == memory.carrier_changes:
        changes += 1
    return replace(memory, carrier_downs=downs, carrier_changes=changes)


def _absent(subject: Subject, memory: LinkMemory, sample: LinkSample) -> Judgement[LinkMemory]:
    known = memory.up is not None
    memory = replace(memory, absent_samples=min(memory.absent_samples + 1, REMOVED_SAMPLES))
    faults: tuple[Fault, ...] = ()
    if known and not memory.removed_at and memory.absent_samples >= REMOVED_SAMPLES:
        evidence = Evidence(
            source=sample.source, text=f"the interface is gone for {REMOVED_SAMPLES} readings"
        )
        memory = replace(memory, removed_at=sample.at, down_at=0.0, why=(evidence,))
        faults = (subject.fault(FaultClass.NIC_REMOVED, Severity.FATAL, sample.at, evidence),)
    device = Device(
        name=subject.device,
        kind="nic",
        health=Health.UNHEALTHY if memory.removed_at else Health.UNKNOWN,
        detail="the interface is gone" if known else "there is no such interface",
        read_at=sample.at,
    )
    return Judgement(
        memory=memory, device=device, faults=faults, conditions=_lasting(subject, memory)
    )


def _lasting(subject: Subject, memory: LinkMemory) -> tuple[Condition, ...]:
    return subject.conditions(
        memory.why,
        {
            FaultClass.NIC_LINK_DOWN: memory.down_at,
            FaultClass.NIC_REMOVED: memory.removed_at,
        },
    )


def _device(subject: Subject, sample: LinkSample) -> Device:
    counters = (
        ("carrier_changes", sample.carrier_changes),
        ("carrier_downs", sample.carrier_downs),
        ("speed_mbps", sample.speed),
    )
    return Device(
        name=subject.device,
        kind="nic",
        health=Health.HEALTHY if sample.up else Health.UNHEALTHY,
        detail="" if sample.up else f"the link is {sample.operstate}",
        read_at=sample.at,
        counters=tuple((name, value) for name, value in counters if value is not None),
    )
