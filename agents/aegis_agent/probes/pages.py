"""Retired memory pages: each new one is worth a look, too many mean a new GPU."""

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.subject import Subject

_SOURCE = "amdsmi bad_page_info"


def observe(
    subject: Subject, at: float, before: int | None, after: int | None, threshold: int | None
) -> tuple[Fault, ...]:
    """The faults that the new number of pages shows; None is a number that could not be read."""
    if before is None or after is None or after <= before:
        return ()
    evidence = Evidence(
        source=_SOURCE,
        text=f"retired memory pages rose from {before} to {after}"
        + (f"; {threshold} is this GPU's threshold" if threshold else ""),
        before=str(before),
        after=str(after),
    )
    faults = [
        subject.fault(
            FaultClass.GPU_MEMORY_BAD_PAGE, Severity.WARNING, at, evidence, count=after - before
        )
    ]
    if is_exceeded(after, threshold) and not is_exceeded(before, threshold):
        faults.insert(
            0,
            subject.fault(FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD, Severity.FATAL, at, evidence),
        )
    return tuple(faults)


def is_exceeded(pages: int | None, threshold: int | None) -> bool:
    """Whether the GPU has retired as many pages as its maker allows."""
    return bool(threshold) and pages is not None and threshold is not None and pages >= threshold
