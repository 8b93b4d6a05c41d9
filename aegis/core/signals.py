"""Slow ranks and losses that are none: told to people with their evidence, and nothing more.

Launchers keep what they noticed as a level, so each is told once for a generation.
"""

from collections.abc import Iterator
from statistics import median

from aegis.core.cluster import Cluster
from aegis.core.rails import TRAINING
from aegis.core.recovery import report_of
from aegis.core.words import duration
from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.job import Job, RankSignal, RankState, SignalKind
from aegis.model.record import replace

SLOW_TIMES = 1.5  # the median of the other ranks
SLOW_SECONDS = 60.0  # for so long, before anybody is told
TOLD_KEPT = 64

_CLASSES = {
    SignalKind.LOSS_NAN: (FaultClass.JOB_LOSS_NAN, Severity.ERROR),
    SignalKind.LOSS_SPIKE: (FaultClass.JOB_LOSS_SPIKE, Severity.WARNING),
}


def of_job(cluster: Cluster, job: Job) -> list[Fault]:
    """What nobody was told yet."""
    if job.state not in TRAINING:
        return []
    told = set(job.signalled)
    found = []
    # A loss is mostly the same on all ranks: whoever had it first stands for them.
    for node, signal in sorted(_signals(cluster, job), key=lambda one: one[1].step):
        name = f"{job.generation} {signal.kind}"
        if name not in told:
            told.add(name)
            found.append(_of_signal(cluster, job, node, signal))
    for node, rank, usual in _stragglers(cluster, job):
        name = f"{job.generation} straggler {rank.rank}"
        if name not in told:
            told.add(name)
            found.append(_of_straggler(cluster, job, node, rank, usual))
    if found:
        known = cluster.jobs[job.spec.name]
        new = tuple(sorted(told - set(job.signalled)))
        cluster.put_job(replace(known, signalled=(*known.signalled, *new)[-TOLD_KEPT:]))
    return found


def _signals(cluster: Cluster, job: Job) -> Iterator[tuple[str, RankSignal]]:
    for member in job.members:
        report = report_of(cluster, job, member)
        if report is not None and report.signals:
            yield from ((member.node, signal) for signal in report.signals)


def _of_signal(cluster: Cluster, job: Job, node: str, signal: RankSignal) -> Fault:
    fault_class, severity = _CLASSES[signal.kind]
    evidence = Evidence(
        source="step reports",
        text=signal.text,
        before=signal.before or None,
        after=signal.after or None,
    )
    return replace(
        _fault(cluster, job, node, signal.rank),
        fault_class=fault_class,
        severity=severity,
        observed_at=signal.at,
        evidence=(evidence,),
    )


def _stragglers(cluster: Cluster, job: Job) -> list[tuple[str, RankState, float]]:
    """Ranks that have been slower than their peers for long, by what they time as their own."""
    first = report_of(cluster, job, job.members[0]) if job.members else None
    if first is None or not first.ranks or not first.ranks[0].own_seconds:
        if job.slow:
            cluster.put_job(replace(job, slow=()))
        return []
    ranks = {
        rank.rank: (member.node, rank)
        for member in job.members
        if (report := report_of(cluster, job, member))
        for rank in report.ranks
        if rank.own_seconds
    }
    usual = median(rank.own_seconds for _, rank in ranks.values())
    if len(ranks) == 2:  # the median of two is between them: the quicker one is the measure
        usual = min(rank.own_seconds for _, rank in ranks.values())
    since = dict(job.slow)
    slow = {
        number: since.get(number, cluster.now)
        for number, (_, rank) in ranks.items()
        if len(ranks) > 1 and rank.own_seconds > SLOW_TIMES * usual
    }
    if slow != since:
        cluster.put_job(replace(job, slow=tuple(sorted(slow.items()))))
    return [
        (*ranks[number], usual) for number, at in slow.items() if cluster.now - at >= SLOW_SECONDS
    ]


def _of_straggler(cluster: Cluster, job: Job, node: str, rank: RankState, usual: float) -> Fault:
    own = duration(rank.own_seconds)
    text = (
        f"rank {rank.rank} needs {own} of its own for a step, for more than "
        f"{duration(SLOW_SECONDS)} now; the median of all ranks is {duration(usual)}"
    )
    evidence = Evidence(source="step reports", text=text, before=duration(usual), after=own)
    return replace(_fault(cluster, job, node, rank.rank), evidence=(evidence,))


def _fault(cluster: Cluster, job: Job, node: str, rank: int) -> Fault:
    """What all of them have in common."""
    return Fault(
        fault_class=FaultClass.JOB_STRAGGLER,
        severity=Severity.WARNING,
        node=node,
        device=f"rank{rank}",
        observed_at=cluster.now,
        boot_id=cluster.nodes[node].boot_id,
        job=job.spec.name,
    )
