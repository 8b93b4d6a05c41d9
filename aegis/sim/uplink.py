"""A node's end of its connection: it speaks at each heartbeat and on change, and reconnects."""

from collections.abc import Callable
from dataclasses import dataclass

from aegis.model.node import NodeReport, Sender
from aegis.model.record import replace
from aegis.sim.controller import SimController
from aegis.sim.network import Connection, Network
from aegis.sim.scene import Scene
from aegis.wire import Answer, Report, SpooledFault

CHANGE_SECONDS = 0.05  # changes that come together travel together


@dataclass(slots=True, frozen=True)
class Spooled:
    """What of the spool goes with a report."""

    origin: str = ""
    faults: tuple[SpooledFault, ...] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class Uplink:
    """Speaks for an agent, or for a launcher whose agent is away, until closed."""

    scene: Scene
    network: Network
    controller: SimController
    node: str
    sender: Sender
    job: str
    compose: Callable[[], NodeReport]
    heed: Callable[[Answer], None]
    spooled: Callable[[], Spooled] = Spooled
    connection: Connection | None = None
    is_closed: bool = False
    answered_at: float = 0.0
    _is_urgent: bool = False
    _hangs_until: float = 0.0

    def hang(self, seconds: float) -> None:
        """The process says and hears nothing for so long."""
        self._hangs_until = self.scene.now + seconds

    def open(self) -> None:
        """Begin to try."""
        self._beat()

    def close(self) -> None:
        """The process has ended, or has no more to say."""
        self.is_closed = True
        self._hang_up()

    def _beat(self) -> None:
        if self.is_closed:
            return
        temper = self.scene.setting.temper
        waited = self.scene.now - self.answered_at
        if self.connection and (not self.connection.is_open or waited > temper.ping_seconds):
            self._hang_up()
        if self.connection is None:
            self._connect()
        self.send()
        self.scene.later(temper.heartbeat_seconds * self.scene.dice.uniform(0.9, 1.1), self._beat)

    def _connect(self) -> None:
        if self.controller.is_up and self.network.can_connect(self.node, self.sender):
            self.connection = self.controller.enter(self.node, self.sender, self.job, self._heard)
            self.answered_at = self.scene.now

    def _hang_up(self) -> None:
        if self.connection:
            self.connection.is_open = False
            self.controller.leave(self.connection)
            self.connection = None

    def reset(self) -> None:
        """The connection breaks; what is under way in it may still arrive."""
        self._hang_up()

    def urge(self) -> None:
        """Something has changed: do not wait for the heartbeat."""
        if not self._is_urgent and not self.is_closed:
            self._is_urgent = True
            self.scene.soon(CHANGE_SECONDS, self._send_urgent)

    def _send_urgent(self) -> None:
        self._is_urgent = False
        self.send()

    def send(self) -> None:
        """Send the whole state as it is now."""
        connection = self.connection
        if connection is None or not connection.is_open or self.is_closed or self._hangs():
            return
        connection.sequence += 1
        spooled = self.spooled()
        report = Report(
            sent_at=self.scene.now,
            report=replace(self.compose(), sequence=connection.sequence),
            origin=spooled.origin,
            faults=spooled.faults,
        )
        self.network.up(self.node, self.sender, lambda: self.controller.receive(connection, report))

    def _hangs(self) -> bool:
        return self.scene.now < self._hangs_until

    def _heard(self, answer: Answer) -> None:
        if not self.is_closed and not self._hangs():
            self.answered_at = self.scene.now
            self.heed(answer)
