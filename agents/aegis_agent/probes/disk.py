"""File systems that the node needs: full, almost full, out of inodes, or not answering.

One is full from a share of its space, or of its inodes, and has room again two points below. One
that does not answer or is not there is neither full nor well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.subject import Subject

_HYSTERESIS_PERCENT = 2.0
_MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSample:
    """What was read of one file system. Bytes are those that users may have."""

    at: float
    path: str
    used: int = 0
    free: int = 0
    inodes: int = 0  # 0: it has no such limit
    inodes_free: int = 0
    trouble: str = ""  # why it could not be read
    missing: bool = False  # there is no such path

    @property
    def used_percent(self) -> float:
        """As df has it."""
        total = self.used + self.free
        return 100.0 * self.used / total if total else 0.0

    @property
    def inodes_percent(self) -> float:
        """Of the files that it can hold."""
        return 100.0 * (1 - self.inodes_free / self.inodes) if self.inodes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskMemory:
    """What is remembered of one file system."""

    full_at: float = 0.0
    evidence: Evidence | None = None


def observe(
    subject: Subject,
    memories: Mapping[str, DiskMemory],
    samples: Sequence[DiskSample],
    limit_percent: float,
) -> tuple[dict[str, DiskMemory], tuple[Fault, ...], tuple[Condition, ...]]:
    """Judge all of them: one condition tells of every full one."""
    known: dict[str, DiskMemory] = {}
    faults = []
    for sample in samples:
        memory = memories.get(sample.path, DiskMemory())
        known[sample.path] = _judged(memory, sample, limit_percent)
        if known[sample.path].full_at and not memory.full_at:
            evidence = known[sample.path].evidence or _evidence(sample, limit_percent)
            fault = subject.fault(FaultClass.HOST_DISK_FULL, Severity.WARNING, sample.at, evidence)
            faults.append(replace(fault, details=(("path", sample.path),)))
    return known, tuple(faults), _lasting(subject, known)


def _judged(memory: DiskMemory, sample: DiskSample, limit_percent: float) -> DiskMemory:
    if sample.trouble:
        return memory
    limit = limit_percent - (_HYSTERESIS_PERCENT if memory.full_at else 0.0)
    if max(sample.used_percent, sample.inodes_percent) < limit:
        return DiskMemory()
    if memory.full_at:
        return memory
    return DiskMemory(full_at=sample.at, evidence=_evidence(sample, limit_percent))


def _evidence(sample: DiskSample, limit_percent: float) -> Evidence:
    if sample.used_percent >= sample.inodes_percent:
        text = f"{sample.used_percent:.0f} % used, {sample.free // _MB} MB are left"
    else:
        text = f"{sample.inodes_percent:.0f} % of its inodes used, {sample.inodes_free} are left"
    return Evidence(
        source=f"statfs {sample.path}",
        text=f"the file system of {sample.path} is full: {text}; {limit_percent:g} % are allowed",
    )


def _lasting(subject: Subject, memories: Mapping[str, DiskMemory]) -> tuple[Condition, ...]:
    full = [memory for memory in memories.values() if memory.full_at]
    if not full:
        return ()
    lasting = Condition(
        fault_class=FaultClass.HOST_DISK_FULL,
        device=subject.device,
        since=min(memory.full_at for memory in full),
        severity=Severity.WARNING,
        evidence=tuple(memory.evidence for memory in full if memory.evidence),
    )
    return (lasting,)
