"""How far a rule may go on a node: the policy's mode, an operator's word on the rule, its own cap.

An operator may set a rule's mode, for all nodes or for those of one group; that stands in the place
of the policy's mode. The least of that, of the rule's own `mode` and of the policy's `mode_max`
holds.
"""

from aegis.core.cluster import Cluster
from aegis.model.event import RuleModeSet
from aegis.model.incident import Remedy
from aegis.model.node import Node
from aegis.model.policy import Mode, RuleMode
from aegis.rules import Rule

MODES = list(Mode)  # from least to most
GROUP = "group"  # the label
EVERYWHERE = ""


def granted(cluster: Cluster, rule: Rule, remedy: Remedy, node: Node | None) -> Mode:
    """The mode that holds for this rule, remedy and node."""
    policy = cluster.policy
    mode = policy.job_mode if remedy is Remedy.RESTART else policy.mode
    own = cluster.rule_modes.get(rule.id, {})
    group = dict(node.labels).get(GROUP, EVERYWHERE) if node else EVERYWHERE
    said = own.get(group, own.get(EVERYWHERE))
    mode = said.mode if said else mode
    return min(mode, rule.mode, policy.mode_max, key=MODES.index)


def apply(cluster: Cluster, event: RuleModeSet) -> None:
    """Set it, or take the setting back."""
    own = dict(cluster.rule_modes.get(event.rule, {}))
    own.pop(event.group, None)
    if event.mode is not None:
        own[event.group] = RuleMode(
            mode=event.mode, at=cluster.now, actor=event.actor, reason=event.reason
        )
    cluster.rule_modes.pop(event.rule, None)
    if own:
        cluster.rule_modes[event.rule] = own
