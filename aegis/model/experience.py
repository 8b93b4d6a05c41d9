"""What a fleet has taught: how often things fail, what helped, how long repairs take."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """How often one remedy was used against one class of fault, and how often it helped."""

    times: int = 0
    helped: int = 0  # the job came on, and the device did not show the same again within a day


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Counts since the first event of the log; a snapshot carries them on."""

    node_seconds: float = 0.0  # of nodes that were heard and in service
    counted_at: float = 0.0  # up to when those are counted
    node_failures: Mapping[str, int] = field(default_factory=dict)  # by class: a node was lost
    job_failures: Mapping[str, int] = field(default_factory=dict)  # by class: a job was stopped
    remedies: Mapping[str, Tried] = field(default_factory=dict)  # by "CLASS REMEDY"
    repairs: int = 0  # nodes that came back after Aegis took them
    repair_seconds: float = 0.0  # those took, together
    restart_count: int = 0  # recoveries that were followed to their first step
    restart_seconds: float = 0.0  # those took from the fault, together
