"""What the API answers with, where that is more than a noun of `aegis.model`."""

import time
from collections import Counter
from dataclasses import dataclass, fields
from enum import StrEnum

from aegis.controller.services import Services
from aegis.controller.tokens import Role, Token
from aegis.core.approval import waiting_for_people
from aegis.core.cluster import ENDED, Cluster, Pause
from aegis.core.forecast import Ettr, SparesForecast, ettr, spares
from aegis.core.lemons import times_taken
from aegis.core.story import seconds, tell
from aegis.model.catalogue import CATALOGUE
from aegis.model.fault import Fault, FaultClass
from aegis.model.incident import Decision, Feedback, Incident, Remedy
from aegis.model.job import Job, JobState
from aegis.model.node import Node, NodeState
from aegis.model.policy import Mode, Policy, RuleMode
from aegis.model.validation import Depth
from aegis.rules import Rule
from aegis.rules.explain import Explained

FAILED_LATELY_SECONDS = 3600.0


class Level(StrEnum):
    """How the whole stands."""

    OK = "ok"
    DEGRADED = "degraded"  # something is out, or being mended
    CRITICAL = "critical"  # a person is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage:
    """Nodes by name."""

    items: tuple[Node, ...]
    next: str | None = None  # pass it as `cursor` for the next page


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Jobs by name."""

    items: tuple[Job, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPage:
    """Incidents, the last active first."""

    items: tuple[Incident, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentView(Incident):
    """An incident with where its time went and its story in plain lines."""

    seconds: dict[str, float | None]  # by phase: detect, decide, stop, provision, load, first_step
    story: tuple[str, ...]
    means: str  # what this class of fault is, for someone who has not met it
    check: tuple[str, ...]  # what to look at


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole in one look."""

    verdict: str  # one sentence
    level: Level
    nodes: dict[NodeState, int]
    spares: int  # nodes that could take ranks of some job and hold none
    jobs: dict[JobState, int]
    open_incidents: int
    policy: Policy
    held: str  # why Aegis acts on nothing; empty: it may act
    paused: Pause | None  # by whom all automation was stopped
    approvals_waiting: int  # incidents that wait for a person to agree
    event_log_full: str  # why nothing can be written; empty: it can
    silent_since: float | None  # much of the fleet fell silent at once
    simulated: bool  # some node's hardware is simulated
    rules_digest: str
    epoch: int
    version: str
    as_of: float
    reload_error: str = ""  # why rules and policy on disk are not those in force; empty: they are


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """The policy in force."""

    policy: Policy
    held: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesView:
    """The rules in force, in the order in which they are asked."""

    digest: str
    rules: tuple[Rule, ...]
    reload_error: str  # why the last reload was refused; empty: it was not
    modes: dict[
        str, dict[str, RuleMode]
    ]  # by rule and group, "" for everywhere: as people set them


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRequest:
    """How far a rule may go."""

    mode: Mode | None  # none: as the policy says
    reason: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesExplained:
    """Why each rule that speaks of an incident's class fires or does not, as things are now."""

    incident: str
    fault: Fault  # what the rules are asked about
    digest: str
    rules: tuple[Explained, ...]
    decision: Decision | None  # the last one that was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What this API is."""

    version: str
    api: str
    protocol: int  # of agents
    epoch: int
    event: int  # the number of the newest event: where a stream of changes may begin


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A token to be minted: for a node, or for a person or program."""

    role: Role
    node: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MintedToken:
    """A new token, shown this once."""

    token: str
    id: str
    role: Role
    node: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPage:
    """All tokens, without their secrets."""

    items: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why an operator wants it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Why a job's ranks are to be started anew, and whether without saving first."""

    reason: str
    at_once: bool = False


