"""A node, its devices, and the states it moves through.

    ready -> suspect -> ready
    ready | suspect -> cordoned -> draining -> quarantined -> repairing -> probation -> ready
    any -> unknown -> where it was, or quarantined
    repairing -> quarantined
    cordoned | draining | quarantined -> ready

A returned node is repairing while it is validated. The last move is an operator's: to return or to
uncordon.
"""

from dataclasses import dataclass
from enum import StrEnum

from aegis.model.fault import Condition, FaultClass
from aegis.model.job import LauncherState
from aegis.model.order import OrderResult, Repair
from aegis.model.validation import Validation, ValidationResult


class NodeState(StrEnum):
    """Whether a node may hold ranks, and why not."""

    READY = "ready"  # may hold ranks; a ready node whose launcher holds none is a spare
    SUSPECT = "suspect"  # something is being watched; keeps its ranks, gets no new ones
    CORDONED = "cordoned"  # gets no new ranks; the ones it has go on
    DRAINING = "draining"  # its ranks are being stopped
    QUARANTINED = "quarantined"  # holds no ranks until someone returns it
    REPAIRING = "repairing"  # is being reset, rebooted or validated
    PROBATION = "probation"  # back, used as a spare first
    UNKNOWN = "unknown"  # neither agent nor launcher has spoken for silence_seconds


class Health(StrEnum):
    """What is known of a device. No data is `unknown`, never `healthy`."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class Sender(StrEnum):
    """Who speaks for a node: its agent, or a launcher whose agent is away."""

    AGENT = "agent"
    LAUNCHER = "launcher"


_UNITS = ("_c", "_w", "_mb", "_percent", "_mts", "_at")


def is_gauge(counter: str) -> bool:
    """Whether the value rises and falls, as a temperature does, instead of counting errors.

    Its name ends in its unit: temp_hotspot_c, power_w, vram_used_mb, surveyed_at.
    """
    return counter.endswith(_UNITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU or network port as it was last read."""

    name: str  # "gpu3", "fab0"
    kind: str  # "gpu" | "nic" | "host"
    health: Health
    detail: str = ""  # one sentence: why unhealthy or unknown
    identity: str = ""
    read_at: float = 0.0  # the node's clock; a reading older than its limit is unknown
    counters: tuple[tuple[str, int], ...] = ()  # ("ecc_uncorrectable", 1), ("temp_hotspot_c", 61)
    facts: tuple[tuple[str, str], ...] = ()  # what it is: ("model", …), ("vbios", …), ("driver", …)
    used: bool = True  # training uses it; nothing of one that it does not use takes the node away


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """Faults of one class that did not come one by one, since the agent started."""

    fault_class: FaultClass
    merged: int = 0  # into the count of one like them
    dropped: int = 0  # by a full spool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node's whole state, not a change: a lost report costs nothing, a repeated one does nothing.

    A launcher whose agent is away sends one with `sender=LAUNCHER`, itself as the only launcher,
    and no devices or conditions; it then says nothing about the rest of the node.
    """

    node: str
    sender: Sender
    session: int  # stamped by the controller, grows with each connection
    sequence: int  # grows within a session
    boot_id: str = ""
    version: str = ""
    simulated: bool = False  # some of its devices are
    labels: tuple[tuple[str, str], ...] = ()  # rack, switch, group
    sources: tuple[tuple[str, str], ...] = ()  # what reads the devices, or why nothing does
    devices: tuple[Device, ...] = ()
    conditions: tuple[Condition, ...] = ()
    launchers: tuple[LauncherState, ...] = ()
    events_dropped: int = 0  # by the spool, since the agent started
    suppressed: tuple[Suppressed, ...] = ()
    has_helper: bool = False  # a root helper that can reset and reboot is installed
    order_results: tuple[OrderResult, ...] = ()  # of the orders that stood when it last heard
    validates: bool = False  # it can look closely at itself before it serves again
    validation_results: tuple[ValidationResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """When and through whom a node's launcher of one job was last heard."""

    job: str
    launcher: str
    seen_at: float  # or since when it is missed
    by: Sender | None  # None: it is missed: its agent speaks, and no longer of this launcher
    session: int = 0  # of the launcher's own connection, used when the agent is away
    sequence: int = 0
    superseded: tuple[str, ...] = ()  # the newest 8 launchers that this one followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the controller believes about one node."""

    name: str
    state: NodeState = NodeState.READY
    state_before_unknown: NodeState = NodeState.READY
    since: float = 0.0
    reason: str = ""
    held_by: str = ""  # who took it out: "aegis" or an operator's name; others' holds are respected
    incident: str | None = None  # the open incident that names this node
    seen_at: float = 0.0  # last word from agent or launcher, controller's clock
    agent_seen_at: float = 0.0
    hung_up_at: float = (
        0.0  # its last connection was closed, and it has not come back; 0: it is there
    )
    agent_session: int = 0
    agent_sequence: int = 0
    boot_session: int = 0  # of the first word since its boot: older words are from before
    launcher_session: int = 0  # of the launchers' own connection, used when the agent is away
    launcher_sequence: int = 0
    boot_id: str = ""
    version: str = ""
    simulated: bool = False  # some of its devices are
    labels: tuple[tuple[str, str], ...] = ()
    devices: tuple[Device, ...] = ()
    good_readings: tuple[tuple[str, float, float], ...] = ()  # device: newest healthy, one before
    conditions: tuple[Condition, ...] = ()
    launchers: tuple[LauncherState, ...] = ()
    contacts: tuple[Contact, ...] = ()  # one for each of the launchers
    events_dropped: int = 0
    suppressed: tuple[Suppressed, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()  # what reads the devices, or why nothing does
    taken_at: tuple[float, ...] = ()  # when Aegis took it out, for budgets and cooldown
    taken_for: str = ""  # the incident for which, until its repair is over
    repairs: tuple[Repair, ...] = ()  # the newest 20; the last one may be under way
    has_helper: bool = False  # a root helper that can reset and reboot is installed
    order_results: tuple[OrderResult, ...] = ()  # as its agent last said
    validates: bool = False  # its agent can look closely at it before it serves again
    validations: tuple[Validation, ...] = ()  # the newest 5; the last one may be under way
    validation_results: tuple[ValidationResult, ...] = ()  # as its agent last said
