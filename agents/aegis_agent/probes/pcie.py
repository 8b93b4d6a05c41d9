"""PCIe functions: error counters of AER, and devices that are gone from the tree.

A device reports the errors that it saw. What an endpoint sends badly is counted by the port above
it, so ports are read too, and what they count is told of the device behind them.

    corrected   the first is told at once, a burst after it folded, with its rate over the days
    nonfatal    told one by one
    fatal       told one by one
    fewer       counters began anew: the device was removed and found again
    gone        for three readings: pcie.link.down, and the condition as long as it is away; so is
                one that answers with nothing but ones

Counters that are read for the first time in a boot are taken as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis_agent.probes import burst, trend
from aegis_agent.probes.burst import Burst
from aegis_agent.probes.subject import Judgement, Subject
from aegis_agent.probes.trend import Trend

GONE_SAMPLES = 3
_TOTAL = "TOTAL_ERR"
_KINDS: Mapping[str, tuple[FaultClass, Severity]] = {
    "fatal": (FaultClass.PCIE_AER_FATAL, Severity.FATAL),
    "nonfatal": (FaultClass.PCIE_AER_NONFATAL, Severity.ERROR),
    "correctable": (FaultClass.PCIE_AER_CORRECTED, Severity.WARNING),
}

Counts = Mapping[str, Mapping[str, int]]  # by kind, by error; a kind that is not readable is absent


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSample:
    """What was read of one PCI function."""

    at: float
    address: str  # "0000:c1:00.0"
    present: bool = True
    silent: bool = False  # it is in the tree, and answers with nothing but ones
    counts: Counts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMemory:
    """What is remembered of a function between samples and over restarts of the agent."""

    boot_id: str = ""
    device: str = ""  # whose errors these are, as far as it was known last
    used: bool = False  # the same
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    corrected: Burst = field(default_factory=Burst)
    trend: Trend = field(default_factory=Trend)  # of corrected errors, over boots
    seen: bool = False
    absent_samples: int = 0  # in a row
    gone_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a function or a link is to training."""

    used: bool  # by training; of others nothing is worse than a warning
    words: str = ""  # "0000:c1:00.0", "port 0000:c0:01.0 above gpu3"

    def severity(self, severity: Severity) -> Severity:
        """As bad as the device matters."""
        if self.used or severity is Severity.INFO:
            return severity
        return Severity.WARNING


def observe(
    subject: Subject, memory: FunctionMemory, sample: FunctionSample, seat: Seat
) -> Judgement[FunctionMemory]:
    """Judge one sample."""
    if memory.boot_id != subject.boot_id:
        memory = FunctionMemory(boot_id=subject.boot_id, trend=memory.trend)
    memory = replace(memory, device=subject.device, used=seat.used)
    if not sample.present or sample.silent:
        return _absent(subject, memory, sample, seat)
    back = memory.gone_at > 0
    memory = replace(memory, seen=True, absent_samples=0, gone_at=0.0)
    faults = []
    fallen = [kind for kind, after in sample.counts.items() if _has_fallen(memory, kind, after)]
    if back or fallen:
        faults.append(_anew(subject, sample, seat, back=back))
    memory, errors = _errors(subject, memory, sample, seat)
    return Judgement(memory=memory, device=None, faults=(*faults, *errors))


def _errors(
    subject: Subject, memory: FunctionMemory, sample: FunctionSample, seat: Seat
) -> tuple[FunctionMemory, list[Fault]]:
    faults = []
    for kind in _KINDS:
        after, before = sample.counts.get(kind), memory.counts.get(kind)
        if after is None or before is None:
            continue
        risen, bits = _risen(before, after)
        if kind == "correctable":
            noted = trend.note(memory.trend, sample.at, {kind: risen})
            corrected, risen = burst.add(memory.corrected, sample.at, risen)
            memory = replace(memory, corrected=corrected, trend=noted)
        if risen:
            rise = _Rise(kind=kind, count=risen, bits=bits, total=total(after))
            faults.append(_fault(subject, memory, sample, rise, seat))
    counts = memory.counts | {kind: dict(after) for kind, after in sample.counts.items()}
    return replace(memory, counts=counts), faults


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rise:
    kind: str
    count: int
    bits: Mapping[str, int]  # of the last reading
    total: int  # now


