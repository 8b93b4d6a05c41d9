"""Attending to a job after news: its progress, its failures, its next step, its recoveries."""

from aegis.core import correlate, hangs, progress, recover, recovery, signals, symptoms
from aegis.core.cluster import ENDED, Cluster
from aegis.core.nodes import settle, suspect
from aegis.model.job import Job, JobState, LauncherState
from aegis.model.node import Node, NodeReport
from aegis.rules import RuleSet

ENDED_KEPT = 200  # jobs; older ones live in the event log only


def register(cluster: Cluster, launcher: LauncherState) -> None:
    """A launcher names its job: a new one, a known one, or a known name once more."""
    job = cluster.jobs.get(launcher.spec.name)
    if job is None:
        _forget_oldest(cluster)
        recover.submit(cluster, launcher.spec)
    elif job.state in ENDED and launcher.launcher not in job.ended_launchers:
        recover.resubmit(cluster, job, launcher.spec)


def _forget_oldest(cluster: Cluster) -> None:
    over = [job for job in cluster.jobs.values() if job.state in ENDED]
    idle = [job.spec.name for job in over if job.spec.name not in cluster.index.launched]
    for name in idle[: max(0, len(over) - ENDED_KEPT)]:
        del cluster.jobs[name]
        cluster.touched.add(("job", name))


def attend(cluster: Cluster, rules: RuleSet, name: str) -> None:
    """Bring the job up to date with what its launchers say."""
    progress.take(cluster, cluster.jobs[name])
    for fault in symptoms.of_job(cluster, cluster.jobs[name]):
        correlate.observe(cluster, rules, fault)
    for fault in hangs.of_job(cluster, cluster.jobs[name]):
        correlate.observe(cluster, rules, fault)
    for fault in signals.of_job(cluster, cluster.jobs[name]):
        correlate.observe(cluster, rules, fault)
    members = [member.node for member in cluster.jobs[name].members]
    recover.advance(cluster, name)
    _note_rejected(cluster, rules, cluster.jobs[name])
    recovery.follow(cluster, cluster.jobs[name])
    for node in members:
        if node in cluster.index.resting:
            settle(cluster, node)


def hear_of(cluster: Cluster, rules: RuleSet, name: str, node: str) -> None:
    """Attend to the job after a word from one node.

    While a job runs and nothing is mended, one node's word can bring only a failure or an end:
    everything else waits for the next tick, so a large job does not cost its size with each word.
    """
    job = cluster.jobs[name]
    quiet = job.state is JobState.RUNNING and not recovery.recovering(cluster, name)
    if not quiet or symptoms.of_node(cluster, job, node):
        attend(cluster, rules, name)


def remember(cluster: Cluster, node: Node, report: NodeReport) -> None:
    """Read how far a job is before the launcher that knows it is followed by another."""
    named = {launcher.launcher for launcher in report.launchers}
    for launcher in node.launchers:
        job = cluster.jobs.get(launcher.spec.name)
        if job is not None and launcher.launcher not in named:
            progress.take(cluster, job)


def overdue(cluster: Cluster, rules: RuleSet, name: str) -> None:
    """Notice what a job was told and has not done in time."""
    late = symptoms.late_start(cluster, cluster.jobs[name])
    if late is not None:
        correlate.observe(cluster, rules, late)
    recover.insist(cluster, cluster.jobs[name])
    for fault in symptoms.late_stop(cluster, cluster.jobs[name]):
        if suspect(cluster, fault.node, fault.evidence[0].text):
            correlate.observe(cluster, rules, fault)


def _note_rejected(cluster: Cluster, rules: RuleSet, job: Job) -> None:
    for node, checkpoint in symptoms.rejected(cluster, job):
        fault = symptoms.of_rejected(job, node, checkpoint)
        if not _is_noted(cluster, job, symptoms.sentence(checkpoint)):
            correlate.observe(cluster, rules, fault)


def _is_noted(cluster: Cluster, job: Job, sentence: str) -> bool:
    """Whether an incident of this generation names the checkpoint already."""
    return any(
        sentence in incident.rejected_checkpoints
        and job.generation in (incident.generation_before, incident.generation_after)
        for incident in cluster.incidents.values()
        if incident.job == job.spec.name
    )
