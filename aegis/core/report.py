"""Taking in a node's report: a level, compared with what was known before.

Late, repeated and overtaken words change nothing. Three things tell them: the report's place in its
connection, the launchers that were followed by others, and a launcher's own order of generations
and phases, which never goes back.
"""

from aegis.core import doubt
from aegis.core.cluster import Cluster, contact_of, launcher_of
from aegis.core.progress import has_moved
from aegis.model.event import NodeHungUp
from aegis.model.job import LauncherPhase, LauncherState
from aegis.model.node import Contact, Node, NodeReport, NodeState, Sender
from aegis.model.record import replace

SUPERSEDED_KEPT = 8
PROGRESS_SECONDS = 1.0  # finer than this nobody needs to know when a job last came on

_STAGE = {
    LauncherPhase.STARTING: 1,
    LauncherPhase.RUNNING: 2,
    LauncherPhase.STOPPING: 3,
    LauncherPhase.IDLE: 4,
    LauncherPhase.FAILED: 4,
    LauncherPhase.DONE: 4,
}


def hear(cluster: Cluster, report: NodeReport) -> bool:
    """Keep what the report says. False: it is late or repeated, and nothing has changed."""
    node = cluster.nodes.get(report.node) or Node(name=report.node, since=cluster.now)
    if _is_late(node, report):
        return False
    known = node
    node = _booted(_awake(cluster, replace(node, hung_up_at=0.0)), report)
    match report.sender:
        case Sender.AGENT:
            node = _from_agent(cluster, node, report)
        case Sender.LAUNCHER:
            node = _from_launcher(cluster, node, report)
    cluster.put_node(node)
    _note_movement(cluster, known, node)
    return True


def hang_up(cluster: Cluster, event: NodeHungUp) -> None:
    """Note that the node's last connection is closed, unless it has spoken on a newer one."""
    node = cluster.nodes.get(event.node)
    if node and max(node.agent_session, node.launcher_session) <= event.session:
        cluster.put_node(replace(node, hung_up_at=cluster.now))


def _is_late(node: Node, report: NodeReport) -> bool:
    place = (report.session, report.sequence)
    if report.session < node.boot_session:
        return True
    if report.sender is Sender.AGENT:
        return place <= (node.agent_session, node.agent_sequence)
    contacts = [contact_of(node, one.spec.name) for one in report.launchers]
    return any(one is not None and place <= (one.session, one.sequence) for one in contacts)


def _awake(cluster: Cluster, node: Node) -> Node:
    """A silent node that speaks is back where it was."""
    if node.state is not NodeState.UNKNOWN:
        return node
    reason = "" if node.state_before_unknown is NodeState.READY else node.reason
    return replace(node, state=node.state_before_unknown, since=cluster.now, reason=reason)


def _booted(node: Node, report: NodeReport) -> Node:
    """Nothing that ran before a reboot is left, whoever is the first to speak of it."""
    if not report.boot_id or node.boot_id == report.boot_id:
        return node
    if node.boot_id:
        node = replace(node, launchers=(), contacts=(), boot_session=report.session)
    return replace(node, boot_id=report.boot_id)


def _from_agent(cluster: Cluster, node: Node, report: NodeReport) -> Node:
    anew = report.session != node.agent_session  # what came back with it may follow in a moment
    node = replace(
        node,
        seen_at=cluster.now,
        agent_seen_at=cluster.now,
        agent_session=report.session,
        agent_sequence=report.sequence,
        version=report.version,
        simulated=report.simulated,
        labels=report.labels,
        devices=report.devices,
        good_readings=doubt.renewed(node.good_readings, report.devices),
        conditions=report.conditions,
        events_dropped=report.events_dropped,
        suppressed=report.suppressed,
        sources=report.sources,
        has_helper=report.has_helper,
        order_results=report.order_results,
        validates=report.validates,
        validation_results=report.validation_results,
    )
    for launcher in report.launchers:
        node = _with_launcher(cluster, node, launcher, Sender.AGENT, report)
    named = {launcher.spec.name for launcher in report.launchers}
    contacts = tuple(
        _missed(cluster, one, since_now=anew)
        if one.by is Sender.AGENT and one.job not in named
        else one
        for one in node.contacts
    )
    return replace(node, contacts=contacts) if contacts != node.contacts else node


def _missed(cluster: Cluster, contact: Contact, *, since_now: bool) -> Contact:
    """Of a launcher that its agent no longer names."""
    return replace(contact, by=None, seen_at=cluster.now if since_now else contact.seen_at)


def _from_launcher(cluster: Cluster, node: Node, report: NodeReport) -> Node:
    node = replace(
        node,
        seen_at=cluster.now,
        launcher_session=max(node.launcher_session, report.session),
        launcher_sequence=report.sequence,
    )
    for launcher in report.launchers:
        node = _with_launcher(cluster, node, launcher, Sender.LAUNCHER, report)
    return node


def _with_launcher(
    cluster: Cluster, node: Node, launcher: LauncherState, by: Sender, report: NodeReport
) -> Node:
    """Put the launcher's state in place of what was known of this job's launcher here."""
    name = launcher.spec.name
    known, contact = launcher_of(node, name), contact_of(node, name)
    if contact and launcher.launcher in contact.superseded:
        return node
    if known and known.launcher != launcher.launcher and _is_over(cluster, launcher):
        return node
    if known and known.launcher == launcher.launcher and _is_older(launcher, known):
        return node
    own = by is Sender.LAUNCHER
    heard = Contact(
        job=name,
        launcher=launcher.launcher,
        seen_at=cluster.now,
        by=by,
        session=report.session if own else contact.session if contact else 0,
        sequence=report.sequence if own else contact.sequence if contact else 0,
        superseded=_superseded(contact, launcher),
    )
    launchers = [one for one in node.launchers if one.spec.name != name]
    contacts = [one for one in node.contacts if one.job != name]
    return replace(
        node,
        launchers=tuple(sorted([*launchers, launcher], key=lambda one: one.spec.name)),
        contacts=tuple(sorted([*contacts, heard], key=lambda one: one.job)),
    )


def _is_over(cluster: Cluster, launcher: LauncherState) -> bool:
    """Whether it belongs to a run of the job's name that has ended."""
    job = cluster.jobs.get(launcher.spec.name)
    return job is not None and launcher.launcher in job.ended_launchers


def _is_older(launcher: LauncherState, known: LauncherState) -> bool:
    """Whether the launcher has been further than this already."""
    place = (launcher.generation, _STAGE[launcher.phase])
    return place < (known.generation, _STAGE[known.phase])


def _superseded(contact: Contact | None, launcher: LauncherState) -> tuple[str, ...]:
    if contact is None:
        return ()
    if contact.launcher == launcher.launcher:
        return contact.superseded
    return (*contact.superseded, contact.launcher)[-SUPERSEDED_KEPT:]


def _note_movement(cluster: Cluster, before: Node, after: Node) -> None:
    """Any rank that comes on shows that the whole job does: a step takes all of them."""
    for launcher in after.launchers:
        job = cluster.jobs.get(launcher.spec.name)
        if job is None or launcher.generation != job.generation:
            continue
        due = cluster.now - job.progress_at >= PROGRESS_SECONDS
        if due and has_moved(_same(before, launcher), launcher):
            cluster.put_job(replace(job, progress_at=cluster.now))


def _same(node: Node, launcher: LauncherState) -> LauncherState | None:
    return next((one for one in node.launchers if one.launcher == launcher.launcher), None)