def _fault(
    subject: Subject, memory: FunctionMemory, sample: FunctionSample, rise: _Rise, seat: Seat
) -> Fault:
    fault_class, severity = _KINDS[rise.kind]
    evidence = _evidence(sample, rise, seat)
    if rise.kind == "correctable" and (rate := trend.rate(memory.trend, [rise.kind], sample.at)):
        evidence = replace(evidence, text=f"{evidence.text}; {trend.told(rate)}")
    fault = subject.fault(
        fault_class, seat.severity(severity), sample.at, evidence, count=rise.count
    )
    return replace(fault, details=_details(sample, rise.bits))


def _has_fallen(memory: FunctionMemory, kind: str, after: Mapping[str, int]) -> bool:
    before = memory.counts.get(kind)
    return before is not None and total(after) < total(before)


def _risen(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """How many errors there were since, and of which kinds. One message may tell of several."""
    if total(after) < total(before):
        before = {}
    bits = {
        name: count - before.get(name, 0)
        for name, count in after.items()
        if not name.startswith(_TOTAL) and count > before.get(name, 0)
    }
    return max(total(after) - total(before), 0) or sum(bits.values()), bits


def total(counts: Mapping[str, int]) -> int:
    """Messages, by the kernel's own total; it is the last line, and may be missing."""
    totals = [count for name, count in counts.items() if name.startswith(_TOTAL)]
    return totals[0] if totals else sum(counts.values())


def _evidence(sample: FunctionSample, rise: _Rise, seat: Seat) -> Evidence:
    word = {"correctable": "corrected", "nonfatal": "non-fatal", "fatal": "fatal"}[rise.kind]
    named = ", ".join(f"{name} {count}" for name, count in rise.bits.items())
    text = f"{rise.count} {word} PCIe error{'' if rise.count == 1 else 's'} at {seat.words}"
    return Evidence(
        source=f"sysfs {sample.address} aer_dev_{rise.kind}",
        text=f"{text}: {named}" if named else text,
        before=str(rise.total - rise.count),
        after=str(rise.total),
    )


def _details(sample: FunctionSample, bits: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    return (("address", sample.address), *([("errors", ", ".join(bits))] if bits else []))


def _anew(subject: Subject, sample: FunctionSample, seat: Seat, *, back: bool) -> Fault:
    what = "is back" if back else "was removed and found again: its error counters began anew"
    evidence = Evidence(source=f"sysfs {sample.address}", text=f"{seat.words} {what}")
    fault = subject.fault(FaultClass.PCIE_LINK_RESET, Severity.WARNING, sample.at, evidence)
    return replace(fault, details=_details(sample, {}))


def _absent(
    subject: Subject, memory: FunctionMemory, sample: FunctionSample, seat: Seat
) -> Judgement[FunctionMemory]:
    what = "does not answer: it reads as all ones" if sample.silent else "is gone from the PCI tree"
    memory = replace(memory, absent_samples=min(memory.absent_samples + 1, GONE_SAMPLES))
    evidence = Evidence(
        source=f"sysfs {sample.address}",
        text=f"{seat.words} {what} for {GONE_SAMPLES} readings",
    )
    severity, faults = seat.severity(Severity.FATAL), []
    if memory.seen and not memory.gone_at and memory.absent_samples >= GONE_SAMPLES:
        memory = replace(memory, gone_at=sample.at)
        fault = subject.fault(FaultClass.PCIE_LINK_DOWN, severity, sample.at, evidence)
        faults = [replace(fault, details=_details(sample, {}))]
    lasting = Condition(
        fault_class=FaultClass.PCIE_LINK_DOWN,
        device=subject.device,
        since=memory.gone_at,
        severity=severity,
        simulated=subject.simulated,
        evidence=(evidence,),
    )
    return Judgement(
        memory=memory,
        device=None,
        faults=tuple(faults),
        conditions=(lasting,) if memory.gone_at else (),
    )
