"""Virtual time: a heap of calls, each with its moment."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

BEGINNING = 1000.0  # well above 0.0, which stands for "not yet" in reports


@dataclass(slots=True)
class Clock:
    """Runs calls in the order of their moments; equal moments in the order of their booking."""

    now: float = BEGINNING
    _calls: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _booked: int = 0

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Run the call when so many virtual seconds have passed."""
        self._booked += 1
        heapq.heappush(self._calls, (self.now + seconds, self._booked, call))

    def run(self, until: float) -> None:
        """Let time pass, one call at a time."""
        while self._calls and self._calls[0][0] <= until:
            self.now, _, call = heapq.heappop(self._calls)
            call()
        self.now = until
