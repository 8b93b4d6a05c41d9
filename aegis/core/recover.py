"""Moving a job from one generation of ranks to the next."""

from aegis.core.cluster import Cluster
from aegis.model.job import Assignment


def assignments(cluster: Cluster, node: str) -> tuple[Assignment, ...]:
    """The whole answer to a node: one for each job that has a launcher there."""
    return ()
