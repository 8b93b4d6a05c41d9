"""Whether Aegis may take a node: reckoned from what people said and from what was taken before.

This does not ask the rails. It keeps its own books, from the events alone and from what the world
knows of itself, and holds each node that is taken against them.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from aegis.core.index import AEGIS, OUT
from aegis.model.event import (
    AutomationPaused,
    AutomationResumed,
    Event,
    IncidentApproved,
    IncidentDenied,
    RuleModeSet,
    WindowEnded,
    WindowSet,
)
from aegis.model.fault import FaultClass
from aegis.model.incident import Decision, DecisionResult, Incident, Remedy
from aegis.model.node import Health, Node, NodeState
from aegis.model.policy import Mode, Policy, Unanswered
from aegis.model.window import WindowKind
from aegis.sim.controller import SimController
from aegis.sim.scene import Scene

DRAINS = (Remedy.DRAIN_NOW, Remedy.DRAIN_SAVING, Remedy.RESET_DOMAIN, Remedy.REBOOT)
MODES = list(Mode)


@dataclass(slots=True)
class Takes:
    """The books of what people said and of what Aegis took."""

    scene: Scene
    controller: SimController
    taken: list[tuple[float, str]] = field(default_factory=list)  # when, which node
    out: set[str] = field(default_factory=set)  # by Aegis, and nobody has returned it
    is_paused: bool = False
    windows: dict[str, WindowSet] = field(default_factory=dict)
    modes: dict[str, Mode] = field(default_factory=dict)  # by rule
    agreed: dict[str, list[tuple[float, str]]] = field(default_factory=dict)  # by incident
    denied: set[str] = field(default_factory=set)  # incidents whose last answer is a no
    asked_at: dict[str, float] = field(default_factory=dict)  # by incident
    down_at: dict[str, float] = field(default_factory=dict)  # links, when the controller heard
    _windows: int = 0

    @property
    def _policy(self) -> Policy:
        return self.controller.cluster.policy

    @property
    def _slack_seconds(self) -> float:
        """Time moves on for the core with each tick; a dead controller sees none."""
        away = self.scene.now - self.controller.memory.since
        tick = 2 * self.scene.setting.temper.tick_seconds
        return tick if away > tick else 1e6

    def hear(self, event: Event) -> None:
        """What people say goes into the books."""
        match event:
            case AutomationPaused():
                self.is_paused = True
            case AutomationResumed():
                self.is_paused = False
            case WindowSet():
                self._windows += 1
                self.windows[f"win-{self._windows:06d}"] = event
            case WindowEnded():
                self.windows.pop(event.window, None)
            case RuleModeSet():
                self.modes.pop(event.rule, None)
                if event.mode is not None:
                    self.modes[event.rule] = event.mode
            case IncidentApproved():
                self.denied.discard(event.incident)
                self.agreed.setdefault(event.incident, []).append((event.at, event.actor))
            case IncidentDenied():
                self.denied.add(event.incident)
                self.agreed.pop(event.incident, None)
            case _:
                pass

    def look_at_incident(self, incident: Incident) -> None:
        """When people were asked; and nothing is begun while automation is paused."""
        if not incident.decisions:
            return
        decision = incident.decisions[-1]
        if decision.result is DecisionResult.NEEDS_APPROVAL:
            self.asked_at.setdefault(incident.id, decision.at)
        acted = decision.result is DecisionResult.ACTED and decision.at == self.scene.now
        assert not (acted and self.is_paused), f"{incident.id} is acted on in a pause"
        if acted and decision.remedy is Remedy.RESTART:
            self._check_mode(incident, decision, self._policy.job_mode)

    def look_at_node(self, node: Node) -> None:
        """Which links are known to be down, and which nodes are back."""
        is_down = any(one.fault_class is FaultClass.NIC_LINK_DOWN for one in node.conditions)
        if is_down and node.state is not NodeState.UNKNOWN:
            self.down_at.setdefault(node.name, self.scene.now)
        else:
            self.down_at.pop(node.name, None)
        state = standing(node)
        if state not in OUT or node.held_by != AEGIS:
            self.out.discard(node.name)

    def take(self, node: Node, before: Node | None, incident: Incident, decision: Decision) -> None:
        """Aegis takes the node: every limit must let it."""
        name, now, policy = node.name, self.scene.now, self._policy
        assert decision.rule, f"{name} was taken without a rule"
        assert decision.remedy in DRAINS, f"{name} was taken by a rule that does not drain"
        assert decision.verdicts, f"{name} was taken and no rail was asked"
        assert not self.is_paused, f"{name} was taken in a pause"
        assert before is None or before.held_by in ("", AEGIS), f"{name} was held by an operator"
        self._check_mode(incident, decision, policy.mode)
        self._check_windows(name, incident)
        self._check_domain(name, incident)
        self._check_breaker(name)
        self._check_upstream(name, incident)
        earlier = [at for at, one in self.taken if one == name]
        assert not earlier or now - earlier[-1] >= policy.cooldown_seconds, f"{name} was cooling"
        self.taken.append((now, name))
        self.out.add(name)
        window = [at for at, _ in self.taken if at > now - policy.nodes_out_window_seconds]
        share = int(policy.nodes_out_fraction * len(self.controller.cluster.nodes))
        assert len(window) <= max(policy.nodes_out_max, share), "the budget is overdrawn"
        self._check_age(node, incident)

    def _check_mode(self, incident: Incident, decision: Decision, mode: Mode) -> None:
        """The policy's mode or what people set for the rule, and never more than the rule's own."""
        rule = next(one for one in self.controller.rules.rules if one.id == decision.rule)
        granted = min(self.modes.get(rule.id, mode), rule.mode, key=MODES.index)
        agreed = granted is Mode.APPROVE and self._is_agreed(incident)
        assert granted is Mode.ENFORCE or agreed, f"{incident.id} was acted on in mode {granted}"

    def _is_agreed(self, incident: Incident) -> bool:
        """Enough people have agreed lately, or nobody objected where that is enough."""
        policy, now, name = self._policy, self.scene.now, incident.id
        if name in self.denied:
            return False
        lasts = policy.approval_seconds + self._slack_seconds
        people = {actor for at, actor in self.agreed.get(name, []) if now - at <= lasts}
        if len(people) >= policy.approvals_needed:
            return True
        asked_at = self.asked_at.get(name, now)
        by_silence = policy.approval_unanswered is Unanswered.ACT
        return by_silence and now >= asked_at + policy.approval_seconds

    def _check_windows(self, name: str, incident: Incident) -> None:
        labels = set(self.scene.setting.labels[name])
        for window, one in self.windows.items():
            covers = (
                one.kind is WindowKind.MAINTENANCE
                and one.starts_at <= self.scene.now < one.ends_at
                and fnmatchcase(name, one.node)
                and fnmatchcase(incident.fault_class, one.fault_class)
                and set(one.labels) <= labels
            )
            assert not covers, f"{name} was taken in its maintenance {window}"

    def _check_domain(self, name: str, incident: Incident) -> None:
        since = self.scene.now - self._policy.nodes_out_window_seconds
        labels = self.scene.setting.labels
        lately = {one for at, one in self.taken if at > since} | self.out
        for label in labels[name]:
            others = [one for one in lately if one != name and label in labels[one]]
            few = len(others) < self._policy.nodes_out_per_domain_max
            assert few or self._is_agreed(incident), (
                f"{name} was taken, and {', '.join(sorted(others))} of {' '.join(label)} before it"
            )

    def _check_breaker(self, name: str) -> None:
        count, policy = len(self.controller.cluster.nodes), self._policy
        limit = max(policy.breaker_nodes_min, int(policy.breaker_fraction * count))
        out = len(self.out - {name})
        assert out < limit, f"{name} was taken, and {out} nodes were out by Aegis"

    def _check_upstream(self, name: str, incident: Incident) -> None:
        """Links that fell together, that the controller heard of together, and that are down still.

        After an outage it hears at once of what fell at different times.
        """
        if incident.fault_class is not FaultClass.NIC_LINK_DOWN or name not in self.down_at:
            return
        together = self._policy.upstream_seconds - self._slack_seconds
        nodes, fell_at = self.controller.cluster.nodes, self.scene.truth.link_down_at
        others = [
            one
            for one, at in self.down_at.items()
            if one != name
            and abs(at - self.down_at[name]) <= together
            and abs(fell_at.get(one, at) - fell_at.get(name, at)) <= together
            and nodes[one].state in (NodeState.READY, NodeState.SUSPECT, NodeState.PROBATION)
        ]
        assert len(others) + 1 < self._policy.upstream_nodes_min, (
            f"{name} was taken for its link, and those of {', '.join(sorted(others))} fell with it"
        )

    def _check_age(self, node: Node, incident: Incident) -> None:
        """What a node is taken for is of this boot, and young or still so."""
        fault, cluster = incident.faults[0], self.controller.cluster
        boots = {one.boot_id for one in incident.faults}
        assert boots & {"", node.boot_id}, f"{node.name} has rebooted since {incident.id}"
        lasts = [one.device for one in node.conditions]
        sick = [one.name for one in node.devices if one.health is Health.UNHEALTHY]
        newest = max(one.observed_at for one in incident.faults)
        limit = self._policy.event_ttl_seconds
        if incident.approval is not None:  # people who are asked are given their time
            limit += self._policy.approval_seconds
        young = cluster.now - newest <= limit
        lost = incident.fault_class is FaultClass.NODE_LOST
        still = fault.device in (*lasts, *sick)
        assert young or lost or still, f"{incident.id} is too old to act on"


def standing(node: Node) -> NodeState:
    """Where the node is, silent or not."""
    return node.state_before_unknown if node.state is NodeState.UNKNOWN else node.state
