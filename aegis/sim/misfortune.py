"""What can go wrong, each drawn with its weight. A misfortune that finds nobody to hit is skipped.

After the storm the weather clears: what can come back does, and from then on all must mend.
"""

from collections.abc import Callable
from dataclasses import replace

from aegis.model.event import (
    Event,
    JobStopped,
    NodeCordoned,
    NodeDrained,
    NodeReturned,
    NodeUncordoned,
)
from aegis.model.fault import FaultClass, Severity
from aegis.model.job import JobState
from aegis.sim.agent import GPUS
from aegis.sim.launcher import SimLauncher
from aegis.sim.machine import Machine
from aegis.sim.setting import Weather
from aegis.sim.world import World

Misfortune = Callable[[World], str]  # what it did; "" when there was nobody to hit

DEVICE_FAULTS: tuple[tuple[FaultClass, Severity], ...] = (
    (FaultClass.GPU_ECC_UNCORRECTABLE, Severity.ERROR),
    (FaultClass.GPU_ECC_DEFERRED, Severity.ERROR),
    (FaultClass.GPU_ECC_CORRECTABLE, Severity.INFO),
    (FaultClass.GPU_RING_TIMEOUT, Severity.ERROR),
    (FaultClass.GPU_THERMAL_THROTTLE, Severity.WARNING),
    (FaultClass.GPU_LOST, Severity.FATAL),
    (FaultClass.GPU_XGMI_ERROR, Severity.WARNING),  # no rule speaks of it
    (FaultClass.NIC_FIRMWARE_FATAL, Severity.FATAL),
)


def storm(world: World) -> None:
    """Misfortunes until the weather clears."""
    scene = world.scene
    end = scene.now + scene.weather.storm_seconds

    def strike() -> None:
        if scene.now >= end:
            clear(world)
            return
        names = list(MISFORTUNES)
        weights = [MISFORTUNES[name][0] for name in names]
        name = scene.dice.choices(names, weights)[0]
        done = MISFORTUNES[name][1](world)
        if done:
            scene.log(f"! {name}: {done}")
        scene.later(min(scene.dice.expovariate(1 / scene.weather.between_seconds), 60.0), strike)

    scene.soon(scene.weather.between_seconds, strike)


def clear(world: World) -> None:
    """The weather clears: the network heals, and whoever can come back does."""
    scene = world.scene
    scene.is_calm = True
    scene.log("the weather clears")
    calm = Weather(
        loss=0.0,
        repeat=0.0,
        late=0.0,
        late_seconds=0.0,
        quick_seconds=0.05,
        between_seconds=0.0,
        storm_seconds=0.0,
    )
    scene.weather = replace(calm)
    world.network.heal()
    scene.truth.isolated_at = None
    if not world.controller.is_up:
        world.controller.start()
    for machine in world.machines.values():
        machine.start_agent()
        if machine.is_on and scene.dice.random() < 0.7:
            machine.link_up()


# Whom it hits.


def _machine(world: World) -> Machine | None:
    machines = [one for one in world.machines.values() if one.is_on]
    return world.scene.dice.choice(machines) if machines else None


def _launcher(world: World, *, alive: bool) -> tuple[Machine, SimLauncher] | None:
    found = [
        (machine, launcher)
        for machine in world.machines.values()
        for launcher in machine.launchers.values()
        if launcher.is_alive or not alive
    ]
    return world.scene.dice.choice(found) if found else None


# Ranks, launchers, agents, nodes.


def rank_dies(world: World) -> str:
    """One rank ends, by itself or by a signal."""
    hit = _launcher(world, alive=True)
    if hit is None:
        return ""
    oom_killed = world.scene.dice.random() < 0.2
    signal = 9 if oom_killed or world.scene.dice.random() < 0.5 else None
    hit[1].fail("died", signal=signal, oom_killed=oom_killed)
    return hit[1].launcher


def launcher_dies(world: World) -> str:
    """A launcher ends, and its ranks; mostly another one is started."""
    hit = _launcher(world, alive=world.scene.dice.random() < 0.7)
    if hit is None:
        return ""
    machine, launcher = hit
    launcher.die()
    if world.scene.dice.random() < 0.85:
        seconds = world.scene.dice.choice([0.5, 3.0, 20.0])
        world.scene.soon(seconds, lambda: _launch_again(world, machine, launcher))
    return launcher.launcher


def _launch_again(world: World, machine: Machine, launcher: SimLauncher) -> None:
    if launcher.plan in world.plans_on(machine.name):
        machine.launch(launcher.plan)


def agent_dies(world: World) -> str:
    """An agent ends, and is started again."""
    machine = _machine(world)
    if machine is None or machine.agent is None:
        return ""
    machine.stop_agent()
    world.scene.soon(world.scene.dice.choice([1.0, 8.0, 60.0]), machine.start_agent)
    return machine.name


def node_dies(world: World) -> str:
    """A node falls silent; mostly it boots again."""
    machine = _machine(world)
    on = sum(one.is_on for one in world.machines.values())
    if machine is None or on < 2:
        return ""
    machine.power_off()
    world.scene.truth.reboots[machine.name] = machine.boots
    if world.scene.dice.random() < 0.1:
        machine.new_spool()
    if world.scene.dice.random() < 0.8:
        seconds = world.scene.dice.choice([3.0, 30.0, 90.0])
        world.scene.soon(seconds, lambda: machine.boot(world.plans_on(machine.name)))
    return machine.name


# Networks.


