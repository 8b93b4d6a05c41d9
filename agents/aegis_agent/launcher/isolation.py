"""Whether a launcher is cut off, so that its ranks must end. Pure.

Losing the controller never stops training. Only when nobody answers *and* nothing moves may the
job have been started elsewhere, and ranks that came back to life would harm it. What moves is a
step, or, for a script that reports none, a line of output.
"""

from dataclasses import dataclass
from enum import Enum, auto

ASK_SECONDS = 10.0  # for the controller to answer when the agent is there but says nothing


class Verdict(Enum):
    """What to do about it."""

    FINE = auto()
    ASK = auto()  # the agent is there: whether the controller is, only the controller can say
    ISOLATED = auto()


@dataclass(slots=True, kw_only=True)
class Isolation:
    """What moved, and since when nothing has."""

    limit_seconds: float
    moved_at: float
    seen: object = None
    asking_since: float | None = None

    def moved(self, seen: object, now: float) -> None:
        """Look at what should move: the newest step and the size of the output."""
        if seen != self.seen:
            self.seen, self.moved_at = seen, now

    def judge(self, now: float, heard_at: float, *, agent_up: bool, can_ask: bool) -> Verdict:
        """Whether anybody is there, given when someone last answered."""
        quiet_since = max(self.moved_at, heard_at)
        if now - quiet_since < self.limit_seconds or (agent_up and not can_ask):
            self.asking_since = None
            return Verdict.FINE
        if not agent_up:
            return Verdict.ISOLATED
        if self.asking_since is None:
            self.asking_since = now
        answered_in_time = now - self.asking_since < ASK_SECONDS
        return Verdict.ASK if answered_in_time else Verdict.ISOLATED
