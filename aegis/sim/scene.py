"""What all parts of a simulated fleet share: time, dice, the setting, the log, the bare truth."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from aegis.model.fault import FaultClass
from aegis.sim.clock import BEGINNING, Clock
from aegis.sim.setting import Setting, Weather


@dataclass(frozen=True, slots=True)
class Alive:
    """Ranks that are alive right now, whatever anyone believes."""

    job: str
    generation: int
    node: str
    launcher: str


@dataclass(slots=True)
class Truth:
    """What really happened, written down by those who did it; promises are held against it."""

    ranks: dict[str, Alive] = field(default_factory=dict)  # by launcher
    faults: dict[str, set[FaultClass]] = field(default_factory=dict)  # by node, ever injected
    reboots: dict[str, int] = field(default_factory=dict)
    link_down_at: dict[str, float] = field(default_factory=dict)  # by node, while it is down
    link_down_seconds: dict[str, float] = field(default_factory=dict)  # the longest, by node
    holds: dict[str, str] = field(default_factory=dict)  # an operator's last act, by node
    stops: set[str] = field(default_factory=set)  # jobs that an operator has stopped
    excluded: set[tuple[str, str]] = field(default_factory=set)  # job and node it is kept off
    isolated_at: float | None = None  # since when the controller reaches nobody


@dataclass(slots=True)
class Scene:
    """Time, dice, setting, log and truth."""

    setting: Setting
    dice: random.Random
    weather: Weather
    clock: Clock = field(default_factory=Clock)
    truth: Truth = field(default_factory=Truth)
    lines: list[str] = field(default_factory=list)
    is_calm: bool = False  # the weather has cleared: from here on all must mend

    @property
    def now(self) -> float:
        """The controller's clock, which is right."""
        return self.clock.now

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Run the call when so many virtual seconds have passed."""
        self.clock.later(seconds, call)

    def soon(self, seconds_max: float, call: Callable[[], None]) -> None:
        """Run the call within these seconds."""
        self.clock.later(self.dice.uniform(0.1 * seconds_max, seconds_max), call)

    def log(self, text: str) -> None:
        """Write a line that a person can follow the run by."""
        self.lines.append(f"{self.now - BEGINNING:8.2f} {text}")
