"""Days that have ended badly elsewhere: whatever looks broken and is not, no node is taken for it.

Each runs the real core with the shipped rules, enforcing. AEGIS_REPLAY_HOURS=24 plays the flap
storm for a whole day; usually it is two hours of it.
"""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from aegis.core import invariants
from aegis.core.cluster import Cluster
from aegis.core.index import AEGIS
from aegis.core.step import step
from aegis.model import event as ev
from aegis.model.fault import Condition, Fault, FaultClass, Severity
from aegis.model.job import JobSpec, JobState
from aegis.model.node import NodeReport, Sender
from aegis.model.policy import Mode, Policy
from aegis.rules import parse
from aegis.sim.setting import JobPlan, Setting, Temper, Weather
from aegis.sim.world import World, build

SHIPPED = Path(__file__).parents[2] / "rules"
TEXTS = {path.name: path.read_text() for path in sorted(SHIPPED.glob("*.yaml"))}
HOURS = float(os.environ.get("AEGIS_REPLAY_HOURS", "2"))
# Whoever is evicted must be evicted for a reason: here no number keeps a node in.
POLICY = Policy(
    mode=Mode.ENFORCE,
    nodes_out_max=1000,
    nodes_out_per_domain_max=1000,
    breaker_nodes_min=1000,
)


def told(capsys, what: str, evicted: int) -> None:
    with capsys.disabled():
        print(f"\n{what}; healthy nodes evicted: {evicted}")  # noqa: T201 - it is asked for


# Flaps, by their events alone.


class Ports:
    """125 nodes with eight ports each, of which one link or another is down for a moment."""

    def __init__(self) -> None:
        self.cluster, self.rules, self.at = Cluster(), parse(TEXTS), 1000.0
        self.down: dict[str, dict[str, float]] = {f"n{number:03}": {} for number in range(125)}
        self.sequence, self.number, self.evicted = 0, 0, set()
        self.apply(ev.ControllerStarted(at=self.at, epoch=1, version="replay"))
        self.apply(ev.PolicyChanged(at=self.at, policy=POLICY, actor="replay"))
        for node in self.down:
            self.say(node)

    def apply(self, event) -> None:
        step(self.cluster, self.rules, event)
        for kind, name in self.cluster.touched:
            if kind == "node" and self.cluster.nodes[name].held_by == AEGIS:
                self.evicted.add(name)
        self.cluster.touched.clear()

    def tick(self, at: float) -> None:
        self.at = max(self.at, at)
        self.apply(ev.Tick(at=self.at, agents_seen=tuple(self.down)))

    def say(self, node) -> None:
        self.sequence += 1
        conditions = tuple(
            Condition(fault_class=FaultClass.NIC_LINK_DOWN, device=port, since=since)
            for port, since in sorted(self.down[node].items())
        )
        report = NodeReport(
            node=node,
            sender=Sender.AGENT,
            session=1,
            sequence=self.sequence,
            boot_id="boot",
            labels=(("rack", f"r{int(node[1:]) // 8}"), ("switch", f"s{int(node[1:]) // 16}")),
            conditions=conditions,
        )
        self.apply(ev.NodeReported(at=self.at, report=report))

    def link(self, node, port, *, is_down: bool) -> None:
        if is_down == (port in self.down[node]):
            return
        if is_down:
            self.down[node][port] = self.at
        else:
            del self.down[node][port]
        self.number += 1
        kind = FaultClass.NIC_LINK_DOWN if is_down else FaultClass.NIC_LINK_UP
        fault = Fault(
            fault_class=kind,
            severity=Severity.ERROR if is_down else Severity.INFO,
            node=node,
            device=port,
            observed_at=self.at,
            boot_id="boot",
        )
        self.say(node)
        self.apply(ev.FaultObserved(at=self.at, origin="o", number=self.number, fault=fault))


def test_a_flap_storm(capsys) -> None:
    """5,000 flaps a day over 1,000 ports, most for a moment, some for seconds, some by switches."""
    dice, ports = random.Random(1), Ports()
    flaps = round(5000 * HOURS / 24)
    calls: list[tuple[float, str, str, bool]] = []
    while len(calls) < 2 * flaps:
        at = ports.at + dice.uniform(0.0, HOURS * 3600)
        node, port = dice.choice(sorted(ports.down)), f"fab{dice.randrange(8)}"
        first = int(node[1:]) // 16 * 16
        hit = [node] if dice.random() < 0.99 else [f"n{n:03}" for n in range(first, first + 13)]
        for one in hit:
            lasts = dice.choice([dice.uniform(0.01, 0.5), dice.uniform(0.5, 5.5)])
            if one in ports.down:
                begins = at + dice.uniform(0.0, 0.3)
                calls += [(begins, one, port, True), (begins + lasts, one, port, False)]
    for at, node, port, is_down in sorted(calls):
        while any(ports.down.values()) and ports.at + 1.0 < at:
            ports.tick(ports.at + 1.0)
        ports.tick(at)
        ports.link(node, port, is_down=is_down)
    ports.tick(ports.at + 10.0)
    invariants.check(ports.cluster)
    told(capsys, f"{len(calls) // 2} flaps of 1,000 ports in {HOURS:g} h", len(ports.evicted))
    assert ports.evicted == set()
    assert ports.cluster.open_incidents == set()


# The rest, in a fleet that trains.


