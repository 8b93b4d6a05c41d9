"""Moving a job from one generation of ranks to the next.

    WAITING -> STARTING -> RUNNING -> STOPPING -> WAITING -> …
                              |           |-> DONE    (an operator stopped it)
                              |-> DONE    |-> FAILED  (restarts without progress)

A generation begins only after every node of the one before has reported that none of its ranks is
left, or is fenced (see `fence`). Everything here compares levels: what launchers report with what
their job wants of them. Lost, late and repeated reports therefore do no harm.
"""

from aegis.core import recovery
from aegis.core.adopt import adopt, is_undecided
from aegis.core.cluster import (
    ENDED,
    Cluster,
    at_rest,
    contact_of,
    is_same_run,
    launcher_of,
)
from aegis.core.fence import is_deserted, is_gone
from aegis.core.places import NoPlace, choose
from aegis.model.fault import FaultClass
from aegis.model.job import (
    Assignment,
    Attempt,
    Job,
    JobSpec,
    JobState,
    LauncherPhase,
    LauncherState,
    Member,
    StopKind,
    World,
)
from aegis.model.record import replace

ATTEMPTS_KEPT = 50
DO_NOT_REQUEUE = 93
CONFLICT = 6


def assignments(cluster: Cluster, node: str) -> tuple[Assignment, ...]:
    """The whole answer to a node: one for each job that has a launcher there.

    None for ranks that this controller did not start and may yet take over.
    """
    known = cluster.nodes.get(node)
    if known is None:
        return ()
    pairs = [(cluster.jobs[launcher.spec.name], launcher) for launcher in known.launchers]
    return tuple(
        _assignment(cluster, job, node, launcher)
        for job, launcher in pairs
        if not is_undecided(cluster, job, node, launcher)
    )


def _assignment(cluster: Cluster, job: Job, node: str, launcher: LauncherState) -> Assignment:
    order = Assignment(
        job=job.spec.name,
        launcher=launcher.launcher,
        epoch=cluster.epoch,
        sequence=job.sequence,
        generation=job.generation,
        reason=job.reason,
        labels=cluster.nodes[node].labels,
        suspect_since=job.suspect_since,
        suspect_generation=job.suspect_generation,
    )
    if job.state in ENDED:
        return replace(order, finished=True, exit_code=job.exit_code)
    if launcher.launcher in job.ended_launchers:
        reason = f"a newer run of job {job.spec.name} has taken the place of this one"
        return replace(order, finished=True, exit_code=job.ended_exit_code, reason=reason)
    if not is_same_run(launcher.spec, job.spec) and at_rest(launcher):
        return replace(order, finished=True, exit_code=CONFLICT, reason=_taken(job, launcher.spec))
    member = Member(node=node, launcher=launcher.launcher, address=launcher.address)
    if job.state in (JobState.STARTING, JobState.RUNNING) and member in job.members:
        return replace(order, world=_world(job), labels=cluster.nodes[node].labels)
    grace = cluster.policy.stop_grace_seconds if job.stop is StopKind.SAVING else 0.0
    return replace(
        order, stop=job.stop, stop_grace_seconds=grace, take_stacks=_has_hung(cluster, job)
    )


def _has_hung(cluster: Cluster, job: Job) -> bool:
    """Whether the ranks are stopped for a hang: what they look like is evidence."""
    incident = cluster.incidents.get(job.incident or "")
    hung = incident is not None and incident.fault_class is FaultClass.JOB_HANG
    return hung and job.state is JobState.STOPPING


def _world(job: Job) -> World:
    return World(
        members=job.members,
        ranks_per_node=job.spec.ranks_per_node,
        master_address=job.members[0].address,
        master_port=job.master_port,
    )


def _taken(job: Job, spec: JobSpec) -> str:
    """Why a launcher of another run may not take part in this one."""
    known = job.spec
    rows = (
        ("user", known.owner, spec.owner),
        ("nodes", known.nodes, spec.nodes),
        ("ranks on each", known.ranks_per_node, spec.ranks_per_node),
        ("command", known.command, spec.command),
    )
    told = "; ".join(f"{name}: {mine}, not {yours}" for name, mine, yours in rows if mine != yours)
    return (
        f"job {known.name} is {job.state} already, of another run ({told}): "
        f"say another --job NAME, or end it with `aegis jobs stop {known.name}`"
    )


def renew(cluster: Cluster, launcher: LauncherState) -> None:
    """Take over what the job is to be from a new launcher when none of the old run is left."""
    job = cluster.jobs.get(launcher.spec.name)
    if job is None or job.state is not JobState.WAITING or is_same_run(launcher.spec, job.spec):
        return
    for node in cluster.launched(job.spec.name):
        other, contact = launcher_of(node, job.spec.name), contact_of(node, job.spec.name)
        heard = contact is not None and contact.by is not None
        if other and heard and is_same_run(other.spec, job.spec):
            return
    cluster.put_job(replace(job, spec=launcher.spec, submitted_at=cluster.now))


