"""How far a job is: its step, its loss, its checkpoints, and whether its restarts pay."""

from operator import attrgetter

from aegis.core import recovery
from aegis.core.cluster import Cluster, launcher_of
from aegis.core.rails import TRAINING
from aegis.model.job import Job, LauncherState, RankState
from aegis.model.record import replace

_NEWEST = 0.2  # the weight of the newest of a series


def take(cluster: Cluster, job: Job) -> None:
    """Read the job's progress from what its launchers say."""
    job = _checkpoints(cluster, _steps(cluster, job))
    if job.state in TRAINING:
        # A job without checkpoints begins at 0 each time: only a step never reached before counts.
        mark = job.checkpoint_step or job.step
        if mark > job.best_step:
            job = replace(job, best_step=mark, restarts_without_progress=0)
    elif job.checkpoint_step > job.best_step:
        # It came on before it was stopped: at most the restart that is under way counts.
        restarts = min(1, job.restarts_without_progress)
        job = replace(job, best_step=job.checkpoint_step, restarts_without_progress=restarts)
    cluster.put_job(job)


def _steps(cluster: Cluster, job: Job) -> Job:
    ranks = recovery.speaking(cluster, job)
    if not ranks or min(map(attrgetter("loaded_at"), ranks)) <= 0:
        return job
    resumed = recovery.resumed_step(cluster, job)
    attempts = job.attempts
    if attempts and resumed is not None and attempts[-1].resumed_step != resumed:
        found = recovery.resumed_from(cluster, job)
        resumes = replace(attempts[-1], resumed_step=resumed, resumed_from=found)
        attempts = (*attempts[:-1], resumes)
    if attempts and not attempts[-1].first_step_at and all(one.first_step_at for one in ranks):
        trained = max(one.first_step_at for one in ranks)
        attempts = (*attempts[:-1], replace(attempts[-1], first_step_at=trained))
    step = max(min(map(attrgetter("step"), ranks)), resumed or 0)
    job = _pace(cluster, job, step)
    loss, not_finite = _loss(ranks, job)
    return replace(job, step=step, loss=loss, loss_not_finite=not_finite, attempts=attempts)


def _pace(cluster: Cluster, job: Job, step: int) -> Job:
    """How long a step takes, lately."""
    if step == job.step:
        return job
    paced = replace(job, step_at=cluster.now, trained_at=job.trained_at or cluster.now)
    if step < job.step or not job.step_at or job.step_at < job.since:
        return paced  # it was set back, or has only begun
    took = (cluster.now - job.step_at) / (step - job.step)
    return replace(paced, step_seconds=_lately(job.step_seconds, took))


def _lately(before: float, now: float) -> float:
    return now if not before else before + _NEWEST * (now - before)


def _loss(ranks: list[RankState], job: Job) -> tuple[float | None, str]:
    """The first rank's loss; the last number it gave and a word where it is none now."""
    first = ranks[0] if ranks[0].rank == 0 else min(ranks, key=attrgetter("rank"))
    if first.loss is None and not first.loss_not_finite:
        return job.loss, job.loss_not_finite
    return (job.loss if first.loss is None else first.loss), first.loss_not_finite


def _checkpoints(cluster: Cluster, job: Job) -> Job:
    """The newest verified checkpoint; it may be an older one when the newest turns out corrupt."""
    nodes = [cluster.nodes[member.node] for member in job.members]
    launchers = [
        launcher
        for node in nodes or cluster.launched(job.spec.name)
        if (launcher := launcher_of(node, job.spec.name))
    ]
    if not launchers:
        return job
    newest = max(launchers, key=attrgetter("checkpoint_step"))
    if (newest.checkpoint_step, newest.checkpoint_at) == (job.checkpoint_step, job.checkpoint_at):
        return job
    took = newest.checkpoint_at - job.checkpoint_at
    is_next = job.checkpoint_at and took > 0 and newest.checkpoint_step > job.checkpoint_step
    return replace(
        job,
        checkpoint_step=newest.checkpoint_step,
        checkpoint_at=newest.checkpoint_at,
        checkpoint_stall_seconds=newest.checkpoint_stall_seconds or job.checkpoint_stall_seconds,
        checkpoint_durable_seconds=(
            newest.checkpoint_durable_seconds or job.checkpoint_durable_seconds
        ),
        checkpoint_seconds=_lately(job.checkpoint_seconds, took)
        if is_next
        else job.checkpoint_seconds,
    )


def has_moved(before: LauncherState | None, after: LauncherState) -> bool:
    """Whether a rank has completed a step since the launcher's last word."""
    return _furthest(before, after.generation) < _furthest(after, after.generation)


def _furthest(launcher: LauncherState | None, generation: int) -> int:
    if launcher is None or launcher.generation != generation:
        return 0
    return max((rank.step for rank in launcher.ranks), default=0)
