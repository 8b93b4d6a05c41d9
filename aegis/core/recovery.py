"""Following a recovery: when the old ranks were gone, when the new ones lived, loaded, trained.

Every incident that a job recovers from is filled with what really happened, from the times that
launchers and ranks wrote themselves.
"""

from aegis.core import experience
from aegis.core.cluster import Cluster, holders, launcher_of
from aegis.core.incidents import close, note, save
from aegis.core.story import recovered
from aegis.core.words import duration, listed
from aegis.model.action import Notify
from aegis.model.fault import Severity
from aegis.model.incident import EntryKind, Incident, IncidentState
from aegis.model.job import Job, JobState, LauncherState, Member, RankState, Tier, tiers
from aegis.model.node import NodeState
from aegis.model.record import replace


def recovering(cluster: Cluster, job: str) -> list[Incident]:
    """The incidents that the job's next generation answers."""
    return [
        incident
        for incident in cluster.unresolved_of(job)
        if incident.state is IncidentState.RECOVERING
    ]


def reports(cluster: Cluster, job: Job) -> list[LauncherState]:
    """What the members' own launchers say of the job's generation; fewer when some are silent."""
    nodes, name, generation = cluster.nodes, job.spec.name, job.generation
    return [
        launcher
        for member in job.members
        for launcher in nodes[member.node].launchers
        if launcher.launcher == member.launcher
        and launcher.generation == generation
        and launcher.spec.name == name
    ]


def report_of(cluster: Cluster, job: Job, member: Member) -> LauncherState | None:
    """The member's launcher, if it is the very one and has reached the job's generation."""
    launcher = launcher_of(cluster.nodes[member.node], job.spec.name)
    if launcher is None or launcher.launcher != member.launcher:
        return None
    return launcher if launcher.generation == job.generation else None


def ranks(cluster: Cluster, job: Job) -> list[RankState]:
    """Every rank of the generation; none unless all of them are known."""
    found = [rank for launcher in reports(cluster, job) for rank in launcher.ranks]
    return found if len(found) == job.spec.nodes * job.spec.ranks_per_node else []


def speaking(cluster: Cluster, job: Job) -> list[RankState]:
    """The ranks whose progress counts: all, or, where it is read from lines, those they tell of.

    A line speaks for all ranks, and only the launcher of the node that prints it has seen it.
    """
    found = ranks(cluster, job)
    told = [rank for rank in found if rank.loaded_at > 0] if job.spec.log_pattern else []
    return told or found


def stopped(cluster: Cluster, job: Job) -> None:
    """The last rank of the old generation is gone, or its node is given up."""
    times = [one.stopped_at for one in reports(cluster, job) if one.stopped_at > 0]
    # A node that is given up says nothing of its own: it counts from now.
    at = max(times) if len(times) == len(job.members) else max([*times, cluster.now])
    for incident in recovering(cluster, job.spec.name):
        if incident.phases.stopped_at is None:
            note(
                cluster,
                incident,
                EntryKind.PROGRESS,
                f"no rank of generation {job.generation} is left",
                at=at,
                phases=replace(incident.phases, stopped_at=at),
                last_step_before=job.step,
            )


def deserted(cluster: Cluster, job: Job) -> None:
    """Nodes that hung up hold the job up no longer."""
    seconds = duration(cluster.policy.hung_up_seconds)
    text = f"{listed(sorted(job.awaiting))} hung up {seconds} ago or more: given up, with its ranks"
    for incident in recovering(cluster, job.spec.name):
        note(cluster, incident, EntryKind.PROGRESS, text)


def started(cluster: Cluster, job: Job) -> None:
    """A new generation was ordered."""
    for incident in recovering(cluster, job.spec.name):
        note(
            cluster,
            incident,
            EntryKind.ACTION,
            f"generation {job.generation} of job {job.spec.name} is started on "
            f"{listed(holders(job))}",
            generation_after=job.generation,
            nodes_after=holders(job),
        )


