"""What must hold at every moment, in the world and not only in the controller's belief.

Held against the bare truth (`scene.Truth`) and against a reckoning of silence and progress that is
not the core's own (`controller.Memory`). A broken promise is an AssertionError.
"""

from dataclasses import dataclass, field

from aegis.core import returning
from aegis.core.cluster import ENDED, HOLDING, Cluster, holders, launcher_of
from aegis.core.index import AEGIS
from aegis.core.report import PROGRESS_SECONDS
from aegis.model.event import Event, JobRestarted
from aegis.model.fault import FaultClass
from aegis.model.incident import DecisionResult, Incident, IncidentState
from aegis.model.job import Job, JobState, World
from aegis.model.node import Health, Node, NodeState
from aegis.model.order import Order
from aegis.sim.agent import Spool
from aegis.sim.controller import SimController
from aegis.sim.launcher import SimLauncher
from aegis.sim.scene import Alive, Scene
from aegis.sim.takes import Takes, standing

LEAVING = (NodeState.DRAINING, NodeState.QUARANTINED)
STOPS_FIRST = (FaultClass.NODE_LOST, FaultClass.NODE_REBOOTED, FaultClass.GPU_RING_TIMEOUT)


@dataclass(slots=True)
class Promises:
    """Watches every event and every rank that starts."""

    scene: Scene
    controller: SimController
    takes: Takes = field(init=False)
    restarts: dict[str, int] = field(default_factory=dict)  # generations since progress, by job
    spent: dict[str, int] = field(default_factory=dict)  # the same, when the job was given up
    _nodes: dict[str, Node] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _before: dict[str, Job] = field(default_factory=dict)  # before the event
    _incidents: dict[str, IncidentState] = field(default_factory=dict)
    _worlds: dict[tuple[str, int, int], World] = field(default_factory=dict)
    _logs_lost: int = 0
    _stores: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    _excused: set[tuple[str, int]] = field(default_factory=set)  # launcher, generation: given up
    _orders_of: dict[str, int] = field(default_factory=dict)  # the newest epoch, by node
    _begun: set[str] = field(default_factory=set)  # orders
    _told: dict[str, str] = field(default_factory=dict)  # evidence of a fault: its incident
    has_forgotten: bool = False
    _ever_told: set[str] = field(default_factory=set)  # before the log was lost

    def begin(self) -> None:
        """Watch from now on."""
        self.takes = Takes(self.scene, self.controller)
        self.controller.stepped.append(self.after)
        self.controller.forgotten.append(self.forget)

    def forget(self) -> None:
        """The controller has lost its log: what it believed is no measure any more."""
        self.takes = Takes(self.scene, self.controller)
        self._ever_told |= set(self._told)
        self.has_forgotten = True
        self._logs_lost += 1
        for known in (self._nodes, self._jobs, self._before, self._incidents, self._told):
            known.clear()
        self.scene.truth.excluded = set()
        self.restarts.clear()

    # Ranks

    def spawned(self, launcher: SimLauncher) -> None:
        """Ranks have begun to live: no others of an older generation may, unless given up."""
        job, generation = launcher.plan.spec.name, launcher.generation
        for other in self._alive(job):
            older = other if other.generation < generation else None
            if other.generation > generation:
                older = Alive(job, generation, launcher.node, launcher.launcher)
            if older is not None:
                assert self._is_excused(older), (
                    f"{older.launcher} trains in generation {older.generation} of {job} while "
                    f"{max(other.generation, generation)} does"
                )
        node = self.controller.cluster.nodes.get(launcher.node)
        given_up = (launcher.launcher, generation) in self._excused
        assert node is None or node.state is not NodeState.QUARANTINED or given_up, (
            f"ranks start on {launcher.node}, which is quarantined"
        )
        self._check_world(launcher)

    def _check_world(self, launcher: SimLauncher) -> None:
        """A generation is one world, with a store that no other generation has used."""
        assert launcher.run is not None
        job, world = (launcher.plan.spec.name, launcher.generation), launcher.run.world
        # One that lost its log may count a generation again: its epoch tells the two apart.
        known = self._worlds.setdefault((*job, self._logs_lost), world)
        assert known == world, f"generation {job} was told in two ways"
        assert launcher.order is not None
        assert launcher.order.world in (None, world) or launcher.order.generation > job[1], (
            f"generation {job} was told in two ways"
        )
        store = (world.members[0].launcher, world.master_port)
        first = self._stores.setdefault(store, job)
        assert first == job or self.has_forgotten, f"store {store} was used before"

    def _is_excused(self, one: Alive) -> bool:
        return (one.launcher, one.generation) in self._excused or self._is_forgotten(one)

    def _is_forgotten(self, one: Alive) -> bool:
        """Whoever lost the log cannot wait for a launcher that it has not heard since."""
        node = self.controller.cluster.nodes.get(one.node)
        known = node is not None and any(it.launcher == one.launcher for it in node.launchers)
        return self.has_forgotten and not known

    def _alive(self, job: str) -> list[Alive]:
        return [one for one in self.scene.truth.ranks.values() if one.job == job]

    # Spools

    def acknowledged(self, spool: Spool) -> None:
        """What an agent was told is stored is in the log."""
        for number in range(1, spool.stored + 1):
            place = (spool.origin, number)
            assert place in self.controller.logged, f"{place} was acknowledged and is not stored"

    def is_told(self, origin: str, number: int) -> bool:
        """Whether the fault has got into an incident."""
        text = f"{origin} {number}"
        return text in self._told or text in self._ever_told

    # Events

    def after(self, event: Event) -> None:
        """Look at all that the event has changed."""
        cluster = self.controller.cluster
        self.takes.hear(event)
        self._before = dict(self._jobs)
        for kind, name in sorted(cluster.touched):
            if kind == "node":
                self._look_at_node(cluster, name)
            elif kind == "job" and name in cluster.jobs:
                self._look_at_job(cluster.jobs[name])
            elif kind == "incident" and name in cluster.incidents:
                self._look_at_incident(cluster.incidents[name])
        if isinstance(event, JobRestarted):
            self._check_restart(cluster.jobs[event.job])

    def _look_at_incident(self, incident: Incident) -> None:
        before = self._incidents.get(incident.id)
        self._incidents[incident.id] = incident.state
        self.takes.look_at_incident(incident)
        if before is not incident.state:
            self.scene.log(f"  {incident.id} is {incident.state}: {incident.headline}")
        for fault in incident.faults:
            if fault.job is None and fault.evidence and fault.evidence[0].source == "sim":
                text = fault.evidence[0].text
                told = self._told.setdefault(text, incident.id)
                assert told == incident.id, f"{text} is in {told} and in {incident.id}"
        texts = [one.evidence[0].text for one in incident.faults if one.evidence]
        twice = [one for one in texts if one in self._told and texts.count(one) > 1]
        assert not twice, f"{incident.id} counts {twice[0]} twice"

    def _look_at_job(self, job: Job) -> None:
        name, before = job.spec.name, self._jobs.get(job.spec.name)
        self._jobs[name] = job
        if before is not None and job.best_step > before.best_step:
            self.restarts[name] = 0
        self._check_excluded(job, before)
        if _is_given_up(job) and not (before and _is_given_up(before)):
            self.spent[name] = self.restarts.get(name, 0)
        anew = before is None or before.generation != job.generation
        if before is not None and before.state is job.state and not anew:
            return
        where = ",".join(holders(job))
        self.scene.log(f"  {name} is {job.state}, generation {job.generation} on [{where}]")
        ended = job.state not in HOLDING or anew
        if before is not None and before.state in HOLDING and ended:
            self._check_over(before)
        self._check_loss(job)
        if anew and job.generation:
            self.restarts[name] = self.restarts.get(name, 0) + 1
            self._check_start(job)

    def _check_excluded(self, job: Job, before: Job | None) -> None:
        """A job has no ranks where people keep it off; a new run is kept off nothing."""
        name, truth = job.spec.name, self.scene.truth
        if before is not None and before.state in ENDED and job.state not in ENDED:
            truth.excluded = {one for one in truth.excluded if one[0] != name}
        kept_off = {node for one, node in truth.excluded if one == name}
        assert set(job.excluded) == kept_off, f"{name} is kept off {job.excluded}, not {kept_off}"
        if job.state in (JobState.STARTING, JobState.RUNNING):
            wrong = kept_off & {member.node for member in job.members}
            assert not wrong, f"{name} is {job.state} on {wrong}, which it is kept off"

    def _check_restart(self, job: Job) -> None:
        """What somebody restarts does not go on."""
        before = self._before[job.spec.name]
        goes_on = job.state in (JobState.STARTING, JobState.RUNNING)
        assert not goes_on or job.generation > before.generation, f"{job.spec.name} goes on"
        spent = job.restarts_without_progress - before.restarts_without_progress
        assert spent <= 0, f"a restart of {job.spec.name} that people asked for counts"

    def _check_start(self, job: Job) -> None:
        """Whoever still trains in an older generation is given up, also when it is heard later."""
        for one in self._alive(job.spec.name):
            if one.generation != job.generation:
                text = f"generation {job.generation} starts while {one.launcher} has"
                assert self._is_excused(one), f"{text} {one.generation}"
                self._excused.add((one.launcher, one.generation))

    def _check_loss(self, job: Job) -> None:
        """No job is stopped for the loss of a node that has just been heard."""
        cluster = self.controller.cluster
        incident = cluster.incidents.get(job.incident or "")
        if incident and incident.fault_class is FaultClass.NODE_LOST and incident.node:
            silent = self.controller.silent_seconds(incident.node)
            decided = incident.phases.decided_at == cluster.now
            assert not decided or silent >= cluster.policy.silence_seconds, (
                f"{incident.id} stops {job.spec.name}; {incident.node} was heard {silent:.1f} s ago"
            )

    def _check_over(self, job: Job) -> None:
        """A generation is over: whoever still trains is given up: silent, and nothing moves.

        Or it has hung up, and its job was stopped by a fault, so that none elsewhere goes on.
        """
        limit = self.controller.cluster.policy.silence_seconds
        memory = self.controller.memory
        moved = max(memory.moved_at.get(job.spec.name, 0.0), memory.since)
        failed = self._had_incident(job)
        for one in self._alive(job.spec.name):
            deserted = failed and self.controller.has_hung_up(one.node)
            if one.generation <= job.generation and not self._is_excused(one) and not deserted:
                silent = self.controller.silent_seconds(one.node)
                idle = self.scene.now - moved
                text = f"generation {job.generation} is over, {one.launcher} has {one.generation}"
                assert silent >= limit, f"{text}, heard {silent:.1f} s ago"
                assert idle >= limit - PROGRESS_SECONDS, f"{text}, which came on {idle:.1f} s ago"
        silent_nodes = [
            node
            for node in self.controller.cluster.nodes
            if self.controller.silent_seconds(node) >= limit
            or (failed and self.controller.has_hung_up(node))
        ]
        self._excuse(silent_nodes, job)

    def _had_incident(self, job: Job) -> bool:
        """Whether it answered one before this event, does so by now, or both began and ended it."""
        if (job.incident or self._jobs[job.spec.name].incident) is not None:
            return True
        cluster = self.controller.cluster
        return any(
            one.job == job.spec.name and one.closed_at == cluster.now
            for one in cluster.incidents.values()
        )

    def _excuse(self, nodes: list[str], job: Job) -> None:
        """Whoever is given up may train on: it commits nothing, and is told when it is heard."""
        for launcher in self._launchers_on(nodes, job):
            self._excused.update((launcher, number) for number in range(job.generation + 1))

    def _launchers_on(self, nodes: list[str], job: Job) -> list[str]:
        found = [
            launcher.launcher
            for name in nodes
            if (launcher := launcher_of(self.controller.cluster.nodes[name], job.spec.name))
        ]
        return found + [one.launcher for one in self._alive(job.spec.name) if one.node in nodes]

    def _look_at_node(self, cluster: Cluster, name: str) -> None:
        node, before = cluster.nodes[name], self._nodes.get(name)
        self._nodes[name] = node
        self.takes.look_at_node(node)
        if before is not None and before.state is not node.state:
            self.scene.log(f"  {name} is {node.state} {node.held_by} {node.reason}")
        state, was = standing(node), standing(before) if before else NodeState.READY
        if state is NodeState.REPAIRING and was is not NodeState.REPAIRING:
            self._check_empty(name)
            self._check_repair(cluster, node)
        if was is NodeState.REPAIRING and state in (NodeState.READY, NodeState.PROBATION):
            sick = [one.name for one in node.devices if one.health is Health.UNHEALTHY]
            assert not sick, f"{name} is back, and {sick} read as unhealthy"
        if state in LEAVING and was not in (*LEAVING, NodeState.REPAIRING):
            if node.held_by == AEGIS:
                self._check_take(cluster, node, before)
            else:
                assert self.scene.truth.holds.get(name) == "drain", f"nobody drained {name}"
        if state is NodeState.QUARANTINED and was is not NodeState.QUARANTINED:
            self._check_empty(name)
            if self.controller.silent_seconds(name) >= cluster.policy.silence_seconds:
                for job in cluster.jobs.values():
                    self._excuse([name], job)
        if state is NodeState.CORDONED:
            assert self.scene.truth.holds.get(name) == "cordon", f"nobody cordoned {name}"

    def _check_repair(self, cluster: Cluster, node: Node) -> None:
        """A node is not reset or rebooted again and again."""
        if returning.is_validating(node):
            return
        newest = node.repairs[-1].order
        alike = [one for one in node.repairs if one.order.verb is newest.verb]
        times = sum(one.order.device == newest.device for one in alike)
        limit = cluster.policy.repairs_max
        assert times <= limit, f"{node.name} is to {newest.verb} for the {times}th time"

    def _check_empty(self, name: str) -> None:
        """A quarantined node holds no rank, unless it was given up."""
        for one in self.scene.truth.ranks.values():
            if one.node == name:
                silent = self.controller.silent_seconds(name)
                limit = self.controller.cluster.policy.silence_seconds
                assert self._is_excused(one) or silent >= limit, (
                    f"{name} is quarantined and holds {one}"
                )

    # What root helpers do

    def begun(self, order: Order, boot_id: str) -> None:
        """An order is carried out: in time, on this boot, by the newest controller, once."""
        name, alive = order.node, self.scene.truth.ranks.values()
        if self.has_forgotten:  # and with it what it has ordered
            return
        given = [one.order for one in self.controller.cluster.nodes[name].repairs]
        told = next((one for one in given if one.id == order.id), None)
        assert told is not None, f"nobody gave order {order.id}"
        assert self.scene.now <= told.expires_at, f"{order.id} is carried out too late"
        assert told.boot_id == boot_id, f"{order.id} was for {told.boot_id}, {name} is {boot_id}"
        newest = self._orders_of.setdefault(name, order.epoch)
        assert order.epoch >= newest, f"{order.id} is of epoch {order.epoch}, {newest} was seen"
        self._orders_of[name] = order.epoch
        assert order.id not in self._begun, f"{order.id} is carried out twice"
        self._begun.add(order.id)
        holders = [one.launcher for one in alive if one.node == name]
        assert not holders, f"{order.id} hits the ranks of {holders}"

    # What Aegis takes

    def _check_take(self, cluster: Cluster, node: Node, before: Node | None) -> None:
        incident = cluster.incidents[node.reason.split(":")[0]]
        self._check_spares(cluster, node.name)
        acted = [one for one in incident.decisions if one.result is DecisionResult.ACTED]
        assert acted, f"{node.name} was taken undecided"
        self.takes.take(node, before, incident, acted[-1])
        self._check_cause(node, incident)

    def _check_spares(self, cluster: Cluster, name: str) -> None:
        """A job that trains is never stopped by a drain that leaves it nowhere to go."""
        job = next((one for one in self._before.values() if name in holders(one)), None)
        floor = max(1, cluster.policy.spare_floor + 1)
        if job is None or job.state is JobState.STOPPING or len(cluster.spares(job)) >= floor:
            return
        launchers = [launcher_of(cluster.nodes[one], job.spec.name) for one in holders(job)]
        now = cluster.jobs[job.spec.name].state
        failed = now in ENDED or any(
            one is not None and one.failure is not None and one.failure.generation == job.generation
            for one in launchers
        )
        decided = any(
            incident.job == job.spec.name
            and (incident.faults[0].job or incident.fault_class in STOPS_FIRST)
            and incident.phases.decided_at == cluster.now
            for incident in cluster.incidents.values()
        )
        assert failed or decided, f"{name} was taken from {job.spec.name}, which has too few spares"

    def _check_cause(self, node: Node, incident: Incident) -> None:
        """Something really is wrong with a node that is taken."""
        truth, name, fault_class = self.scene.truth, node.name, incident.fault_class
        weather, policy = self.scene.weather, self.controller.cluster.policy
        match fault_class:
            case FaultClass.NODE_LOST:
                silent = self.controller.silent_seconds(name)
                assert silent >= policy.silence_seconds, f"{name} was heard {silent:.1f} s ago"
                isolated_at = truth.isolated_at or self.scene.now
                alone = self.scene.now - isolated_at
                slack = 2 * self.scene.setting.temper.tick_seconds
                assert alone < policy.silence_seconds / 2 + slack, (
                    f"{name} was taken while nobody could be heard"
                )
            case FaultClass.NIC_LINK_DOWN:
                lasted = truth.link_down_seconds.get(name, 0.0)
                if name in truth.link_down_at:
                    lasted = max(lasted, self.scene.now - truth.link_down_at[name])
                late = weather.late_seconds if weather.late else 0.0
                # What is late looks longer than it was; so does what is seldom looked at.
                lasted += late + weather.quick_seconds + 5.0 * (weather.loss > 0)
                assert lasted >= policy.hold_down_seconds, f"{name}: a flap of {lasted:.1f} s"
            case _:
                assert fault_class in truth.faults.get(name, set()), f"{name} has no {fault_class}"


def _is_given_up(job: Job) -> bool:
    """Within one event a job may be given up and over at once."""
    return job.giving_up or job.state is JobState.FAILED