def submit(cluster: Cluster, spec: JobSpec) -> Job:
    """A job that nobody knew."""
    job = Job(spec=spec, since=cluster.now, submitted_at=cluster.now, reason="just registered")
    cluster.put_job(job)
    return job


def resubmit(cluster: Cluster, job: Job, spec: JobSpec) -> Job:
    """The same name once more, after it had ended; its generations go on counting."""
    again = Job(
        spec=spec,
        since=cluster.now,
        submitted_at=cluster.now,
        reason="registered again",
        generation=job.generation,
        sequence=job.sequence + 1,
        ended_launchers=job.ended_launchers,
        ended_exit_code=job.exit_code,
    )
    cluster.put_job(again)
    return again


def advance(cluster: Cluster, name: str) -> None:
    """Let the job take whatever steps the levels allow."""
    for _ in JobState:  # a job passes through each state once at most before it needs news
        before = cluster.jobs[name]
        _advance_once(cluster, before)
        if cluster.jobs[name].state is before.state:
            return


def _advance_once(cluster: Cluster, job: Job) -> None:
    match job.state:
        case JobState.WAITING:
            start(cluster, job)
        case JobState.STARTING:
            _await_start(cluster, job)
        case JobState.RUNNING:
            _await_end(cluster, job)
        case JobState.STOPPING:
            _await_stop(cluster, job)
        case JobState.DONE | JobState.FAILED:
            pass


def start(cluster: Cluster, job: Job) -> None:
    """Begin the next generation, or say what the job waits for."""
    if job.giving_up:
        _end(cluster, job, JobState.FAILED, job.reason, DO_NOT_REQUEUE)
        return
    if job.stop_requested:
        _end(cluster, job, JobState.DONE, job.reason, 0)
        return
    if adopt(cluster, job):
        return
    chosen = choose(cluster, job)
    if isinstance(chosen, NoPlace):
        if chosen.reason != job.reason:
            job = replace(job, reason=chosen.reason)
            cluster.put_job(job)
            recovery.waits(cluster, job)
        return
    members, port = chosen
    names = tuple(member.node for member in members)
    generation = 1 + _highest(cluster, job)
    attempt = Attempt(
        generation=generation, nodes=names, started_at=cluster.now, incident=job.incident
    )
    cluster.put_job(
        replace(
            job,
            state=JobState.STARTING,
            since=cluster.now,
            reason="ranks are being started",
            generation=generation,
            sequence=job.sequence + 1,
            members=members,
            master_port=port,
            awaiting=frozenset(names),
            stop=StopKind.NOW,
            step=job.checkpoint_step,
            progress_at=cluster.now,
            attempts=(*job.attempts, attempt)[-ATTEMPTS_KEPT:],
        )
    )
    recovery.started(cluster, cluster.jobs[job.spec.name])


def _highest(cluster: Cluster, job: Job) -> int:
    """The highest generation that anyone knows of; a launcher starts none that is lower.

    A launcher may know a higher one than the event log, from the fence of an earlier run or from a
    controller that lost its log: also one that gets no ranks now.
    """
    launchers = [launcher_of(node, job.spec.name) for node in cluster.launched(job.spec.name)]
    return max([job.generation, *(one.generation for one in launchers if one)])


def stop(cluster: Cluster, job: Job, kind: StopKind, reason: str, incident: str | None) -> None:
    """End the job's generation; the next one answers the incident."""
    if job.state in ENDED:
        return
    job = replace(job, incident=incident or job.incident, reason=reason)
    if job.state is JobState.STOPPING:
        _hasten(cluster, job, kind)
        return
    if job.state is JobState.WAITING:
        cluster.put_job(job)
        return
    cluster.put_job(
        replace(
            job,
            state=JobState.STOPPING,
            since=cluster.now,
            sequence=job.sequence + 1,
            stop=kind if job.state is JobState.RUNNING else StopKind.NOW,
            awaiting=frozenset(member.node for member in job.members),
            attempts=_marked(job.attempts, cluster.now),
        )
    )


def _marked(attempts: tuple[Attempt, ...], now: float) -> tuple[Attempt, ...]:
    """The newest one's end was ordered."""
    return (*attempts[:-1], replace(attempts[-1], stop_at=now)) if attempts else ()


def _hasten(cluster: Cluster, job: Job, kind: StopKind) -> None:
    """A stop that saves becomes one that does not; never the other way."""
    if job.stop is StopKind.SAVING and kind is StopKind.NOW:
        job = replace(job, stop=kind, since=cluster.now, sequence=job.sequence + 1)
    cluster.put_job(job)


