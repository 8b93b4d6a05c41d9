"""The rails: may Aegis do this, here and now? Each says yes or no with its reason.

All of them are asked each time, so that a decision shows every verdict and not only the first no.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import floor, inf

from aegis.core import approval
from aegis.core.cluster import Cluster, launcher_of, standing
from aegis.core.fence import is_stalled
from aegis.core.index import AEGIS, OUT
from aegis.core.levels import condition_of, is_fresh, is_live, is_unhealthy
from aegis.core.windows import maintenance
from aegis.core.words import counted, duration, listed
from aegis.model.fault import Fault, FaultClass
from aegis.model.incident import DecisionResult, Incident, Remedy, Verdict
from aegis.model.job import Job, JobState
from aegis.model.node import Node
from aegis.model.policy import Mode, Policy
from aegis.rules import Guard

TRAINING = (JobState.STARTING, JobState.RUNNING)
DOMAINS = ("rack", "switch")  # labels
COMES_BACK_SECONDS = 60.0  # after one link of a switch, the others follow within this
LOOK_BACK = 200  # incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be judged."""

    cluster: Cluster
    incident: Incident
    fault: Fault
    node: Node
    job: Job | None  # whose ranks would be stopped
    mode: Mode
    remedy: Remedy
    guard: Guard = field(default_factory=Guard)  # the rule's own limits, tighter than the policy


Rail = Callable[[Request], Verdict]


def verdicts(request: Request) -> tuple[Verdict, ...]:
    """What every rail says that the remedy must heed."""
    match request.remedy:
        case Remedy.DRAIN_NOW | Remedy.DRAIN_SAVING | Remedy.RESET_DOMAIN | Remedy.REBOOT:
            rails = DRAINING
        case Remedy.RESTART:
            rails = RESTARTING
        case Remedy.COUNT | Remedy.NOTIFY:
            rails = ()
    if rails and request.fault.fault_class is FaultClass.NODE_LOST:
        rails = (*rails, silence)
    return tuple(rail(request) for rail in rails)


def mode(request: Request) -> Verdict:
    """Whether the policy and the rule let Aegis act at all."""
    if request.mode is Mode.APPROVE:
        agreed, text = approval.standing(request.cluster, request.incident, request.remedy, "mode")
        return _said("mode", passed=agreed, text=text)
    texts = {
        Mode.OBSERVE: "observe: Aegis records what it would do",
        Mode.NOTIFY: "notify: Aegis tells people what it would do",
        Mode.ENFORCE: "enforce",
    }
    return _said("mode", passed=request.mode is Mode.ENFORCE, text=texts[request.mode])


def pause(request: Request) -> Verdict:
    """Whether a person has stopped all automation."""
    paused = request.cluster.paused
    if paused is None:
        return _said("pause", passed=True, text="automation is not paused")
    text = f"{paused.actor} paused all automation: {paused.reason}"
    return _said("pause", passed=False, text=text)


def window(request: Request) -> Verdict:
    """Whether somebody has announced that the node is worked on."""
    open_now = maintenance(request.cluster, request.node, request.fault.fault_class)
    if open_now is None:
        return _said("window", passed=True, text="no maintenance is announced")
    left = duration(open_now.ends_at - request.cluster.now)
    text = f"maintenance {open_now.id} by {open_now.actor}, {left} to go: {open_now.reason}"
    return _said("window", passed=False, text=text)


def fleet(request: Request) -> Verdict:
    """Whether the fleet can be heard: when much of it falls silent at once, suspect ourselves."""
    silent = request.cluster.silent_since
    if silent is None:
        return _said("fleet", passed=True, text="the fleet is heard")
    return _said(
        "fleet",
        passed=False,
        text="much of the fleet fell silent at once: the controller's own network is suspect",
    )


def silence(request: Request) -> Verdict:
    """Whether a lost node is lost still: this controller must have listened for long enough."""
    cluster, job = request.cluster, request.job
    silent, limit = cluster.silent_seconds(request.node), cluster.policy.silence_seconds
    text = f"not heard for {duration(silent)}, {duration(limit)} allowed"
    if silent < limit:
        return _said("silence", passed=False, text=text)
    if job is not None and job.state in TRAINING and not is_stalled(cluster, job):
        text = f"job {job.spec.name} comes on: only the node's words are lost"
        return _said("silence", passed=False, text=text)
    return _said("silence", passed=True, text=text)


def event_ttl(policy: Policy, incident: Incident) -> float:
    """How old a fault may be that is acted on: people who are asked are given their time."""
    waited = policy.approval_seconds if incident.approval else 0.0
    return policy.event_ttl_seconds + waited


