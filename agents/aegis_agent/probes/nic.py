"""A network port's link: edges, conditions, and flaps that no reader was fast enough to see.

    up -> down       nic.link.down, and the condition as long as it lasts
    down -> up       nic.link.up
    counter rose     nic.link.flap: the carrier was lost more often than edges were seen
    by two timers    nic.link.flap and nic.link.down once more, as verdicts (`outages`)
    gone             nic.removed after three samples; nic.pcie.lost when its PCI function is, too

Edges are raw: how long a link must be down to matter is the controller's policy. A port that nobody
named and that was never up may have no cable: it makes nothing until it is up, or until most of its
kind are.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes import outages
from aegis_agent.probes.outages import Outages, Verdict
from aegis_agent.probes.subject import Judgement, Subject

REMOVED_SAMPLES = 3


class Function(StrEnum):
    """What has become of the PCI function under a port that is gone."""

    UNKNOWN = "unknown"  # not asked, or not on PCI
    PRESENT = "present"
    SILENT = "silent"  # listed, and answers with all ones
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSample:
    """What was read of one port. None: not readable."""

    at: float
    source: str  # "netlink", "sysfs"
    simulated: bool = False
    present: bool = True
    up: bool = False
    switched_on: bool | None = None  # by its administrator
    operstate: str = "unknown"
    carrier_changes: int | None = None
    carrier_downs: int | None = None
    speed: int | None = None  # Mb/s
    function: Function = Function.UNKNOWN
    moved: str = ""  # gone under this name, but not away: a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Stance:
    """How a port is to be judged."""

    expected: bool = True  # to be up: it was named, or was up, or most of its kind are
    why: str = ""  # what it is for, and why we think so
    peers: str = ""  # down, while most of its kind are up: which
    slow: str = ""  # up, but slower than its kind: a sentence
    facts: tuple[tuple[str, str], ...] = ()  # of the port


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMemory:
    """What is remembered of a port between samples and over restarts of the agent."""

    boot_id: str = ""
    up: bool | None = None  # None: never seen in this boot
    used: bool = True  # by training, as far as was known
    was_up: bool = False  # in any boot
    carrier_changes: int | None = None
    carrier_downs: int | None = None
    down_at: float = 0.0
    slow_at: float = 0.0
    absent_samples: int = 0  # in a row
    removed_at: float = 0.0
    lost: bool = False  # removed, and its PCI function with it
    why: tuple[Evidence, ...] = ()  # of what lasts: down, slow or removed
    outages: Outages = field(default_factory=Outages)


EXPECTED = Stance()


def observe(
    subject: Subject, memory: LinkMemory, sample: LinkSample, stance: Stance = EXPECTED
) -> Judgement[LinkMemory]:
    """Judge one sample."""
    memory = of_boot(memory, subject.boot_id)
    if not sample.present:
        return _absent(subject, memory, sample, stance)
    memory = replace(memory, absent_samples=0, removed_at=0.0, lost=False)
    faults = []
    if flaps := _flaps(memory, sample):
        faults.append(_flap(subject, memory, sample, flaps))
    fell = bool(memory.up) and not sample.up
    memory, edge = _edge(subject, memory, sample, stance)
    memory, slow = _pace(subject, memory, sample, stance)
    memory = _count(memory, sample, fell=fell or (edge is not None and not sample.up))
    memory, verdict = _time(subject, memory, sample)
    memory = replace(memory, up=sample.up, was_up=memory.was_up or sample.up)
    told = [*faults, *(one for one in (edge, slow, verdict) if one is not None)]
    return Judgement(
        memory=memory,
        device=_device(subject, memory, sample, stance),
        faults=tuple(_with_role(fault, stance) for fault in told),
        conditions=_lasting(subject, memory),
    )


def of_boot(memory: LinkMemory, boot_id: str) -> LinkMemory:
    """What is still true of a port in this boot."""
    if memory.boot_id == boot_id:
        return memory
    return LinkMemory(
        boot_id=boot_id, used=memory.used, was_up=memory.was_up, outages=memory.outages
    )


def _with_role(fault: Fault, stance: Stance) -> Fault:
    role = [fact for fact in stance.facts if fact[0] == "role"]
    return replace(fault, details=(*fault.details, *role))


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
    subject: Subject, memory: LinkMemory, sample: LinkSample, stance: Stance
) -> tuple[LinkMemory, Fault | None]:
    if sample.up:
        memory, before = replace(memory, down_at=0.0), memory
        if not before.down_at:
            return memory, None
        evidence = Evidence(
            source=sample.source, text="the link is up", before="down", after=sample.operstate
        )
        memory = replace(memory, why=())
        return memory, subject.fault(FaultClass.NIC_LINK_UP, Severity.INFO, sample.at, evidence)
    if memory.down_at or not (stance.expected or memory.up):
        return memory, None
    evidence = Evidence(
        source=sample.source,
        text=_fallen(memory, sample, stance),
        before="up" if memory.up else None,
        after=sample.operstate,
    )
    memory = replace(memory, down_at=sample.at, slow_at=0.0, why=(evidence,))
    return memory, subject.fault(FaultClass.NIC_LINK_DOWN, Severity.ERROR, sample.at, evidence)


def _fallen(memory: LinkMemory, sample: LinkSample, stance: Stance) -> str:
    """What happened, and why it matters where that is not plain."""
    if memory.up:
        switched_off = sample.switched_on is False
        return "the port was switched off" if switched_off else "the link went down"
    text = "the link was down at the first look" if memory.up is None else "the link is down"
    if sample.switched_on is False:
        text += ", the port is switched off"
    if stance.peers:
        return f"{text} while {stance.peers}"
    if memory.was_up and memory.up is None:
        return f"{text}; it was up before the node was started"
    return text


def _pace(
    subject: Subject, memory: LinkMemory, sample: LinkSample, stance: Stance
) -> tuple[LinkMemory, Fault | None]:
    if not sample.up or not stance.slow:
        return replace(memory, slow_at=0.0, why=memory.why if memory.down_at else ()), None
    evidence = Evidence(source="sysfs speed", text=stance.slow)
    if memory.slow_at:
        return replace(memory, why=(evidence,)), None
    memory = replace(memory, slow_at=sample.at, why=(evidence,))
    kind = FaultClass.NIC_RDMA_DEGRADED
    return memory, subject.fault(kind, Severity.WARNING, sample.at, evidence)


def _count(memory: LinkMemory, sample: LinkSample, *, fell: bool) -> LinkMemory:
    """The counters to compare with next. A loss seen before it was counted is counted once."""
    downs, changes = sample.carrier_downs, sample.carrier_changes
    if fell and downs is not None and downs == memory.carrier_downs:
        downs += 1
    if fell and changes is not None and changes == memory.carrier_changes:
        changes += 1
    return replace(memory, carrier_downs=downs, carrier_changes=changes)


def _time(
    subject: Subject, memory: LinkMemory, sample: LinkSample
) -> tuple[LinkMemory, Fault | None]:
    """Let the two timers speak."""
    known = memory.outages
    if sample.up:
        known = outages.rose(known, sample.at)
    elif memory.down_at:
        known = outages.fell(known, memory.down_at)
    known, verdict = outages.passed(known, sample.at)
    memory = replace(memory, outages=known)
    return memory, _verdict(subject, sample, verdict) if verdict else None


def _verdict(subject: Subject, sample: LinkSample, verdict: Verdict) -> Fault:
    evidence = Evidence(source=f"{sample.source}, over time", text=verdict.text)
    flap = verdict.kind == "flap"
    return subject.fault(
        FaultClass.NIC_LINK_FLAP if flap else FaultClass.NIC_LINK_DOWN,
        Severity.WARNING if flap else Severity.ERROR,
        sample.at,
        evidence,
        details={"verdict": verdict.kind},
    )


def _absent(
    subject: Subject, memory: LinkMemory, sample: LinkSample, stance: Stance
) -> Judgement[LinkMemory]:
    known = memory.up is not None and (bool(memory.up) or stance.expected)
    samples = 0 if sample.moved else min(memory.absent_samples + 1, REMOVED_SAMPLES)
    memory = replace(memory, absent_samples=samples)
    faults: tuple[Fault, ...] = ()
    if known and not memory.removed_at and samples >= REMOVED_SAMPLES:
        memory, fault = _removed(subject, memory, sample)
        faults = (_with_role(fault, stance),)
    gone = sample.moved or ("the interface is gone" if known else "there is no such interface")
    device = Device(
        name=subject.device,
        kind="nic",
        health=Health.UNHEALTHY if memory.removed_at else Health.UNKNOWN,
        detail=memory.why[0].text if memory.removed_at else gone,
        identity=subject.identity,
        read_at=sample.at,
        facts=stance.facts,
    )
    return Judgement(
        memory=memory, device=device, faults=faults, conditions=_lasting(subject, memory)
    )


def _removed(subject: Subject, memory: LinkMemory, sample: LinkSample) -> tuple[LinkMemory, Fault]:
    lost = sample.function in (Function.GONE, Function.SILENT)
    text = f"the interface is gone for {REMOVED_SAMPLES} readings"
    if sample.function is Function.GONE:
        text += ", and its PCI function is no longer on the bus"
    elif sample.function is Function.SILENT:
        text += ", and its PCI function answers nothing"
    elif sample.function is Function.PRESENT:
        text += "; its PCI function is still there"
    evidence = Evidence(source=sample.source, text=text)
    memory = replace(
        memory,
        removed_at=sample.at,
        lost=lost,
        down_at=0.0,
        slow_at=0.0,
        why=(evidence,),
        outages=outages.fell(memory.outages, sample.at),
    )
    kind = FaultClass.NIC_PCIE_LOST if lost else FaultClass.NIC_REMOVED
    return memory, subject.fault(kind, Severity.FATAL, sample.at, evidence)


def _lasting(subject: Subject, memory: LinkMemory) -> tuple[Condition, ...]:
    gone = FaultClass.NIC_PCIE_LOST if memory.lost else FaultClass.NIC_REMOVED
    lost = subject.conditions(
        memory.why, {FaultClass.NIC_LINK_DOWN: memory.down_at, gone: memory.removed_at}
    )
    slow = {FaultClass.NIC_RDMA_DEGRADED: memory.slow_at}
    return (*lost, *subject.conditions(memory.why, slow, Severity.WARNING))


def _device(subject: Subject, memory: LinkMemory, sample: LinkSample, stance: Stance) -> Device:
    health, detail = _health(memory, sample, stance)
    counters = (
        ("carrier_changes", sample.carrier_changes),
        ("carrier_downs", sample.carrier_downs),
        ("speed_mbps", sample.speed),
        ("down_seconds_1h", outages.down_seconds(memory.outages, sample.at)),
        ("recoveries_12h", outages.recoveries(memory.outages, sample.at)),
    )
    return Device(
        name=subject.device,
        kind="nic",
        health=health,
        detail=detail,
        identity=subject.identity,
        read_at=sample.at,
        counters=tuple((name, value) for name, value in counters if value is not None),
        facts=stance.facts,
    )


def _health(memory: LinkMemory, sample: LinkSample, stance: Stance) -> tuple[Health, str]:
    if sample.up:
        if memory.slow_at:
            return Health.UNHEALTHY, stance.slow
        return Health.HEALTHY, ""
    text = f"the link is {'switched off' if sample.switched_on is False else sample.operstate}"
    if not memory.down_at:
        text += ", and nothing tells that it should be up"
    health = Health.UNHEALTHY if memory.down_at else Health.UNKNOWN
    return health, f"{text} ({stance.why})" if stance.why else text