CALM = Weather(
    loss=0.0,
    repeat=0.0,
    late=0.0,
    late_seconds=0.0,
    quick_seconds=0.05,
    between_seconds=0.0,
    storm_seconds=0.0,
)
TEMPER = Temper(
    heartbeat_seconds=5.0,
    tick_seconds=2.0,
    ping_seconds=15.0,
    agents_settle=True,
    skew_seconds=2.0,
    spawn_seconds=3.0,
    load_seconds=5.0,
    step_seconds=5.0,
    save_seconds=2.0,
    save_every=5,
    kill_seconds=2.0,
    patience_seconds=6.0,
    rendezvous_seconds=40.0,
    store_seconds=0.2,
    snapshot_events=100_000,
)


def fleet(count: int = 32) -> World:
    """Two jobs on a fleet in two switches, once both have trained for a while."""
    nodes = tuple(f"n{number:02}" for number in range(count))
    half = count // 2
    setting = Setting(
        nodes=nodes,
        labels={
            name: (("rack", f"r{number // 4}"), ("switch", f"s{number // half}"))
            for number, name in enumerate(nodes)
        },
        jobs=(_plan("llama", nodes[:half]), _plan("zaya", nodes[half:])),
        policy=replace(POLICY, silence_seconds=30.0, fresh_seconds=12.0, gather_seconds=10.0),
        weather=CALM,
        temper=TEMPER,
        rules_text=parse(TEXTS).text,
        mix="llama3",
    )
    world = build(7, setting)
    world.begin()
    passes(world, 120.0)
    assert states(world) == [JobState.RUNNING] * 2
    return world


def _plan(name, nodes) -> JobPlan:
    spec = JobSpec(name=name, nodes=len(nodes) - 2, ranks_per_node=1, spares=2, restarts_max=5)
    return JobPlan(spec=spec, nodes=nodes, steps=None, bug_step=None)


def passes(world: World, seconds: float) -> None:
    world.scene.clock.run(world.scene.now + seconds)


def states(world: World) -> list[JobState]:
    return [job.state for job in world.controller.cluster.jobs.values()]


def generations(world: World) -> list[int]:
    return [job.generation for job in world.controller.cluster.jobs.values()]


@pytest.mark.parametrize("how", ["die", "hang"])
def test_an_exporter_outage_of_two_hours(how, capsys) -> None:
    """No agent says a word for two hours; the jobs train on and are left alone."""
    world = fleet(12)
    for machine in world.machines.values():
        if how == "die":
            machine.stop_agent()
        else:
            machine.agent.uplink.hang(7200.0)
    passes(world, 7200.0)
    for machine in world.machines.values():
        machine.start_agent()
    passes(world, 120.0)
    taken = world.promises.takes.taken
    told(capsys, f"all agents {how} for 2 h", len(taken))
    assert taken == []
    assert (states(world), generations(world)) == ([JobState.RUNNING] * 2, [1, 1])
    steps = [job.step for job in world.controller.cluster.jobs.values()]
    assert min(steps) > 7200 / 6  # they came on all the while


@pytest.mark.parametrize("cuts_off", [False, True], ids=["links", "links-and-words"])
def test_a_switch_reboots(cuts_off, capsys) -> None:
    """All links of a switch are down for three minutes and come back one after the other."""
    world = fleet()
    dice = world.scene.dice
    for number, machine in enumerate(world.machines.values()):
        if ("switch", "s0") in machine.labels:
            world.scene.later(dice.uniform(0.0, 0.5), machine.link_down)
            world.scene.later(180.0 + 2.0 * number, machine.link_up)
            if cuts_off:
                world.network.cut(machine.name, mute=True, deaf=True, seconds=180.0)
    passes(world, 600.0)
    taken = world.promises.takes.taken
    told(capsys, "a switch of 16 nodes reboots", len(taken))
    assert taken == []
    running = world.controller.cluster.jobs["zaya"]
    assert (running.state, running.generation) == (JobState.RUNNING, 1)
    assert not world.controller.cluster.unresolved()


def test_a_flood_of_old_events(capsys) -> None:
    """The controller is away for three hours; what devices showed meanwhile is told all at once."""
    world = fleet()
    dice = world.scene.dice
    world.controller.die()
    machines = list(world.machines.values())
    for _ in range(2000):
        machine, at = dice.choice(machines), dice.uniform(0.0, 9000.0)
        kind = dice.choice(
            [
                FaultClass.GPU_ECC_UNCORRECTABLE,
                FaultClass.GPU_RAS_FATAL,
                FaultClass.GPU_LOST,
                FaultClass.NIC_FIRMWARE_FATAL,
                FaultClass.NIC_LINK_DOWN,
            ]
        )
        if kind is FaultClass.NIC_LINK_DOWN:
            world.scene.later(at, machine.link_down)
            world.scene.later(at + dice.uniform(0.1, 3.0), machine.link_up)
        else:
            device = f"gpu{dice.randrange(2)}"
            world.scene.later(
                at,
                lambda m=machine, k=kind, d=device: m.break_device(k, Severity.FATAL, d),
            )
    passes(world, 10_800.0)
    world.controller.start()
    passes(world, 300.0)
    taken, logged = world.promises.takes.taken, len(world.controller.logged)
    told(capsys, f"{logged} old faults after 3 h without a controller", len(taken))
    assert logged > 2000
    assert taken == []
    assert states(world) == [JobState.RUNNING] * 2
    assert not world.controller.cluster.unresolved()
