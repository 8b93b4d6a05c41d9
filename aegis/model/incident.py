"""An incident: what broke, how we know, what was decided and why, what was done, what it cost."""

from dataclasses import dataclass, field
from enum import StrEnum

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.policy import Mode


class IncidentState(StrEnum):
    """Where an incident is in its life."""

    WATCHING = "watching"  # seen, within its hold-down
    OPEN = "open"  # decided, nothing under way: observed only, blocked, or waiting for approval
    RECOVERING = "recovering"  # actions are under way
    CLOSED = "closed"  # verified, or nothing left to do


class Remedy(StrEnum):
    """A rung of the ladder, from least to most disruptive."""

    COUNT = "count"  # record only
    NOTIFY = "notify"
    RESTART = "restart"  # restart the job's ranks in place; no node is blamed
    DRAIN_SAVING = "drain_saving"  # save at the next step boundary, then move off the node
    DRAIN_NOW = "drain_now"  # move off the node without saving
    RESET_DOMAIN = "reset_domain"  # the same, then reset the GPU with all of its hive
    REBOOT = "reboot"  # the same, then start the node anew


class DecisionResult(StrEnum):
    """What came of a decision."""

    ACTED = "acted"
    WOULD_ACT = "would_act"  # the mode forbids it
    NEEDS_APPROVAL = "needs_approval"
    BLOCKED = "blocked"  # a rail said no
    NOTHING = "nothing"  # the rule calls for no act


class EntryKind(StrEnum):
    """What a line of an incident's timeline is about."""

    SIGNAL = "signal"
    DECISION = "decision"
    ACTION = "action"
    PROGRESS = "progress"
    OUTCOME = "outcome"
    HUMAN = "human"


class Feedback(StrEnum):
    """What a person thought of a decision afterwards."""

    RIGHT = "right"
    WRONG = "wrong"
    WRONG_NODE = "wrong_node"  # something was to be done, and not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What people were asked to agree to, and what they said."""

    remedy: Remedy  # no other is covered
    asked_at: float
    expires_at: float  # an answer, too, counts for no longer than this
    agreed: tuple[str, ...] = ()  # who
    denied_by: str = ""
    reason: str = ""  # of the last who spoke
    expired: bool = False  # nobody answered in time, and people were told so
    consented: bool = False  # nobody answered in time, and the policy takes that for a yes
    needed: int = 1  # how many must agree
    covers: tuple[
        str, ...
    ] = ()  # the rails that refused and the plan, as those who agreed saw them


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one rail said."""

    rail: str  # "mode", "budget", "spare", "spare_floor", "cooldown", "hold", "ttl"
    passed: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A remedy that was not taken, and why."""

    remedy: Remedy
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided about an incident, in full."""

    at: float
    rule: str  # id; "" when no rule speaks of the fault
    rules_digest: str  # content hash of the rule set
    remedy: Remedy
    mode: Mode
    result: DecisionResult
    reason: str  # a sentence an operator can read
    verdicts: tuple[Verdict, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    clears_when: str = ""  # what would change the decision
    told: str = ""  # with what urgency people are told: a severity, "nobody", empty: the fault's
    verify: str = ""  # what the rule wants shown before the node serves again; empty: the policy's
    plan: tuple[str, ...] = ()  # the GPUs, jobs and processes that a reset or reboot hits


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the timeline, oldest first."""

    at: float
    kind: EntryKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """When each phase of a recovery ended; None: not reached, or not part of it.

    detect = opened - observed, decide = decided - opened, stop = stopped - decided,
    provision = started - stopped, load = loaded - started, first step = first_step - loaded.
    Times of ranks come from the nodes' clocks.
    """

    observed_at: float
    opened_at: float
    decided_at: float | None = None
    stopped_at: float | None = None  # the last old rank was gone
    started_at: float | None = None  # every new rank's process existed
    loaded_at: float | None = None  # every new rank had its state
    first_step_at: float | None = None  # every new rank had completed a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One cause and all that came of it."""

    id: str  # "inc-000001", in order of opening
    state: IncidentState
    fault_class: FaultClass
    severity: Severity
    node: str | None
    device: str
    headline: str  # one sentence: what, where, effect, what Aegis did, now
    phases: Phases
    job: str | None = None
    simulated: bool = False
    faults: tuple[Fault, ...] = ()  # the newest 20, each with its evidence
    suppressed: int = 0  # further signals folded into this incident
    signal_at: float = 0.0  # when the newest of them came
    active_at: float = 0.0  # when a line was last added to its timeline, by the controller's clock
    times: int = 0  # faults of its class, each with its count
    decisions: tuple[Decision, ...] = ()  # newest last; a new one only when the answer changes
    entries: tuple[Entry, ...] = ()  # the newest 200
    outcome: str = ""
    closed_at: float | None = None
    nodes_before: tuple[str, ...] = ()
    nodes_after: tuple[str, ...] = ()
    generation_before: int = 0
    generation_after: int = 0
    last_step_before: int = 0
    resumed_step: int | None = None
    steps_lost: int | None = None
    follows: str = ""  # the incident by which people were told of what hit this one too
    acknowledged_by: str = ""
    approval: Approval | None = None
    feedback: Feedback | None = None
    feedback_by: str = ""
    rejected_checkpoints: tuple[str, ...] = field(default=())  # sentences
