"""A fleet that exists only in memory: one seed fixes all of it, and all that befalls it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from aegis.model.job import Assignment
from aegis.model.job import World as Order
from aegis.sim.controller import SimController
from aegis.sim.machine import Machine
from aegis.sim.mix import MIXES, Ailment, Blow
from aegis.sim.network import Network
from aegis.sim.promises import Promises
from aegis.sim.scene import Scene
from aegis.sim.setting import JobPlan, Setting, draw
from aegis.sim.training import Folder, Generation

# Owners act in the seeds that end so, and in no other: what those draw stays what it was.
OWNERS_ACT = (6, 7)


@dataclass(slots=True)
class World:
    """Controller, network, machines and what they share."""

    scene: Scene
    network: Network
    controller: SimController
    promises: Promises
    machines: dict[str, Machine] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    generations: dict[tuple[str, int], Generation] = field(default_factory=dict)
    blows: dict[Blow, Callable[["World"], str]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)  # jobs that nobody will launch again

    def mix(self) -> tuple[Ailment, ...]:
        """What breaks in this fleet, and how often."""
        return MIXES[self.scene.setting.mix]

    def find(self, plan: JobPlan, order: Assignment) -> Generation:
        """The generation that the order speaks of; the first who asks makes it.

        A controller that lost its log may count one again.
        """
        assert order.world is not None
        key = (plan.spec.name, order.generation)
        known = self.generations.get(key)
        if known is None or (known.world != order.world and self.promises.has_forgotten):
            self.generations[key] = Generation(
                scene=self.scene,
                plan=plan,
                folder=self.folders[plan.spec.name],
                number=order.generation,
                world=order.world,
                link_is_up=lambda node: self.machines[node].hardware.link_down_at is None,
                store_is_open=lambda world: self._store_is_open(plan, world),
            )
        return self.generations[key]

    def _store_is_open(self, plan: JobPlan, world: Order) -> bool:
        first = world.members[0]
        launcher = self.machines[first.node].launchers.get(plan.spec.name)
        return launcher is not None and launcher.launcher == first.launcher

    def plans_on(self, node: str) -> tuple[JobPlan, ...]:
        """The jobs that have a launcher on the node, as long as they are wanted."""
        return tuple(
            plan
            for plan in self.scene.setting.jobs
            if node in plan.nodes and plan.spec.name not in self.finished
        )

    def begin(self) -> None:
        """Start everything, each within its own first moments."""
        self.promises.begin()
        self.scene.soon(3.0, self.controller.start)
        for machine in self.machines.values():
            self.scene.soon(
                3.0,
                lambda machine=machine: machine.boot(self.plans_on(machine.name)),  # type: ignore[misc]
            )


def build(seed: int, setting: Setting | None = None) -> World:
    """The fleet of this seed, or of this very setting, before its first moment."""
    dice = random.Random(seed)
    setting = setting or replace(draw(dice), owners_act=seed % 10 in OWNERS_ACT)
    scene = Scene(setting, dice, setting.weather)
    network = Network(scene)
    controller = SimController(scene, network)
    world = World(scene, network, controller, Promises(scene, controller))
    world.folders = {plan.spec.name: Folder() for plan in setting.jobs}
    world.machines = {
        name: Machine(
            scene=scene,
            network=network,
            controller=controller,
            promises=world.promises,
            name=name,
            labels=setting.labels[name],
            find=world.find,
            fence=lambda job: world.folders[job].fence,
            plans=lambda name=name: world.plans_on(name),  # type: ignore[misc]
            skew_seconds=dice.uniform(-1.0, 1.0) * setting.temper.skew_seconds,
        )
        for name in setting.nodes
    }
    scene.log(f"seed {seed}: {len(setting.nodes)} nodes, {setting.mix}, {setting.weather}")
    scene.log(f"  {setting.temper}")
    scene.log(f"  {setting.policy}")
    for plan in setting.jobs:
        scene.log(f"  {plan}")
    return world
