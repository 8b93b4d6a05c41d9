"""A job's generations, told as its owner asks: how far each came, what its end cost and why."""

from dataclasses import dataclass

from aegis.core import story
from aegis.core.cluster import Cluster
from aegis.core.symptoms import ERROR_OUTPUT, VICTIMS
from aegis.model.fault import Fault
from aegis.model.incident import Incident
from aegis.model.job import Attempt, Job, Tier

MOVING = ("stop", "provision", "load", "first_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One generation, and the time until the next one trained."""

    generation: int
    nodes: tuple[str, ...]
    started_at: float
    ended_at: float | None
    resumed_step: int | None
    resumed_from: tuple[Tier, ...]  # where its ranks found that; (): they do not say
    last_step: int
    steps_lost: int | None  # what the next one had to do again; None: it has not said
    reason: str  # why it ended
    incident: str | None  # what ended it; None: nothing did, or a person
    cause: str  # what broke first, where, and in which words; "": nothing, or it is forgotten
    victims: tuple[str, ...]  # what fell with it: "rank 3 on node-2"
    downtime: dict[str, float | None]  # by phase, until the next one's first step; {}: it runs
    downtime_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All of them that are kept, oldest first, and what they cost together."""

    laps: tuple[Lap, ...]
    steps_lost: int
    downtime_seconds: float


def of_job(cluster: Cluster, job: Job) -> History:
    """The job's history as it stands."""
    following = [*job.attempts[1:], None]
    pairs = zip(job.attempts, following, strict=True) if job.attempts else ()
    laps = tuple(_lap(cluster, job, one, after) for one, after in pairs)
    return History(
        laps=laps,
        steps_lost=sum(lap.steps_lost or 0 for lap in laps),
        downtime_seconds=sum(lap.downtime_seconds or 0.0 for lap in laps),
    )


def _lap(cluster: Cluster, job: Job, one: Attempt, after: Attempt | None) -> Lap:
    downtime = _downtime(cluster, one, after) if after else {}
    incident = _ended_by(cluster, job, one, after)
    known = [seconds for seconds in downtime.values() if seconds is not None]
    last_step = one.last_step if one.ended_at is not None else job.step
    lost = None
    if after is not None and after.resumed_step is not None:
        lost = max(0, last_step - after.resumed_step)
    return Lap(
        generation=one.generation,
        nodes=one.nodes,
        started_at=one.started_at,
        ended_at=one.ended_at,
        resumed_step=one.resumed_step,
        resumed_from=one.resumed_from,
        last_step=last_step,
        steps_lost=lost,
        reason=one.reason,
        incident=after.incident if after else incident.id if incident else None,
        cause=cause(incident) if incident else "",
        victims=victims(incident) if incident else (),
        downtime=downtime,
        downtime_seconds=sum(known) if known else None,
    )


def _ended_by(cluster: Cluster, job: Job, one: Attempt, after: Attempt | None) -> Incident | None:
    """The incident that the next generation answers; where there is none, the one that ended it."""
    if after is not None:
        return cluster.incidents.get(after.incident or "")
    mine = (job.spec.name, one.generation)
    if one.ended_at is None and not one.stop_at:
        return None
    known = reversed(cluster.incidents.values())
    return next((it for it in known if (it.job, it.generation_before) == mine), None)


def cause(incident: Incident) -> str:
    """What broke first, where, and in which words: those of the rank itself where it had some."""
    first = _first(incident)
    told = [one.text for one in first.evidence if one.source != ERROR_OUTPUT][:1]
    told += [one.text for one in first.evidence if one.source == ERROR_OUTPUT]
    rank = f"rank {first.device.removeprefix('rank')} "
    words = [
        one.removeprefix(f"{first.node}: ").removeprefix(rank).removeprefix("was ").rstrip(".")
        for one in told
        if one
    ]
    return story.what(incident) + (f": {'; '.join(words)}" if words else "")


def victims(incident: Incident) -> tuple[str, ...]:
    """Ranks that ended of what the first cause did, and not by themselves."""
    first, found = _first(incident), dict[str, None]()
    for fault in incident.faults if first.job else ():
        ranks = dict(fault.details).get(VICTIMS, "").split()
        if fault is not first and fault.device.startswith("rank"):
            ranks.insert(0, fault.device.removeprefix("rank"))
        found.update(dict.fromkeys(f"rank {rank} on {fault.node}" for rank in ranks))
    found.pop(f"rank {first.device.removeprefix('rank')} on {first.node}", None)
    return tuple(found)


def _first(incident: Incident) -> Fault:
    """The fault that the incident is named for."""
    named = (incident.node, incident.device)
    alike = (fault for fault in incident.faults if (fault.node, fault.device) == named)
    return next(alike, incident.faults[0])


def _downtime(cluster: Cluster, one: Attempt, after: Attempt) -> dict[str, float | None]:
    """By the incident that the next generation answers; without one, from what was ordered."""
    incident = cluster.incidents.get(after.incident or "")
    if incident is not None and incident.generation_after == after.generation:
        return story.seconds(incident)
    ended, trained = one.ended_at, after.first_step_at
    begun = one.stop_at or ended
    stop = None if ended is None or begun is None else max(0.0, ended - begun)
    provision = None if ended is None else max(0.0, after.started_at - ended)
    first = max(0.0, trained - after.started_at) if trained else None
    return dict(zip(MOVING, (stop, provision, None, first), strict=True))