def ttl(request: Request) -> Verdict:
    """Whether the fault is still true: from this boot, and live or young enough."""
    fault, node, cluster = request.fault, request.node, request.cluster
    if fault.boot_id and node.boot_id and fault.boot_id != node.boot_id:
        return _said("ttl", passed=False, text=f"{node.name} has rebooted since the fault")
    lasts, fresh = condition_of(node, request.incident) is not None, is_fresh(cluster, node)
    if lasts and not fresh:
        return _said("ttl", passed=False, text="its agent has not spoken since: it may be over")
    if is_live(cluster, request.incident) or (fresh and is_unhealthy(node, fault.device)):
        return _said("ttl", passed=True, text="still so")
    age = max(0.0, cluster.now - fault.observed_at)
    limit = event_ttl(cluster.policy, request.incident)
    text = f"{duration(age)} old, {duration(limit)} allowed"
    return _said("ttl", passed=age <= limit, text=text)


def hold(request: Request) -> Verdict:
    """Whether somebody else holds the node."""
    node = request.node
    if standing(node) in OUT and node.held_by not in ("", AEGIS):
        text = f"{node.held_by} holds {node.name}: {node.reason}"
        return _said("hold", passed=False, text=text)
    return _said("hold", passed=True, text="nobody else holds the node")


def cooldown(request: Request) -> Verdict:
    """Whether Aegis took this very node a short while ago."""
    own = request.guard.cooldown_seconds or 0.0
    limit = max(request.cluster.policy.cooldown_seconds, own)
    taken = request.node.taken_at[-1:]
    if taken and request.cluster.now - taken[0] < limit:
        rest = duration(limit - (request.cluster.now - taken[0]))
        text = f"{request.node.name} was taken out before; {rest} to wait"
        return _said("cooldown", passed=False, text=text)
    return _said("cooldown", passed=True, text="not taken out lately")


def budget(request: Request) -> Verdict:
    """Whether Aegis may take one more node in this time."""
    policy, cluster = request.cluster.policy, request.cluster
    since = cluster.now - policy.nodes_out_window_seconds
    taken = sum(at > since for node in cluster.taken_since(since) for at in node.taken_at)
    allowed = max(policy.nodes_out_max, floor(policy.nodes_out_fraction * len(cluster.nodes)))
    if request.guard.budget is not None:
        allowed = min(allowed, request.guard.budget)
    window = duration(policy.nodes_out_window_seconds)
    text = f"{taken} of {counted(allowed, 'node')} taken in {window}"
    if taken >= allowed:
        return _said("budget", passed=False, text=f"the budget is used up: {text}")
    return _said("budget", passed=True, text=text)


def upstream(request: Request) -> Verdict:
    """Whether the fault is the node's own: links of many nodes at once are lost by a switch."""
    if request.fault.fault_class is not FaultClass.NIC_LINK_DOWN:
        return _said("upstream", passed=True, text="not a fault of the network")
    policy, mine = request.cluster.policy, request.incident
    others = {
        one.node
        for one in (*request.cluster.unresolved(), *_back_lately(request.cluster))
        if one.node != mine.node and _apart_seconds(one, mine) <= policy.upstream_seconds
    }
    count = len(others) + 1
    if count < policy.upstream_nodes_min:
        return _said("upstream", passed=True, text="few nodes lost a link at that time")
    names = listed(sorted(name for name in others if name)[:3])
    text = (
        f"{count} nodes lost links within {duration(policy.upstream_seconds)} ({names} too): a "
        "switch or somebody's maintenance is suspect, not this node"
    )
    return _said("upstream", passed=False, text=text)


def _apart_seconds(one: Incident, other: Incident) -> float:
    """How long after each other their links fell: as they were told, or by the nodes' own clocks.

    A node that was silent meanwhile tells late what began with the others; and the link of a card
    that something else is wrong with falls within the incident of that.
    """
    told, seen = ([_told(one), _told(other)], [_seen(one), _seen(other)])
    apart = [abs(a - b) for left, right in (told, seen) for a in left for b in right]
    return min(apart, default=inf)


def _told(incident: Incident) -> list[float]:
    own = incident.fault_class is FaultClass.NIC_LINK_DOWN
    return [incident.phases.opened_at] if own else []


def _seen(incident: Incident) -> list[float]:
    faults = incident.faults
    return [one.observed_at for one in faults if one.fault_class is FaultClass.NIC_LINK_DOWN]


def _back_lately(cluster: Cluster) -> Iterator[Incident]:
    """Incidents that were held and are over: the links of a switch come back one by one."""
    for name in list(reversed(cluster.incidents))[:LOOK_BACK]:
        one = cluster.incidents[name]
        if one.decisions and one.closed_at and cluster.now - one.closed_at < COMES_BACK_SECONDS:
            yield one