def waits(cluster: Cluster, job: Job) -> None:
    """The job cannot start yet: say why, once."""
    text = f"job {job.spec.name} waits: {job.reason}"
    for incident in recovering(cluster, job.spec.name):
        if all(entry.text != text for entry in incident.entries[-3:]):
            note(cluster, incident, EntryKind.PROGRESS, text)


def follow(cluster: Cluster, job: Job) -> None:
    """Fill in what the new ranks have reached; close what is mended."""
    if job.state not in (JobState.STARTING, JobState.RUNNING):
        return
    for incident in recovering(cluster, job.spec.name):
        if incident.generation_after == job.generation:
            _follow(cluster, job, incident)


def _follow(cluster: Cluster, job: Job, incident: Incident) -> None:
    found = ranks(cluster, job)
    told = speaking(cluster, job)
    resumed = resumed_step(cluster, job)
    if resumed is not None and incident.resumed_step != resumed:
        lost = max(0, incident.last_step_before - resumed)
        incident = save(cluster, replace(incident, resumed_step=resumed, steps_lost=lost))
    incident = _reach(cluster, incident, "started_at", [one.started_at for one in found])
    incident = _reach(cluster, incident, "loaded_at", [one.loaded_at for one in told])
    incident = _reach(cluster, incident, "first_step_at", [one.first_step_at for one in told])
    if job.state is not JobState.RUNNING:
        return
    if incident.phases.first_step_at is not None:
        incident = close(cluster, incident, recovered(incident) + _disposition(cluster, incident))
        experience.helped(cluster, incident)
    elif not _reports_steps(job) and cluster.now - job.since >= cluster.policy.settle_seconds:
        settled = duration(cluster.policy.settle_seconds)
        text = f"{recovered(incident)}; its ranks have lived for {settled} and report no steps"
        experience.helped(cluster, close(cluster, incident, text + _disposition(cluster, incident)))


_REACHED = {
    "started_at": "every new rank is alive",
    "loaded_at": "every new rank has its state",
    "first_step_at": "every new rank has completed a step",
}


def _reach(cluster: Cluster, incident: Incident, phase: str, times: list[float]) -> Incident:
    """Note the moment at which the last rank got this far."""
    if getattr(incident.phases, phase) is not None or not times or min(times) <= 0:
        return incident
    at = max(times)
    phases = replace(incident.phases, **{phase: at})
    return note(cluster, incident, EntryKind.PROGRESS, _REACHED[phase], at=at, phases=phases)


def resumed_step(cluster: Cluster, job: Job) -> int | None:
    """What the ranks of this generation restored; None until every launcher has said so."""
    steps = [one.resumed_step for one in reports(cluster, job)]
    known = [step for step in steps if step is not None]
    if job.spec.log_pattern and known:
        return min(known)
    return min(known) if len(known) == len(job.members) else None


def resumed_from(cluster: Cluster, job: Job) -> tuple[Tier, ...]:
    """Where the ranks of this generation found it, each place once."""
    return tiers(tier for one in reports(cluster, job) for tier in one.resumed_from)


def _reports_steps(job: Job) -> bool:
    return job.step > 0


def _disposition(cluster: Cluster, incident: Incident) -> str:
    """Where the blamed node stands now; nothing when none was blamed."""
    node = cluster.nodes.get(incident.node or "")
    if node is None or node.state in (NodeState.READY, NodeState.PROBATION, NodeState.SUSPECT):
        return ""
    return f"; {node.name} is {node.state}"


def ended(cluster: Cluster, job: Job) -> None:
    """The job is over, and with it every recovery of it."""
    name = job.spec.name
    failed = job.state is JobState.FAILED
    verb = "was given up" if failed else "has ended"
    for incident in cluster.unresolved_of(name):
        if incident.faults[0].job or incident.state is IncidentState.RECOVERING:
            close(cluster, incident, f"job {name} {verb}: {job.reason}")
    if failed:
        text = f"Job {name} {verb} at step {job.step}: {job.reason}"
        cluster.notices.append(
            Notify(kind="job.failed", severity=Severity.FATAL, text=text, incident=job.incident)
        )
