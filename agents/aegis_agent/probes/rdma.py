"""An RDMA port: its counters by class and rate, its state, and whether it is there at all.

    an error counter grew         nic.rdma.error
    a rate was exceeded           nic.rdma.degraded (or nic.rdma.error, as the table says)
    hardware counters fell        nic.firmware.reset: they began anew
    not active while its link is  nic.rdma.error after three readings, and the condition
    gone while its interface is   nic.removed after three readings, and the condition
      there
    does not answer               nic.firmware.stalled after two deadlines, and the condition until
                                  it answers: nic.firmware.recovered

Rates are judged by a bucket that leaks: what grows is poured in, what the limit allows runs out,
and what is left above the limit is too much. So it does not matter how often one looks. While it
goes on, each class is told once a minute with all that was counted meanwhile.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.rdma_table import PERFORMANCE, Counter, Kind, Limit, counter
from aegis_agent.probes.subject import Judgement, Subject

HOLD_SAMPLES = 3
SILENT_SAMPLES = 2
TOLD_SECONDS = 60.0
ACTIVE = "ACTIVE"
_EVIDENCE_MAX = 5
_WRAP = 1 << 32
_MARGIN = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaSample:
    """What was read of one RDMA port. What cannot be read is absent."""

    at: float
    source: str  # "sysfs", "rdma statistic"
    device: str  # "mlx5_0"
    present: bool = True
    interface_present: bool = True  # the interface over it
    link_up: bool = False
    state: str = ""  # "ACTIVE", "DOWN", "INIT", …
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaMemory:
    """What is remembered of a port between samples; over restarts, what makes it unequal."""

    boot_id: str = ""
    errors: dict[str, int] = field(default_factory=dict)  # counters of errors
    seen: bool = False
    inactive_at: float = 0.0
    removed_at: float = 0.0
    stalled_at: float = 0.0
    why: tuple[Evidence, ...] = ()
    # What changes all the time is not worth a write each time.
    at: float = field(default=0.0, compare=False)
    others: dict[str, int] = field(default_factory=dict, compare=False)
    levels: dict[str, float] = field(default_factory=dict, compare=False)  # of the buckets
    waiting: dict[str, int] = field(default_factory=dict, compare=False)  # grown, not told yet
    told_at: dict[str, float] = field(default_factory=dict, compare=False)  # by fault class
    inactive_samples: int = field(default=0, compare=False)
    absent_samples: int = field(default=0, compare=False)
    silent_samples: int = field(default=0, compare=False)


def observe(subject: Subject, memory: RdmaMemory, sample: RdmaSample) -> Judgement[RdmaMemory]:
    """Judge one sample."""
    if memory.boot_id != subject.boot_id:
        memory = RdmaMemory(boot_id=subject.boot_id)
    memory, answered = _answered(subject, memory, sample)
    if sample.present:
        memory = replace(memory, seen=True, absent_samples=0, removed_at=0.0)
        memory, standing = _state(subject, memory, sample)
        memory, counted = _counters(subject, memory, sample)
        faults = (*standing, *counted)
    else:
        memory, faults = _absent(subject, memory, sample)
    return Judgement(
        memory=memory,
        device=None,
        faults=(*answered, *faults),
        conditions=_lasting(subject, memory),
    )


def silent(subject: Subject, memory: RdmaMemory, at: float, device: str) -> Judgement[RdmaMemory]:
    """A reading did not end in time, or the one before has not ended yet."""
    if memory.boot_id != subject.boot_id:
        memory = RdmaMemory(boot_id=subject.boot_id)
    samples = min(memory.silent_samples + 1, SILENT_SAMPLES)
    memory = replace(memory, silent_samples=samples)
    faults: tuple[Fault, ...] = ()
    if samples >= SILENT_SAMPLES and not memory.stalled_at:
        text = f"{device} does not answer: reading its counters takes longer than it may"
        evidence = Evidence(source="sysfs", text=text)
        memory = replace(memory, stalled_at=at, why=(evidence,))
        faults = (subject.fault(FaultClass.NIC_FIRMWARE_STALLED, Severity.ERROR, at, evidence),)
    conditions = _lasting(subject, memory)
    return Judgement(memory=memory, device=None, faults=faults, conditions=conditions)


def judged(name: str) -> bool:
    """Whether anything is to be told of this counter, or it is needed to judge another."""
    return counter(name).kind is not Kind.CONTEXT or "flush" in name or name == "link_downed"


def full(counters: Mapping[str, int]) -> list[str]:
    """Those that have reached their end and count no more."""
    return [name for name, value in counters.items() if value == counter(name).full and value > 0]


def errors(counters: Mapping[str, int]) -> int:
    """How many errors the port has counted since its driver was loaded."""
    return sum(value for name, value in counters.items() if counter(name).kind is Kind.ERROR)


# the port itself


def _answered(
    subject: Subject, memory: RdmaMemory, sample: RdmaSample
) -> tuple[RdmaMemory, tuple[Fault, ...]]:
    stalled_at = memory.stalled_at
    memory = replace(memory, silent_samples=0, stalled_at=0.0)
    if not stalled_at:
        return memory, ()
    evidence = Evidence(source=sample.source, text=f"{sample.device} answers again")
    kind = FaultClass.NIC_FIRMWARE_RECOVERED
    return memory, (subject.fault(kind, Severity.INFO, sample.at, evidence),)


def _state(
    subject: Subject, memory: RdmaMemory, sample: RdmaSample
) -> tuple[RdmaMemory, tuple[Fault, ...]]:
    if not sample.state or sample.state == ACTIVE or not sample.link_up:
        return replace(memory, inactive_samples=0, inactive_at=0.0, why=()), ()
    samples = min(memory.inactive_samples + 1, HOLD_SAMPLES)
    memory = replace(memory, inactive_samples=samples)
    if samples < HOLD_SAMPLES or memory.inactive_at:
        return memory, ()
    text = f"the RDMA port {sample.device} is {sample.state}, though its link is up"
    evidence = Evidence(source=f"{sample.source} state", text=text, after=sample.state)
    memory = replace(memory, inactive_at=sample.at, why=(evidence,))
    kind = FaultClass.NIC_RDMA_ERROR
    return memory, (subject.fault(kind, Severity.ERROR, sample.at, evidence),)


def _absent(
    subject: Subject, memory: RdmaMemory, sample: RdmaSample
) -> tuple[RdmaMemory, tuple[Fault, ...]]:
    """Gone with its interface is the link's business."""
    if not memory.seen or not sample.interface_present:
        return replace(memory, absent_samples=0), ()
    samples = min(memory.absent_samples + 1, HOLD_SAMPLES)
    memory = replace(memory, absent_samples=samples)
    if samples < HOLD_SAMPLES or memory.removed_at:
        return memory, ()
    text = (
        f"the RDMA device {sample.device} is gone for {HOLD_SAMPLES} readings; "
        "its interface is still there"
    )
    evidence = Evidence(source=sample.source, text=text)
    memory = replace(memory, removed_at=sample.at, inactive_at=0.0, why=(evidence,))
    return memory, (subject.fault(FaultClass.NIC_REMOVED, Severity.FATAL, sample.at, evidence),)


