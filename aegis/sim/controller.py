"""The controller as the fleet meets it: the real core, a log that outlives it, and its mortality.

What it does is what `aegis.controller.loop` does: whatever is stepped is logged first, reports that
say nothing new become names in the next Tick, faults are acknowledged once they are in the log, and
after a restart the state is the newest snapshot and the events after it. The log is JSON, so each
restart also proves that nothing gets lost between the words and the wire.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from aegis.core import returning
from aegis.core.cluster import Cluster
from aegis.core.invariants import check
from aegis.core.operate import refusal
from aegis.core.recover import assignments
from aegis.core.repair import orders
from aegis.core.step import step
from aegis.model.action import Action, Assign, Notify
from aegis.model.event import (
    ControllerStarted,
    Event,
    FaultObserved,
    NodeHungUp,
    NodeReported,
    PolicyChanged,
    RulesLoaded,
    Tick,
)
from aegis.model.job import LauncherState
from aegis.model.node import NodeReport, Sender
from aegis.model.record import replace
from aegis.rules import RuleSet
from aegis.sim.network import Connection, Network
from aegis.sim.rules import rule_set
from aegis.sim.scene import Scene
from aegis.wire import Answer, Report, decode, encode

SESSIONS_PER_EPOCH = 1_000_000
REFRESH_SECONDS = 15.0
SMALL_FLEET = 16  # nodes; of larger ones the whole state is checked at intervals
CHECK_EVENTS = 500
REPEATED = 0.1  # of the faults that are known: the core must not rely on others to drop them

_CLUSTER = TypeAdapter(Cluster)
_Key = tuple[str, Sender, str]


@dataclass(slots=True)
class Memory:
    """What one life of the controller knows beside its state; gone when it dies."""

    since: float
    known: dict[_Key, tuple[NodeReport, float]] = field(default_factory=dict)
    places: dict[_Key, tuple[int, int]] = field(default_factory=dict)
    seen: dict[Sender, set[str]] = field(default_factory=lambda: {one: set() for one in Sender})
    heard_at: dict[str, float] = field(default_factory=dict)
    hung_up_at: dict[str, tuple[float, int]] = field(default_factory=dict)
    moved_at: dict[str, float] = field(default_factory=dict)
    streams: dict[_Key, Connection] = field(default_factory=dict)
    sessions: int = 0


@dataclass(slots=True)
class SimController:
    """One controller at a time over one log."""

    scene: Scene
    network: Network
    cluster: Cluster = field(default_factory=Cluster)
    rules: RuleSet = field(default_factory=RuleSet)
    is_up: bool = False
    life: int = 0
    epoch: int = 0
    dies_at_next_event: bool = False
    log: list[str] = field(default_factory=list)  # on disk
    snapshot: tuple[int, bytes] = (0, b"")  # on disk: the number of events, and the state
    logged: set[tuple[str, int]] = field(default_factory=set)  # faults, by spool and number
    furthest: dict[str, tuple[int, int]] = field(default_factory=dict)  # by launcher
    notices: list[Notify] = field(default_factory=list)
    stepped: list[Callable[[Event], None]] = field(default_factory=list)  # called after each event
    forgotten: list[Callable[[], None]] = field(default_factory=list)  # called when the log is lost
    memory: Memory = field(default_factory=lambda: Memory(since=0.0))

    # Life and death

    def start(self) -> None:
        """Come up over the log, as a new epoch."""
        self._revive()
        self.life += 1
        self.epoch += 1
        self.memory = Memory(since=self.scene.now)
        self.is_up = True
        self.scene.log(f"controller is up, epoch {self.epoch}, {len(self.log)} events in its log")
        self.step(ControllerStarted(at=self.scene.now, epoch=self.epoch, version="sim"))
        if not self.cluster.rules_digest:
            rules = rule_set(self.scene.setting.rules_text)
            self.step(RulesLoaded(at=self.scene.now, digest=rules.digest, text=rules.text))
            policy = self.scene.setting.policy
            self.step(PolicyChanged(at=self.scene.now, policy=policy, actor="policy file"))
        self.scene.soon(self.scene.setting.temper.tick_seconds, lambda: self._tick(self.life))

    def _tick(self, life: int) -> None:
        if not self.is_up or life != self.life:
            return
        seen = self.memory.seen
        if self.cluster.nodes:
            agents, launchers = (tuple(sorted(seen[one])) for one in Sender)
            self.step(Tick(at=self.scene.now, agents_seen=agents, launchers_seen=launchers))
        for names in seen.values():
            names.clear()
        self.scene.later(self.scene.setting.temper.tick_seconds, lambda: self._tick(life))

    def die(self) -> None:
        """End at once. Connections break; what was not logged is forgotten."""
        self.is_up = False
        for connection in self.memory.streams.values():
            connection.is_open = False
        self.scene.log("controller dies")

    def lose_log(self) -> None:
        """Its disk is gone: the next controller knows nothing, save that it is a later one."""
        self.die()
        self.log.clear()
        self.snapshot = (0, b"")
        self.cluster, self.rules = Cluster(), RuleSet()
        for call in self.forgotten:
            call()
        self.scene.log("the event log is lost")

    def _revive(self) -> None:
        """Build the state from what is on disk; it must be the one that was in memory."""
        number, body = self.snapshot
        cluster, rules = Cluster(), RuleSet()
        if body:
            cluster, rules = _CLUSTER.validate_json(body), self.rules
        for line in self.log[number:]:
            event = decode(line)
            if isinstance(event, RulesLoaded):
                rules = rule_set(event.text)
            step(cluster, rules, event)
            cluster.touched.clear()
        check(cluster)
        assert cluster == self.cluster, "the log does not give the state back"
        assert rules == self.rules, "the log does not give the rules back"
        self.cluster = cluster

    # Events

    def step(self, event: Event) -> bool:
        """Log the event, step it, carry out what it asks. False: died on the way."""
        self.log.append(encode(event))
        if isinstance(event, FaultObserved):
            self.logged.add((event.origin, event.number))
        if isinstance(event, RulesLoaded):
            self.rules = rule_set(event.text)
        actions = step(self.cluster, self.rules, event)
        small = len(self.cluster.nodes) <= SMALL_FLEET
        if small or len(self.log) % CHECK_EVENTS == 0:
            check(self.cluster)
        for call in self.stepped:
            call(event)
        self.cluster.touched.clear()
        if self.dies_at_next_event:
            self.dies_at_next_event = False
            self.die()
            return False
        self._carry_out(actions)
        if len(self.log) - self.snapshot[0] >= self.scene.setting.temper.snapshot_events:
            self.snapshot = len(self.log), _CLUSTER.dump_json(self.cluster)
        return True

    def _carry_out(self, actions: list[Action]) -> None:
        self.notices += [one for one in actions if isinstance(one, Notify)]
        told = {one.node for one in actions if isinstance(one, Assign)}
        for connection in list(self.memory.streams.values()):
            if connection.node in told:
                self._answer(connection, "", 0)

    def command(self, event: Event) -> str | None:
        """What an operator asks for; returns why it is refused."""
        if not self.is_up:
            return "the controller is down"
        reason = refusal(self.cluster, event)
        if reason is None:
            self.step(event)
        return reason

    # Connections

    def enter(
        self, node: str, sender: Sender, job: str, heed: Callable[[Answer], None]
    ) -> Connection:
        """A new connection; it takes the place of the one before."""
        self.memory.sessions += 1
        session = self.epoch * SESSIONS_PER_EPOCH + self.memory.sessions
        connection = Connection(node, sender, job, session, self.epoch, heed)
        self.memory.streams[node, sender, job] = connection
        return connection

    def leave(self, connection: Connection) -> None:
        """The node's end has closed it; that travels like a word of it, or is never noticed."""
        key = (connection.node, connection.sender, connection.job)
        if self.memory.streams.get(key) is connection:
            del self.memory.streams[key]
            self.network.up(connection.node, connection.sender, lambda: self._hang_up(connection))

    def _hang_up(self, connection: Connection) -> None:
        name, same = connection.node, connection.epoch == self.epoch
        if self.is_up and same and all(node != name for node, _, _ in self.memory.streams):
            self.memory.hung_up_at[name] = self.scene.now, connection.session
            self.step(NodeHungUp(at=self.scene.now, node=name, session=connection.session))

    def receive(self, connection: Connection, report: Report) -> None:
        """Take a report that came through the network, and answer it."""
        if not self.is_up or connection.epoch != self.epoch:
            return
        stamped = replace(report.report, session=connection.session)
        self._note(connection, stamped)
        if not self._take(connection, stamped):
            return
        for one in report.faults:
            stored = one.number <= self.cluster.origins.get(report.origin, 0)
            if not stored or self.scene.dice.random() < REPEATED:
                event = FaultObserved(
                    at=self.scene.now, origin=report.origin, number=one.number, fault=one.fault
                )
                if not self.step(event):
                    return
        self._answer(connection, report.origin, stamped.sequence)

    def _take(self, connection: Connection, report: NodeReport) -> bool:
        key = (connection.node, connection.sender, connection.job)
        known, plain = self.memory.known.get(key), replace(report, sequence=0)
        if known and known[0] == plain and self.scene.now - known[1] < REFRESH_SECONDS:
            if self.memory.places[key] == (report.session, report.sequence):
                self.memory.seen[connection.sender].add(connection.node)
            return True
        self.memory.known[key] = plain, self.scene.now
        return self.step(NodeReported(at=self.scene.now, report=report))

    def _note(self, connection: Connection, report: NodeReport) -> None:
        """When the node was last heard and its jobs last came on, by another reckoning."""
        key = (connection.node, connection.sender, connection.job)
        place = (report.session, report.sequence)
        if place <= self.memory.places.get(key, (0, 0)):
            return
        self.memory.places[key] = place
        self.memory.heard_at[connection.node] = self.scene.now
        _at, session = self.memory.hung_up_at.get(connection.node, (0.0, 0))
        if session < connection.session:
            self.memory.hung_up_at.pop(connection.node, None)
        for launcher in report.launchers:
            self._note_progress(launcher)

    def _note_progress(self, launcher: LauncherState) -> None:
        """Steps of the job's generation, or of one to come; of one before they are nothing new."""
        step_number = max((rank.step for rank in launcher.ranks), default=0)
        now, job = (launcher.generation, step_number), self.cluster.jobs.get(launcher.spec.name)
        if step_number and now > self.furthest.get(launcher.launcher, (0, 0)):
            self.furthest[launcher.launcher] = now
            if job is None or launcher.generation >= job.generation:
                self.memory.moved_at[launcher.spec.name] = self.scene.now

    def silent_seconds(self, node: str) -> float:
        """How long this controller has not heard of the node."""
        return self.scene.now - max(self.memory.heard_at.get(node, 0.0), self.memory.since)

    def has_hung_up(self, node: str) -> bool:
        """Whether its last connection was closed so long ago that it need not be waited for."""
        at, _session = self.memory.hung_up_at.get(node, (self.scene.now, 0))
        return self.scene.now - at >= self.cluster.policy.hung_up_seconds

    def _answer(self, connection: Connection, origin: str, sequence: int) -> None:
        answer = Answer(
            epoch=self.epoch,
            sent_at=self.scene.now,
            sequence=sequence,
            stored=self.cluster.origins.get(origin, 0),
            assignments=assignments(self.cluster, connection.node),
            orders=orders(self.cluster, connection.node),
            validations=returning.orders(self.cluster, connection.node),
        )

        def deliver() -> None:
            if connection.is_open:
                connection.heed(answer)

        self.network.down(connection.node, connection.sender, deliver)
