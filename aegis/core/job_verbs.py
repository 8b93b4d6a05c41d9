"""What people ask of a job: stop it, start its ranks anew, keep it off a node.

Like `operate`, which hands these on: `refusal` before the event is logged, `apply` afterwards.
"""

from typing import TypeAlias, assert_never

from aegis.core import recover
from aegis.core.cluster import ENDED, Cluster, holders, launcher_of
from aegis.model.event import JobNodeExcluded, JobRestarted, JobStopped
from aegis.model.job import Job, JobState, StopKind
from aegis.model.record import replace

JobVerb: TypeAlias = JobStopped | JobRestarted | JobNodeExcluded


def refusal(cluster: Cluster, event: JobVerb) -> str | None:
    """Why it is refused, and what to do instead."""
    job = cluster.jobs.get(event.job)
    if job is None:
        return f"no job is called {event.job}: see `aegis jobs`"
    if job.state in ENDED:
        return f"job {event.job} is {job.state} already: {job.reason}"
    match event:
        case JobStopped():
            return None
        case JobRestarted():
            return _not_restarted(job)
        case JobNodeExcluded():
            return _not_excluded(cluster, job, event)
        case _:
            assert_never(event)


def _not_restarted(job: Job) -> str | None:
    name = job.spec.name
    if job.state is JobState.WAITING:
        return f"job {name} holds no ranks, it starts when it can: {job.reason}"
    if job.state is JobState.STOPPING:
        return f"job {name} is being stopped already, and starts again after that: {job.reason}"
    return None


def _not_excluded(cluster: Cluster, job: Job, event: JobNodeExcluded) -> str | None:
    name, node = job.spec.name, event.node
    is_excluded = node in job.excluded
    if not event.excluded:
        return None if is_excluded else f"{node} is not excluded from job {name}"
    if is_excluded:
        return f"{node} is excluded from job {name} already"
    if node not in cluster.nodes:
        return f"no node is called {node}: see `aegis nodes`"
    kept = [one.name for one in cluster.launched(name) if one.name not in (*job.excluded, node)]
    if launcher_of(cluster.nodes[node], name) and len(kept) < job.spec.nodes:
        return (
            f"job {name} needs {job.spec.nodes} nodes and would have a launcher on {len(kept)} "
            "only: start `aegis run` on another node first"
        )
    return None


def apply(cluster: Cluster, event: JobVerb) -> None:
    """Carry it out; it was not refused."""
    job = cluster.jobs[event.job]
    match event:
        case JobStopped():
            cluster.put_job(replace(job, stop_requested=True))
            _stop(cluster, event, f"stopped by {event.actor}: {event.reason}")
        case JobRestarted():
            kind = StopKind.NOW if event.at_once else StopKind.SAVING
            _stop(cluster, event, f"restarted by {event.actor}: {event.reason}", kind)
        case JobNodeExcluded():
            _exclude(cluster, job, event)
        case _:
            assert_never(event)


def _exclude(cluster: Cluster, job: Job, event: JobNodeExcluded) -> None:
    others = tuple(name for name in job.excluded if name != event.node)
    excluded = (*others, event.node) if event.excluded else others
    cluster.put_job(replace(job, excluded=excluded))
    if event.excluded and event.node in holders(job) and job.state is not JobState.STOPPING:
        text = f"{event.actor} keeps {job.spec.name} off {event.node}: {event.reason}"
        _stop(cluster, event, text)


def _stop(cluster: Cluster, event: JobVerb, reason: str, kind: StopKind = StopKind.SAVING) -> None:
    recover.stop(cluster, cluster.jobs[event.job], kind, reason, None)
