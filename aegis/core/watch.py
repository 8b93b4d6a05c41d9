"""What a tick brings: silence, time-outs, and a second look at what is watched or held."""

from aegis.core import correlate, experience, jobs, repair, returning, windows
from aegis.core.act import reconsider
from aegis.core.cluster import Cluster
from aegis.core.fence import is_silent, is_stalled
from aegis.core.index import OUT
from aegis.core.levels import is_fresh
from aegis.core.nodes import ease, enter, settle
from aegis.core.rails import TRAINING, breaker_reading
from aegis.core.words import duration
from aegis.model.action import Notify
from aegis.model.event import Tick
from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.node import Node, NodeState, Sender
from aegis.model.record import replace
from aegis.rules import RuleSet

HEARTBEATS_SECONDS = 1.5  # one of an agent, and half of another


def tick(cluster: Cluster, rules: RuleSet, event: Tick) -> None:
    """Notice what did not happen: words that did not come, ranks that did not start or stop."""
    _renew(cluster, event)
    _weigh_silence(cluster)
    _weigh_breaker(cluster)
    windows.expire(cluster)
    experience.pass_time(cluster)
    silent = {node.name for node in cluster.silent_for(cluster.policy.silence_seconds)}
    for name in cluster.index.in_order(cluster.index.moving | silent):
        _look_at_node(cluster, rules, name)
    for name in list(cluster.jobs):
        jobs.overdue(cluster, rules, name)
        jobs.attend(cluster, rules, name)
    for incident in cluster.unresolved():
        reconsider(cluster, rules, cluster.incidents[incident.id])
    returning.tick(cluster)
    repair.tick(cluster, rules)


def _renew(cluster: Cluster, event: Tick) -> None:
    """These have spoken, and had nothing new to say."""
    heard = ((event.agents_seen, Sender.AGENT), (event.launchers_seen, Sender.LAUNCHER))
    for names, sender in heard:
        for name in names:
            if node := cluster.nodes.get(name):
                cluster.put_node(_renewed(cluster, node, sender))


def _renewed(cluster: Cluster, node: Node, sender: Sender) -> Node:
    now, contacts = cluster.now, node.contacts
    if contacts:
        contacts = tuple(replace(one, seen_at=now) if one.by is sender else one for one in contacts)
    agent_seen_at = now if sender is Sender.AGENT else node.agent_seen_at
    return replace(node, seen_at=now, agent_seen_at=agent_seen_at, contacts=contacts)


def _weigh_silence(cluster: Cluster) -> None:
    """When much of the fleet falls silent at once, suspect the controller's own network.

    Half of silence_seconds is enough to be counted here: nodes of one outage do not all fall silent
    at the same moment, and none may be given up before the others are seen to be silent too. Less
    than what passes between two words of a node that is well is no silence.
    """
    silence = cluster.policy.silence_seconds
    limit = max(silence / 2, min(silence, HEARTBEATS_SECONDS))
    unheard = cluster.silent_for(limit)
    heard = len(cluster.nodes) - len(unheard)
    # Those known to be silent, or out, say nothing about this moment.
    quiet = sum(node.state not in (*OUT, NodeState.UNKNOWN) for node in unheard)
    count = quiet + heard
    nobody = bool(cluster.nodes) and not heard
    silent = nobody or quiet > cluster.policy.silent_fraction_max * count
    if not silent:
        if cluster.silent_since is not None:
            # The first words say nothing about those that are still under way.
            cluster.silent_since, cluster.hears_since = None, cluster.now
    elif cluster.silent_since is None:
        cluster.silent_since = cluster.now
        who = "No node is heard" if nobody else f"{quiet} of {count} nodes fell silent at once"
        text = (
            f"{who}. Aegis suspects the controller's own network and decides nothing until they "
            "are heard again"
        )
        notice = Notify(kind="fleet.silent", severity=Severity.ERROR, text=text)
        cluster.notices.append(notice)


def _weigh_breaker(cluster: Cluster) -> None:
    """Tell people, once each, when the breaker opens and when it closes."""
    out, limit = breaker_reading(cluster)
    if (out >= limit) == (cluster.breaker_since is not None):
        return
    if out >= limit:
        cluster.breaker_since = cluster.now
        text = (
            f"{out} nodes are out by Aegis, and {limit} are its limit: it takes no more until some "
            "are returned. Recoveries go on"
        )
        notice = Notify(kind="breaker.open", severity=Severity.ERROR, text=text)
    else:
        cluster.breaker_since = None
        text = f"The breaker is closed again: {out} of {limit} nodes are out by Aegis"
        notice = Notify(kind="breaker.closed", severity=Severity.INFO, text=text)
    cluster.notices.append(notice)


def _look_at_node(cluster: Cluster, rules: RuleSet, name: str) -> None:
    _forget_launchers(cluster, cluster.nodes[name])
    if cluster.silent_since is None:
        _note_silence(cluster, rules, cluster.nodes[name])
    _end_probation(cluster, cluster.nodes[name])
    ease(cluster, name)
    settle(cluster, name)


def _end_probation(cluster: Cluster, node: Node) -> None:
    """A returned node that has behaved for long enough is like any other."""
    served = cluster.now - node.since >= cluster.policy.probation_seconds
    if node.state is NodeState.PROBATION and served:
        enter(cluster, node, NodeState.READY, "")


def _forget_launchers(cluster: Cluster, node: Node) -> None:
    """A launcher that neither spoke for itself nor was spoken of for so long is gone.

    While much of the fleet is silent only its agent's word counts.
    """
    limit = cluster.policy.silence_seconds
    gone = {
        contact.job
        for contact in node.contacts
        if (contact.by is None or (contact.by is Sender.LAUNCHER and cluster.silent_since is None))
        and is_fresh(cluster, node)
        and cluster.contact_seconds(contact) >= limit
    }
    if gone:
        cluster.put_node(
            replace(
                node,
                launchers=tuple(one for one in node.launchers if one.spec.name not in gone),
                contacts=tuple(one for one in node.contacts if one.job not in gone),
            )
        )


def _note_silence(cluster: Cluster, rules: RuleSet, node: Node) -> None:
    """A silent node is unknown. It is lost when the job on it has stopped making progress too."""
    if not is_silent(cluster, node):
        return
    silence = duration(cluster.silent_seconds(node))
    if node.state is not NodeState.UNKNOWN:
        node = replace(
            node,
            state=NodeState.UNKNOWN,
            state_before_unknown=node.state,
            since=cluster.now,
            reason=node.reason or "neither agent nor launcher has spoken",
        )
        cluster.put_node(node)
    job = cluster.job_on(node.name)
    trains = job is not None and job.state in TRAINING
    if job is not None and trains and not is_stalled(cluster, job):
        return
    if not trains and node.state_before_unknown in OUT:
        return
    if not _is_told(cluster, node):
        correlate.observe(cluster, rules, _lost(node, silence))


def _is_told(cluster: Cluster, node: Node) -> bool:
    """Whether this silence has its incident: an open one, or one that began since the last word."""
    about = [cluster.incidents[name] for name in cluster.index.about.get(node.name, ())]
    lost = [one for one in about if one.fault_class is FaultClass.NODE_LOST]
    return bool(lost) and lost[-1].phases.opened_at >= node.seen_at


def _lost(node: Node, silence: str) -> Fault:
    text = f"neither its agent nor a launcher has spoken for {silence}"
    return Fault(
        fault_class=FaultClass.NODE_LOST,
        severity=Severity.ERROR,
        node=node.name,
        device="host",
        observed_at=node.seen_at,
        evidence=(Evidence(source="reports", text=text),),
    )
