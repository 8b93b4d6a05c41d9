"""What a verb would do to a job, in sentences, before anybody says it."""

from dataclasses import dataclass
from typing import assert_never

from aegis.core.cluster import Cluster, holders
from aegis.core.job_verbs import JobVerb, refusal
from aegis.core.words import counted, duration, listed
from aegis.model.event import JobNodeExcluded, JobRestarted, JobStopped
from aegis.model.job import Job, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What it would hit; nothing of it where it would be refused."""

    refused: str  # why, and what to do instead; "": it would be carried out
    hits: tuple[str, ...]


def plan(cluster: Cluster, event: JobVerb) -> JobPlan:
    """What would come of it now."""
    refused = refusal(cluster, event) or ""
    if refused:
        return JobPlan(refused=refused, hits=())
    job = cluster.jobs[event.job]
    match event:
        case JobStopped():
            over = "it is over then: its launchers end with 0, and only `aegis run` starts it anew"
            return JobPlan(refused="", hits=(*_ends(cluster, job), over))
        case JobRestarted():
            hits = (*_ends(cluster, job, saving=not event.at_once), *_resumes(job, event.at_once))
            return JobPlan(refused="", hits=hits)
        case JobNodeExcluded():
            return JobPlan(refused="", hits=tuple(_moves(cluster, job, event)))
        case _:
            assert_never(event)


def _ends(cluster: Cluster, job: Job, *, saving: bool = True) -> tuple[str, ...]:
    """Which ranks are stopped, and how."""
    nodes = sorted(holders(job))
    if job.state is JobState.STOPPING:
        return (f"its ranks on {listed(nodes)} are being stopped already",)
    if not nodes:
        return ("it holds no ranks now",)
    where = f"{counted(len(nodes) * job.spec.ranks_per_node, 'rank')} on {listed(nodes)}"
    if not saving or job.state is not JobState.RUNNING:
        return (f"kills {where} at once, without a save",)
    grace = duration(cluster.policy.stop_grace_seconds)
    return (f"stops {where}: they save at their next step, and are killed after {grace}",)


def _resumes(job: Job, at_once: bool) -> tuple[str, ...]:  # noqa: FBT001  as the event has it
    free = "costs none of the restarts that --max-restarts allows"
    if not at_once and job.state is JobState.RUNNING:
        return ("starts them again from what they saved", free)
    if not job.checkpoint_step:
        return ("starts them again from the beginning: it knows of no checkpoint", free)
    again = max(0, job.step - job.checkpoint_step)
    back = f"starts them again from its newest checkpoint, of step {job.checkpoint_step}"
    return (f"{back}: {counted(again, 'step')} trained again" if again else back, free)


def _moves(cluster: Cluster, job: Job, event: JobNodeExcluded) -> list[str]:
    node = event.node
    if not event.excluded:
        return ["stops nothing", f"it may have ranks on {node} again from its next start on"]
    spares = [one.name for one in cluster.spares(job) if one.name != node]
    if node not in holders(job):
        return [f"stops nothing: it has no ranks on {node}", _left(spares)]
    if job.state is JobState.STOPPING:
        return [*_ends(cluster, job), _successor(job, node, spares)]
    return [*_ends(cluster, job), _successor(job, node, spares), *_resumes(job, at_once=False)]


def _left(spares: list[str]) -> str:
    return f"spares that are left to it: {listed(spares)}" if spares else "no spare is left to it"


def _successor(job: Job, node: str, spares: list[str]) -> str:
    if spares:
        return f"{spares[0]} takes the place of {node}"
    return (
        f"no node stands by to take the place of {node}: "
        f"it waits until {counted(job.spec.nodes, 'node')} can take ranks"
    )
