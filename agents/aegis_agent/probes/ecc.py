"""Error counters per block: a rise is a fault, a fall is a reset, a first sight is a baseline.

Counters count from the driver's load. A smaller number means that the driver was reloaded or the
GPU reset: what it shows now has been counted since then, and nothing was repaired.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class EccCounts:
    """Errors of one block since driver load."""

    correctable: int = 0
    uncorrectable: int = 0
    deferred: int = 0


_KINDS = ("uncorrectable", "deferred", "correctable")  # the worst first
_MEANING: Mapping[str, tuple[FaultClass, Severity]] = {
    "uncorrectable": (FaultClass.GPU_ECC_UNCORRECTABLE, Severity.ERROR),
    "deferred": (FaultClass.GPU_ECC_DEFERRED, Severity.ERROR),
    "correctable": (FaultClass.GPU_ECC_CORRECTABLE, Severity.INFO),
}
# Errors of the links between GPUs need hands, not a reset: AFID 17 corrected, 18 otherwise.
_XGMI_MEANING: Mapping[str, tuple[FaultClass, Severity]] = {
    "uncorrectable": (FaultClass.GPU_XGMI_ERROR, Severity.FATAL),
    "deferred": (FaultClass.GPU_XGMI_ERROR, Severity.FATAL),
    "correctable": (FaultClass.GPU_XGMI_ERROR, Severity.WARNING),
}
_TOTAL = "amdsmi total_ecc_count"
ALL_BLOCKS = "all"  # stands for the total of a GPU that gives no counts per block


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    block: str
    kind: str
    before: int
    after: int
    call: str  # that counts a block's errors

    @property
    def risen(self) -> int:
        """Errors since the reading before."""
        return self.after if self.after < self.before else self.after - self.before

    @property
    def source(self) -> str:
        return _TOTAL if self.block == ALL_BLOCKS else f"{self.call}({self.block})"


def observe(
    subject: Subject,
    at: float,
    before: Mapping[str, EccCounts],
    after: Mapping[str, EccCounts],
    *,
    call: str = "amdsmi ecc_count",
) -> tuple[Fault, ...]:
    """The faults that the new counts show. Blocks never read before are taken as they are."""
    changes = list(_changes(before, after, call))
    fallen = [change for change in changes if change.after < change.before]
    rises = [_rise(subject, at, change) for change in changes if change.risen]
    return (*([_fall(subject, at, fallen)] if fallen else []), *rises)


def unforgiven(counts: Mapping[str, EccCounts], accepted: Mapping[str, int]) -> dict[str, int]:
    """Uncorrectable errors per block beyond what was there when the GPU was first seen."""
    beyond = {
        block: count.uncorrectable - accepted.get(block, 0) for block, count in counts.items()
    }
    return {block: errors for block, errors in beyond.items() if errors > 0}


def _changes(
    before: Mapping[str, EccCounts], after: Mapping[str, EccCounts], call: str
) -> Iterator[_Change]:
    for kind in _KINDS:
        for block, counts in after.items():
            if block not in before:
                continue
            old, new = getattr(before[block], kind), getattr(counts, kind)
            if old != new:
                yield _Change(block=block, kind=kind, before=old, after=new, call=call)


def _rise(subject: Subject, at: float, change: _Change) -> Fault:
    meaning = _XGMI_MEANING if change.block == "xgmi_wafl" else _MEANING
    fault_class, severity = meaning[change.kind]
    return subject.fault(
        fault_class,
        severity,
        at,
        _evidence(change),
        count=change.risen,
        details={"block": change.block},
    )


def _evidence(change: _Change) -> Evidence:
    place = "all blocks" if change.block == ALL_BLOCKS else f"block {change.block.upper()}"
    text = f"{change.kind} errors in {place} rose from {change.before} to {change.after}"
    if change.after < change.before:
        text = f"{change.after} {change.kind} errors in {place} since its counter restarted"
    return Evidence(
        source=change.source, text=text, before=str(change.before), after=str(change.after)
    )


def _fall(subject: Subject, at: float, fallen: list[_Change]) -> Fault:
    """A falling counter is the trace of a reset that nobody announced."""
    evidence = (
        Evidence(
            source=change.source,
            text=f"{change.kind} errors in {change.block.upper()} fell from {change.before} to "
            f"{change.after}: the driver was reloaded or the GPU reset; counting starts anew, "
            "nothing was repaired",
            before=str(change.before),
            after=str(change.after),
        )
        for change in fallen
    )
    return subject.fault(FaultClass.GPU_RESET_PROGRESS, Severity.INFO, at, *evidence)