def domain(request: Request) -> Verdict:
    """Whether Aegis may take one more node of this rack, and of this switch, without asking.

    Many nodes of one domain at once are rarely many broken nodes.
    """
    cluster, node = request.cluster, request.node
    since = cluster.now - cluster.policy.nodes_out_window_seconds
    if cluster.index.labelled and not node.agent_session:  # a launcher alone speaks for it
        agreed, said = approval.standing(cluster, request.incident, request.remedy, "domain")
        text = f"its agent has not told its rack and switch yet; {said.removeprefix('approve: ')}"
        return _said("domain", passed=agreed, text=text)
    for label in DOMAINS:
        place = dict(node.labels).get(label)
        if place is None:
            continue
        mine = (label, place)
        near = cluster.index.labelled.get(mine, set()) - {node.name}
        taken = cluster.index.in_order(one for one in near if _is_taken(cluster, one, since))
        allowed = cluster.policy.nodes_out_per_domain_max
        if label == "rack" and request.guard.max_per_rack is not None:
            allowed = min(allowed, request.guard.max_per_rack)
        if len(taken) < allowed:
            continue
        agreed, said = approval.standing(cluster, request.incident, request.remedy, "domain")
        verb = "is" if len(taken) == 1 else "are"
        text = f"{listed(taken[:3])} of {label} {place} {verb} out already"
        return _said("domain", passed=agreed, text=f"{text}; {said.removeprefix('approve: ')}")
    return _said("domain", passed=True, text="no other node of its rack or switch was taken")


def _is_taken(cluster: Cluster, name: str, since: float) -> bool:
    """Whether the node is out by Aegis, or was taken in this time."""
    if name in cluster.index.out:
        return True
    return name in cluster.index.taken and cluster.nodes[name].taken_at[-1] > since


def breaker(request: Request) -> Verdict:
    """Whether so many nodes are out by Aegis that the next would rather be a mistake."""
    out, limit = breaker_reading(request.cluster)
    text = f"{out} of {limit} nodes out by Aegis"
    if out >= limit:
        return _said("breaker", passed=False, text=f"the breaker is open: {text}")
    return _said("breaker", passed=True, text=text)


def breaker_reading(cluster: Cluster) -> tuple[int, int]:
    """How many nodes are out by Aegis, and at how many it takes no more."""
    policy = cluster.policy
    limit = max(policy.breaker_nodes_min, floor(policy.breaker_fraction * len(cluster.nodes)))
    return len(cluster.index.out), limit


def spare(request: Request) -> Verdict:
    """Whether the job has somewhere to go. A job without live ranks has nothing to lose."""
    job = request.job
    if job is None:
        return _said("spare", passed=True, text="no ranks to move")
    idle = job.state not in TRAINING or _is_failed(request, job)
    if idle and not request.guard.needs_spare:
        return _said("spare", passed=True, text=f"job {job.spec.name} has stopped already")
    spares = _spares(request.cluster, job)
    if not spares:
        asked = [node.name for node in request.cluster.spares(job)]
        text = f"no spare stands by for job {job.spec.name}"
        if asked:
            text += f", and people are asked whether to leave {listed(asked[:3])} too"
        return _said("spare", passed=False, text=text)
    verb = "stands" if len(spares) == 1 else "stand"
    return _said("spare", passed=True, text=f"{listed(spares[:3])} {verb} by")


def spare_floor(request: Request) -> Verdict:
    """Whether enough spares are left afterwards."""
    floor_spares, job = request.cluster.policy.spare_floor, request.job
    if job is None or floor_spares == 0:
        return _said("spare_floor", passed=True, text=f"{floor_spares} must be left")
    if _is_failed(request, job):
        text = f"job {job.spec.name} has stopped already"
        return _said("spare_floor", passed=True, text=text)
    left = max(0, len(_spares(request.cluster, job)) - 1)
    text = f"{left} left, {floor_spares} must be"
    return _said("spare_floor", passed=left >= floor_spares, text=text)


def _spares(cluster: Cluster, job: Job) -> list[str]:
    """Those that stand by, without those that people are asked to take out themselves."""
    return [
        node.name
        for node in cluster.spares(job)
        if not any(
            one.decisions and one.decisions[-1].result is DecisionResult.NEEDS_APPROVAL
            for one in cluster.unresolved_on(node.name)
        )
    ]


def restarts(request: Request) -> Verdict:
    """Whether the job has come on since its last restarts."""
    job = request.job
    if job is None:
        return _said("restarts", passed=True, text="no job to restart")
    used, allowed = job.restarts_without_progress, job.spec.restarts_max
    text = f"{used} of {counted(allowed, 'restart')} without progress used"
    return _said("restarts", passed=used < allowed, text=text)


def _is_failed(request: Request, job: Job) -> bool:
    """Whether a rank of the node has failed or is lost, so that the job stands still anyway."""
    if request.fault.fault_class is FaultClass.NODE_LOST:
        return True
    launcher = launcher_of(request.node, job.spec.name)
    failure = launcher.failure if launcher else None
    return failure is not None and failure.generation == job.generation


def _said(rail: str, *, passed: bool, text: str) -> Verdict:
    return Verdict(rail=rail, passed=passed, text=text)


DRAINING: tuple[Rail, ...] = (
    mode,
    pause,
    window,
    fleet,
    ttl,
    upstream,
    hold,
    cooldown,
    budget,
    domain,
    breaker,
    spare,
    spare_floor,
)
RESTARTING: tuple[Rail, ...] = (mode, pause, fleet, restarts)
