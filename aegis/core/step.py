"""The controller's one decision function: an event in, actions out.

Nothing here reads a clock, a file or a socket, so the same events always give the same actions.
The controller drives it with real events, `aegis.sim` with invented ones.
"""

from typing import assert_never

from aegis.core import (
    correlate,
    jobs,
    modes,
    operate,
    people,
    recover,
    repair,
    returning,
    watch,
    windows,
)
from aegis.core.act import reconsider
from aegis.core.cluster import Cluster
from aegis.core.index import OUT
from aegis.core.invariants import check_touched
from aegis.core.nodes import ease, settle
from aegis.core.report import hang_up, hear
from aegis.model import event as ev
from aegis.model.action import Action, Assign
from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Node, NodeReport, Sender
from aegis.rules import RuleSet


def step(cluster: Cluster, rules: RuleSet, event: ev.Event) -> list[Action]:
    """Apply one event to the cluster and return what to do about it."""
    cluster.now = max(cluster.now, event.at)
    epoch = cluster.epoch
    cluster.ordered.clear()
    _apply(cluster, rules, event)
    check_touched(cluster)
    changed = set(cluster.jobs) if cluster.epoch != epoch else cluster.ordered
    notices, cluster.notices = windows.told(cluster, cluster.notices), []
    return [*_assigns(cluster, changed), *notices]


def _apply(cluster: Cluster, rules: RuleSet, event: ev.Event) -> None:
    match event:
        case ev.ControllerStarted():
            cluster.epoch, cluster.version = event.epoch, event.version
            cluster.hears_since, cluster.silent_since = cluster.now, None
        case ev.RulesLoaded() | ev.PolicyChanged() | ev.RuleModeSet():
            _configure(cluster, event)
        case ev.NodeReported():
            _on_report(cluster, rules, event.report)
        case ev.FaultObserved():
            correlate.receive(cluster, rules, event)
        case ev.Tick():
            watch.tick(cluster, rules, event)
        case ev.NodeHungUp():
            hang_up(cluster, event)
        case (
            ev.NodeCordoned()
            | ev.NodeUncordoned()
            | ev.NodeDrained()
            | ev.NodeReturned()
            | ev.JobStopped()
            | ev.JobRestarted()
            | ev.JobNodeExcluded()
        ):
            operate.apply(cluster, event)
            for name in list(cluster.jobs):
                jobs.attend(cluster, rules, name)
        case _ if isinstance(event, people.Said):
            people.apply(cluster, rules, event)
        case _:
            assert_never(event)


def _configure(cluster: Cluster, event: ev.RulesLoaded | ev.PolicyChanged | ev.RuleModeSet) -> None:
    match event:
        case ev.RulesLoaded():
            cluster.rules_digest = event.digest
        case ev.PolicyChanged():
            cluster.policy = event.policy
        case ev.RuleModeSet():
            modes.apply(cluster, event)


def _assigns(cluster: Cluster, changed: set[str]) -> list[Action]:
    """Tell every launcher of a job whose orders have changed."""
    launched = {name for job in changed for name in cluster.index.launched.get(job, ())}
    return [
        Assign(node=name, assignment=assignment)
        for name in cluster.index.in_order(launched)
        for assignment in recover.assignments(cluster, name)
        if assignment.job in changed
    ]


def _on_report(cluster: Cluster, rules: RuleSet, report: NodeReport) -> None:
    """A node has spoken: keep it, then look at everything that it touches."""
    before = cluster.nodes.get(report.node)
    if before is not None:
        jobs.remember(cluster, before, report)
    if not hear(cluster, report):
        return
    node = cluster.nodes[report.node]
    for launcher in node.launchers:
        jobs.register(cluster, launcher)
        recover.renew(cluster, launcher)
    anew = before is not None and before.boot_id and node.boot_id != before.boot_id
    if before and anew and not repair.is_expected(before):
        correlate.observe(cluster, rules, _rebooted(cluster, before, node))
    if report.sender is Sender.AGENT:
        for condition in report.conditions:
            _on_condition(cluster, rules, node, condition)
    for name in _jobs_of(cluster, before, node):
        jobs.hear_of(cluster, rules, name, node.name)
    for incident in cluster.unresolved_on(node.name):
        reconsider(cluster, rules, incident)
    returning.look(cluster, node.name)
    repair.look(cluster, rules, node.name)
    ease(cluster, node.name)
    settle(cluster, node.name)


def _jobs_of(cluster: Cluster, before: Node | None, after: Node) -> list[str]:
    launchers = (*after.launchers, *(before.launchers if before else ()))
    return sorted({one.spec.name for one in launchers if one.spec.name in cluster.jobs})


def _on_condition(cluster: Cluster, rules: RuleSet, node: Node, condition: Condition) -> None:
    """A level that no incident is about yet: its fault was lost, or comes later."""
    known = any(
        incident.fault_class is condition.fault_class and incident.device == condition.device
        for incident in cluster.unresolved_on(node.name)
    )
    if known or node.state in OUT:
        return
    fault = Fault(
        fault_class=condition.fault_class,
        severity=condition.severity,
        node=node.name,
        device=condition.device,
        observed_at=condition.since,
        boot_id=node.boot_id,
        simulated=condition.simulated,
        evidence=condition.evidence,
    )
    correlate.observe(cluster, rules, fault)


def _rebooted(cluster: Cluster, before: Node, after: Node) -> Fault:
    evidence = Evidence(
        source="boot_id",
        text=f"{after.name} has started anew",
        before=before.boot_id,
        after=after.boot_id,
    )
    return Fault(
        fault_class=FaultClass.NODE_REBOOTED,
        severity=Severity.ERROR,
        node=after.name,
        device="host",
        observed_at=cluster.now,
        boot_id=after.boot_id,
        evidence=(evidence,),
    )
