"""What befalls nodes, ranks and devices, each drawn and carried out by itself.

A blow returns what it did, and "" when there was nobody to hit.
"""

from aegis.model.fault import FaultClass, Severity
from aegis.sim.agent import GPUS
from aegis.sim.launcher import SimLauncher
from aegis.sim.machine import Machine
from aegis.sim.mix import Ailment
from aegis.sim.world import World

TOGETHER_SECONDS = 0.3  # what fails together does so within this


def any_machine(world: World) -> Machine | None:
    """A node that is on."""
    machines = [one for one in world.machines.values() if one.is_on]
    return world.scene.dice.choice(machines) if machines else None


def any_launcher(world: World, *, alive: bool) -> tuple[Machine, SimLauncher] | None:
    """A launcher; alive: one with ranks."""
    found = [
        (machine, launcher)
        for machine in world.machines.values()
        for launcher in machine.launchers.values()
        if launcher.is_alive or not alive
    ]
    return world.scene.dice.choice(found) if found else None


def any_place(world: World) -> tuple[str, list[Machine]]:
    """All nodes of a rack or of a switch; none where the site names neither."""
    dice = world.scene.dice
    places = sorted({label for one in world.machines.values() for label in one.labels})
    if not places:
        return "", []
    place = dice.choice(places)
    found = [one for one in world.machines.values() if place in one.labels]
    return f"{place[0]} {place[1]}", found


# Ranks, launchers, agents, nodes.


def rank_dies(world: World) -> str:
    """One rank ends, by itself or by a signal."""
    oom_killed = world.scene.dice.random() < 0.2
    return _rank_dies(world, oom_killed=oom_killed)


def rank_oom(world: World) -> str:
    """A rank is killed for its memory."""
    return _rank_dies(world, oom_killed=True)


def _rank_dies(world: World, *, oom_killed: bool) -> str:
    hit = any_launcher(world, alive=True)
    if hit is None:
        return ""
    signal = 9 if oom_killed or world.scene.dice.random() < 0.5 else None
    hit[1].fail("died", signal=signal, oom_killed=oom_killed)
    return hit[1].launcher


def job_hangs(world: World) -> str:
    """Collectives wait for ever, until their watchdog ends a rank."""
    hit = any_launcher(world, alive=True)
    if hit is None or hit[1].run is None:
        return ""
    hit[1].run.hang(world.scene.dice.uniform(5.0, 40.0))
    return hit[1].launcher


def launcher_dies(world: World) -> str:
    """A launcher ends, and its ranks; mostly another one is started."""
    hit = any_launcher(world, alive=world.scene.dice.random() < 0.7)
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
    machine = any_machine(world)
    if machine is None or machine.agent is None:
        return ""
    machine.stop_agent()
    world.scene.soon(world.scene.dice.choice([1.0, 8.0, 60.0]), machine.start_agent)
    return machine.name


def agent_hangs(world: World) -> str:
    """An exporter goes silent: the agent lives, and says and hears nothing."""
    machine, dice = any_machine(world), world.scene.dice
    if machine is None or machine.agent is None:
        return ""
    seconds = dice.uniform(2.0, dice.choice([10.0, 90.0]))
    machine.agent.uplink.hang(seconds)
    return f"{machine.name} for {seconds:.1f} s"


def node_dies(world: World) -> str:
    """A node falls silent; mostly it boots again."""
    machine = any_machine(world)
    on = sum(one.is_on for one in world.machines.values())
    if machine is None or on < 2:
        return ""
    _power_off(world, machine, world.scene.dice.choice([3.0, 30.0, 90.0]))
    return machine.name


def _power_off(world: World, machine: Machine, seconds: float) -> None:
    machine.power_off()
    world.scene.truth.reboots[machine.name] = machine.boots
    if world.scene.dice.random() < 0.1:
        machine.new_spool()
    if world.scene.dice.random() < 0.8:
        world.scene.soon(seconds, lambda: machine.boot(world.plans_on(machine.name)))


