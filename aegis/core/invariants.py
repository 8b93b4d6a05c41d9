"""What must hold after every event. Checked in production too: wrong is worse than down."""

from aegis.core.cluster import Cluster


def check(cluster: Cluster) -> None:
    """Raise AssertionError naming the first broken promise."""


def check_touched(cluster: Cluster) -> None:
    """The same for what the last event changed."""
