"""The controller's one decision function: an event in, actions out.

Nothing here reads a clock, a file or a socket, so the same events always give the same actions.
The controller drives it with real events, `aegis.sim` with invented ones.
"""

from aegis.core.cluster import Cluster
from aegis.model.action import Action
from aegis.model.event import Event, NodeReported
from aegis.model.node import Node
from aegis.rules import RuleSet


def step(cluster: Cluster, rules: RuleSet, event: Event) -> list[Action]:
    """Apply one event to the cluster and return what to do about it."""
    cluster.now = max(cluster.now, event.at)
    if isinstance(event, NodeReported):
        cluster.put_node(Node(name=event.report.node, launchers=event.report.launchers))
    return []