def rack_dies(world: World) -> str:
    """A rack loses its power."""
    name, machines = any_place(world)
    for machine in machines:
        if machine.is_on:
            _power_off(world, machine, 30.0)
    return name


# Devices.


def ailment(world: World) -> str:
    """A fault of the fleet's mix: a device shows it, and what else comes with it happens."""
    mix = world.mix()
    found = world.scene.dice.choices(mix, [one.weight for one in mix])[0]
    if found.blow is not None:
        what = world.blows[found.blow](world)
        return f"{found.name}: {what}" if what else ""
    machine = any_machine(world)
    if machine is None:
        return ""
    return f"{found.name} on {machine.name} {_suffer(world, machine, found)}"


def _suffer(world: World, machine: Machine, found: Ailment) -> str:
    dice = world.scene.dice
    device = found.device or dice.choice(GPUS)
    for word in found.words:

        def show(fault_class: FaultClass, severity: Severity, count: int) -> None:
            if machine.is_on:
                machine.break_device(fault_class, severity, device, count)

        world.scene.later(
            word.after_seconds,
            lambda word=word: show(word.fault_class, word.severity, word.count),  # type: ignore[misc]
        )
    if found.sickens and dice.random() < 0.6:
        machine.hardware.sick[device] = found.words[-1].fault_class
    if found.kills and dice.random() < 0.6:
        for launcher in list(machine.launchers.values()):
            launcher.fail(f"{device} is gone")
    return device


# Links and switches.


def link_falls(world: World) -> str:
    """The fabric link of a node is down for a moment, for long, or for good."""
    machine, dice = any_machine(world), world.scene.dice
    if machine is None:
        return ""
    machine.link_down()
    seconds = dice.uniform(0.1, dice.choice([1.5, 12.0, 90.0]))
    if dice.random() < 0.9:
        world.scene.later(seconds, machine.link_up)
    return f"{machine.name} for {seconds:.1f} s"


def link_flaps(world: World) -> str:
    """The link goes down and up again and again."""
    machine = any_machine(world)
    if machine is None:
        return ""
    _flap(world, machine)
    return machine.name


def _flap(world: World, machine: Machine) -> None:
    at, dice = 0.0, world.scene.dice
    for _ in range(dice.randint(2, 8)):
        world.scene.later(at, machine.link_down)
        at += dice.uniform(0.05, 1.0)
        world.scene.later(at, machine.link_up)
        at += dice.uniform(0.05, 2.0)


def switch_dies(world: World) -> str:
    """A switch, or what a rack hangs on, is gone for a while: all its links are down at once."""
    name, machines = any_place(world)
    dice = world.scene.dice
    seconds = dice.uniform(1.0, dice.choice([5.0, 30.0, 120.0]))
    for machine in machines:
        world.scene.soon(TOGETHER_SECONDS, machine.link_down)
        world.scene.later(seconds + dice.uniform(0.0, 2.0), machine.link_up)
    if machines and dice.random() < 0.3:  # the way to the controller goes over it, too
        for machine in machines:
            world.network.cut(machine.name, mute=True, deaf=True, seconds=seconds)
    return f"{name} for {seconds:.1f} s" if name else ""


def flap_storm(world: World) -> str:
    """Many links flap in the same seconds."""
    on = [one for one in world.machines.values() if one.is_on]
    hit = world.scene.dice.sample(on, min(len(on), world.scene.dice.randint(2, 12)))
    for machine in hit:
        _flap(world, machine)
    return f"{len(hit)} links"


# Slowness and rot.


def start_is_slow(world: World) -> str:
    """The next start of a launcher takes very long, or would last for ever."""
    hit = any_launcher(world, alive=False)
    if hit is None:
        return ""
    for_ever = world.scene.dice.random() < 0.4
    hit[1].slow_start_seconds = 1e6 if for_ever else world.scene.dice.uniform(5.0, 70.0)
    return hit[1].launcher


def stop_is_slow(world: World) -> str:
    """The ranks of a launcher hang in the kernel when they are next killed."""
    hit = any_launcher(world, alive=True)
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
