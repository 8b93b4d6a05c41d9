"""Where to find things in the cluster without walking all of it.

Nothing in here is state: it follows from the nodes, jobs and incidents, is kept up to date by their
`put_…`, built anew after a snapshot is read, and compared with the whole by `invariants.check`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from aegis.model.incident import Incident, IncidentState
from aegis.model.job import Job, JobState, Member
from aegis.model.node import Node, NodeState, Sender

Key = TypeVar("Key")
AEGIS = "aegis"  # as the holder of a node
HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)  # ranks may be alive
OUT = (NodeState.CORDONED, NodeState.DRAINING, NodeState.QUARANTINED, NodeState.REPAIRING)
_MOVING = (NodeState.SUSPECT, NodeState.PROBATION, NodeState.DRAINING)


def standing(node: Node) -> NodeState:
    """Where the node is, or will be once it is heard again."""
    return node.state_before_unknown if node.state is NodeState.UNKNOWN else node.state


def is_out_by_aegis(node: Node) -> bool:
    """Whether Aegis took the node and nobody has returned it."""
    return standing(node) in OUT and node.held_by == AEGIS


def holders(job: Job) -> tuple[str, ...]:
    """The nodes on which ranks of the job may be alive, in rank order."""
    if job.state not in HOLDING:
        return ()
    return tuple(member.node for member in job.members)


@dataclass(slots=True)
class Index:
    """Names of nodes, jobs and incidents by what one asks for."""

    place: dict[str, int] = field(default_factory=dict)  # of a node among all, as they came
    heard: dict[str, None] = field(default_factory=dict)  # nodes, who is silent for longest first
    taken: dict[str, None] = field(default_factory=dict)  # by Aegis, the last one last
    again: set[str] = field(default_factory=set)  # by Aegis, and not for the first time
    out: set[str] = field(default_factory=set)  # by Aegis
    resting: set[str] = field(default_factory=set)  # nodes that are out, whoever holds them
    moving: set[str] = field(default_factory=set)  # nodes on which time alone may change something
    taken_for: set[str] = field(default_factory=set)  # nodes that an incident may go on to repair
    labelled: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # nodes, by label
    launched: dict[str, set[str]] = field(default_factory=dict)  # nodes with a launcher, by job
    held: dict[str, dict[str, Member]] = field(default_factory=dict)  # by node and job
    opened: list[str] = field(default_factory=list)  # incidents that are not closed
    opened_on: dict[str, list[str]] = field(default_factory=dict)  # those of a node
    opened_of: dict[str, list[str]] = field(default_factory=dict)  # those of a job
    about: dict[str, list[str]] = field(default_factory=dict)  # all of a node that are kept

    @classmethod
    def of(
        cls,
        nodes: Mapping[str, Node],
        jobs: Mapping[str, Job],
        incidents: Mapping[str, Incident],
    ) -> "Index":
        """All of it, from the beginning."""
        index = cls()
        for node in nodes.values():
            index.put_node(None, node)
        index.heard = dict.fromkeys(sorted(nodes, key=lambda name: nodes[name].seen_at))
        index.taken = dict.fromkeys(sorted(index.taken, key=lambda name: nodes[name].taken_at[-1]))
        for job in jobs.values():
            index.put_job(None, job)
        for incident in incidents.values():
            index.put_incident(None, incident)
        return index

    def in_order(self, names: Iterable[str]) -> list[str]:
        """The nodes in the order in which they came."""
        return sorted(names, key=self.place.__getitem__)

    def put_node(self, before: Node | None, after: Node) -> None:
        """A node was added or replaced."""
        name = after.name
        if before is None:
            self.place[name] = len(self.place)
        if before is None or before.seen_at != after.seen_at:
            self.heard.pop(name, None)
            self.heard[name] = None
        if before is None or before.labels != after.labels:
            _move(self.labelled, name, before.labels if before else (), after.labels)
        if before is None or before.launchers is not after.launchers:
            jobs = [one.spec.name for one in before.launchers] if before else []
            _move(self.launched, name, jobs, [one.spec.name for one in after.launchers])
        if before is None or _has_changed_ways(before, after):
            self._put_ways(before, after)

    def _put_ways(self, before: Node | None, after: Node) -> None:
        state = standing(after)
        moves = after.state in _MOVING or state is NodeState.DRAINING
        for names, belongs in (
            (self.out, is_out_by_aegis(after)),
            (self.again, len(after.taken_at) > 1),
            (self.resting, state in OUT),
            (self.moving, moves or _is_alone(after)),
            (self.taken_for, bool(after.taken_for)),
        ):
            if belongs:
                names.add(after.name)
            elif before is not None:
                names.discard(after.name)
        if after.taken_at != (before.taken_at if before else ()):
            self.taken.pop(after.name, None)
            if after.taken_at:
                self.taken[after.name] = None

    def put_job(self, before: Job | None, after: Job | None) -> None:
        """A job was added, replaced or forgotten."""
        held = before is not None and before.state in HOLDING
        holds = after is not None and after.state in HOLDING
        if before and after and held == holds and before.members is after.members:
            return
        if before and held:
            for name in holders(before):
                jobs = self.held[name]
                jobs.pop(before.spec.name, None)
                if not jobs:
                    del self.held[name]
        if after and holds:
            for member in after.members:
                self.held.setdefault(member.node, {})[after.spec.name] = member

    def put_incident(self, before: Incident | None, after: Incident | None) -> None:
        """An incident was added, replaced or forgotten."""
        if before and after and _marks(before) == _marks(after):
            return
        if before:
            _take_out(self.about, before.node, before.id)
            if before.state is not IncidentState.CLOSED:
                del self.opened[bisect_left(self.opened, before.id)]
                _take_out(self.opened_on, before.node, before.id)
                _take_out(self.opened_of, before.job, before.id)
        if after:
            _put_in(self.about, after.node, after.id)
            if after.state is not IncidentState.CLOSED:
                insort(self.opened, after.id)
                _put_in(self.opened_on, after.node, after.id)
                _put_in(self.opened_of, after.job, after.id)


def _has_changed_ways(before: Node, after: Node) -> bool:
    """Whether it may belong among others now; asked with each word of a node."""
    return (
        before.state is not after.state
        or before.state_before_unknown is not after.state_before_unknown
        or before.held_by != after.held_by
        or before.taken_for != after.taken_for
        or before.taken_at != after.taken_at
        or (before.contacts is not after.contacts and _is_alone(before) != _is_alone(after))
    )


def _is_alone(node: Node) -> bool:
    """Whether a launcher of it is not spoken for by its agent: time alone may end it."""
    return any(one.by is not Sender.AGENT for one in node.contacts)


def _marks(incident: Incident) -> tuple[object, ...]:
    closed = incident.state is IncidentState.CLOSED
    return closed, incident.node, incident.job


def _move(names: dict[Key, set[str]], name: str, old: Iterable[Key], new: Iterable[Key]) -> None:
    """File the name under its new keys, and no longer under the others."""
    after = set(new)
    for key in set(old) - after:
        names[key].discard(name)
        if not names[key]:
            del names[key]
    for key in after:
        names.setdefault(key, set()).add(name)


def _put_in(lists: dict[str, list[str]], key: str | None, name: str) -> None:
    if key:
        insort(lists.setdefault(key, []), name)


def _take_out(lists: dict[str, list[str]], key: str | None, name: str) -> None:
    if not key:
        return
    names = lists[key]
    del names[bisect_left(names, name)]
    if not names:
        del lists[key]
