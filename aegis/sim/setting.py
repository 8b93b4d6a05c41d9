"""What a seed draws before anything happens: the fleet, its jobs, the policy and the weather.

Bugs hide in mixtures that no single setting makes, so every seed draws its own of everything.
"""

import random
from dataclasses import dataclass

from aegis.model.job import JobSpec
from aegis.model.policy import Mode, Policy

RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: sim
rules:
  - {id: ecc, title: Memory error, class: gpu.ecc.uncorrectable, remedy: drain_now}
  - {id: deferred, title: Deferred memory error, class: gpu.ecc.deferred, remedy: drain_saving}
  - {id: corrected, title: Corrected memory error, class: gpu.ecc.correctable, remedy: count}
  - {id: ring, title: Ring time-out, class: gpu.ring.timeout, remedy: restart}
  - {id: heat, title: GPU slowed by heat, class: gpu.thermal.throttle, remedy: notify}
  - {id: shy, title: Lost GPU, class: gpu.lost, remedy: drain_now, mode: approve}
  - {id: link, title: Link down, class: nic.link.down, hold_down: policy, remedy: drain_now}
  - {id: up, title: Link up, class: nic.link.up, remedy: count}
  - {id: firmware, title: Card failed, class: nic.firmware.fatal, remedy: drain_now}
  - {id: hung, title: Hung task, class: host.task.hung, remedy: notify}
  - {id: lost, title: Node silent, class: node.lost, remedy: REMEDY}
  - {id: rebooted, title: Node rebooted, class: node.rebooted, remedy: restart}
  - {id: died, title: Rank died, class: [job.worker.exited, job.worker.oom_killed], remedy: restart}
  - {id: hang, title: Job does not come on, class: job.hang, remedy: restart}
  - {id: corrupt, title: Corrupt checkpoint, class: job.checkpoint.corrupt, remedy: notify}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad the network is, and how often something happens."""

    loss: float  # of each message
    repeat: float
    late: float  # how many come late ...
    late_seconds: float  # ... and at most by how much
    quick_seconds: float  # the usual delay at most
    between_seconds: float  # two misfortunes, on average
    storm_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """How the parts of this fleet behave when all is well."""

    heartbeat_seconds: float
    tick_seconds: float
    ping_seconds: float  # without an answer for so long, a connection is given up
    agents_settle: bool  # an agent that has just started waits for its launchers before it speaks
    skew_seconds: float  # of the nodes' clocks, at most
    spawn_seconds: float
    load_seconds: float
    step_seconds: float
    save_seconds: float
    save_every: int
    kill_seconds: float
    patience_seconds: float  # until ranks fail that have lost a peer
    rendezvous_seconds: float  # until ranks fail whose peers never came
    store_seconds: float  # to open another rendezvous store
    snapshot_events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job as its user submits it, and what its script will do."""

    spec: JobSpec
    nodes: tuple[str, ...]  # where it has a launcher
    steps: int | None  # it is done after so many
    bug_step: int | None  # its script fails here, every time


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """All that is drawn before the start."""

    nodes: tuple[str, ...]
    jobs: tuple[JobPlan, ...]
    policy: Policy
    weather: Weather
    temper: Temper
    rules_text: str


def draw(dice: random.Random) -> Setting:
    """One fleet in one weather."""
    nodes = tuple(f"n{number:02}" for number in range(dice.choice([2, 3, 3, 4, 5, 6, 8, 12])))
    return Setting(
        nodes=nodes,
        jobs=_jobs(dice, nodes),
        policy=_policy(dice),
        weather=_weather(dice),
        temper=_temper(dice),
        rules_text=RULES.replace("REMEDY", dice.choice(["restart", "drain_now"])),
    )


