"""What people do meanwhile, to nodes, incidents, rules and automation as a whole.

All of it is written down in `truth`, so that promises can be held against what people said rather
than against what the core remembers of it.
"""

from aegis.model.event import (
    AutomationPaused,
    AutomationResumed,
    Event,
    IncidentAcknowledged,
    IncidentApproved,
    IncidentDenied,
    IncidentJudged,
    IncidentNoted,
    JobNodeExcluded,
    JobRestarted,
    JobStopped,
    NodeCordoned,
    NodeDrained,
    NodeReturned,
    NodeUncordoned,
    RuleModeSet,
    WindowEnded,
    WindowSet,
)
from aegis.model.incident import DecisionResult, Feedback
from aegis.model.job import JobState
from aegis.model.policy import Mode
from aegis.model.window import WindowKind
from aegis.sim.world import World

PEOPLE = ("ada", "bob", "cleo")


def operator_acts(world: World) -> str:
    """A person cordons, drains, uncordons or returns a node."""
    dice, now = world.scene.dice, world.scene.now
    if not world.controller.cluster.nodes:
        return ""
    name = dice.choice(sorted(world.controller.cluster.nodes))
    verb = dice.choice(["cordon", "uncordon", "drain", "return", "return"])
    actor, reason = "ada", "as she likes"
    event: Event
    match verb:
        case "cordon":
            event = NodeCordoned(at=now, node=name, actor=actor, reason=reason)
        case "uncordon":
            event = NodeUncordoned(at=now, node=name, actor=actor, reason=reason)
        case "drain":
            event = NodeDrained(at=now, node=name, actor=actor, reason=reason)
        case _:
            event = NodeReturned(at=now, node=name, actor=actor, reason=reason)
    return _commanded(world, name, verb, event)


def maintenance(world: World) -> str:
    """People drain a node, mostly for a short while."""
    dice, now = world.scene.dice, world.scene.now
    if not world.controller.cluster.nodes:
        return ""
    name = dice.choice(sorted(world.controller.cluster.nodes))
    event = NodeDrained(at=now, node=name, actor="bob", reason="maintenance")
    said = _commanded(world, name, "drain", event)

    def back() -> None:
        again = NodeReturned(at=world.scene.now, node=name, actor="bob", reason="done")
        world.scene.log(f"! return: {_commanded(world, name, 'return', again)}")

    if dice.random() < 0.8:
        world.scene.later(dice.uniform(10.0, 60.0), back)
    return said


def operator_repairs(world: World) -> str:
    """A person heals what is sick on a node and returns it."""
    out = [
        name
        for name, node in sorted(world.controller.cluster.nodes.items())
        if node.held_by or world.machines[name].hardware.sick
    ]
    if not out:
        return ""
    name = world.scene.dice.choice(out)
    machine = world.machines[name]
    machine.hardware.sick.clear()
    machine.link_up()
    if not machine.is_on:
        machine.boot(world.plans_on(name))

    def back() -> None:
        event = NodeReturned(at=world.scene.now, node=name, actor="bob", reason="repaired")
        text = _commanded(world, name, "return", event)
        world.scene.log(f"! return: {text}")

    world.scene.later(4.0, back)
    return name


def _commanded(world: World, name: str, verb: str, event: Event) -> str:
    before = world.scene.truth.holds.get(name, "")
    world.scene.truth.holds[name] = verb
    refused = world.controller.command(event)
    if refused:
        world.scene.truth.holds[name] = before
    return f"{verb} {name}" + (f", refused: {refused}" if refused else "")


def job_is_stopped(world: World) -> str:
    """The owner ends a job; sometimes it is run again under its name."""
    name = _any_job(world)
    if not name or world.scene.dice.random() < 0.7:
        return ""
    world.scene.truth.stops.add(name)
    event = JobStopped(at=world.scene.now, job=name, actor="ada", reason="enough")
    refused = world.controller.command(event)
    if refused is None:
        world.finished.add(name)
    return f"{name} {refused or ''}"


def job_is_resubmitted(world: World) -> str:
    """The owner changes code or data: the job is ended and run again under its name."""
    name = _any_job(world)
    if not name:
        return ""
    world.scene.truth.stops.add(name)
    event = JobStopped(at=world.scene.now, job=name, actor="ada", reason="new code")
    if refused := world.controller.command(event):
        return f"{name}, refused: {refused}"

    def again() -> None:
        for machine in world.machines.values():
            for plan in world.plans_on(machine.name):
                if plan.spec.name == name:
                    world.scene.soon(5.0, lambda m=machine, p=plan: m.launch(p))  # type: ignore[misc]

    world.scene.later(world.scene.dice.uniform(5.0, 40.0), again)
    return name


def job_is_restarted(world: World) -> str:
    """Somebody wants its ranks started anew, with a save or without."""
    name, dice = _any_job(world), world.scene.dice
    if not name:
        return ""
    at_once = dice.random() < 0.4
    event = JobRestarted(
        at=world.scene.now, job=name, actor="bob", reason="a look", at_once=at_once
    )
    refused = world.controller.command(event)
    return f"{name}, at once={at_once} {refused or ''}"


def node_is_excluded(world: World) -> str:
    """Somebody keeps a job off a node, mostly off one that it trains on."""
    name, dice = _any_job(world), world.scene.dice
    if not name:
        return ""
    job = world.controller.cluster.jobs[name]
    known = [member.node for member in job.members] if dice.random() < 0.7 else []
    known = known or sorted(world.controller.cluster.nodes)
    return _kept_off(world, name, dice.choice(known), excluded=True)


