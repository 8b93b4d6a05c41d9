"""What a job's launchers show of its health: faults read from levels, so none can be lost."""

from aegis.core.cluster import Cluster, launcher_of
from aegis.core.levels import is_fresh
from aegis.core.rails import TRAINING
from aegis.core.recovery import reports
from aegis.core.words import CRASH, duration, listed
from aegis.model.fault import VICTIM, Evidence, Fault, FaultClass, Severity
from aegis.model.job import (
    Job,
    JobState,
    LauncherPhase,
    LauncherState,
    Member,
    RankFailure,
    RejectedCheckpoint,
)
from aegis.model.node import Node

_LOST = (LauncherPhase.IDLE, LauncherPhase.FAILED)
ERROR_KEPT = 4000  # characters of a traceback's end
VICTIMS = "victims"  # among a fault's details: the ranks of its node that ended of it
ERROR_OUTPUT = "error output"  # where a rank's own words come from


def of_job(cluster: Cluster, job: Job) -> list[Fault]:
    """The failures of the job's current generation, the earliest first.

    Ranks that are being stopped for a person's sake may fail as they like.
    """
    recovers = job.state is JobState.STOPPING and job.incident is not None
    if job.state not in TRAINING and not recovers:
        return []
    if _are_well(cluster, job):
        return []
    found = [fault for member in job.members for fault in _of_member(cluster, job, member)]
    return sorted(found, key=order)


def order(fault: Fault) -> tuple[bool, float]:
    """Who failed first: a rank that says it lost another one did not, whatever its clock says."""
    return (fault.is_victim, fault.observed_at)


def _are_well(cluster: Cluster, job: Job) -> bool:
    """Whether every member's own launcher speaks of this generation, and of no failure."""
    said = reports(cluster, job)
    return len(said) == len(job.members) and not any(
        one.failure is not None or one.phase in _LOST for one in said
    )


def of_node(cluster: Cluster, job: Job, name: str) -> bool:
    """Whether the node's newest word changes something for a job that runs."""
    member = cluster.member(job.spec.name, name)
    if member is None:
        return False
    launcher = launcher_of(cluster.nodes[name], job.spec.name)
    if launcher is None or launcher.phase is not LauncherPhase.RUNNING:
        return True
    stuck = launcher.hang is not None or job.hang_since > 0
    return stuck or bool(_of_member(cluster, job, member))


def _of_member(cluster: Cluster, job: Job, member: Member) -> list[Fault]:
    node = cluster.nodes[member.node]
    launcher = launcher_of(node, job.spec.name)
    if launcher is None or launcher.launcher != member.launcher:
        return _without_launcher(cluster, job, node, launcher)
    if launcher.generation != job.generation:
        return []
    if launcher.failure is not None and launcher.failure.generation == job.generation:
        return [_of_failure(job, node, launcher.failure)]
    if launcher.phase in _LOST and job.state in TRAINING:
        return [_of_launcher(cluster, job, node, "its launcher reports no ranks and no reason")]
    return []


def _without_launcher(
    cluster: Cluster, job: Job, node: Node, launcher: LauncherState | None
) -> list[Fault]:
    """Ranks end with their launcher. While the job is stopping this is no news."""
    if job.state not in TRAINING:
        return []
    if launcher is not None:
        text = "its launcher was started anew: the ranks of the one before ended with it"
        return [_of_launcher(cluster, job, node, text)]
    return [_of_launcher(cluster, job, node, "its launcher is gone, and its ranks with it")]


def _of_launcher(cluster: Cluster, job: Job, node: Node, text: str) -> Fault:
    return Fault(
        fault_class=FaultClass.JOB_WORKER_EXITED,
        severity=Severity.ERROR,
        node=node.name,
        device="launcher",
        observed_at=cluster.now,
        boot_id=node.boot_id,
        job=job.spec.name,
        evidence=(Evidence(source="launcher's report", text=f"{node.name}: {text}"),),
    )


