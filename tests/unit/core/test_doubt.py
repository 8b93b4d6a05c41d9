"""Since when checkpoints are suspect."""

import pytest

from aegis.core import doubt
from aegis.core.cluster import Cluster
from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.incident import Incident, IncidentState, Phases
from aegis.model.job import Job, JobSpec
from aegis.model.node import Device, Health, Node


def read(at, health=Health.HEALTHY):
    return (Device(name="gpu3", kind="gpu", health=health, read_at=at),)


def broken(at, fault_class=FaultClass.GPU_ECC_UNCORRECTABLE):
    fault = Fault(
        fault_class=fault_class,
        severity=Severity.FATAL,
        node="n1",
        device="gpu3",
        observed_at=at,
        evidence=(Evidence(source="test", text="broken"),),
    )
    return Incident(
        id="inc-000001",
        state=IncidentState.OPEN,
        fault_class=fault_class,
        severity=Severity.FATAL,
        node="n1",
        device="gpu3",
        headline="",
        phases=Phases(observed_at=at, opened_at=at),
        faults=(fault,),
    )


@pytest.fixture
def cluster():
    readings = doubt.renewed((), read(10.0))
    readings = doubt.renewed(readings, read(20.0))
    readings = doubt.renewed(readings, read(30.0, Health.UNHEALTHY))
    cluster = Cluster()
    cluster.put_node(Node(name="n1", good_readings=readings))
    cluster.put_job(Job(spec=JobSpec(name="llama", nodes=1, ranks_per_node=1), generation=4))
    return cluster


@pytest.mark.parametrize(("at", "good"), [(25.0, 20.0), (20.0, 10.0), (15.0, 10.0), (5.0, 5.0)])
def test_the_last_good_reading_is_one_before_the_error(cluster, at, good):
    """A reading at the moment of the error, or after it, proves nothing."""
    assert doubt.good_at(cluster, broken(at)) == good


def test_a_job_doubts_what_it_saved_since_then(cluster):
    """In this generation and older ones; a second error in it may only reach further back."""
    doubt.cast(cluster, cluster.jobs["llama"], broken(25.0))
    doubt.cast(cluster, cluster.jobs["llama"], broken(15.0))
    doubt.cast(cluster, cluster.jobs["llama"], broken(25.0))
    job = cluster.jobs["llama"]
    assert (job.suspect_since, job.suspect_generation) == (10.0, 4)


def test_a_link_that_is_down_corrupts_nothing(cluster):
    """Only what may have changed memory casts doubt."""
    doubt.cast(cluster, cluster.jobs["llama"], broken(25.0, FaultClass.NIC_LINK_DOWN))
    assert not cluster.jobs["llama"].suspect_since