def node_is_included(world: World) -> str:
    """Somebody lets a job go to a node again."""
    kept_off = sorted(world.scene.truth.excluded)
    if not kept_off:
        return ""
    name, node = world.scene.dice.choice(kept_off)
    return _kept_off(world, name, node, excluded=False)


def _kept_off(world: World, name: str, node: str, *, excluded: bool) -> str:
    truth, before = world.scene.truth, set(world.scene.truth.excluded)
    truth.excluded = before | {(name, node)} if excluded else before - {(name, node)}
    event = JobNodeExcluded(
        at=world.scene.now, job=name, node=node, actor="cleo", reason="slow", excluded=excluded
    )
    refused = world.controller.command(event)
    if refused:
        truth.excluded = before
    return f"{name} {node} {refused or ''}"


def _any_job(world: World) -> str:
    jobs = world.controller.cluster.jobs
    names = [name for name, job in sorted(jobs.items()) if job.state is not JobState.DONE]
    return world.scene.dice.choice(names) if names else ""


# Incidents.


def person_answers(world: World) -> str:
    """Somebody agrees to what Aegis asks for, or forbids it."""
    dice, now = world.scene.dice, world.scene.now
    asking = [
        one.id
        for one in world.controller.cluster.unresolved()
        if one.decisions and one.decisions[-1].result is DecisionResult.NEEDS_APPROVAL
    ]
    if not asking:
        return ""
    incident, actor = dice.choice(asking), dice.choice(PEOPLE)
    event: Event
    if dice.random() < 0.8:
        event = IncidentApproved(at=now, incident=incident, actor=actor, reason="go on")
    else:
        event = IncidentDenied(at=now, incident=incident, actor=actor, reason="leave it")
    refused = world.controller.command(event)
    return f"{actor} {type(event).__name__} {incident} {refused or ''}"


def person_remarks(world: World) -> str:
    """Somebody looks after an incident, writes to it or judges it."""
    dice, now = world.scene.dice, world.scene.now
    known = list(world.controller.cluster.incidents)[-10:]
    if not known:
        return ""
    incident, actor = dice.choice(known), dice.choice(PEOPLE)
    kind = dice.choice([IncidentAcknowledged, IncidentNoted, IncidentJudged])
    event: Event
    if kind is IncidentJudged:
        feedback = dice.choice(list(Feedback))
        event = IncidentJudged(at=now, incident=incident, actor=actor, feedback=feedback, reason="")
    elif kind is IncidentNoted:
        event = IncidentNoted(at=now, incident=incident, actor=actor, reason="seen")
    else:
        event = IncidentAcknowledged(at=now, incident=incident, actor=actor, reason="mine")
    refused = world.controller.command(event)
    return f"{actor} {kind.__name__} {incident} {refused or ''}"


# Automation.


def automation_pauses(world: World) -> str:
    """Somebody stops all automation, and lets it go on a while later."""
    dice, now = world.scene.dice, world.scene.now
    refused = world.controller.command(AutomationPaused(at=now, actor="cleo", reason="a look"))
    if refused:
        return ""
    world.scene.later(dice.uniform(2.0, dice.choice([10.0, 60.0])), lambda: resume(world))
    return "by cleo"


def resume(world: World) -> None:
    """Let automation go on, if it is paused."""
    if not world.controller.is_up:
        world.scene.later(2.0, lambda: resume(world))
        return
    event = AutomationResumed(at=world.scene.now, actor="cleo", reason="seen enough")
    if world.controller.command(event) is None:
        world.scene.log("! resumed")


def window_is_set(world: World) -> str:
    """Somebody announces maintenance, or wants silence."""
    dice, now = world.scene.dice, world.scene.now
    if dice.random() < 0.2 and (known := sorted(world.controller.cluster.windows)):
        name = dice.choice(known)
        event: Event = WindowEnded(at=now, window=name, actor="bob", reason="done early")
        return f"{name} ends {world.controller.command(event) or ''}"
    starts = now + dice.choice([0.0, 0.0, 10.0])
    names, labels = sorted(world.machines), world.scene.setting.labels
    name = dice.choice(names)
    over = dice.choice(["node", "rack", "all"])
    event = WindowSet(
        at=now,
        kind=dice.choice([WindowKind.MAINTENANCE, WindowKind.MAINTENANCE, WindowKind.SILENCE]),
        starts_at=starts,
        ends_at=starts + dice.uniform(5.0, 60.0),
        actor="bob",
        reason="planned",
        node=name if over == "node" else "*",
        fault_class=dice.choice(["*", "*", "nic.*", "gpu.*"]),
        labels=labels[name][:1] if over == "rack" else (),
    )
    refused = world.controller.command(event)
    return f"{event.kind} over {over} {name} {refused or ''}"


def rule_mode_is_set(world: World) -> str:
    """Somebody lets a rule do more or less."""
    dice = world.scene.dice
    rule = dice.choice([one.id for one in world.controller.rules.rules] or [""])
    if not rule:
        return ""
    mode = dice.choice([None, *Mode])
    event = RuleModeSet(at=world.scene.now, rule=rule, mode=mode, actor="cleo", reason="a try")
    refused = world.controller.command(event)
    return f"{rule} {mode} {refused or ''}"
