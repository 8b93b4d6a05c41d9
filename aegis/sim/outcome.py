"""What must be so once the weather has cleared: nothing is left halfway, and belief is true."""

from collections.abc import Iterator

from aegis.core.cluster import holders
from aegis.model.incident import DecisionResult, Incident, IncidentState
from aegis.model.job import Job, JobState
from aegis.model.node import Health, Node, NodeState
from aegis.model.policy import Mode
from aegis.sim.setting import JobPlan
from aegis.sim.world import World

SILENT = (NodeState.UNKNOWN, NodeState.QUARANTINED)
HELD = (DecisionResult.BLOCKED, DecisionResult.WOULD_ACT, DecisionResult.NEEDS_APPROVAL)


def complaints(world: World) -> list[str]:
    """All that is not as promised; empty when everything has mended."""
    return [*_fleet(world), *_jobs(world), *_incidents(world), *_nodes(world)]


def _fleet(world: World) -> Iterator[str]:
    if not world.controller.is_up:
        yield "the controller is down"
        return
    for machine in world.machines.values():
        if machine.agent is not None and machine.spool.faults:
            yield f"{machine.name} still spools {len(machine.spool.faults)} faults"
        for number in range(1, machine.spool.last + 1):
            place = (machine.spool.origin, number)
            if place in world.controller.logged and not world.promises.is_told(*place):
                yield f"fault {number} of {machine.spool.origin} is in no incident"
        for name, launcher in machine.launchers.items():
            job = world.controller.cluster.jobs.get(name)
            if job is None:
                yield f"{launcher.launcher} is not known"
            elif job.state in (JobState.DONE, JobState.FAILED):
                yield f"{launcher.launcher} was not sent home: {name} is {job.state}"


def _jobs(world: World) -> Iterator[str]:
    for plan in world.scene.setting.jobs:
        job = world.controller.cluster.jobs.get(plan.spec.name)
        if job is None:
            if any(plan.spec.name in one.launchers for one in world.machines.values()):
                yield f"{plan.spec.name} was never heard of"
            continue
        if not _is_left_alone(world, job):
            yield from _job(world, plan, job)


def _is_left_alone(world: World, job: Job) -> bool:
    """Whether Aegis may not help the job, and says so: by its policy, or since it hears nobody."""
    if _hears_nobody(world):
        return True
    return any(
        incident.state is IncidentState.OPEN
        and incident.decisions
        and incident.decisions[-1].result in HELD
        and incident.job == job.spec.name
        and (
            incident.decisions[-1].mode is not Mode.ENFORCE
            or incident.decisions[-1].result is DecisionResult.NEEDS_APPROVAL
            or incident.device == "fab0"  # it cannot train over a link that may not be given up
        )
        for incident in world.controller.cluster.unresolved()
    )


def _job(world: World, plan: JobPlan, job: Job) -> Iterator[str]:
    name = plan.spec.name
    match job.state:
        case JobState.RUNNING:
            yield from _runs(world, job)
        case JobState.WAITING:
            able = [one for one in world.machines.values() if _is_able(world, one.name, job)]
            if len(able) >= plan.spec.nodes:
                names = ", ".join(one.name for one in able)
                yield f"{name} waits although {names} could take ranks: {job.reason}"
        case JobState.DONE:
            reached = [one.step for one in world.folders[name].commits]
            done = plan.steps is not None and max(reached, default=0) >= plan.steps
            if not done and name not in world.scene.truth.stops:
                yield f"{name} is done, and is not: {job.reason}"
        case JobState.FAILED:
            spent = world.promises.spent.get(name, 0)
            if spent <= plan.spec.restarts_max - 1 or not job.reason:
                yield f"{name} was given up after {spent} starts without progress: {job.reason}"
        case JobState.STARTING | JobState.STOPPING:
            yield f"{name} is left {job.state}, awaiting {sorted(job.awaiting)}"


def _runs(world: World, job: Job) -> Iterator[str]:
    """What the controller believes to run does run, and comes on."""
    name = job.spec.name
    for member in job.members:
        launcher = world.machines[member.node].launchers.get(name)
        if launcher is None or launcher.launcher != member.launcher:
            yield f"{name} is believed to run on {member.launcher}, which is gone"
        elif not launcher.is_alive or launcher.generation != job.generation:
            yield f"{name} is believed to run on {member.launcher}, where nothing runs"
    run = world.generations.get((name, job.generation))
    if run is None or run.is_broken or run.step == 0:
        yield f"{name} is believed to run and does not come on"


def _is_able(world: World, node: str, job: Job) -> bool:
    """Whether the node could really take ranks of the job."""
    believed = world.controller.cluster.nodes.get(node)
    launcher = world.machines[node].launchers.get(job.spec.name)
    held = {
        one
        for other in world.controller.cluster.jobs.values()
        if other.spec.name != job.spec.name
        for one in holders(other)
    }
    return (
        believed is not None
        and believed.state in (NodeState.READY, NodeState.PROBATION)
        and node not in held
        and (job.spec.name, node) not in world.scene.truth.excluded
        and launcher is not None
        and not launcher.is_alive
    )


def _incidents(world: World) -> Iterator[str]:
    for incident in world.controller.cluster.unresolved():
        match incident.state:
            case IncidentState.RECOVERING if not _waits(world, incident):
                yield f"{incident.id} is still recovering: {incident.headline}"
            case IncidentState.WATCHING if not _hears_nobody(world):
                yield f"{incident.id} is still being watched: {incident.headline}"
            case IncidentState.OPEN if not _is_open_for_a_reason(world, incident):
                yield f"{incident.id} is open for no reason: {incident.headline}"
            case _:
                pass


def _hears_nobody(world: World) -> bool:
    """Whether the controller suspects its own network, and so decides nothing."""
    return world.controller.cluster.silent_since is not None


def _waits(world: World, incident: Incident) -> bool:
    """A recovery may wait for nodes as long as its job does."""
    job = world.controller.cluster.jobs.get(incident.job or "")
    return job is not None and (job.state is JobState.WAITING or _is_left_alone(world, job))


def _is_open_for_a_reason(world: World, incident: Incident) -> bool:
    node = world.controller.cluster.nodes[incident.faults[0].node]
    sick = [one.name for one in node.devices if one.health is Health.UNHEALTHY]
    lasts = any(one.device == incident.device for one in node.conditions)
    lost = node.state is NodeState.UNKNOWN
    held = bool(incident.decisions) and incident.decisions[-1].result in HELD
    return held or lasts or lost or incident.device in sick


def _nodes(world: World) -> Iterator[str]:
    for node in world.controller.cluster.nodes.values():
        machine = world.machines[node.name]
        speaks = machine.agent is not None or bool(machine.launchers)
        if node.state is NodeState.UNKNOWN and speaks:
            yield f"{node.name} is believed to be silent, and speaks"
        if node.state in (NodeState.DRAINING, NodeState.REPAIRING):
            yield f"{node.name} is left {node.state}: {node.reason}"
        if (
            node.state is NodeState.SUSPECT
            and not _hears_nobody(world)
            and not _is_suspect_for_a_reason(world, node)
        ):
            yield f"{node.name} is suspect for no reason: {node.reason}"
        held = world.controller.cluster.silent_since is not None
        if not speaks and not held and node.state not in SILENT:
            yield f"{node.name} is silent and believed to be {node.state}"


def _is_suspect_for_a_reason(world: World, node: Node) -> bool:
    return any(
        incident.state is IncidentState.OPEN
        for incident in world.controller.cluster.unresolved_on(node.name)
    )
