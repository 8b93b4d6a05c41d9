"""What operators ask for: cordon, uncordon, drain and return a node.

What they ask of jobs is in `job_verbs`, what they say to incidents and to automation as a whole in
`people`.

`refusal` is asked before the event is written to the log, so that an event that stands there was
allowed; `apply` then carries it out.
"""

from typing import TypeAlias, assert_never

from aegis.core import job_verbs, people, recover, returning
from aegis.core.cluster import Cluster, standing
from aegis.core.fence import is_silent
from aegis.core.incidents import note
from aegis.core.index import OUT
from aegis.core.nodes import enter, holds_ranks, take_out
from aegis.core.words import duration
from aegis.model.event import (
    Event,
    JobNodeExcluded,
    JobRestarted,
    JobStopped,
    NodeCordoned,
    NodeDrained,
    NodeReturned,
    NodeUncordoned,
)
from aegis.model.incident import EntryKind
from aegis.model.job import StopKind
from aegis.model.node import Node, NodeState
from aegis.model.validation import Depth

NodeVerb: TypeAlias = NodeCordoned | NodeUncordoned | NodeDrained | NodeReturned
Verb: TypeAlias = NodeVerb | job_verbs.JobVerb

SERVING = (NodeState.READY, NodeState.SUSPECT, NodeState.PROBATION)


def refusal(cluster: Cluster, event: Event) -> str | None:
    """Why an operator's event is refused, and what to do instead; None when it may be logged."""
    match event:
        case NodeCordoned() | NodeUncordoned() | NodeDrained() | NodeReturned():
            node = cluster.nodes.get(event.node)
            if node is None:
                return f"no node is called {event.node}: see `aegis nodes`"
            return _refused(cluster, node, event)
        case JobStopped() | JobRestarted() | JobNodeExcluded():
            return job_verbs.refusal(cluster, event)
        case _ if isinstance(event, people.Said):
            return people.refusal(cluster, event)
        case _:
            return None


def _refused(cluster: Cluster, node: Node, event: NodeVerb) -> str | None:
    if isinstance(event, NodeReturned):
        return _not_returned(cluster, node, event)
    state = standing(node)
    if isinstance(event, NodeUncordoned):
        if state is NodeState.CORDONED:
            return None
        way = f": `aegis nodes return {node.name}` brings it back" if state in OUT else ""
        return f"{node.name} is not cordoned but {state}{way}"
    may_drain = isinstance(event, NodeDrained) and state is NodeState.CORDONED
    if state in SERVING or may_drain:
        return None
    return f"{node.name} is {state} already{_by(node)}"


def _not_returned(cluster: Cluster, node: Node, event: NodeReturned) -> str | None:
    if returning.is_validating(node) and event.validate is not Depth.NONE:
        return f"{node.name} is being validated: wait for it, or return it with --validate none"
    return _not_in_question(cluster, node) or returning.ailment(node) or None


def _not_in_question(cluster: Cluster, node: Node) -> str | None:
    if node.state is NodeState.UNKNOWN or is_silent(cluster, node):
        silence = duration(cluster.silent_seconds(node))
        return f"{node.name} has not spoken for {silence}: start its agent, then return it"
    if node.state not in OUT:
        return f"{node.name} is in service already: it is {node.state}"
    if node.state is NodeState.DRAINING and holds_ranks(cluster, node):
        return f"{node.name} still holds ranks: wait until it is quarantined"
    if node.state is NodeState.REPAIRING and not returning.is_validating(node):
        return f"{node.name} is under an order of Aegis ({node.reason}): wait until that has ended"
    return None


def _by(node: Node) -> str:
    holder = f", held by {node.held_by}" if node.held_by else ""
    return f"{holder}: {node.reason}" if node.reason else holder


def apply(cluster: Cluster, event: Verb) -> None:
    """Carry out what an operator asked for. One that is no longer possible changes nothing."""
    if refusal(cluster, event) is not None:
        return
    match event:
        case JobStopped() | JobRestarted() | JobNodeExcluded():
            job_verbs.apply(cluster, event)
        case NodeCordoned():
            _witness(cluster, event, "cordoned")
            node = cluster.nodes[event.node]
            enter(cluster, node, NodeState.CORDONED, event.reason, event.actor)
        case NodeUncordoned():
            _witness(cluster, event, "uncordoned")
            enter(cluster, cluster.nodes[event.node], NodeState.READY, "")
        case NodeDrained():
            _drain(cluster, event)
        case NodeReturned():
            _return(cluster, event)
        case _:
            assert_never(event)


def _witness(cluster: Cluster, event: NodeVerb, done: str) -> None:
    """What people do with a node belongs into the story of its open incidents."""
    for incident in cluster.unresolved_on(event.node):
        text = f"{event.actor} {done} {event.node}: {event.reason}"
        note(cluster, incident, EntryKind.HUMAN, text)


def _drain(cluster: Cluster, event: NodeDrained) -> None:
    _witness(cluster, event, "drained")
    job = cluster.job_on(event.node)
    if job is not None:
        reason = f"{event.actor} drained {event.node}: {event.reason}"
        recover.stop(cluster, job, StopKind.SAVING, reason, None)
    take_out(cluster, event.node, event.actor, event.reason)


def _return(cluster: Cluster, event: NodeReturned) -> None:
    _witness(cluster, event, "returned")
    returning.put_back(cluster, event.node, event.validate, event.actor, event.reason)
