"""Events: what has happened. Past tense, immutable, stamped once by the controller's clock."""

from dataclasses import dataclass
from typing import TypeAlias

from aegis.model.fault import Fault
from aegis.model.incident import Feedback
from aegis.model.node import NodeReport
from aegis.model.policy import Mode, Policy
from aegis.model.validation import Depth
from aegis.model.window import WindowKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStarted:
    """A controller took the event log. Its epoch fences every order of the ones before."""

    at: float
    epoch: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesLoaded:
    """The rules changed: the whole text, so that a replay needs no file."""

    at: float
    digest: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The modes and limits changed."""

    at: float
    policy: Policy
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReported:
    """A node's whole state arrived and differs from the one before."""

    at: float
    report: NodeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultObserved:
    """A device fault arrived from an agent's spool, for the first time under this id."""

    at: float
    origin: str  # the spool's own id
    number: int  # grows within the origin
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed; these nodes reported, unchanged, since the last tick."""

    at: float
    agents_seen: tuple[str, ...] = ()
    launchers_seen: tuple[str, ...] = ()  # nodes whose launchers spoke for themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHungUp:
    """The last connection of the node was closed, and none has taken its place yet."""

    at: float
    node: str
    session: int  # of that connection: a word of a later one takes this back


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCordoned:
    """An operator wants no new ranks on the node; the ones it has go on."""

    at: float
    node: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUncordoned:
    """An operator lifts a cordon."""

    at: float
    node: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrained:
    """An operator wants the node's ranks moved away, with a save first."""

    at: float
    node: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReturned:
    """An operator puts the node back to service; what it has counted so far is forgiven."""

    at: float
    node: str
    actor: str
    reason: str
    validate: Depth | None = None  # before it serves again; None: as the policy says


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStopped:
    """An operator or the owner ends the job for good."""

    at: float
    job: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestarted:
    """Somebody wants a job's ranks started anew, from what they save now or from the newest."""

    at: float
    job: str
    actor: str
    reason: str
    at_once: bool = False  # without a save


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNodeExcluded:
    """Somebody wants a job kept off a node, or lets it go there again."""

    at: float
    job: str
    node: str
    actor: str
    reason: str
    excluded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentApproved:
    """A person agrees to what Aegis would do about the incident."""

    at: float
    incident: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentDenied:
    """A person forbids it."""

    at: float
    incident: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentAcknowledged:
    """A person has seen the incident and looks after it."""

    at: float
    incident: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentNoted:
    """A person adds a line to the incident's timeline."""

    at: float
    incident: str
    actor: str
    reason: str  # the line


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentJudged:
    """A person says whether the decision about the incident was right."""

    at: float
    incident: str
    actor: str
    feedback: Feedback
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationPaused:
    """A person stops all automation: Aegis goes on seeing and telling, and does nothing."""

    at: float
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationResumed:
    """A person lets Aegis act again, as far as the policy lets it."""

    at: float
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSet:
    """A person announces maintenance, or wants silence about some nodes or classes."""

    at: float
    kind: WindowKind
    starts_at: float
    ends_at: float
    actor: str
    reason: str
    node: str = "*"
    fault_class: str = "*"
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEnded:
    """A person ends a window before its time."""

    at: float
    window: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleModeSet:
    """A person says how far a rule may go, everywhere or on the nodes of one group."""

    at: float
    rule: str
    mode: Mode | None  # None: as the policy says
    actor: str
    reason: str
    group: str = ""  # the nodes' label; empty: everywhere


Event: TypeAlias = (
    ControllerStarted
    | RulesLoaded
    | PolicyChanged
    | NodeReported
    | FaultObserved
    | Tick
    | NodeHungUp
    | NodeCordoned
    | NodeUncordoned
    | NodeDrained
    | NodeReturned
    | JobStopped
    | JobRestarted
    | JobNodeExcluded
    | IncidentApproved
    | IncidentDenied
    | IncidentAcknowledged
    | IncidentNoted
    | IncidentJudged
    | AutomationPaused
    | AutomationResumed
    | RuleModeSet
    | WindowSet
    | WindowEnded
)
