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


_Line = tuple[str, Sender]  # a node's agent, or its launchers that speak for themselves


@dataclass(slots=True)
class Network:
    """Who cannot be reached, and how messages fare."""

    scene: Scene
    mute: dict[_Line, float] = field(default_factory=dict)  # what it says is lost until then
    deaf: dict[_Line, float] = field(default_factory=dict)  # the same for what it is told

    def cut(
        self, node: str, *, mute: bool, deaf: bool, seconds: float, sender: Sender | None = None
    ) -> None:
        """Separate the node, or one kind of its speakers, from the controller for a while."""
        until = self.scene.now + seconds
        for line in [(node, one) for one in ([sender] if sender else Sender)]:
            if mute:
                self.mute[line] = max(until, self.mute.get(line, 0.0))
            if deaf:
                self.deaf[line] = max(until, self.deaf.get(line, 0.0))

    def heal(self) -> None:
        """All reach each other again."""
        self.mute.clear()
        self.deaf.clear()

    def _is_cut(self, kind: dict[_Line, float], line: _Line) -> bool:
        return self.scene.now < kind.get(line, 0.0)

    def can_connect(self, node: str, sender: Sender) -> bool:
        """A connection needs both ways."""
        line = (node, sender)
        return not self._is_cut(self.mute, line) and not self._is_cut(self.deaf, line)

    def up(self, node: str, sender: Sender, call: Callable[[], None]) -> None:
        """Carry a message from the node to the controller."""
        self._carry(self.mute, (node, sender), call)

    def down(self, node: str, sender: Sender, call: Callable[[], None]) -> None:
        """Carry a message from the controller to the node."""
        self._carry(self.deaf, (node, sender), call)

    def _carry(self, kind: dict[_Line, float], line: _Line, call: Callable[[], None]) -> None:
        dice, weather = self.scene.dice, self.scene.weather
        if self._is_cut(kind, line) or dice.random() < weather.loss:
            return

        def deliver() -> None:
            if not self._is_cut(kind, line):
                call()

        for _ in range(2 if dice.random() < weather.repeat else 1):
            late = dice.random() < weather.late
            most = weather.late_seconds if late else weather.quick_seconds
            self.scene.later(dice.uniform(0.001, most), deliver)
