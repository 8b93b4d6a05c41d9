"""Actions: what the controller should do. Imperative, immutable, safe to repeat."""

from dataclasses import dataclass
from typing import TypeAlias

from aegis.model.fault import Severity
from aegis.model.job import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Tell a node's launcher of this job what it should be running."""

    node: str
    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Tell people, once per incident and kind."""

    kind: str  # "incident.opened", "incident.closed", "job.failed", "fleet.silent"
    severity: Severity
    text: str
    incident: str | None = None


Action: TypeAlias = Assign | Notify
