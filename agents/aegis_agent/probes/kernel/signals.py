"""What the kernel log tells of a device, when its lines are put together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aegis.model.fault import FaultClass, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A fault at its first line, or an update: how often it came again, and what it was about."""

    fault_class: FaultClass
    severity: Severity
    device: str  # as the lines name it: a PCI address, an interface, an RDMA device; may be empty
    beside: str = ""  # the PCI address in front of its first line, where that names more than one
    happened: float  # at its first line; seconds since boot
    count: int = 1  # how many more than told before; 0: no more, but more is known
    details: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()  # lines, or a sentence about them