def _of_failure(job: Job, node: Node, failure: RankFailure) -> Fault:
    killed = failure.oom_killed
    fault_class = FaultClass.JOB_WORKER_OOM_KILLED if killed else FaultClass.JOB_WORKER_EXITED
    how = failure.text or _how_it_ended(failure)
    if failure.victim:
        how += " (it lost another rank: a victim)"
    evidence = [Evidence(source="waitpid", text=how)]
    lines = [line.strip() for line in failure.error.splitlines() if line.strip()]
    if lines:
        tail = failure.error[-ERROR_KEPT:]
        told = lines[0] if lines[0].startswith(CRASH) else lines[-1]
        evidence.append(Evidence(source=ERROR_OUTPUT, text=told, after=tail))
    if failure.victims:
        ranks, verb = ("rank", "is its victim") if len(failure.victims) == 1 else (
            "ranks", "are its victims",
        )  # fmt: skip
        named = listed([str(rank) for rank in failure.victims])
        evidence.append(Evidence(source="waitpid", text=f"{ranks} {named} {verb}"))
    return Fault(
        fault_class=fault_class,
        severity=Severity.ERROR,
        node=node.name,
        device=f"rank{failure.rank}",
        observed_at=failure.at,
        boot_id=node.boot_id,
        job=job.spec.name,
        evidence=tuple(evidence),
        details=_details(failure),
    )


def _details(failure: RankFailure) -> tuple[tuple[str, str], ...]:
    ranks = " ".join(map(str, failure.victims))
    return (*((VICTIM,) if failure.victim else ()), *(((VICTIMS, ranks),) if ranks else ()))


def _how_it_ended(failure: RankFailure) -> str:
    if failure.signal is not None:
        return f"rank {failure.rank} was killed by signal {failure.signal}"
    return f"rank {failure.rank} exited with {failure.exit_code}"


def rejected(cluster: Cluster, job: Job) -> list[tuple[Node, RejectedCheckpoint]]:
    """Checkpoints that this generation passed over, each once."""
    found: dict[tuple[int, str], tuple[Node, RejectedCheckpoint]] = {}
    nodes = [cluster.nodes[member.node] for member in job.members if job.state in TRAINING]
    for node in nodes:
        launcher = launcher_of(node, job.spec.name)
        if launcher and launcher.rejected and launcher.generation == job.generation:
            for one in launcher.rejected:
                found.setdefault((one.step, one.path), (node, one))
    return list(found.values())


def of_rejected(job: Job, node: Node, one: RejectedCheckpoint) -> Fault:
    """A checkpoint that failed its verification, as a fault."""
    return Fault(
        fault_class=FaultClass.JOB_CHECKPOINT_CORRUPT,
        severity=Severity.WARNING,
        node=node.name,
        device=f"step{one.step}",
        observed_at=node.seen_at,
        job=job.spec.name,
        evidence=(Evidence(source="verification", text=sentence(one)),),
    )


def sentence(one: RejectedCheckpoint) -> str:
    """What was wrong with a checkpoint."""
    if one.reason.startswith("suspect: "):
        return f"the checkpoint of step {one.step} is {one.reason}"
    return f"the checkpoint of step {one.step} failed verification ({one.reason})"


def late_start(cluster: Cluster, job: Job) -> Fault | None:
    """A generation that does not get all its ranks alive in time."""
    waited = cluster.now - max(job.since, cluster.hears_since)
    if job.state is not JobState.STARTING or waited < cluster.policy.start_seconds:
        return None
    slow = next(member.node for member in job.members if member.node in job.awaiting)
    text = f"{slow} did not start its ranks in {duration(waited)}"
    return Fault(
        fault_class=FaultClass.JOB_HANG,
        severity=Severity.ERROR,
        node=slow,
        device="ranks",
        observed_at=cluster.now,
        job=job.spec.name,
        evidence=(Evidence(source="controller's clock", text=text),),
    )


def late_stop(cluster: Cluster, job: Job) -> list[Fault]:
    """Nodes that are heard and still hold ranks long after they were told to stop."""
    waited = cluster.now - max(job.since, cluster.hears_since)
    if job.state is not JobState.STOPPING or waited < cluster.policy.stop_seconds:
        return []
    return [
        Fault(
            fault_class=FaultClass.HOST_TASK_HUNG,
            severity=Severity.ERROR,
            node=name,
            device="host",
            observed_at=cluster.now,
            evidence=(
                Evidence(
                    source="launcher's report",
                    text=f"ranks of job {job.spec.name} live on {duration(waited)} after the stop",
                ),
            ),
        )
        for name in sorted(job.awaiting)
        if is_fresh(cluster, cluster.nodes[name])
    ]