def _lasting(subject: Subject, memory: RdmaMemory) -> tuple[Condition, ...]:
    since = {
        FaultClass.NIC_RDMA_ERROR: memory.inactive_at,
        FaultClass.NIC_REMOVED: memory.removed_at,
        FaultClass.NIC_FIRMWARE_STALLED: memory.stalled_at,
    }
    return subject.conditions(memory.why, since)


# counters


def _counters(
    subject: Subject, memory: RdmaMemory, sample: RdmaSample
) -> tuple[RdmaMemory, tuple[Fault, ...]]:
    before = {**memory.errors, **memory.others}
    grown, fallen = _growth(before, sample.counters)
    seconds = max(0.0, sample.at - memory.at)
    levels, alarmed = _pour(memory.levels, grown, seconds)
    waiting = {
        key: memory.waiting.get(key, 0) + alarmed.get(key, 0) for key in memory.waiting | alarmed
    }
    read = {name: value for name, value in sample.counters.items() if judged(name)}
    after = {**before, **read}
    memory = replace(
        memory,
        at=sample.at,
        errors={name: value for name, value in after.items() if _is_error(name)},
        others={name: value for name, value in after.items() if not _is_error(name)},
        levels=levels,
        waiting=waiting,
    )
    memory, faults = _tell(subject, memory, sample, before)
    return memory, (*_began_anew(subject, sample, before, fallen), *faults)


def _is_error(name: str) -> bool:
    return counter(name).kind is Kind.ERROR


