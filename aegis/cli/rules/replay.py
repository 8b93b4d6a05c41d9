"""Recorded events against changed rules, decision by decision.

The events are replayed by the real core with the rules of then, so the fleet is at every moment as
it really was. Whenever the core asks those for a rule, the changed ones are asked the same. As long
as both name the same, a step by either is the same step. Where they do not, the event is also
stepped on a copy of that moment with the changed rules; what they decide is noted and the copy
thrown away. So the old and the new rules are always asked about the same fleet.

While an incident is open and nothing happens in it, the changed rules may be asked with each tick,
and for weeks: then they are asked once a minute of the log.

What that cannot know: how things would have gone on after the first act that differs. A rung of a
ladder counts the attempts that were really made, and so do budgets and cooldowns.
"""

import copy
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

from aegis.controller.state import thaw
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
from aegis.wire import decode_logged

EVENTS_SINCE_MAX = 1000
FORGOTTEN_MAX = 1000  # incidents that the core has forgotten
QUIET_SECONDS = 60.0  # between two looks at what the changed rules would do, while nothing happens
# A log of another version, or one that does not begin at its beginning, may hold what this one
# cannot step: such an event is counted and passed over.
UNREADABLE = (ValueError, AssertionError, LookupError, AttributeError)
_STATE = re.compile(rb'\{"aegis_state":(\d+),')
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
    is_whole: bool = True  # how things stood when it began is known
    since: float = 0.0  # what was asked for
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

    def __init__(self, cluster: Cluster) -> None:
        self._copy, self._since = _copy(cluster), list[tuple[RuleSet, Event]]()

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
        self.replay = Replay(since=since)
        self._changed, self._since, self._mode = changed, since, mode
        self._looked_at = 0.0
        self._begin(Cluster(), RuleSet())

    def _begin(self, cluster: Cluster, rules: RuleSet) -> None:
        self._cluster, self._past = cluster, _Past(cluster)
        self._incidents = dict(cluster.incidents)  # before the event
        self._use(rules)

    def _use(self, rules: RuleSet) -> None:
        self._rules = rules
        self._both = _Both(
            rules=rules.rules, text=rules.text, digest=rules.digest, changed=self._changed
        )

    def take(self, line: bytes) -> None:
        if line.startswith(b'{"aegis_events"'):
            self.replay.is_whole = b'"is_whole": true' in line or b'"first_number": 1}' in line
            return
        if not line.strip():
            return
        try:
            if state := _STATE.match(line):
                then = thaw(int(state[1]), b"{" + line[state.end() :])
                self._begin(then.cluster, then.rules)
                return
            self._step(decode_logged(line))
        except UNREADABLE:
            self.replay.unreadable += 1
        self._keep()

    def _keep(self) -> None:
        """Remember the incidents as they are now, and forget those that the core has forgotten."""
        cluster = self._cluster
        for name in _touched(cluster):
            if name in cluster.incidents:
                self._incidents[name] = cluster.incidents[name]
        if len(self._incidents) > len(cluster.incidents) + FORGOTTEN_MAX:
            self._incidents = dict(cluster.incidents)
        cluster.touched.clear()

    def _step(self, event: Event) -> None:
        found, cluster = self.replay, self._cluster
        found.events += 1
        found.begins_at = found.begins_at or event.at
        found.ends_at = event.at
        if isinstance(event, RulesLoaded):
            self._use(parse_text(event.text))
        was_open = bool(cluster.open_incidents)
        self._past.add(cluster, self._rules, event)
        self._both.apart.clear()
        step(cluster, self._both, event)
        started = isinstance(event, ControllerStarted | RulesLoaded | PolicyChanged)
        if event.at < self._since or started:
            return
        touched = _touched(cluster)
        # Without an open incident nothing can be decided anew, but by a fault.
        if touched or isinstance(event, FaultObserved) or (was_open and self._is_due(event.at)):
            self._compare(event, touched)

    def _is_due(self, at: float) -> bool:
        """Whether it is time to look at what is open, though nothing has happened in it."""
        return at - self._looked_at >= QUIET_SECONDS

    def _compare(self, event: Event, touched: set[str]) -> None:
        old = new = self._cluster
        if self._mode is not None:
            old, new = self._shadow(self._rules, event), self._shadow(self._changed, event)
        elif self._both.apart:
            new = self._shadow(self._changed, event)
        if new is not self._cluster:
            self._looked_at = event.at
        for name in sorted(touched | _touched(old) | _touched(new)):
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


def _touched(cluster: Cluster) -> set[str]:
    """The incidents that the event changed."""
    return {name for kind, name in cluster.touched if kind == "incident"}


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
