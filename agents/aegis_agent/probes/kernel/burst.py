"""The same fault again and again: told once at once, then how often, when it has become quiet.

One event has often several lines of one class, each in its own words; a burst has the same words
many times. So the number of events is how often the most frequent wording came, numbers aside.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.kernel import context, reset
from aegis_agent.probes.kernel.aca import AcaRecords
from aegis_agent.probes.kernel.signals import Signal

# An update waits for a pause, and no longer than its window. Both double with each update, so that
# what goes on for hours is told once a minute.
WINDOW_SECONDS_MIN, WINDOW_SECONDS_MAX = 5.0, 60.0
PAUSES_PER_WINDOW = 5
# After a longer pause it is a new fault, told at once. What an act may follow is new soon; what is
# only counted is not told again each second.
FORGET_SECONDS, FORGET_SECONDS_COUNTED = 1.0, 10.0
CONTEXT_SECONDS, CONTEXT_LINES_MAX = 1.0, 12
LINE_LENGTH_MAX = 400
_WORDINGS_MAX = 16
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_COUNTED = (Severity.INFO, Severity.WARNING)


@dataclass(slots=True, kw_only=True)
class Burst:
    """One class, severity and device, from its first line until it has been quiet."""

    fault_class: FaultClass
    severity: Severity
    device: str
    beside: str = ""  # the address that its lines begin with
    first: float  # when it happened, seconds since boot
    last: float  # the same of its newest line
    heard: float  # when that line was read
    details: dict[str, str] = field(default_factory=dict)
    newest: str = ""
    wordings: dict[str, int] = field(default_factory=dict)
    told: int = 1  # events
    untold_since: float | None = None  # read since the last word of it
    window: float = WINDOW_SECONDS_MIN
    context: list[str] = field(default_factory=list)
    records: AcaRecords = field(default_factory=AcaRecords)

    @property
    def events(self) -> int:
        """How many there were."""
        return max(self.wordings.values(), default=1)

    def add(self, text: str, happened: float, now: float) -> None:
        """One more line of it."""
        register = self.records.take(text)
        wording = register or _NUMBERS.sub("#", text[:LINE_LENGTH_MAX])
        if wording not in self.wordings and len(self.wordings) >= _WORDINGS_MAX:
            wording = "other"
        again = bool(self.wordings)
        self.wordings[wording] = self.wordings.get(wording, 0) + 1
        self.newest = text[:LINE_LENGTH_MAX]
        self.last, self.heard = max(self.last, happened), now
        if (again or register) and self.untold_since is None:
            self.untold_since = now

    def explain(self, text: str, now: float) -> None:
        """A line of its context."""
        if now - self.heard > CONTEXT_SECONDS or len(self.context) >= CONTEXT_LINES_MAX:
            return
        self.context.append(text[:LINE_LENGTH_MAX])
        told = context.details(text)
        if told:
            context.merge(self.details, told)
            if self.untold_since is None:
                self.untold_since = now

    def due(self) -> float:
        """When the next update is to be given, or the whole be forgotten."""
        if self.untold_since is None:
            return self.heard + self._forget_seconds()
        pause = self.window / PAUSES_PER_WINDOW
        return min(self.heard + pause, self.untold_since + self.window)

    def is_over(self, now: float) -> bool:
        """Whether the next such line is a new fault."""
        return self.untold_since is None and now >= self.heard + self._forget_seconds()

    def edge(self, text: str) -> Signal:
        """The first line of it."""
        return self._signal(1, self.details, (text[:LINE_LENGTH_MAX],))

    def update(self) -> Iterator[Signal]:
        """What is known beyond what was told before; one for each hardware error record."""
        events, more = self.events, self.events - self.told
        summary: list[str] = []
        if more:
            lasted = max(0.0, self.last - self.first)
            summary = [f"×{events} within {lasted:.1f} s, most recently: {self.newest}"]
        for details, sentences in self.records.decoded():
            merged = {**self.details, **details}
            yield self._signal(more, merged, (*sentences, *summary, *self.context))
            more, summary, self.context = 0, [], []
        if summary or self.context:
            yield self._signal(more, self.details, (*summary, *self.context))
        self.told, self.untold_since = events, None
        self.window = min(2 * self.window, WINDOW_SECONDS_MAX)
        self.context, self.records = [], AcaRecords()

    def _signal(self, count: int, details: dict[str, str], evidence: tuple[str, ...]) -> Signal:
        return Signal(
            fault_class=self.fault_class,
            severity=self.severity,
            device=self.device,
            beside=self.beside,
            happened=self.first if count else self.last,
            count=count,
            details=dict(details),
            evidence=evidence,
        )

    def _forget_seconds(self) -> float:
        steps = self.fault_class in reset.CLASSES  # each is a step of something greater
        counted = self.severity in _COUNTED and not steps
        return FORGET_SECONDS_COUNTED if counted else FORGET_SECONDS