def _growth(
    before: Mapping[str, int], after: Mapping[str, int]
) -> tuple[dict[str, int], list[str]]:
    """By how much each counter grew, and which fell. One seen for the first time did neither."""
    grown, fallen = {}, []
    for name, value in after.items():
        if (old := before.get(name)) is None:
            continue
        if value >= old:
            grown[name] = value - old
        elif _WRAP - _MARGIN <= old < _WRAP and value < _MARGIN:
            grown[name] = value + _WRAP - old
        else:
            fallen.append(name)
    for name in list(grown):
        if less := grown.get(counter(name).less, 0):
            grown[name] = max(0, grown[name] - less)
    return grown, fallen


def _pour(
    levels: Mapping[str, float], grown: Mapping[str, int], seconds: float
) -> tuple[dict[str, float], dict[str, int]]:
    """The buckets' new levels, and by how much the counters above a limit have grown."""
    after, alarmed = {}, {}
    for name, amount in grown.items():
        judgement: Counter = counter(name)
        for number, limit in enumerate(judgement.limits):
            key = f"{name} {number}"
            leaked = seconds * limit.amount / limit.seconds
            level = max(0.0, levels.get(key, 0.0) + amount - leaked)
            if level > limit.amount:
                alarmed[f"{_class(limit)} {name}"] = amount
                level = limit.amount
            if level:
                after[key] = level
    return after, alarmed


def _class(limit: Limit) -> FaultClass:
    return FaultClass.NIC_RDMA_ERROR if limit.error else FaultClass.NIC_RDMA_DEGRADED


def _tell(
    subject: Subject, memory: RdmaMemory, sample: RdmaSample, before: Mapping[str, int]
) -> tuple[RdmaMemory, tuple[Fault, ...]]:
    """Each class at once, and then once a minute."""
    faults, waiting, told_at = [], dict(memory.waiting), dict(memory.told_at)
    for kind, severity in (
        (FaultClass.NIC_RDMA_ERROR, Severity.ERROR),
        (FaultClass.NIC_RDMA_DEGRADED, Severity.WARNING),
    ):
        names = {key: key.split(" ")[1] for key in waiting if key.startswith(f"{kind} ")}
        young = 0 <= sample.at - told_at.get(kind, 0.0) < TOLD_SECONDS
        if not names or young:
            continue
        grown = {name: waiting.pop(key) for key, name in names.items()}
        told_at[kind] = sample.at
        evidence = list(_evidence(sample, grown, before))
        count = max(1, sum(grown.values()))
        details = {"rdma_device": sample.device, "counters": ", ".join(sorted(grown))}
        faults.append(
            subject.fault(kind, severity, sample.at, *evidence, count=count, details=details)
        )
    return replace(memory, waiting=waiting, told_at=told_at), tuple(faults)


def _evidence(
    sample: RdmaSample, grown: Mapping[str, int], before: Mapping[str, int]
) -> Iterator[Evidence]:
    most = sorted(grown.items(), key=lambda item: (-item[1], item[0]))
    for name, amount in most[:_EVIDENCE_MAX]:
        congested = counter(name).kind is Kind.CONGESTION
        busy = ": the network is congested, the port is well" if congested else ""
        more = f"; {len(most) - _EVIDENCE_MAX} more counters" if len(most) > _EVIDENCE_MAX else ""
        yield Evidence(
            source=f"{sample.source} {sample.device} {name}",
            text=f"{name} grew by {amount}{busy}{more if name == most[0][0] else ''}",
            before=str(before.get(name, 0)),
            after=str(sample.counters.get(name, 0)),
        )


def _began_anew(
    subject: Subject, sample: RdmaSample, before: Mapping[str, int], fallen: list[str]
) -> tuple[Fault, ...]:
    """Fallen performance counters were cleared by a person; the others nobody can clear."""
    told = [name for name in fallen if name not in PERFORMANCE]
    if not told:
        return ()
    evidence = Evidence(
        source=f"{sample.source} {sample.device} {told[0]}",
        text=f"{len(told)} counters began anew: the driver or firmware was reset",
        before=str(before[told[0]]),
        after=str(sample.counters[told[0]]),
    )
    kind = FaultClass.NIC_FIRMWARE_RESET
    return (subject.fault(kind, Severity.WARNING, sample.at, evidence),)
