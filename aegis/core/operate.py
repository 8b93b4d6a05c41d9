"""What operators ask for: cordon, uncordon, drain, return, stop."""

from aegis.core.cluster import Cluster
from aegis.model.event import Event


def refusal(cluster: Cluster, event: Event) -> str | None:
    """Why an operator's event is refused; None when it may be logged."""
    return None
