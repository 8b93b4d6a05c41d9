"""What is to be expected, from what this fleet has measured: spares needed, time well used.

Spares: each node fails with the measured rate during the time a repair takes, independently of the
others, so the number out at once is binomial; asked is the least number of spares that is enough in
99 of 100 such times.

Effective training time ratio (ETTR), after Kokolis et al., "Revisiting Reliability in Large-Scale
Machine Learning Research Clusters", HPCA 2025, to first order: failures come at nodes * rate, and
each costs a restart u0, measured from the fault to the first new step (waiting for nodes is in it),
and half a checkpoint interval c:

    expected = 1 - nodes * rate * (u0 + c / 2)
"""

from dataclasses import dataclass
from math import comb, exp, sqrt

from aegis.core.cluster import ENDED, Cluster
from aegis.model.experience import Experience
from aegis.model.incident import Incident
from aegis.model.job import Job

DAY_SECONDS = 86400.0
STALL_SECONDS_MIN = 0.001  # a clock is no better than that
REPAIR_SECONDS = DAY_SECONDS  # assumed until one repair was seen
SPARES_QUANTILE = 0.99
ETTR_WINDOW_SECONDS = 3600.0
FAILURES_MIN = 3  # fewer say little: the rate is then given as a bound
_UPPER_95 = (3.0, 4.74, 6.3)  # 95 % upper bound of a Poisson mean of which 0, 1, 2 were seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often something fails."""

    failures: int
    node_days: float
    per_node_day: float | None  # None: nothing was observed yet
    is_bound: bool  # too few failures were seen: at most this, with 95 % confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesForecast:
    """How many spares the fleet needs."""

    rate: Rate
    repair_hours: float
    is_repair_assumed: bool
    nodes: int
    needed: int | None  # None: nothing was observed yet
    available: int  # nodes that could take ranks now and hold none


@dataclass(frozen=True, slots=True, kw_only=True)
class Ettr:
    """How much of a job's time trains: what the model expects, and what was measured."""

    expected: float | None  # None: not enough is known, see `reason`
    reason: str
    nodes: int
    failures_per_node_day: float | None
    restart_seconds: float | None
    checkpoint_seconds: float | None
    measured: float | None  # over the window; None: the job has not trained in it
    window_seconds: float
    lost_seconds: float  # of the window: standing still, and steps that were trained twice


def rate_of(known: Experience, failures: int) -> Rate:
    """A measured rate, or the most that it may be."""
    node_days = known.node_seconds / DAY_SECONDS
    if node_days <= 0:
        return Rate(failures=failures, node_days=0.0, per_node_day=None, is_bound=True)
    is_bound = failures < FAILURES_MIN
    events = _UPPER_95[failures] if is_bound else failures
    return Rate(
        failures=failures,
        node_days=node_days,
        per_node_day=events / node_days,
        is_bound=is_bound,
    )


def spares(cluster: Cluster) -> SparesForecast:
    """How many spares this fleet needs by what it has measured."""
    known = cluster.experience
    rate = rate_of(known, sum(known.node_failures.values()))
    assumed = known.repairs == 0
    repair = REPAIR_SECONDS if assumed else known.repair_seconds / known.repairs
    needed = None
    if rate.per_node_day is not None:
        chance = 1.0 - exp(-rate.per_node_day * repair / DAY_SECONDS)
        needed = binomial_quantile(len(cluster.nodes), chance, SPARES_QUANTILE)
    free = {node.name for job in cluster.jobs.values() for node in cluster.spares(job)}
    return SparesForecast(
        rate=rate,
        repair_hours=repair / 3600.0,
        is_repair_assumed=assumed,
        nodes=len(cluster.nodes),
        needed=needed,
        available=len(free),
    )


def binomial_quantile(count: int, chance: float, quantile: float) -> int:
    """The least k with P(X <= k) >= quantile, for X binomial."""
    below = 0.0
    for k in range(count + 1):
        below += comb(count, k) * chance**k * (1.0 - chance) ** (count - k)
        if below >= quantile:
            return k
    return count


