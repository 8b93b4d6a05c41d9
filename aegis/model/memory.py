"""What is remembered of a node beyond its incidents: what it showed, and what was tried on it."""

from dataclasses import dataclass

from aegis.model.fault import FaultClass, Severity
from aegis.model.incident import Remedy

KEPT_SECONDS = 7 * 86400.0  # what is older is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Faults of one class on one device at one time."""

    at: float
    fault_class: FaultClass
    device: str
    count: int
    job: str = ""  # whose ranks ran there
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A remedy that was carried out."""

    at: float
    fault_class: FaultClass
    device: str
    remedy: Remedy
    incident: str
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of one node, oldest first."""

    seen: tuple[Seen, ...] = ()
    tried: tuple[Attempt, ...] = ()