def _jobs(dice: random.Random, nodes: tuple[str, ...]) -> tuple[JobPlan, ...]:
    """One job, or two of which each may have launchers on the other's nodes."""
    names = ["llama"] if len(nodes) < 4 or dice.random() < 0.7 else ["llama", "zaya"]
    return tuple(_job(dice, name, nodes) for name in names)


def _job(dice: random.Random, name: str, nodes: tuple[str, ...]) -> JobPlan:
    wanted = dice.randint(1, max(1, min(4, len(nodes) - 1)))
    spares = dice.randint(0, len(nodes) - wanted)
    chosen = dice.sample(nodes, min(len(nodes), wanted + spares))
    fate = dice.random()
    return JobPlan(
        spec=JobSpec(
            name=name,
            nodes=wanted,
            ranks_per_node=dice.choice([1, 1, 2]),
            spares=spares,
            restarts_max=dice.choice([1, 3, 3, 5]),
            checkpoint_folder=f"/shared/{name}",
        ),
        nodes=tuple(sorted(chosen)),
        steps=dice.randint(10, 80) if fate < 0.15 else None,
        bug_step=dice.randint(0, 40) if fate > 0.9 else None,
    )


def _policy(dice: random.Random) -> Policy:
    modes = [Mode.OBSERVE, Mode.OBSERVE, Mode.NOTIFY, Mode.APPROVE, *[Mode.ENFORCE] * 16]
    return Policy(
        mode=dice.choice(modes),
        job_mode=dice.choice([Mode.OBSERVE, *[Mode.ENFORCE] * 19]),
        nodes_out_max=dice.choice([1, 2, 4, 20]),
        nodes_out_fraction=dice.choice([0.02, 0.3]),
        nodes_out_window_seconds=dice.choice([60.0, 120.0]),
        spare_floor=dice.choice([0, 0, 0, 1]),
        cooldown_seconds=dice.choice([20.0, 90.0]),
        probation_seconds=dice.choice([0.0, 3600.0]),
        hold_down_seconds=dice.choice([2.0, 7.0]),
        silence_seconds=dice.choice([10.0, 20.0]),
        gather_seconds=dice.choice([2.0, 5.0]),
        start_seconds=30.0,
        stop_seconds=dice.choice([8.0, 15.0]),
        stop_grace_seconds=5.0,
        settle_seconds=20.0,
        fresh_seconds=5.0,
        event_ttl_seconds=dice.choice([60.0, 600.0]),
    )


def _weather(dice: random.Random) -> Weather:
    return Weather(
        loss=dice.choice([0.0, 0.0, 0.05, 0.3]),
        repeat=dice.choice([0.0, 0.1, 0.3]),
        late=dice.choice([0.0, 0.05, 0.3]),
        late_seconds=dice.choice([2.0, 10.0, 60.0]),
        quick_seconds=dice.choice([0.05, 1.0]),
        between_seconds=dice.choice([3.0, 12.0, 40.0]),
        storm_seconds=dice.choice([60.0, 150.0, 240.0]),
    )


def _temper(dice: random.Random) -> Temper:
    return Temper(
        heartbeat_seconds=dice.choice([1.0, 2.0]),
        tick_seconds=dice.choice([0.5, 1.0]),
        ping_seconds=dice.choice([4.0, 12.0]),
        agents_settle=dice.random() < 0.7,
        skew_seconds=dice.choice([0.0, 0.0, 2.0, 30.0]),
        spawn_seconds=dice.choice([0.3, 3.0]),
        load_seconds=dice.choice([0.2, 5.0]),
        step_seconds=dice.choice([1.0, 3.0]),
        save_seconds=dice.choice([0.1, 2.0]),
        save_every=dice.choice([2, 5]),
        kill_seconds=dice.choice([0.1, 2.0]),
        patience_seconds=dice.choice([0.3, 6.0]),
        rendezvous_seconds=dice.choice([10.0, 40.0]),
        store_seconds=dice.choice([0.2, 0.2, 4.0]),
        snapshot_events=dice.choice([150, 600]),
    )
