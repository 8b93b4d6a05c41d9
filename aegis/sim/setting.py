"""What a seed draws before anything happens: the fleet, its jobs, the policy and the weather.

Bugs hide in mixtures that no single setting makes, so every seed draws its own of everything.
"""

import random
from dataclasses import dataclass, replace

from aegis.model.job import JobSpec
from aegis.model.policy import Mode, Policy, Unanswered
from aegis.sim.mix import MIXES
from aegis.sim.rules import LADDERS, RULES, SAVING_LADDERS, canonical

SMALL, MEDIUM, LARGE = 16, 128, 2000  # nodes at most
BRISK = 32  # nodes at most of a fleet that is simulated at full pace
JOB_MAX = 160  # nodes of a job
NAMES = ("llama", "zaya", "olmo", "mixtral")


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
    labels: dict[str, tuple[tuple[str, str], ...]]  # by node: where it stands
    jobs: tuple[JobPlan, ...]
    policy: Policy
    weather: Weather
    temper: Temper
    rules_text: str  # as an event carries it
    mix: str  # of faults: a name in `mix.MIXES`
    owners_act: bool = False  # people restart jobs, and keep them off nodes


def draw(dice: random.Random) -> Setting:
    """One fleet in one weather."""
    count = _size(dice)
    width = max(2, len(str(count - 1)))
    nodes = tuple(f"n{number:0{width}}" for number in range(count))
    setting = Setting(
        nodes=nodes,
        labels=_labels(dice, nodes),
        jobs=_jobs(dice, nodes),
        policy=_policy(dice),
        weather=_weather(dice),
        temper=_temper(dice),
        rules_text=RULES.replace("REMEDY", dice.choice(["restart", "drain_now"])),
        mix=dice.choice(list(MIXES)),
    )
    text = setting.rules_text.replace("LADDER", dice.choice(LADDERS))
    text = text.replace("SAVES", dice.choice(SAVING_LADDERS))
    setting = replace(setting, rules_text=canonical(text))
    return setting if count <= BRISK else _slowed(setting, count)


def _size(dice: random.Random) -> int:
    """Nine fleets in ten are small, one in a hundred is very large."""
    fate = dice.random()
    if fate < 0.9:
        least, most = 3, SMALL
    else:
        least, most = (SMALL + 1, MEDIUM) if fate < 0.99 else (MEDIUM + 1, LARGE)
    size: float = least * (most / least) ** dice.random()  # each order of magnitude as often
    return round(size)


def _labels(dice: random.Random, nodes: tuple[str, ...]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Racks, and switches of one or more racks; some sites name neither."""
    if dice.random() < 0.2:
        return dict.fromkeys(nodes, ())
    per_rack = dice.choice([2, 4, 8, 16])
    per_switch = per_rack * dice.choice([1, 2, 4])
    return {
        node: (("rack", f"r{number // per_rack}"), ("switch", f"s{number // per_switch}"))
        for number, node in enumerate(nodes)
    }


def _slowed(setting: Setting, count: int) -> Setting:
    """A large fleet speaks, trains and is looked at less often, and for a shorter time."""
    slow = 1.0 if count <= MEDIUM else 2.0 if count <= 512 else 5.0
    temper = replace(
        setting.temper,
        heartbeat_seconds=3.0 * slow,
        tick_seconds=slow,
        ping_seconds=6.0 * slow,
        step_seconds=6.0 * slow,
        patience_seconds=6.0,
        snapshot_events=20_000,
    )
    policy = replace(
        setting.policy,
        silence_seconds=12.0 * slow,
        fresh_seconds=7.0 * slow,
        hold_down_seconds=7.0 * slow,
        stop_seconds=30.0 * slow,
        start_seconds=40.0 * slow,
        gather_seconds=10.0,
    )
    weather = replace(setting.weather, storm_seconds=90.0, between_seconds=6.0)
    return replace(setting, temper=temper, policy=policy, weather=weather)


def _jobs(dice: random.Random, nodes: tuple[str, ...]) -> tuple[JobPlan, ...]:
    """One job or several; each may have launchers on the others' nodes."""
    if len(nodes) < 4:
        count = 1
    elif len(nodes) <= SMALL:
        count = dice.choice([1, 1, 2, 2, 3])
    else:
        count = dice.randint(2, len(NAMES))
    return tuple(_job(dice, name, nodes) for name in NAMES[:count])


def _wanted(dice: random.Random, nodes: tuple[str, ...]) -> int:
    if len(nodes) <= SMALL:
        return dice.randint(1, max(1, min(4, len(nodes) - 1)))
    return dice.randint(2, min(JOB_MAX, len(nodes) // 2))


def _job(dice: random.Random, name: str, nodes: tuple[str, ...]) -> JobPlan:
    wanted = _wanted(dice, nodes)
    spares = dice.randint(0, min(16, len(nodes) - wanted))
    chosen = dice.sample(nodes, min(len(nodes), wanted + spares))
    fate = dice.random()
    return JobPlan(
        spec=JobSpec(
            name=name,
            nodes=wanted,
            ranks_per_node=dice.choice([1, 1, 2]) if len(nodes) <= MEDIUM else 1,
            spares=spares,
            restarts_max=dice.choice([1, 3, 3, 5]),
            checkpoint_folder=f"/shared/{name}",
        ),
        nodes=tuple(sorted(chosen)),
        steps=dice.randint(10, 80) if fate < 0.15 else None,
        bug_step=dice.randint(0, 40) if fate > 0.9 else None,
    )


def _policy(dice: random.Random) -> Policy:
    modes = [Mode.OBSERVE, Mode.NOTIFY, *[Mode.APPROVE] * 3, *[Mode.ENFORCE] * 15]
    return Policy(
        mode=dice.choice(modes),
        job_mode=dice.choice([Mode.OBSERVE, *[Mode.ENFORCE] * 19]),
        nodes_out_max=dice.choice([1, 2, 20, 20]),
        nodes_out_fraction=dice.choice([0.02, 0.3]),
        nodes_out_window_seconds=dice.choice([60.0, 120.0]),
        nodes_out_per_domain_max=dice.choice([1, 2, 20, 20]),
        breaker_nodes_min=dice.choice([1, 3, 20, 20]),
        breaker_fraction=dice.choice([0.0, 0.1, 0.3]),
        upstream_nodes_min=dice.choice([2, 3, 3]),
        upstream_seconds=dice.choice([5.0, 10.0]),
        approvals_needed=dice.choice([1, 1, 2]),
        approval_seconds=dice.choice([15.0, 60.0, 600.0]),
        approval_unanswered=dice.choice([Unanswered.HOLD, Unanswered.HOLD, Unanswered.ACT]),
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
        order_seconds=20.0,
        reset_seconds=60.0,
        reboot_seconds=90.0,
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
