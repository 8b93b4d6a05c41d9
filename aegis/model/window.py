"""Windows: a time in which people want to be left alone, or want their nodes left alone."""

from dataclasses import dataclass
from enum import StrEnum


class WindowKind(StrEnum):
    """What is different while a window lasts."""

    SILENCE = "silence"  # nobody is told; Aegis acts as ever
    MAINTENANCE = "maintenance"  # nobody is told, and Aegis leaves the nodes alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which nodes and classes of faults, from when to when."""

    id: str  # "win-000001"
    kind: WindowKind
    starts_at: float
    ends_at: float
    actor: str
    reason: str
    node: str = "*"  # a glob
    fault_class: str = "*"  # a glob
    labels: tuple[tuple[str, str], ...] = ()  # all of them, such as ("rack", "r7")
