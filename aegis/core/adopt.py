"""Ranks that run and that this controller did not start: taken over, never restarted for its sake.

It happens where the event log was lost while training went on. A generation that is whole is
adopted as it is; what stays incomplete for too long is stopped, and the job then starts anew.
"""

from dataclasses import replace

from aegis.core.cluster import Cluster, at_rest, launcher_of
from aegis.core.words import listed
from aegis.model.job import Attempt, Job, JobState, LauncherPhase, LauncherState, Member, StopKind
from aegis.model.node import Node, NodeState

_LEAVING = (NodeState.DRAINING, NodeState.QUARANTINED, NodeState.REPAIRING)


def adopt(cluster: Cluster, job: Job) -> bool:
    """Whether ranks of a generation unknown to us are alive; if so they decide what happens."""
    alive = _alive(cluster, job)
    if not alive:
        return False
    generation = max(launcher.generation for _, launcher in alive)
    if taken := _of_others(cluster, job, [node.name for node, _ in alive]):
        cluster.put_job(replace(job, reason=taken))
        return True
    newest = [(node, one) for node, one in alive if one.generation == generation]
    leaving = [
        node.name for node, _ in newest if node.state in _LEAVING or node.name in job.excluded
    ]
    if _is_whole(job, newest) and leaving:
        reason = f"its ranks run on {listed(leaving)}, which must be left"
        _stop(cluster, job, newest, StopKind.SAVING, reason)
    elif _is_whole(job, newest):
        _take_over(cluster, job, generation, newest)
    elif cluster.now - max(job.since, cluster.hears_since) >= cluster.policy.silence_seconds:
        _stop(cluster, job, alive, StopKind.NOW, "some of its ranks run, others do not")
    else:
        reason = f"ranks of generation {generation} run on {len(newest)} of {job.spec.nodes} nodes"
        cluster.put_job(replace(job, reason=reason))
    return True


def is_undecided(cluster: Cluster, job: Job, node: str, launcher: LauncherState) -> bool:
    """Whether these ranks may yet be taken over, so that nothing is asked of their launcher."""
    other = cluster.job_on(node)
    return (
        job.state is JobState.WAITING
        and launcher.generation > job.generation
        and not at_rest(launcher)
        and (other is None or other.spec.name == job.spec.name)
    )


def _of_others(cluster: Cluster, job: Job, nodes: list[str]) -> str:
    """Why they cannot be taken over yet: another job was given one of their nodes meanwhile."""
    for name in nodes:
        other = cluster.job_on(name)
        if other is not None and other.spec.name != job.spec.name:
            return f"its ranks run on {name}, where job {other.spec.name} is"
    return ""


def _alive(cluster: Cluster, job: Job) -> list[tuple[Node, LauncherState]]:
    found = []
    for node in cluster.launched(job.spec.name):
        launcher = launcher_of(node, job.spec.name)
        if launcher and launcher.generation > job.generation and not at_rest(launcher):
            found.append((node, launcher))
    return sorted(found, key=lambda pair: min((rank.rank for rank in pair[1].ranks), default=0))


def _is_whole(job: Job, found: list[tuple[Node, LauncherState]]) -> bool:
    """Whether all ranks of the job are there, once each."""
    ranks = [rank.rank for _, launcher in found for rank in launcher.ranks]
    return sorted(ranks) == list(range(job.spec.nodes * job.spec.ranks_per_node))


def _take_over(
    cluster: Cluster, job: Job, generation: int, found: list[tuple[Node, LauncherState]]
) -> None:
    starting = [node.name for node, one in found if one.phase is not LauncherPhase.RUNNING]
    attempt = Attempt(
        generation=generation,
        nodes=tuple(node.name for node, _ in found),
        started_at=min(rank.started_at for _, one in found for rank in one.ranks),
        resumed_step=found[0][1].resumed_step,
    )
    cluster.put_job(
        replace(
            job,
            state=JobState.STARTING if starting else JobState.RUNNING,
            since=cluster.now,
            reason="adopted: its ranks were running before this controller knew of them",
            generation=generation,
            sequence=job.sequence + 1,
            members=_members(found),
            awaiting=frozenset(starting),
            progress_at=cluster.now,
            attempts=(*job.attempts, attempt),
        )
    )


def _stop(
    cluster: Cluster,
    job: Job,
    found: list[tuple[Node, LauncherState]],
    kind: StopKind,
    reason: str,
) -> None:
    cluster.put_job(
        replace(
            job,
            state=JobState.STOPPING,
            since=cluster.now,
            reason=reason,
            generation=max(one.generation for _, one in found),
            sequence=job.sequence + 1,
            members=_members(found),
            awaiting=frozenset(node.name for node, _ in found),
            stop=kind,
        )
    )


def _members(found: list[tuple[Node, LauncherState]]) -> tuple[Member, ...]:
    return tuple(
        Member(node=node.name, launcher=one.launcher, address=one.address) for node, one in found
    )
