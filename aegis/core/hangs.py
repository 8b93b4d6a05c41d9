"""Ranks that do not come on: what launchers say of their own, and which rank of the job stands out.

A launcher sees its own ranks only, and those that wait look as stuck as the one they wait for. So
the words of all members are put side by side before anything is killed.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from operator import attrgetter

from aegis.core.cluster import Cluster
from aegis.core.rails import TRAINING
from aegis.core.recovery import report_of, reports
from aegis.core.words import counted, duration, listed
from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.incident import Incident
from aegis.model.job import Hang, HangCause, Job, JobState, RankPhase, RankView
from aegis.model.record import replace

WAIT_SECONDS = 1.0  # for the other members' words; they watch the same clock of steps
WORKING_TIMES = 10  # where every rank's stack moves, silence lasts so much longer
TEXT_KEPT = 4000
NAMED = 4  # ranks that are named one by one
_BUSY = (RankPhase.LOADING, RankPhase.SAVING, RankPhase.EVALUATING)
_WAITS_IN = ("distributed_c10d.py", "_functional_collectives.py", "_engine_run_backward")
_ELSEWHERE = "elsewhere than the others"
_SHIMS = ("c10d_logger.py",)  # torch's own frames around a collective
_STATES = (
    ("T", "stopped by a signal (state T)"),
    ("D", "waiting in the kernel (state D)"),
)


def of_job(cluster: Cluster, job: Job) -> list[Fault]:
    """The hang of the job's current generation, if there is one."""
    told = _told(cluster, job)
    since = (job.hang_since or cluster.now) if told else 0.0
    if since != job.hang_since:
        job = replace(job, hang_since=since)
        cluster.put_job(job)
    if not told or not _is_sure(cluster, job, told) or _is_said(job, told):
        return []
    fault = _fault(cluster, job, told)
    if fault.severity is Severity.WARNING:
        said = (*job.signalled, _name(job))
        cluster.put_job(replace(job, signalled=said))
    return [fault]


def is_over(cluster: Cluster, incident: Incident) -> bool:
    """Whether a hang that nothing was done about has ended by itself."""
    job = cluster.jobs.get(incident.job or "")
    if incident.fault_class is not FaultClass.JOB_HANG or job is None:
        return False
    return job.state is JobState.RUNNING and not job.hang_since


def _told(cluster: Cluster, job: Job) -> dict[str, Hang]:
    """What the members' launchers say, by node."""
    if job.state not in TRAINING or not any(one.hang for one in reports(cluster, job)):
        return {}
    found: dict[str, Hang] = {}
    for member in job.members:
        launcher = report_of(cluster, job, member)
        if launcher and launcher.hang and launcher.hang.generation == job.generation:
            found[member.node] = launcher.hang
    return found


def _is_sure(cluster: Cluster, job: Job, told: dict[str, Hang]) -> bool:
    """A state is a fact at once; of silence every member has a word, or a little time for one."""
    if any(hang.cause is not HangCause.SILENT for hang in told.values()):
        return True
    waited = cluster.now - job.hang_since
    if len(told) < len(job.members) and (waited < WAIT_SECONDS or _is_busy(cluster, job, told)):
        return False
    views = [view for hang in told.values() for view in hang.ranks]
    longest = max(hang.limit_seconds for hang in told.values())
    return not all(view.moves for view in views) or waited >= (WORKING_TIMES - 1) * longest


def _is_busy(cluster: Cluster, job: Job, told: dict[str, Hang]) -> bool:
    """Whether a rank elsewhere is loading, saving or evaluating: the others may wait for it."""
    others = [member for member in job.members if member.node not in told]
    reports = [report for one in others if (report := report_of(cluster, job, one))]
    return any(rank.phase in _BUSY for report in reports for rank in report.ranks)


def _name(job: Job) -> str:
    return f"{job.generation} hang {job.hang_since}"


def _is_said(job: Job, told: dict[str, Hang]) -> bool:
    return any(hang.observed for hang in told.values()) and _name(job) in job.signalled


def _fault(cluster: Cluster, job: Job, told: dict[str, Hang]) -> Fault:
    where = {view.rank: node for node, hang in told.items() for view in hang.ranks}
    views = sorted((one for hang in told.values() for one in hang.ranks), key=attrgetter("rank"))
    odd, why = stands_out(views)
    node = where[odd[0].rank] if odd else job.members[0].node
    observed = any(hang.observed for hang in told.values())
    return Fault(
        fault_class=FaultClass.JOB_HANG,
        severity=Severity.WARNING if observed else Severity.ERROR,
        node=node,
        device=f"rank{odd[0].rank}" if odd else "ranks",
        observed_at=min(map(_began_at, told.values())),
        boot_id=cluster.nodes[node].boot_id,
        job=job.spec.name,
        evidence=(*_standing_out(views, odd, why), _silence(told, views), _folders(told)),
    )


