"""The node's clock: set while it ran, no longer disciplined, or another than the controller's.

    jump        the wall clock moved against the clock that never jumps: told once
    adrift      it was synchronised in this boot and is no longer, for five minutes: as long as that
                is so
    skew        it differs from the controller's by more than the limit, in three answers in a row:
                as long as it does

The first synchronisation after a boot sets the clock, as it should: information. A clock that was
never synchronised in this boot is none of our business until it differs from the controller's.
An answer of the controller bounds the difference: it was sent between our asking and our hearing.
"""

from dataclasses import dataclass, replace

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.subject import Subject

JUMP_SECONDS = 1.0
ADRIFT_SECONDS = 300.0
SKEW_SAMPLES = 3
_ANCHOR_SECONDS = 0.1  # slewing moves a clock by less than that between two readings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTime:
    """One question to the controller and its answer."""

    asked_at: float  # this node's clock
    sent_at: float  # the controller's
    heard_at: float  # this node's

    @property
    def difference(self) -> float:
        """How far this node's clock is ahead, by the best guess."""
        return (self.asked_at + self.heard_at) / 2 - self.sent_at

    @property
    def uncertainty(self) -> float:
        """By how much the guess may be wrong."""
        return abs(self.heard_at - self.asked_at) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """What was read of the clock."""

    at: float  # the wall clock
    boottime: float  # the clock that counts from the boot and never jumps
    synchronised: bool | None = None  # None: nobody says
    controller: ControllerTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockMemory:
    """What is remembered between samples and over restarts of the agent. Of one boot."""

    anchor: float | None = None  # the wall clock's reading at the boot
    was_synchronised: bool = False
    adrift_since: float = 0.0
    adrift_at: float = 0.0  # told
    answer: ControllerTime | None = None  # the last that was judged
    skewed_samples: int = 0
    skewed_at: float = 0.0
    skew: str = ""  # the sentence

    @property
    def lasting(self) -> tuple[object, ...]:
        """What must outlive the agent."""
        return self.anchor, self.was_synchronised, self.adrift_at, self.skewed_at


def observe(
    subject: Subject, memory: ClockMemory, sample: ClockSample, limit_seconds: float
) -> tuple[ClockMemory, tuple[Fault, ...], tuple[Condition, ...]]:
    """Judge one sample."""
    memory, jumps = _jump(subject, memory, sample)
    memory, adrift = _adrift(subject, memory, sample)
    memory, skews = _skew(subject, memory, sample, limit_seconds)
    lasting = (
        (memory.adrift_at, _adrift_evidence()),
        (memory.skewed_at, _skew_evidence(memory)),
    )
    conditions = tuple(
        Condition(
            fault_class=FaultClass.HOST_CLOCK_SKEW,
            device=subject.device,
            since=since,
            severity=Severity.WARNING,
            evidence=(evidence,),
        )
        for since, evidence in lasting
        if since
    )
    return memory, (*jumps, *adrift, *skews), conditions


def _fault(subject: Subject, severity: Severity, at: float, evidence: Evidence) -> Fault:
    return subject.fault(FaultClass.HOST_CLOCK_SKEW, severity, at, evidence)


def _jump(
    subject: Subject, memory: ClockMemory, sample: ClockSample
) -> tuple[ClockMemory, tuple[Fault, ...]]:
    now = sample.at - sample.boottime
    moved = now - memory.anchor if memory.anchor is not None else 0.0
    if memory.anchor is None or abs(moved) > _ANCHOR_SECONDS:
        memory = replace(memory, anchor=now)
    if abs(moved) <= JUMP_SECONDS:
        return memory, ()
    severity = Severity.WARNING if memory.was_synchronised else Severity.INFO
    evidence = Evidence(
        source="CLOCK_REALTIME against CLOCK_BOOTTIME",
        text=f"the clock was set {'forward' if moved > 0 else 'back'} by {abs(moved):.1f} s",
        before=f"{sample.at - moved:.1f}",
        after=f"{sample.at:.1f}",
    )
    return memory, (_fault(subject, severity, sample.at, evidence),)


def _adrift(
    subject: Subject, memory: ClockMemory, sample: ClockSample
) -> tuple[ClockMemory, tuple[Fault, ...]]:
    if sample.synchronised is None:
        return memory, ()
    if sample.synchronised:
        return replace(memory, was_synchronised=True, adrift_since=0.0, adrift_at=0.0), ()
    if not memory.was_synchronised or memory.adrift_at:
        return memory, ()
    since = memory.adrift_since or sample.at
    if not 0 <= sample.at - since < ADRIFT_SECONDS:
        memory = replace(memory, adrift_since=since, adrift_at=since)
        return memory, (_fault(subject, Severity.WARNING, since, _adrift_evidence()),)
    return replace(memory, adrift_since=since), ()


def _adrift_evidence() -> Evidence:
    return Evidence(
        source="adjtimex",
        text="the clock was synchronised and is no longer: its time service has lost its servers "
        "or has stopped",
        before="synchronised",
        after="not synchronised",
    )


def _skew(
    subject: Subject, memory: ClockMemory, sample: ClockSample, limit_seconds: float
) -> tuple[ClockMemory, tuple[Fault, ...]]:
    answer = sample.controller
    if answer is None or answer == memory.answer:
        return memory, ()
    memory = replace(memory, answer=answer)
    apart = abs(answer.difference)
    if apart + answer.uncertainty <= limit_seconds:
        return replace(memory, skewed_samples=0, skewed_at=0.0), ()
    if apart - answer.uncertainty <= limit_seconds:
        return memory, ()  # too slow an answer to tell
    samples = min(memory.skewed_samples + 1, SKEW_SAMPLES)
    memory = replace(memory, skewed_samples=samples)
    if samples < SKEW_SAMPLES or memory.skewed_at:
        return memory, ()
    direction = "ahead of" if answer.difference > 0 else "behind"
    text = (
        f"the clock is {apart:.1f} s {direction} the controller's (give or take "
        f"{answer.uncertainty:.2f} s); {limit_seconds:g} s are allowed"
    )
    memory = replace(memory, skewed_at=sample.at, skew=text)
    fault = _fault(subject, Severity.WARNING, sample.at, _skew_evidence(memory))
    return memory, (fault,)


def _skew_evidence(memory: ClockMemory) -> Evidence:
    return Evidence(source="the controller's answers", text=memory.skew)
