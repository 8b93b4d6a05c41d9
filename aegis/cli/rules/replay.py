"""Recorded events against changed rules, decision by decision.

The events are replayed by the real core with the rules of then, so the fleet is at every moment as
it really was. Whenever the core asks those for a rule, the changed ones are asked the same. As long
as both name the same, a step by either is the same step. Where they do not, the event is also
stepped on a copy of that moment with the changed rules; what they decide is noted and the copy
thrown away. So the old and the new rules are always asked about the same fleet.

What that cannot know: how things would have gone on after the first act that differs. A rung of a
ladder counts the attempts that were really made, and so do budgets and cooldowns.
"""

import copy
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

from aegis.core.cluster import Cluster
from aegis.core.decide import DRAINS
from aegis.core.index import Index
from aegis.core.step import step
from aegis.model.event import ControllerStarted, Event, FaultObserved, PolicyChanged, RulesLoaded
from aegis.model.fault import Fault
from aegis.model.incident import Decision, DecisionResult, Incident, IncidentState
from aegis.model.policy import Mode
from aegis.rules import Rule, RuleSet, parse_text
from aegis.rules.match import Facts
from aegis.wire import decode

EVENTS_SINCE_MAX = 1000
# A log of another version, or one that does not begin at its beginning, may hold what this one
# cannot step: such an event is counted and passed over.
UNREADABLE = (ValueError, AssertionError, LookupError, AttributeError)
_HEAD = re.compile(rb'\{"number":\d+,')
_RANKS = {
    DecisionResult.NOTHING: 0,
    DecisionResult.BLOCKED: 1,
    DecisionResult.WOULD_ACT: 2,
    DecisionResult.NEEDS_APPROVAL: 3,
    DecisionResult.ACTED: 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one set of rules came to about one incident."""

    rule: str = ""
    remedy: str = "watch"
    result: str = ""
    reason: str = ""

    @property
    def touches(self) -> bool:
        """Whether something would have been done."""
        return self.result == DecisionResult.ACTED

    @property
    def takes_node(self) -> bool:
        """Whether a node would have been taken away."""
        return self.touches and self.remedy in DRAINS


@dataclass(slots=True, kw_only=True)
class Compared:
    """One incident under both sets of rules."""

    at: float
    fault_class: str
    node: str
    device: str
    job: str = ""
    old: Answer = field(default_factory=Answer)
    new: Answer = field(default_factory=Answer)

    @property
    def differs(self) -> bool:
        """Whether anybody would notice."""
        return (self.old.remedy, self.old.result) != (self.new.remedy, self.new.result)


@dataclass(slots=True, kw_only=True)
class Replay:
    """What came of it."""

    events: int = 0
    begins_at: float = 0.0
    ends_at: float = 0.0
    unreadable: int = 0  # events that could not be read or stepped
    is_whole: bool = True  # the log reached back to its beginning
    incidents: dict[str, Compared] = field(default_factory=dict)


def replay(
    lines: Iterable[bytes], changed: RuleSet, *, since: float = 0.0, mode: Mode | None = None
) -> Replay:
    """Replay an exported log. `mode` asks what would be if the policy had that mode."""
    player = _Player(changed, since, mode)
    for line in lines:
        player.take(line)
    return player.replay


@dataclass(frozen=True, kw_only=True)
class _Both(RuleSet):
    """The rules of then; what the changed ones answer otherwise is written down."""

    changed: RuleSet
    apart: list[str] = field(default_factory=list)  # since it was cleared

    def first_match(self, fault: Fault, facts: Facts | None = None) -> Rule | None:
        """The rule of then."""
        old, new = super().first_match(fault, facts), self.changed.first_match(fault, facts)
        self._compare(fault.fault_class, old, new)
        return old

    def find(self, rule_id: str) -> Rule | None:
        """The rule of then."""
        old, new = super().find(rule_id), self.changed.find(rule_id)
        self._compare(rule_id, old, new)
        return old

    def _compare(self, asked: str, old: Rule | None, new: Rule | None) -> None:
        if old != new and (old is None or new is None or _bare(old) != _bare(new)):
            self.apart.append(asked)


def _bare(rule: Rule) -> Rule:
    """The rule, wherever it is written."""
    return replace(rule, file="", line=0, layer=0)


class _Past:
    """The moment before the newest event: a copy from a while ago, and what has come since."""

    def __init__(self) -> None:
        self._copy, self._since = Cluster(), list[tuple[RuleSet, Event]]()

    def add(self, cluster: Cluster, rules: RuleSet, event: Event) -> None:
        """The event is about to be stepped."""
        if len(self._since) >= EVENTS_SINCE_MAX:
            self._copy = _copy(cluster)
            self._since.clear()
        self._since.append((rules, event))

    def before(self) -> Cluster:
        """A copy of what was before the newest event."""
        for rules, event in self._since[:-1]:
            with suppress(*UNREADABLE):
                step(self._copy, rules, event)
            self._copy.touched.clear()
        del self._since[:-1]
        return _copy(self._copy)


class _Player:
    def __init__(self, changed: RuleSet, since: float, mode: Mode | None) -> None:
        self.replay = Replay()
        self._cluster, self._rules, self._changed = Cluster(), RuleSet(), changed
        self._both = _Both(changed=changed)
        self._past = _Past()
        self._incidents: dict[str, Incident] = {}  # before the event
        self._since, self._mode = since, mode

    def take(self, line: bytes) -> None:
        if line.startswith(b'{"aegis_events"'):
            self.replay.is_whole = b'"first_number": 1' in line
            return
        if not line.strip():
            return
        try:
            self._step(decode(_HEAD.sub(b"{", line, count=1)))
        except UNREADABLE:
            self.replay.unreadable += 1
        self._keep()

    def _keep(self) -> None:
        """Remember the incidents as they are now."""
        cluster = self._cluster
        for kind, name in cluster.touched:
            if kind == "incident" and name in cluster.incidents:
                self._incidents[name] = cluster.incidents[name]
        cluster.touched.clear()

    def _step(self, event: Event) -> None:
        found, cluster = self.replay, self._cluster
        found.events += 1
        found.begins_at = found.begins_at or event.at
        found.ends_at = event.at
        if isinstance(event, RulesLoaded):
            self._rules = rules = parse_text(event.text)
            self._both = _Both(
                rules=rules.rules, text=rules.text, digest=rules.digest, changed=self._changed
            )
        was_open = set(cluster.open_incidents)
        self._past.add(cluster, self._rules, event)
        self._both.apart.clear()
        step(cluster, self._both, event)
        touched = {name for kind, name in cluster.touched if kind == "incident"}
        started = isinstance(event, ControllerStarted | RulesLoaded | PolicyChanged)
        # Without an open incident nothing can be decided anew, but by a fault.
        if event.at < self._since or started:
            return
        if touched or was_open or isinstance(event, FaultObserved):
            self._compare(event, touched | was_open)

    def _compare(self, event: Event, names: set[str]) -> None:
        old = new = self._cluster
        if self._mode is not None:
            old, new = self._shadow(self._rules, event), self._shadow(self._changed, event)
        elif self._both.apart:
            new = self._shadow(self._changed, event)
        for name in sorted(names | (new.incidents.keys() - self._incidents.keys())):
            self._note(name, self._incidents.get(name), old, new)

    def _shadow(self, rules: RuleSet, event: Event) -> Cluster:
        cluster = self._past.before()
        cluster.rules_digest = rules.digest
        if self._mode is not None:
            mode = self._mode
            cluster.policy = replace(cluster.policy, mode=mode, mode_max=Mode.ENFORCE)
            cluster.rule_modes = {}
        step(cluster, rules, event)
        return cluster

    def _note(self, name: str, before: Incident | None, old: Cluster, new: Cluster) -> None:
        incident = new.incidents.get(name) or old.incidents.get(name)
        if incident is None:
            return
        one = self.replay.incidents.get(name)
        if one is None:
            if before is not None and before.state is IncidentState.CLOSED:
                return
            one = self.replay.incidents[name] = Compared(
                at=incident.phases.opened_at,
                fault_class=incident.fault_class,
                node=incident.node or "",
                device=incident.device,
            )
        one.fault_class, one.job = incident.fault_class, incident.job or one.job
        seen = len(before.decisions) if before else 0
        one.old = _stronger(one.old, _made(old.incidents.get(name), seen))
        one.new = _stronger(one.new, _made(new.incidents.get(name), seen))


def _made(incident: Incident | None, seen: int) -> Iterator[Decision]:
    yield from incident.decisions[seen:] if incident else ()


def _stronger(answer: Answer, decisions: Iterable[Decision]) -> Answer:
    """The answer that does the most, and of those the last."""
    for one in decisions:
        rank = _RANKS.get(DecisionResult(answer.result), -1) if answer.result else -1
        if _RANKS[one.result] >= rank:
            answer = Answer(rule=one.rule, remedy=one.remedy, result=one.result, reason=one.reason)
    return answer


def _copy(cluster: Cluster) -> Cluster:
    """A copy that can be stepped by itself: what is held is frozen, only the holders are copied."""
    twin = copy.copy(cluster)
    for one in fields(twin):
        value = getattr(twin, one.name)
        if isinstance(value, dict | set | list):
            setattr(twin, one.name, value.copy())
    twin.begin(_copied(cluster.index))
    return twin


def _copied(index: Index) -> Index:
    """Its holders, and those in them, as well."""
    twin = copy.copy(index)
    for one in fields(twin):
        held = getattr(twin, one.name)
        if isinstance(held, dict):
            inner = (dict, set, list)
            held = {key: it.copy() if isinstance(it, inner) else it for key, it in held.items()}
        else:
            held = held.copy()
        setattr(twin, one.name, held)
    return twin
