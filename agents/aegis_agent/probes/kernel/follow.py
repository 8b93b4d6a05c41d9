"""The kernel log as a story: lines of one event joined, resets followed, bursts folded.

- The first line of a fault is told at once. What its neighbours add, and how often it came again,
  follows as an update: a further signal of the same class and device that counts only what is new.
- An update never counts an event twice, and none is lost: the counts of all signals of a class and
  device add up to its events.
- Two clocks come with each line: when it happened and when it is read, both in seconds since boot.
  Resets are measured by the first, bursts by the second.
- All that is remembered has a bound, whatever the log holds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.kernel import context, reset
from aegis_agent.probes.kernel.burst import LINE_LENGTH_MAX, Burst
from aegis_agent.probes.kernel.line import KERNEL, Line
from aegis_agent.probes.kernel.pattern import Finding
from aegis_agent.probes.kernel.reset import SILENCE, SILENCE_SECONDS, Resets
from aegis_agent.probes.kernel.signals import Signal

BURSTS_MAX, THREADS_MAX, TOTALS_MAX = 128, 256, 256
_LEFT_TO_ANOTHER = "another already in progress"  # "Bailing on TDR …": the driver's own word
_TOTAL = " detected in total in "  # amdgpu's count since its load, said again at any time
_APART = ("block", "xid")  # faults of one class and device that are not the same fault


@dataclass(slots=True)
class FollowMemory:
    """All that is remembered from line to line; it outlives the agent."""

    bursts: dict[str, Burst] = field(default_factory=dict)  # by class, severity, device
    threads: dict[str, str] = field(default_factory=dict)  # the newest burst of each thread
    resets: Resets = field(default_factory=Resets)
    totals: dict[str, str] = field(default_factory=dict)  # the last that was said of a block


class Follow:
    """Fed with lines and the time, gives signals."""

    def __init__(
        self, classify: Callable[[str], Finding | None], memory: FollowMemory | None = None
    ) -> None:
        self._classify = classify
        self.memory = memory or FollowMemory()

    def feed(self, line: Line, *, happened: float, now: float) -> list[Signal]:
        """Take one record: what it tells at once."""
        if line.program != KERNEL:
            return []
        text = line.text
        if "\n" not in text:
            return self._feed_text(text, line.device, happened, now)
        return [
            signal
            for part in text.split("\n")
            for signal in self._feed_text(part, line.device, happened, now)
        ]

    def missed(self) -> None:
        """Lines were lost: what they said is not known."""
        self.memory.resets.excuse()

    def tick(self, now: float) -> list[Signal]:
        """Time passed: updates of what became quiet, resets that were not heard of again."""
        signals: list[Signal] = []
        for key, burst in list(self.memory.bursts.items()):
            if burst.untold_since is not None and now >= burst.due():
                signals += burst.update()
            if burst.is_over(now):
                self._forget(key)
        signals += [_never_ended(*one) for one in self.memory.resets.overdue(now)]
        return signals

    def finish(self) -> list[Signal]:
        """Every update that waits, now."""
        signals = [signal for burst in self.memory.bursts.values() for signal in burst.update()]
        self.memory.bursts.clear()
        self.memory.threads.clear()
        return signals

    def due(self) -> float | None:
        """When `tick` has something to do; None: only after another line."""
        times = [burst.due() for burst in self.memory.bursts.values()]
        reset_due = self.memory.resets.due()
        if reset_due is not None:
            times.append(reset_due)
        return min(times, default=None)

    def resetting(self) -> dict[str, float]:
        """GPUs whose reset is under way, by address, and since when, seconds since boot."""
        return {device: one.begun for device, one in self.memory.resets.under_way.items()}

    def _feed_text(self, text: str, device: str, happened: float, now: float) -> list[Signal]:
        finding = self._classify(text)
        if finding is not None and not self._is_old_total(finding, text, device):
            return list(self._found(finding, text, finding.device or device, happened, now))
        if self.memory.resets.under_way and _LEFT_TO_ANOTHER in text:
            self.memory.resets.excuse(context.thread(text))
        if self.memory.bursts:
            self._explain(text, now)
        return []

    def _is_old_total(self, finding: Finding, text: str, device: str) -> bool:
        """A total that was said before is no new error, however often it is said."""
        told = finding.details
        if _TOTAL not in text or "count" not in told:
            return False
        parts = (told.get(name, "") for name in ("socket", "die", "block", "kind"))
        key = "\t".join((finding.fault_class.value, finding.device or device, *parts))
        before = self.memory.totals.pop(key, None)
        self.memory.totals[key] = told["count"]
        while len(self.memory.totals) > TOTALS_MAX:
            del self.memory.totals[next(iter(self.memory.totals))]
        return before == told["count"]

    def _explain(self, text: str, now: float) -> None:
        burst = self.memory.bursts.get(self.memory.threads.get(context.thread(text), ""))
        if burst is not None:
            burst.explain(text, now)

    def _found(
        self, finding: Finding, text: str, device: str, happened: float, now: float
    ) -> Iterator[Signal]:
        details = dict(finding.details)
        if finding.fault_class in reset.CLASSES:
            took = self.memory.resets.take(
                finding.fault_class, device, happened, text[:LINE_LENGTH_MAX]
            )
            if took is not None:
                details["seconds"] = f"{took:.1f}"
        key = _key(finding, device)
        burst = self.memory.bursts.get(key)
        if burst is not None and burst.is_over(now):
            burst = None
        if burst is not None:
            burst.add(text, happened, now)
            context.merge(burst.details, details)
        else:
            yield from self._make_room(key)
            burst = Burst(
                fault_class=finding.fault_class,
                severity=finding.severity,
                device=device,
                beside=context.thread(text),
                first=happened,
                last=happened,
                heard=now,
                details=details,
            )
            burst.add(text, happened, now)
            self.memory.bursts[key] = burst
            yield burst.edge(text)
        self._thread(key, context.thread(text), device)

    def _thread(self, key: str, *names: str) -> None:
        for name in names:
            if name:
                self.memory.threads.pop(name, None)
                self.memory.threads[name] = key
        while len(self.memory.threads) > THREADS_MAX:
            del self.memory.threads[next(iter(self.memory.threads))]

    def _make_room(self, key: str) -> Iterator[Signal]:
        if key in self.memory.bursts or len(self.memory.bursts) < BURSTS_MAX:
            self._forget(key)
            return
        oldest = min(self.memory.bursts, key=lambda one: self.memory.bursts[one].heard)
        yield from self.memory.bursts[oldest].update()
        self._forget(oldest)

    def _forget(self, key: str) -> None:
        if self.memory.bursts.pop(key, None) is not None:
            stale = [name for name, burst in self.memory.threads.items() if burst == key]
            for name in stale:
                del self.memory.threads[name]


def _key(finding: Finding, device: str) -> str:
    apart = [finding.details[name] for name in _APART if name in finding.details]
    return "\t".join((finding.fault_class.value, finding.severity.value, device, *apart))


def _never_ended(device: str, silent: reset.Reset) -> Signal:
    sentence = (
        f"the reset has not ended within {SILENCE_SECONDS:.0f} s of its last sign of life and is "
        "taken as failed"
    )
    return Signal(
        fault_class=FaultClass.GPU_RESET_FAILED,
        severity=Severity.FATAL,
        device=device,
        happened=silent.heard + SILENCE_SECONDS,
        details={"ended": SILENCE},
        evidence=(sentence, silent.text),
    )
