"""The network between nodes and controller: it delays, repeats, reorders and loses.

Each connection has its number, its session, which the controller draws. Messages of a connection
that was given up may still arrive as long as the same controller lives.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from aegis.model.node import Sender
from aegis.sim.scene import Scene
from aegis.wire import Answer


@dataclass(slots=True, eq=False)
class Connection:
    """One connection of an agent, or of a launcher whose agent is away."""

    node: str
    sender: Sender
    job: str
    session: int
    epoch: int
    heed: Callable[[Answer], None]  # at the node's end
    is_open: bool = True  # at the node's end
    sequence: int = 0


@dataclass(slots=True)
class Network:
    """Who cannot be reached, and how messages fare."""

    scene: Scene
    mute: dict[str, float] = field(default_factory=dict)  # what the node says is lost until then
    deaf: dict[str, float] = field(default_factory=dict)  # the same for what it is told

    def cut(self, node: str, *, mute: bool, deaf: bool, seconds: float) -> None:
        """Separate the node from the controller for a while."""
        until = self.scene.now + seconds
        if mute:
            self.mute[node] = max(until, self.mute.get(node, 0.0))
        if deaf:
            self.deaf[node] = max(until, self.deaf.get(node, 0.0))

    def heal(self) -> None:
        """All reach each other again."""
        self.mute.clear()
        self.deaf.clear()

    def _is_cut(self, kind: dict[str, float], node: str) -> bool:
        return self.scene.now < kind.get(node, 0.0)

    def can_connect(self, node: str) -> bool:
        """A connection needs both ways."""
        return not self._is_cut(self.mute, node) and not self._is_cut(self.deaf, node)

    def up(self, node: str, call: Callable[[], None]) -> None:
        """Carry a message from the node to the controller."""
        self._carry(self.mute, node, call)

    def down(self, node: str, call: Callable[[], None]) -> None:
        """Carry a message from the controller to the node."""
        self._carry(self.deaf, node, call)

    def _carry(self, kind: dict[str, float], node: str, call: Callable[[], None]) -> None:
        dice, weather = self.scene.dice, self.scene.weather
        if self._is_cut(kind, node) or dice.random() < weather.loss:
            return

        def deliver() -> None:
            if not self._is_cut(kind, node):
                call()

        for _ in range(2 if dice.random() < weather.repeat else 1):
            late = dice.random() < weather.late
            most = weather.late_seconds if late else weather.quick_seconds
            self.scene.later(dice.uniform(0.001, most), deliver)
