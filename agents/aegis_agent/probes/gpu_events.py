"""What amdsmi's events mean. By their names: the number 5 was once another event.

Like everything that may come in a storm, events of one kind are told at once and then folded.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis_agent.probes import burst
from aegis_agent.probes.burst import Burst
from aegis_agent.probes.subject import Subject

# Others, such as the start and end of processes and migrations, are no faults.
MEANING: Mapping[str, tuple[FaultClass, Severity, str]] = {
    "VMFAULT": (
        FaultClass.GPU_VM_FAULT,
        Severity.WARNING,
        "a process accessed memory that is not its own",
    ),
    "THERMAL_THROTTLE": (
        FaultClass.GPU_THERMAL_THROTTLE,
        Severity.WARNING,
        "it is throttled by heat",
    ),
    "GPU_PRE_RESET": (FaultClass.GPU_RESET_BEGIN, Severity.WARNING, "its reset begins"),
    "GPU_POST_RESET": (FaultClass.GPU_RESET_SUCCEEDED, Severity.WARNING, "its reset is over"),
    "RING_HANG": (FaultClass.GPU_RING_TIMEOUT, Severity.ERROR, "a ring hangs"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvent:
    """One event; `count` of 0 asks whether some that were held back are due."""

    at: float
    name: str
    message: str = ""
    count: int = 1


def observe(subject: Subject, before: Burst, event: GpuEvent) -> tuple[Burst, Fault | None]:
    """Judge one event of a kind that means something."""
    fault_class, severity, text = MEANING[event.name]
    after, due = burst.add(before, event.at, event.count)
    if not due:
        return after, None
    told = f"{text}: {event.message}" if event.message else text
    evidence = Evidence(source=f"amdsmi event {event.name}", text=told)
    return after, subject.fault(fault_class, severity, event.at, evidence, count=due)
