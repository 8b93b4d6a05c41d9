"""What Aegis may do here, and how much of it: the modes and the limits."""

from dataclasses import dataclass
from enum import StrEnum

from aegis.model.validation import Depth


class Mode(StrEnum):
    """How far a rule may go, from least to most."""

    OBSERVE = "observe"  # record what it would have done
    NOTIFY = "notify"  # and tell people
    APPROVE = "approve"  # and wait for a person: `aegis incidents approve`
    ENFORCE = "enforce"  # act


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMode:
    """How far a person said that one rule may go."""

    mode: Mode
    at: float
    actor: str
    reason: str


class Unanswered(StrEnum):
    """What becomes of a question that nobody has answered in time."""

    HOLD = "hold"  # nothing is done; people are told once more
    ACT = "act"  # silence is consent


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The bounds that no rule may exceed. A fresh install observes."""

    mode: Mode = Mode.OBSERVE  # for what takes a node away
    job_mode: Mode = Mode.ENFORCE  # for restarts in place, which the job's owner asked for
    mode_max: Mode = Mode.ENFORCE  # for every rule, whatever an operator sets for it
    nodes_out_max: int = 1  # nodes taken by Aegis ...
    nodes_out_fraction: float = 0.02  # ... or this part of the fleet, whichever is more ...
    nodes_out_window_seconds: float = 600.0  # ... in this time
    nodes_out_per_domain_max: int = 1  # of one rack or switch, without a person's word
    breaker_nodes_min: int = 3  # with so many nodes out by Aegis ...
    breaker_fraction: float = (
        0.1  # ... or this part of the fleet, whichever is more, it takes no more
    )
    upstream_nodes_min: int = 3  # so many nodes lose a link within upstream_seconds: not theirs
    upstream_seconds: float = 10.0
    spare_floor: int = 0  # spares that must be left after an act
    cooldown_seconds: float = 600.0  # before Aegis takes the same node again
    lemon_times: int = 5  # a node taken so often by Aegis within the window is a lemon
    lemon_window_seconds: float = 604800.0
    probation_seconds: float = 3600.0  # 0: a returned node is ready at once
    hold_down_seconds: float = 7.0  # a link must be down this long
    silence_seconds: float = 30.0  # a node or launcher without a word, its job without progress
    hung_up_seconds: float = 0.4  # a node that hung up, its job's other ranks dead, is lost
    silent_fraction_max: float = 0.5  # more silent at once than this: suspect our own network
    gather_seconds: float = 5.0  # wait this long for spares to register before the first start
    start_seconds: float = 300.0  # for a generation to have all its ranks alive
    stop_seconds: float = 30.0  # for a launcher to report its ranks gone, else its node is suspect
    stop_grace_seconds: float = 30.0  # for drain_saving
    settle_seconds: float = 60.0  # a script that reports no steps counts as recovered after this
    fresh_seconds: float = 5.0  # an agent's word older than this is no reason to act
    event_ttl_seconds: float = 600.0  # an older fault is recorded, never acted on
    order_seconds: float = 60.0  # an order to a node's root helper is begun in this time or never
    reset_seconds: float = 300.0  # for a reset, and for its devices to read as healthy
    reboot_seconds: float = 1800.0  # the same for a reboot
    validate_on_return: Depth = Depth.LIGHT  # before a node serves again, where its agent can
    validate_light_seconds: float = 120.0  # until it is taken for failed
    validate_full_seconds: float = 900.0
    repairs_max: int = 2  # of one kind and node within a day, where the rule does not say
    approvals_needed: int = 1  # 2: two people must agree
    approval_seconds: float = 3600.0  # for an answer, and how long it counts
    approval_unanswered: Unanswered = Unanswered.HOLD
