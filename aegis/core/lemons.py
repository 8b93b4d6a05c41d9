"""Lemons: nodes that fail far more often than the rest of the fleet.

A node is one when Aegis had to take it out so often within the window, by the policy's number, or
when so many times would be very unlikely (see CHANCE) if it failed like the others do.
"""

from bisect import bisect_right
from math import exp

from aegis.core.cluster import Cluster
from aegis.model.node import Node

CHANCE = 0.001  # over the whole fleet
TIMES_MIN = 3


def times_taken(cluster: Cluster, node: Node) -> int:
    """How often Aegis took the node out within the window."""
    since = cluster.now - cluster.policy.lemon_window_seconds
    return len(node.taken_at) - bisect_right(node.taken_at, since)


def find(cluster: Cluster) -> frozenset[str]:
    """The lemons of the fleet."""
    if cluster.policy.lemon_times > 1 and not cluster.index.again:
        return frozenset()
    since = cluster.now - cluster.policy.lemon_window_seconds
    times = {node.name: times_taken(cluster, node) for node in cluster.taken_since(since)}
    total, nodes = sum(times.values()), len(cluster.nodes)
    return frozenset(
        name for name, count in times.items() if _is_lemon(cluster, count, total, nodes)
    )


def _is_lemon(cluster: Cluster, times: int, total: int, nodes: int) -> bool:
    if times >= cluster.policy.lemon_times:
        return True
    if times < TIMES_MIN or nodes < 2:
        return False
    # At least one failure among the others: a fleet that never failed proves nothing by that.
    mean = max(1, total - times) / (nodes - 1)
    return poisson_tail(times, mean) * nodes < CHANCE


def poisson_tail(times: int, mean: float) -> float:
    """P(X >= times) for X Poisson."""
    term, below = exp(-mean), 0.0
    for k in range(times):
        below += term
        term *= mean / (k + 1)
    return max(0.0, 1.0 - below)