def partition(world: World) -> str:
    """Some nodes and the controller do not reach each other, one way or both."""
    dice = world.scene.dice
    names = dice.sample(sorted(world.machines), dice.randint(1, len(world.machines)))
    mute, deaf = dice.choice([(True, True), (True, True), (True, False), (False, True)])
    seconds = dice.uniform(1.0, dice.choice([5.0, 30.0, 80.0]))
    for name in names:
        world.network.cut(name, mute=mute, deaf=deaf, seconds=seconds)
    return f"{','.join(sorted(names))} for {seconds:.1f} s, mute={mute} deaf={deaf}"


def isolation(world: World) -> str:
    """The controller's own network is away."""
    if world.scene.truth.isolated_at is not None:
        return ""
    seconds = world.scene.dice.uniform(5.0, 80.0)
    for name in world.machines:
        world.network.cut(name, mute=True, deaf=True, seconds=seconds)
    world.scene.truth.isolated_at = world.scene.now

    def over() -> None:
        world.scene.truth.isolated_at = None

    world.scene.later(seconds, over)
    return f"{seconds:.1f} s"


def reset(world: World) -> str:
    """A node's connections break."""
    machine = _machine(world)
    if machine is None:
        return ""
    machine.reset_connections()
    return machine.name


# The controller.


def controller_dies(world: World) -> str:
    """The controller is killed, perhaps between log and act, and comes back."""
    controller, dice = world.controller, world.scene.dice
    if not controller.is_up:
        return ""
    if dice.random() < 0.5:
        controller.dies_at_next_event = True
    else:
        controller.die()
    seconds = dice.uniform(0.5, dice.choice([3.0, 60.0]))

    def start() -> None:
        controller.dies_at_next_event = False
        if not controller.is_up:
            controller.start()

    world.scene.later(seconds, start)
    return f"for {seconds:.1f} s"


# Devices.


def device_breaks(world: World) -> str:
    """A device shows a fault; perhaps it stays sick, perhaps it takes ranks with it."""
    machine, dice = _machine(world), world.scene.dice
    if machine is None:
        return ""
    fault_class, severity = dice.choice(DEVICE_FAULTS)
    device = dice.choice(GPUS)
    machine.break_device(fault_class, severity, device)
    if severity is not Severity.INFO and dice.random() < 0.5:
        machine.hardware.sick[device] = fault_class
    if dice.random() < 0.3:
        for launcher in list(machine.launchers.values()):
            launcher.fail(f"{device} is gone")
    return f"{fault_class} on {machine.name} {device}"


def link_falls(world: World) -> str:
    """The fabric link of a node is down for a moment, for long, or for good."""
    machine, dice = _machine(world), world.scene.dice
    if machine is None:
        return ""
    machine.link_down()
    seconds = dice.uniform(0.1, dice.choice([1.5, 12.0, 90.0]))
    if dice.random() < 0.9:
        world.scene.later(seconds, machine.link_up)
    return f"{machine.name} for {seconds:.1f} s"


def link_flaps(world: World) -> str:
    """The link goes down and up again and again."""
    machine, dice = _machine(world), world.scene.dice
    if machine is None:
        return ""
    at = 0.0
    for _ in range(dice.randint(2, 8)):
        world.scene.later(at, machine.link_down)
        at += dice.uniform(0.05, 1.0)
        world.scene.later(at, machine.link_up)
        at += dice.uniform(0.05, 2.0)
    return machine.name


# Slowness and rot.


def start_is_slow(world: World) -> str:
    """The next start of a launcher takes very long, or would last for ever."""
    hit = _launcher(world, alive=False)
    if hit is None:
        return ""
    for_ever = world.scene.dice.random() < 0.4
    hit[1].slow_start_seconds = 1e6 if for_ever else world.scene.dice.uniform(5.0, 70.0)
    return hit[1].launcher


def stop_is_slow(world: World) -> str:
    """The ranks of a launcher hang in the kernel when they are next killed."""
    hit = _launcher(world, alive=True)
    if hit is None:
        return ""
    hit[1].slow_stop_seconds = world.scene.dice.uniform(5.0, 40.0)
    return hit[1].launcher


def checkpoint_rots(world: World) -> str:
    """The newest checkpoints of a job can no longer be read."""
    folders = [(name, one) for name, one in sorted(world.folders.items()) if one.commits]
    if not folders:
        return ""
    name, folder = world.scene.dice.choice(folders)
    count = world.scene.dice.randint(1, 2)
    for one in folder.commits[-count:]:
        one.is_corrupt = True
    return f"{name}, the newest {count}"


# Operators.


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
    dice, jobs = world.scene.dice, world.controller.cluster.jobs
    names = [name for name, job in sorted(jobs.items()) if job.state is not JobState.DONE]
    if not names or dice.random() < 0.7:
        return ""
    name = dice.choice(names)
    world.scene.truth.stops.add(name)
    event = JobStopped(at=world.scene.now, job=name, actor="ada", reason="enough")
    refused = world.controller.command(event)
    if refused is None:
        world.finished.add(name)
    return f"{name} {refused or ''}"


MISFORTUNES: dict[str, tuple[int, Misfortune]] = {
    "rank dies": (10, rank_dies),
    "launcher dies": (8, launcher_dies),
    "agent dies": (8, agent_dies),
    "node dies": (5, node_dies),
    "partition": (8, partition),
    "isolation": (2, isolation),
    "reset": (6, reset),
    "controller dies": (6, controller_dies),
    "device breaks": (10, device_breaks),
    "link falls": (8, link_falls),
    "link flaps": (3, link_flaps),
    "slow start": (3, start_is_slow),
    "slow stop": (3, stop_is_slow),
    "checkpoint rots": (4, checkpoint_rots),
    "operator acts": (5, operator_acts),
    "operator repairs": (8, operator_repairs),
    "job is stopped": (1, job_is_stopped),
}