def ettr(cluster: Cluster, job: Job) -> Ettr:
    """How much of the job's time trains."""
    known = cluster.experience
    rate = rate_of(known, sum(known.job_failures.values())).per_node_day
    restart = known.restart_seconds / known.restart_count if known.restart_count else None
    checkpoint = job.checkpoint_seconds or None
    expected, reason = _expected(job, rate, restart, checkpoint)
    window, lost = _lost(cluster, job)
    return Ettr(
        expected=expected,
        reason=reason,
        nodes=job.spec.nodes,
        failures_per_node_day=rate,
        restart_seconds=restart,
        checkpoint_seconds=checkpoint,
        measured=max(0.0, 1.0 - lost / window) if window > 0 else None,
        window_seconds=window,
        lost_seconds=lost,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """How often a job should save."""

    advised_seconds: float | None  # None: not enough is known, see `reason`
    advised_steps: int | None  # in steps of the job, as long as they take now
    reason: str  # why nothing can be advised, or what bounds the advice
    stall_seconds: float | None  # for which a save keeps the loop waiting
    durable_seconds: float | None  # and from then until it is complete on disk
    failure_seconds: float | None  # between two failures of the job
    is_bound: bool  # too few failures were seen: they come at most that often
    now_seconds: float | None  # between two saves, lately


def interval(cluster: Cluster, job: Job) -> Interval:
    """After Young and Daly: sqrt(2 * what a save costs * time between failures).

    What it costs is what the loop waits for: the rest runs beside it. At most one save is under
    way, so saving more often than one takes to be durable would make the loop wait for that.
    """
    known = cluster.experience
    rate = rate_of(known, sum(known.job_failures.values()))
    stall = max(STALL_SECONDS_MIN, job.checkpoint_stall_seconds)
    durable = job.checkpoint_durable_seconds
    between = None
    if rate.per_node_day:
        between = DAY_SECONDS / (rate.per_node_day * max(1, job.spec.nodes))
    advised, reason = None, "the job has not saved by aegis.worker.Checkpointer yet"
    if durable and between is None:
        reason = "no node has been observed for long enough to know how often the job fails"
    elif durable and between is not None:
        best = sqrt(2.0 * stall * between)
        advised = max(best, durable)
        reason = "" if best >= durable else "a save takes that long to be complete on disk"
    steps = None
    if advised is not None and job.step_seconds:
        steps = max(1, round(advised / job.step_seconds))
    return Interval(
        advised_seconds=advised,
        advised_steps=steps,
        reason=reason,
        stall_seconds=stall if durable else None,
        durable_seconds=durable or None,
        failure_seconds=between,
        is_bound=rate.is_bound,
        now_seconds=job.checkpoint_seconds or None,
    )


def _expected(
    job: Job, rate: float | None, restart: float | None, checkpoint: float | None
) -> tuple[float | None, str]:
    if rate is None:
        return None, "no node has been observed for long enough to know how often one fails"
    if restart is None:
        return None, "no recovery has been followed to its first step yet"
    if checkpoint is None:
        return None, "the job has not saved two checkpoints yet"
    per_second = job.spec.nodes * rate / DAY_SECONDS
    return max(0.0, 1.0 - per_second * (restart + checkpoint / 2)), ""


def _lost(cluster: Cluster, job: Job) -> tuple[float, float]:
    """The window, and the part of it in which the job stood still or trained steps again."""
    if not job.step_seconds:
        return 0.0, 0.0
    end = job.since if job.state in ENDED else cluster.now
    begin = max(end - ETTR_WINDOW_SECONDS, job.submitted_at)
    mine = [
        one
        for one in cluster.incidents.values()
        if one.job == job.spec.name and one.generation_before and _until(one, end) > begin
    ]
    spans = [(job.submitted_at, job.trained_at or end)]
    spans += [(one.phases.observed_at, _until(one, end)) for one in mine]
    again = sum(
        (one.steps_lost or 0) * job.step_seconds
        for one in mine
        if one.phases.first_step_at is not None
    )
    window = end - begin
    return window, min(window, _covered(spans, begin, end) + again)


def _until(incident: Incident, end: float) -> float:
    """When the job trained again; the end when it does not yet."""
    if incident.phases.first_step_at is not None:
        return incident.phases.first_step_at
    return min(end, incident.closed_at or end)


def _covered(spans: list[tuple[float, float]], begin: float, end: float) -> float:
    """The part of [begin, end] that the spans cover, overlaps counted once."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        new = min(last, end) - max(first, reached)
        if new > 0:
            total += new
            reached = min(last, end)
    return total
