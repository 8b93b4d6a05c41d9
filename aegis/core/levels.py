"""What is so right now, read from the newest reports: conditions, device health, boot."""

from aegis.core.cluster import Cluster
from aegis.model.fault import Condition, FaultClass
from aegis.model.incident import Incident
from aegis.model.node import Health, Node, NodeState


def condition_of(node: Node, incident: Incident) -> Condition | None:
    """The condition that the incident is about, if the node still reports it."""
    return next(
        (
            one
            for one in node.conditions
            if one.fault_class is incident.fault_class and one.device == incident.device
        ),
        None,
    )


def is_live(cluster: Cluster, incident: Incident) -> bool:
    """Whether what broke is still reported as broken. A silent node is the condition itself."""
    node = cluster.nodes.get(incident.node or "")
    if node is None:
        return False
    if incident.fault_class is FaultClass.NODE_LOST:
        return node.state is NodeState.UNKNOWN
    return condition_of(node, incident) is not None


def is_unhealthy(node: Node, device: str) -> bool:
    """Whether the node's newest reading calls the device unhealthy."""
    return any(one.name == device and one.health is Health.UNHEALTHY for one in node.devices)


def is_fresh(cluster: Cluster, node: Node) -> bool:
    """Whether the agent has spoken lately, and to this controller: older levels are no data."""
    young = cluster.now - node.agent_seen_at <= cluster.policy.fresh_seconds
    return young and node.agent_seen_at >= cluster.hears_since