def _began_at(hang: Hang) -> float:
    """A halt begins with the last sign of progress."""
    if hang.cause is not HangCause.SILENT:
        return hang.at
    return hang.at - max((view.silent_seconds for view in hang.ranks), default=0.0)


def stands_out(views: list[RankView]) -> tuple[list[RankView], str]:
    """The ranks that differ from the rest, the clearest difference first, and in what."""
    for letter, words in _STATES:
        if found := [one for one in views if one.state == letter]:
            return found, words
    if found := _off_step(views):
        # The fewer may also be the ones that left something out and went ahead.
        first = min(one.step for one in views)
        return found, "behind" if found[0].step == first else "ahead"
    if found := _fewest(views, attrgetter("phase")):
        return found, "in another phase"
    known = [one for one in views if one.stack]
    working = [one for one in known if not _is_waiting(one)]
    if working and len(working) < len(known):
        return working, _ELSEWHERE
    return (_fewest(known, attrgetter("stack")) if len(known) == len(views) else []), _ELSEWHERE


def _off_step(views: list[RankView]) -> list[RankView]:
    """Those at another step than most; where no step has most, those at the lowest."""
    steps = {one.step for one in views}
    if len(steps) < 2:
        return []
    lowest = [one for one in views if one.step == min(steps)]
    return _fewest(views, attrgetter("step")) or lowest


def _fewest(views: list[RankView], key: Callable[[RankView], Hashable]) -> list[RankView]:
    """Those that are not like most; nothing where no more than half are alike."""
    kinds = Counter(map(key, views)).most_common()
    if len(kinds) < 2 or 2 * kinds[0][1] <= len(views):
        return []
    return [one for one in views if key(one) != kinds[0][0]]


def _is_waiting(view: RankView) -> bool:
    """Whether its main thread is in a collective."""
    return any(part in call for call in view.stack for part in _WAITS_IN)


def _standing_out(views: list[RankView], odd: list[RankView], why: str) -> list[Evidence]:
    if not odd:
        text = f"no rank stands out: {_place(views[0])}" if views else "no rank answered"
        return [Evidence(source="stacks", text=text, after=views[0].text[:TEXT_KEPT])]
    names = listed([str(one.rank) for one in odd[:NAMED]])
    more = f" and {len(odd) - NAMED} more" if len(odd) > NAMED else ""
    noun, verb = ("rank", "is") if len(odd) == 1 else ("ranks", "are")
    text = f"{noun} {names}{more} {verb} {why}, {_place(odd[0])}"
    found = [Evidence(source="process state and stacks", text=text, after=_text(odd[0]))]
    rest = [one for one in views if one not in odd and one.stack]
    if rest:
        waits = "wait" if _is_waiting(rest[0]) else "are"
        text = f"the other {counted(len(views) - len(odd), 'rank')} {waits} {_place(rest[0])}"
        found.append(Evidence(source="stacks", text=text, after=rest[0].text[:TEXT_KEPT]))
    return found


def _text(view: RankView) -> str:
    return view.text[:TEXT_KEPT] or view.kernel


def _place(view: RankView) -> str:
    """Where a rank is: its step, and the calls that lead there."""
    if view.stack:
        # What is called last says what it waits in, the script's own line who waits.
        calls = list(dict.fromkeys([view.stack[0], *_own(view)]))
        at = " < ".join(calls[:3])
    else:
        at = f"in {view.kernel or 'a process that does not answer'}"
    runs = ", running" if view.state == "R" else ""
    return f"at step {view.step}: {at}{runs}"


def _own(view: RankView) -> list[str]:
    """The calls below those of a library of torch."""
    below = [n for n, call in enumerate(view.stack) if any(part in call for part in _WAITS_IN)]
    above = view.stack[max(below, default=-1) + 1 :]
    return [call for call in above if not any(part in call for part in _SHIMS)]


def _silence(told: dict[str, Hang], views: list[RankView]) -> Evidence:
    hang = max(told.values(), key=attrgetter("step_seconds"))
    silent = max((one.silent_seconds for one in views), default=0.0)
    usual = f"steps take {duration(hang.step_seconds)}" if hang.step_seconds else "no pace is known"
    limit = f", the limit is {duration(hang.limit_seconds)}" if hang.limit_seconds else ""
    text = f"the last sign of progress is {duration(silent)} old; {usual}{limit}"
    return Evidence(source="progress pages", text=text)


def _folders(told: dict[str, Hang]) -> Evidence:
    places = [f"{hang.folder} on {node}" for node, hang in told.items()]
    more = f" and on {counted(len(places) - NAMED, 'more node')}" if len(places) > NAMED else ""
    return Evidence(source="stacks of all ranks", text=f"{listed(places[:NAMED])}{more}")