class JobVerb(StrEnum):
    """What people ask of a job."""

    STOP = "stop"
    RESTART = "restart"
    EXCLUDE_NODE = "exclude-node"
    INCLUDE_NODE = "include-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """The node that a job is kept off, or let on again, and why."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Why a node is to serve again, and how closely it is looked at first."""

    reason: str
    validate: Depth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """Whether a decision was right, and why."""

    feedback: Feedback
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Automation:
    """Whether Aegis may act at all."""

    paused: Pause | None
    held: str  # why it acts on nothing after a broken promise; empty: it may


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """How often one remedy was used against one class of fault here, and how often it helped."""

    fault_class: FaultClass
    remedy: Remedy
    times: int
    helped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemon:
    """A node that Aegis had to take out far more often than the rest."""

    node: str
    times: int
    window_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is to be expected, from what was measured."""

    spares: SparesForecast
    jobs: dict[str, Ettr]  # by name, of the jobs that are not over
    lessons: tuple[Lesson, ...]
    lemons: tuple[Lemon, ...]


def forecast_view(cluster: Cluster) -> Forecast:
    """All forecasts at once."""
    known = sorted(cluster.experience.remedies.items())
    window = cluster.policy.lemon_window_seconds
    return Forecast(
        spares=spares(cluster),
        jobs={
            name: ettr(cluster, job)
            for name, job in sorted(cluster.jobs.items())
            if job.state not in ENDED
        },
        lessons=tuple(
            Lesson(
                fault_class=FaultClass(name.split()[0]),
                remedy=Remedy(name.split()[1]),
                times=tried.times,
                helped=tried.helped,
            )
            for name, tried in known
        ),
        lemons=tuple(
            Lemon(
                node=name,
                times=times_taken(cluster, cluster.nodes[name]),
                window_seconds=window,
            )
            for name in sorted(cluster.lemons)
            if name in cluster.nodes
        ),
    )


def incident_view(incident: Incident) -> IncidentView:
    """The incident as its page shows it."""
    values = {field.name: getattr(incident, field.name) for field in fields(Incident)}
    entry = CATALOGUE[FaultClass(incident.fault_class)]
    return IncidentView(
        **values,
        seconds=seconds(incident),
        story=tuple(tell(incident)),
        means=f"{entry.description} {entry.effect}",
        check=entry.check,
    )


def summary(services: Services) -> Summary:
    """The whole in one look."""
    cluster, loop = services.cluster, services.loop
    level, verdict = _verdict(services)
    return Summary(
        verdict=verdict,
        level=level,
        nodes=dict(Counter(NodeState(node.state) for node in cluster.nodes.values())),
        spares=len({node.name for job in cluster.jobs.values() for node in cluster.spares(job)}),
        jobs=dict(Counter(JobState(job.state) for job in cluster.jobs.values())),
        open_incidents=len(cluster.open_incidents),
        policy=cluster.policy,
        held=loop.held,
        paused=cluster.paused,
        approvals_waiting=len(waiting_for_people(cluster)),
        event_log_full=loop.full,
        silent_since=cluster.silent_since,
        simulated=any(node.simulated for node in cluster.nodes.values()),
        rules_digest=loop.state.rules.digest,
        epoch=cluster.epoch,
        version=services.version,
        as_of=time.time(),
        reload_error=services.reloads.error,
    )


def _verdict(services: Services) -> tuple[Level, str]:
    """The worst thing first."""
    cluster = services.cluster
    if alarm := _alarm(services) or _jobs_in_trouble(cluster):
        return Level.CRITICAL, alarm
    if wanting := _wanting(cluster) or _refused(services.reloads.error):
        return Level.DEGRADED, wanting
    nodes = len(cluster.nodes)
    if not nodes:
        return Level.OK, "No node has reported yet: mint a token and start an agent."
    running = sum(job.state is JobState.RUNNING for job in cluster.jobs.values())
    stand = f"All {nodes} nodes are" if nodes > 1 else "The one node is"
    jobs = f"{running} job{'' if running == 1 else 's'} running"
    return Level.OK, f"{stand} in service; {jobs}; no open incident."


def _refused(error: str) -> str:
    first, *more = error.splitlines() or [""]
    others = f" (and {len(more)} more)" if more else ""
    told = f"the last reload was refused, and what was in force before still is: {first}{others}"
    return told[0].upper() + told[1:] if error else ""


def _alarm(services: Services) -> str:
    """Why Aegis itself does not act."""
    if services.loop.full:
        return f"Nothing is decided: {services.loop.full}."
    if services.loop.held:
        return f"Aegis holds and acts on nothing: {services.loop.held}."
    if services.cluster.silent_since is not None:
        return (
            "Much of the fleet fell silent at once: Aegis suspects its own network and decides "
            "nothing until it hears from them."
        )
    return ""


def _jobs_in_trouble(cluster: Cluster) -> str:
    for job in cluster.jobs.values():
        if job.state is JobState.WAITING and job.attempts:
            return f"Job {job.spec.name} has no ranks: {job.reason}."
        if job.state is JobState.FAILED and cluster.now - job.since < FAILED_LATELY_SECONDS:
            return f"Job {job.spec.name} failed: {job.reason}."
    return ""


def _wanting(cluster: Cluster) -> str:
    """What is broken or out of service, or wants a person."""
    if paused := cluster.paused:
        return f"{paused.actor} paused all automation: {paused.reason}. Aegis only tells."
    if waiting := waiting_for_people(cluster):
        count = f"{len(waiting)} incidents wait" if len(waiting) > 1 else "1 incident waits"
        return f"{count} for your approval; the newest: {waiting[-1].headline}"
    if open_now := cluster.unresolved():
        count = f"{len(open_now)} open incident{'s' if len(open_now) > 1 else ''}"
        return f"{count}; the newest: {open_now[-1].headline}"
    service = (NodeState.READY, NodeState.PROBATION)
    out = [node for node in cluster.nodes.values() if node.state not in service]
    if not out:
        return ""
    names = ", ".join(f"{node.name} is {node.state}" for node in out[:4])
    more = f" and {len(out) - 4} more" if len(out) > 4 else ""
    return f"Out of service: {names}{more}."
