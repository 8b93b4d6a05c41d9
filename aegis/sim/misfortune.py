"""What can go wrong, each drawn with its weight. A misfortune that finds nobody to hit is skipped.

After the storm the weather clears: what can come back does, and from then on all must mend.
"""

from collections.abc import Callable
from dataclasses import replace

from aegis.model.node import Sender
from aegis.sim import blows, operators
from aegis.sim.mix import Blow
from aegis.sim.setting import Weather
from aegis.sim.world import World

Misfortune = Callable[[World], str]  # what it did; "" when there was nobody to hit

BURST = 0.08  # of the strikes are several at once


def storm(world: World) -> None:
    """Misfortunes until the weather clears."""
    scene = world.scene
    end = scene.now + scene.weather.storm_seconds
    world.blows = BLOWS

    def strike() -> None:
        if scene.now >= end:
            clear(world)
            return
        for _ in range(scene.dice.randint(3, 8) if scene.dice.random() < BURST else 1):
            _strike_once(world)
        scene.later(min(scene.dice.expovariate(1 / scene.weather.between_seconds), 60.0), strike)

    scene.soon(scene.weather.between_seconds, strike)


def _strike_once(world: World) -> None:
    known = MISFORTUNES | (OF_OWNERS if world.scene.setting.owners_act else {})
    names = list(known)
    weights = [known[name][0] for name in names]
    name = world.scene.dice.choices(names, weights)[0]
    done = known[name][1](world)
    if done:
        world.scene.log(f"! {name}: {done}")


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
    operators.resume(world)
    for machine in world.machines.values():
        machine.start_agent()
        if machine.agent is not None:
            machine.agent.uplink.hang(0.0)
        if machine.is_on and scene.dice.random() < 0.7:
            machine.link_up()


# Networks.


def partition(world: World) -> str:
    """Some nodes and the controller do not reach each other, one way or both."""
    dice = world.scene.dice
    names, what = _separated(world)
    mute, deaf = dice.choice([(True, True), (True, True), (True, False), (False, True)])
    seconds = dice.uniform(1.0, dice.choice([5.0, 30.0, 80.0]))
    for name in names:
        world.network.cut(name, mute=mute, deaf=deaf, seconds=seconds)
    return f"{what} for {seconds:.1f} s, mute={mute} deaf={deaf}"


def _separated(world: World) -> tuple[list[str], str]:
    """One node, a rack or a switch, half the fleet, or any."""
    dice, names = world.scene.dice, sorted(world.machines)
    kind = dice.choice(["one", "place", "half", "any"])
    if kind == "place":
        what, machines = blows.any_place(world)
        if machines:
            return [one.name for one in machines], what
    count = {"one": 1, "half": max(1, len(names) // 2)}.get(kind, dice.randint(1, len(names)))
    found = sorted(dice.sample(names, count))
    return found, ",".join(found[:12]) + ("…" if count > 12 else "")


def launchers_are_cut_off(world: World) -> str:
    """An agent dies, and its launchers do not reach the controller by themselves."""
    machine, dice = blows.any_machine(world), world.scene.dice
    if machine is None or machine.agent is None:
        return ""
    seconds = dice.uniform(3.0, dice.choice([10.0, 60.0]))
    machine.stop_agent()
    world.network.cut(machine.name, mute=True, deaf=True, seconds=seconds, sender=Sender.LAUNCHER)
    world.scene.soon(dice.choice([5.0, 40.0]), machine.start_agent)
    return f"{machine.name} for {seconds:.1f} s"


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
    machine = blows.any_machine(world)
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


def log_is_lost(world: World) -> str:
    """The controller's disk is gone; another one begins with nothing."""
    controller = world.controller
    if not controller.is_up:
        return ""
    controller.lose_log()
    seconds = world.scene.dice.uniform(1.0, 10.0)

    def start() -> None:
        if not controller.is_up:
            controller.start()

    world.scene.later(seconds, start)
    return f"for {seconds:.1f} s"


BLOWS: dict[Blow, Misfortune] = {
    Blow.RANK_DIES: blows.rank_dies,
    Blow.RANK_OOM: blows.rank_oom,
    Blow.JOB_HANGS: blows.job_hangs,
    Blow.LAUNCHER_DIES: blows.launcher_dies,
    Blow.NODE_DIES: blows.node_dies,
    Blow.LINK_FALLS: blows.link_falls,
    Blow.SWITCH_DIES: blows.switch_dies,
    Blow.MAINTENANCE: operators.maintenance,
    Blow.CHECKPOINT_ROTS: blows.checkpoint_rots,
    Blow.SLOW: blows.start_is_slow,
    Blow.RESUBMIT: operators.job_is_resubmitted,
}

MISFORTUNES: dict[str, tuple[int, Misfortune]] = {
    "fault": (30, blows.ailment),
    "rank dies": (6, blows.rank_dies),
    "launcher dies": (7, blows.launcher_dies),
    "agent dies": (7, blows.agent_dies),
    "agent hangs": (4, blows.agent_hangs),
    "node dies": (4, blows.node_dies),
    "rack dies": (1, blows.rack_dies),
    "partition": (8, partition),
    "launchers cut off": (2, launchers_are_cut_off),
    "isolation": (2, isolation),
    "reset": (5, reset),
    "controller dies": (6, controller_dies),
    "log is lost": (1, log_is_lost),
    "link falls": (7, blows.link_falls),
    "link flaps": (3, blows.link_flaps),
    "flap storm": (2, blows.flap_storm),
    "switch dies": (3, blows.switch_dies),
    "slow start": (3, blows.start_is_slow),
    "slow stop": (3, blows.stop_is_slow),
    "checkpoint rots": (3, blows.checkpoint_rots),
    "operator acts": (5, operators.operator_acts),
    "operator repairs": (8, operators.operator_repairs),
    "person answers": (8, operators.person_answers),
    "person remarks": (1, operators.person_remarks),
    "pause": (2, operators.automation_pauses),
    "window": (3, operators.window_is_set),
    "rule mode": (2, operators.rule_mode_is_set),
    "job is stopped": (1, operators.job_is_stopped),
}

# What people do with jobs, in the fleets whose owners do more than stop them.
OF_OWNERS: dict[str, tuple[int, Misfortune]] = {
    "job is restarted": (6, operators.job_is_restarted),
    "node is excluded": (6, operators.node_is_excluded),
    "node is included": (4, operators.node_is_included),
}
