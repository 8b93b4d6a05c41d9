"""What the controller believes about the fleet. `step` is the only writer.

Nodes, jobs and incidents are frozen and replaced, so whoever reads one may keep it. Each change
goes through a `put_…`, which notes it in `touched` for those who must tell others.
"""

from dataclasses import dataclass, field

from aegis.model.action import Notify
from aegis.model.experience import Experience
from aegis.model.incident import Incident, IncidentState
from aegis.model.job import Job, JobState, LauncherPhase, LauncherState, RankPhase
from aegis.model.memory import Memory
from aegis.model.node import Contact, Node, NodeState
from aegis.model.policy import Policy, RuleMode
from aegis.model.window import Window

CLOSED_KEPT = 1000  # incidents; older ones live in the event log only

HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)  # ranks may be alive
ENDED = (JobState.DONE, JobState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """All automation is stopped: since when, by whom and why."""

    at: float
    actor: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Cluster:
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

    def put_node(self, node: Node) -> None:
        """Replace or add a node."""
        if self.nodes.get(node.name) != node:
            self.nodes[node.name] = node
            self.touched.add(("node", node.name))

    def put_job(self, job: Job) -> None:
        """Replace or add a job."""
        if self.jobs.get(job.spec.name) != job:
            self.jobs[job.spec.name] = job
            self.touched.add(("job", job.spec.name))

    def put_incident(self, incident: Incident) -> None:
        """Replace or add an incident; the oldest closed ones beyond what is kept are forgotten."""
        if self.incidents.get(incident.id) == incident:
            return
        self.incidents[incident.id] = incident
        self.touched.add(("incident", incident.id))
        if incident.state is not IncidentState.CLOSED:
            self.open_incidents.add(incident.id)
            return
        self.open_incidents.discard(incident.id)
        if len(self.incidents) - len(self.open_incidents) > CLOSED_KEPT:
            oldest = next(name for name in self.incidents if name not in self.open_incidents)
            del self.incidents[oldest]

    def unresolved(self) -> list[Incident]:
        """The incidents that are not closed, oldest first."""
        return [self.incidents[name] for name in sorted(self.open_incidents)]

    def unresolved_on(self, node: str) -> list[Incident]:
        """Those of one node."""
        return [incident for incident in self.unresolved() if incident.node == node]

    def job_on(self, node: str) -> Job | None:
        """The job whose ranks may be alive on the node."""
        return next((job for job in self.jobs.values() if node in holders(job)), None)

    def silent_seconds(self, node: Node) -> float:
        """How long neither agent nor launcher has spoken, as far as this controller can tell."""
        return self.now - max(node.seen_at, self.hears_since)

    def contact_seconds(self, contact: Contact) -> float:
        """The same for one launcher."""
        return self.now - max(contact.seen_at, self.hears_since)

    def spares(self, job: Job) -> list[Node]:
        """Nodes that could take ranks of the job and hold none, the most trusted first."""
        held = {name for other in self.jobs.values() for name in holders(other)}
        free = [
            node
            for node in self.nodes.values()
            if node.name not in held
            and node.state in (NodeState.READY, NodeState.PROBATION)
            and self.can_start(node, job)
            and not _trains_another(node, job)
        ]
        return sorted(free, key=self._trust)

    def _trust(self, node: Node) -> tuple[bool, bool, str]:
        """Ready ones before those on probation, and lemons last of each."""
        return (node.state is not NodeState.READY, node.name in self.lemons, node.name)

    def can_start(self, node: Node, job: Job) -> bool:
        """Whether the node's launcher of this job is heard and holds no ranks."""
        contact = contact_of(node, job.spec.name)
        launcher = launcher_of(node, job.spec.name)
        return (
            contact is not None
            and launcher is not None
            and contact.by is not None
            and launcher.launcher not in job.ended_launchers
            and at_rest(launcher)
            and self.contact_seconds(contact) < self.policy.silence_seconds / 2
        )


def _trains_another(node: Node, job: Job) -> bool:
    """Whether ranks of another job are alive there, by whoever has started them."""
    return any(any_alive(one) for one in node.launchers if one.spec.name != job.spec.name)


def holders(job: Job) -> tuple[str, ...]:
    """The nodes on which ranks of the job may be alive, in rank order."""
    if job.state not in HOLDING:
        return ()
    return tuple(member.node for member in job.members)


def launcher_of(node: Node, job: str) -> LauncherState | None:
    """The node's launcher of the job, as last heard."""
    return next((one for one in node.launchers if one.spec.name == job), None)


def contact_of(node: Node, job: str) -> Contact | None:
    """How that launcher was last heard."""
    return next((one for one in node.contacts if one.job == job), None)


def standing(node: Node) -> NodeState:
    """Where the node is, or will be once it is heard again."""
    return node.state_before_unknown if node.state is NodeState.UNKNOWN else node.state


def any_alive(launcher: LauncherState) -> bool:
    """Whether the launcher holds a rank that has not exited."""
    return any(rank.phase is not RankPhase.EXITED for rank in launcher.ranks)


def at_rest(launcher: LauncherState) -> bool:
    """Whether the launcher has no rank and is about to have none."""
    resting = (LauncherPhase.IDLE, LauncherPhase.FAILED, LauncherPhase.DONE)
    return launcher.phase in resting and not any_alive(launcher)
