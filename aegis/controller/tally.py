"""Counts of what has happened since this controller started, for its metrics."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from aegis.controller.changes import Name
from aegis.controller.metric_names import PHASE_BUCKETS_SECONDS
from aegis.core.cluster import Cluster
from aegis.core.story import seconds
from aegis.model.incident import Incident, IncidentState


@dataclass(slots=True)
class Histogram:
    """Observations in buckets, as Prometheus wants them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(PHASE_BUCKETS_SECONDS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        place = sum(value > bound for bound in PHASE_BUCKETS_SECONDS)
        self.counts[place] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Each bound with how many were no greater."""
        bounds = [*(str(float(bound)) for bound in PHASE_BUCKETS_SECONDS), "+Inf"]
        return [(bound, float(sum(self.counts[: n + 1]))) for n, bound in enumerate(bounds)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """How much of an incident is counted already."""

    signals: int = 0
    decisions: int = 0
    rejected: int = 0
    closed: bool = False


@dataclass(slots=True)
class Tally:
    """Counters that only grow."""

    signals: Counter[str] = field(default_factory=Counter)
    incidents: Counter[tuple[str, str]] = field(default_factory=Counter)  # class, severity
    decisions: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # rule, mode, result
    verify_failures: Counter[str] = field(default_factory=Counter)  # job
    recoveries: dict[str, Histogram] = field(default_factory=dict)  # phase
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def begin(self, cluster: Cluster) -> None:
        """What is there already was counted by the controller before this one."""
        self._seen = {name: _seen(incident) for name, incident in cluster.incidents.items()}

    def observe(self, cluster: Cluster, touched: Iterable[Name]) -> None:
        """Count what one event brought."""
        for kind, name in touched:
            incident = cluster.incidents.get(name) if kind == "incident" else None
            if incident is not None:
                self._count(incident)
        if len(self._seen) > 2 * len(cluster.incidents) + 100:
            self._seen = {
                name: one for name, one in self._seen.items() if name in cluster.incidents
            }

    def _count(self, incident: Incident) -> None:
        before = self._seen.get(incident.id)
        if before is None:
            before = _Seen()
            self.incidents[incident.fault_class.value, incident.severity.value] += 1
        now = self._seen[incident.id] = _seen(incident)
        self.signals[incident.fault_class.value] += now.signals - before.signals
        for decision in incident.decisions[before.decisions :]:
            self.decisions[decision.rule, decision.mode.value, decision.result.value] += 1
        if now.rejected > before.rejected:
            self.verify_failures[incident.job or ""] += now.rejected - before.rejected
        if now.closed and not before.closed:
            self._recovered(incident)

    def _recovered(self, incident: Incident) -> None:
        if incident.phases.first_step_at is None:
            return
        took = {phase: value for phase, value in seconds(incident).items() if value is not None}
        for phase, value in (took | {"total": sum(took.values())}).items():
            self.recoveries.setdefault(phase, Histogram()).observe(value)


def _seen(incident: Incident) -> _Seen:
    return _Seen(
        signals=1 + incident.suppressed,
        decisions=len(incident.decisions),
        rejected=len(incident.rejected_checkpoints),
        closed=incident.state is IncidentState.CLOSED,
    )