def insist(cluster: Cluster, job: Job) -> None:
    """A stop that saves has had its grace: now without."""
    waited = cluster.now - max(job.since, cluster.hears_since)
    grace = cluster.policy.stop_grace_seconds + cluster.policy.fresh_seconds
    if job.state is JobState.STOPPING and waited >= grace:
        _hasten(cluster, job, StopKind.NOW)


def give_up(cluster: Cluster, job: Job, reason: str, incident: str | None) -> None:
    """Stop what is left of the job and fail it."""
    cluster.put_job(replace(job, giving_up=True))
    stop(cluster, cluster.jobs[job.spec.name], StopKind.NOW, reason, incident)


def count_restart(cluster: Cluster, job: Job) -> Job:
    """Spend one restart of the budget."""
    job = replace(
        job,
        restarts=job.restarts + 1,
        restarts_without_progress=job.restarts_without_progress + 1,
    )
    cluster.put_job(job)
    return job


def _await_start(cluster: Cluster, job: Job) -> None:
    """One node fewer to wait for with each launcher whose ranks are all alive, or done already."""
    there = {member.node for member in job.members if _has_started(cluster, job, member)}
    if there & job.awaiting:
        job = replace(job, awaiting=job.awaiting - there)
        cluster.put_job(job)
    if not job.awaiting:
        running = replace(job, state=JobState.RUNNING, since=cluster.now, reason="")
        cluster.put_job(running)


def _has_started(cluster: Cluster, job: Job, member: Member) -> bool:
    launcher = recovery.report_of(cluster, job, member)
    return launcher is not None and launcher.phase in (LauncherPhase.RUNNING, LauncherPhase.DONE)


def _await_end(cluster: Cluster, job: Job) -> None:
    """Done once every launcher says that all its ranks exited with 0."""
    if all(_is_done(cluster, job, member) for member in job.members):
        _end(cluster, job, JobState.DONE, "every rank exited with 0", 0)


def _is_done(cluster: Cluster, job: Job, member: Member) -> bool:
    launcher = recovery.report_of(cluster, job, member)
    return launcher is not None and launcher.phase is LauncherPhase.DONE


def _await_stop(cluster: Cluster, job: Job) -> None:
    """One node fewer to wait for with each that holds no rank any more; then the job moves on.

    One that was given up and is heard again is waited for again: it can be told to stop.
    """
    if late := _late(cluster, job):
        job = replace(job, members=(*job.members, *late), since=cluster.now)
    left = {member.node for member in job.members if not is_gone(cluster, job, member)}
    if left != job.awaiting:
        job = replace(job, awaiting=frozenset(left))
        cluster.put_job(job)
    if job.awaiting and is_deserted(cluster, job):
        recovery.deserted(cluster, job)
        job = replace(job, awaiting=frozenset())
        cluster.put_job(job)
    if job.awaiting:
        return
    recovery.stopped(cluster, job)
    if job.giving_up:
        _end(cluster, job, JobState.FAILED, job.reason, DO_NOT_REQUEUE)
    elif job.stop_requested:
        _end(cluster, job, JobState.DONE, job.reason, 0)
    else:
        job = _attempt_ended(cluster, job, job.reason)
        cluster.put_job(replace(job, state=JobState.WAITING, since=cluster.now))


def _late(cluster: Cluster, job: Job) -> list[Member]:
    """Launchers with ranks of this very generation that are no members of it, on nodes of nobody.

    So it is after a lost log: who speaks last was not there when the others were told to stop.
    """
    found = []
    for node in cluster.launched(job.spec.name):
        launcher = launcher_of(node, job.spec.name)
        if launcher is None or launcher.generation != job.generation or at_rest(launcher):
            continue
        if node.name not in cluster.index.held:
            member = Member(node=node.name, launcher=launcher.launcher, address=launcher.address)
            found.append(member)
    return found


def _attempt_ended(cluster: Cluster, job: Job, reason: str) -> Job:
    """Write the end of the newest generation into the job's history."""
    if not job.attempts or job.attempts[-1].ended_at is not None:
        return job
    ended = replace(job.attempts[-1], ended_at=cluster.now, last_step=job.step, reason=reason)
    return replace(job, attempts=(*job.attempts[:-1], ended))


def _end(cluster: Cluster, job: Job, state: JobState, reason: str, exit_code: int) -> None:
    """The job is over; whoever launched it may go home."""
    name = job.spec.name
    launchers = {
        launcher.launcher
        for node in cluster.launched(name)
        if (launcher := launcher_of(node, name))
    }
    job = _attempt_ended(cluster, job, reason)
    cluster.put_job(
        replace(
            job,
            state=state,
            since=cluster.now,
            reason=reason,
            exit_code=exit_code,
            sequence=job.sequence + 1,
            awaiting=frozenset(),
            giving_up=False,
            ended_launchers=job.ended_launchers | launchers,
        )
    )
    recovery.ended(cluster, cluster.jobs[name])
