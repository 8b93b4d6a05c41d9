"""What the controller believes about the fleet. `step` is the only writer.

Nodes, jobs and incidents are frozen and replaced, so whoever reads one may keep it. Each change
goes through a `put_…`, which notes it in `touched` for those who must tell others and keeps the
`index`, by which things are found without walking the whole fleet.
"""

from dataclasses import dataclass, field

from aegis.core.index import HOLDING, Index, holders, standing
from aegis.model.action import Notify
from aegis.model.experience import Experience
from aegis.model.incident import Incident, IncidentState
from aegis.model.job import (
    Job,
    JobSpec,
    JobState,
    LauncherPhase,
    LauncherState,
    Member,
    RankPhase,
)
from aegis.model.memory import Memory
from aegis.model.node import Contact, Node, NodeState
from aegis.model.policy import Policy, RuleMode
from aegis.model.window import Window

__all__ = [  # what is defined here, and what `index` shares
    "ENDED",
    "HOLDING",
    "Cluster",
    "Pause",
    "any_alive",
    "at_rest",
    "contact_of",
    "holders",
    "is_same_run",
    "launcher_of",
    "standing",
]

CLOSED_KEPT = 1000  # incidents; older ones live in the event log only
ENDED = (JobState.DONE, JobState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """All automation is stopped: since when, by whom and why."""

    at: float
    actor: str
    reason: str


class _Indexed:
    """What is not state: no field, so that no snapshot holds it and no comparison asks for it."""

    __slots__ = ("index", "ordered")
    index: Index
    ordered: set[str]  # jobs whose orders have changed in this step

    def begin(self, index: Index) -> None:
        """Everything is indexed, and nothing ordered yet."""
        self.index, self.ordered = index, set()


@dataclass(slots=True, kw_only=True)
class Cluster(_Indexed):
    """The fleet, its jobs and its incidents, after the last event."""

    policy: Policy = field(default_factory=Policy)
    epoch: int = 0  # of the controller: the fencing token
    version: str = ""  # of the controller
    now: float = 0.0
    hears_since: float = 0.0  # its start, or the end of a silence of much of the fleet
    rules_digest: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    incidents: dict[str, Incident] = field(default_factory=dict)  # oldest first
    open_incidents: set[str] = field(default_factory=set)  # the ids of those not closed
    origins: dict[str, int] = field(default_factory=dict)  # highest fault number of each spool
    next_incident: int = 1
    silent_since: float | None = None  # much of the fleet fell silent at once: decide nothing
    paused: Pause | None = None
    memories: dict[str, Memory] = field(default_factory=dict)  # by node
    rule_modes: dict[str, dict[str, RuleMode]] = field(default_factory=dict)  # by rule and group
    windows: dict[str, Window] = field(default_factory=dict)
    next_window: int = 1
    experience: Experience = field(default_factory=Experience)
    lemons: frozenset[str] = frozenset()  # nodes that fail far more often than the rest
    breaker_since: float | None = None  # so many nodes are out by Aegis that it takes no more
    touched: set[tuple[str, str]] = field(default_factory=set)  # ("node" | "job" | "incident", id)
    notices: list[Notify] = field(default_factory=list)  # of this step; `step` hands them out

    def __post_init__(self) -> None:
        """Index what a snapshot has brought."""
        self.begin(Index.of(self.nodes, self.jobs, self.incidents))

    def put_node(self, node: Node) -> None:
        """Replace or add a node."""
        before = self.nodes.get(node.name)
        if before is None or before.seen_at != node.seen_at or before != node:
            self.nodes[node.name] = node
            self.index.put_node(before, node)
            self.touched.add(("node", node.name))

    def put_job(self, job: Job) -> None:
        """Replace or add a job."""
        name = job.spec.name
        before = self.jobs.get(name)
        if before == job:
            return
        self.jobs[name] = job
        self.index.put_job(before, job)
        self.touched.add(("job", name))
        if job.sequence != (before.sequence if before else 0):
            self.ordered.add(name)

    def put_incident(self, incident: Incident) -> None:
        """Replace or add an incident; the oldest closed ones beyond what is kept are forgotten."""
        before = self.incidents.get(incident.id)
        if before == incident:
            return
        self.incidents[incident.id] = incident
        self.index.put_incident(before, incident)
        self.touched.add(("incident", incident.id))
        if incident.state is not IncidentState.CLOSED:
            self.open_incidents.add(incident.id)
            return
        self.open_incidents.discard(incident.id)
        if len(self.incidents) - len(self.open_incidents) > CLOSED_KEPT:
            oldest = next(name for name in self.incidents if name not in self.open_incidents)
            self.index.put_incident(self.incidents.pop(oldest), None)

    def unresolved(self) -> list[Incident]:
        """The incidents that are not closed, oldest first."""
        return [self.incidents[name] for name in self.index.opened]

    def unresolved_on(self, node: str) -> list[Incident]:
        """Those of one node."""
        return [self.incidents[name] for name in self.index.opened_on.get(node, ())]

    def unresolved_of(self, job: str) -> list[Incident]:
        """Those of one job."""
        return [self.incidents[name] for name in self.index.opened_of.get(job, ())]

    def newest_on(self, node: str, count: int) -> list[Incident]:
        """Those of the node among the newest so many incidents of all, newest first."""
        oldest = f"inc-{max(0, self.next_incident - count):06d}"
        names = self.index.about.get(node, ())
        return [self.incidents[name] for name in reversed(names) if name >= oldest]

    def job_on(self, node: str) -> Job | None:
        """The job whose ranks may be alive on the node."""
        held = self.index.held.get(node)
        return self.jobs[next(iter(held))] if held else None

    def launched(self, job: str) -> list[Node]:
        """The nodes that have a launcher of the job, as they came."""
        names = self.index.launched.get(job, ())
        return [self.nodes[name] for name in self.index.in_order(names)]

    def member(self, job: str, node: str) -> Member | None:
        """The node's place among those on which ranks of the job may be alive."""
        return self.index.held.get(node, {}).get(job)

    def taken_since(self, at: float) -> list[Node]:
        """The nodes that Aegis has taken after that moment, the last one first."""
        found: list[Node] = []
        for name in reversed(self.index.taken):
            node = self.nodes[name]
            if node.taken_at[-1] <= at:
                break
            found.append(node)
        return found

    def silent_for(self, seconds: float) -> list[Node]:
        """The nodes of which nothing was heard for so long, as far as this controller can tell."""
        found: list[Node] = []
        if self.now - self.hears_since >= seconds:
            for name in self.index.heard:
                node = self.nodes[name]
                if self.silent_seconds(node) < seconds:
                    break
                found.append(node)
        return found

    def silent_seconds(self, node: Node) -> float:
        """How long neither agent nor launcher has spoken, as far as this controller can tell."""
        return self.now - max(node.seen_at, self.hears_since)

    def contact_seconds(self, contact: Contact) -> float:
        """The same for one launcher."""
        return self.now - max(contact.seen_at, self.hears_since)

    def spares(self, job: Job) -> list[Node]:
        """Nodes that could take ranks of the job and hold none, the most trusted first."""
        free = [
            node
            for node in self.launched(job.spec.name)
            if node.name not in self.index.held
            and node.name not in job.excluded
            and node.state in (NodeState.READY, NodeState.PROBATION)
            and self.can_start(node, job)
            and not _trains_another(node, job)
        ]
        return sorted(free, key=lambda node: self._trust(node, job))

    def _trust(self, node: Node, job: Job) -> tuple[bool, bool, bool, str]:
        """Ready ones before those on probation, lemons last of each, and the prepared first."""
        launcher = launcher_of(node, job.spec.name)
        unprepared = launcher is None or not launcher.standbys
        is_lemon = node.name in self.lemons
        return (node.state is not NodeState.READY, is_lemon, unprepared, node.name)

    def can_start(self, node: Node, job: Job) -> bool:
        """Whether the node's launcher of this job is heard and holds no ranks."""
        contact = contact_of(node, job.spec.name)
        launcher = launcher_of(node, job.spec.name)
        return (
            contact is not None
            and launcher is not None
            and contact.by is not None
            and launcher.launcher not in job.ended_launchers
            and is_same_run(launcher.spec, job.spec)
            and at_rest(launcher)
            and self.contact_seconds(contact) < self.policy.silence_seconds / 2
        )


def _trains_another(node: Node, job: Job) -> bool:
    """Whether ranks of another job are alive there, by whoever has started them."""
    return any(not at_rest(one) for one in node.launchers if one.spec.name != job.spec.name)


def is_same_run(one: JobSpec, other: JobSpec) -> bool:
    """Whether two launchers were started for the same thing, not only under the same name."""
    return (one.owner, one.command, one.nodes, one.ranks_per_node) == (
        other.owner,
        other.command,
        other.nodes,
        other.ranks_per_node,
    )


def launcher_of(node: Node, job: str) -> LauncherState | None:
    """The node's launcher of the job, as last heard."""
    for one in node.launchers:  # a loop, since a job of many nodes asks this with each tick
        if one.spec.name == job:
            return one
    return None


def contact_of(node: Node, job: str) -> Contact | None:
    """How that launcher was last heard."""
    return next((one for one in node.contacts if one.job == job), None)


def any_alive(launcher: LauncherState) -> bool:
    """Whether the launcher holds a rank that has not exited."""
    return any(rank.phase is not RankPhase.EXITED for rank in launcher.ranks)


def at_rest(launcher: LauncherState) -> bool:
    """Whether the launcher has no rank and is about to have none."""
    resting = (LauncherPhase.IDLE, LauncherPhase.FAILED, LauncherPhase.DONE)
    return launcher.phase in resting and not any_alive(launcher)
