"""A job whose progress is read from its lines: the node that prints them speaks for all."""

from dataclasses import replace

from aegis.model.incident import IncidentState
from aegis.model.job import JobSpec


def start(make_fleet, **spec):
    """Another job, on two nodes of its own."""
    fleet = make_fleet()
    other = JobSpec(name="other", nodes=2, ranks_per_node=2, **spec)
    fleet.connect("m1", "m2", spec=other)
    fleet.obey("m1", "m2")
    return fleet


def test_one_nodes_lines_are_the_jobs_steps(make_fleet) -> None:
    """Megatron prints on its last rank alone; without a pattern every node has to speak."""
    fleet = start(make_fleet, log_pattern="megatron")
    fleet.train("m2", step=70, checkpoint=50)
    fleet.tick()
    assert fleet.cluster.jobs["other"].step == 70
    fleet = start(make_fleet)
    fleet.train("m2", step=70, checkpoint=50)
    fleet.tick()
    assert fleet.cluster.jobs["other"].step == 0


def test_a_recovery_ends_with_the_first_line(make_fleet) -> None:
    """A new step on the node that prints closes the incident, and it counts as progress."""
    fleet = start(make_fleet, log_pattern="megatron")
    fleet.train("m2", step=70)
    fleet.tick()
    fleet.die("m1", rank=0)
    fleet.obey("m1", "m2")
    fleet.launchers["m1"] = replace(fleet.launchers["m1"], failure=None)
    fleet.obey("m1", "m2")
    fleet.obey("m1", "m2")
    assert fleet.cluster.jobs["other"].restarts_without_progress == 1
    fleet.train("m2", step=80)
    fleet.tick()
    assert fleet.incident.state is IncidentState.CLOSED
    assert fleet.incident.phases.first_step_at is not None
    assert fleet.cluster.jobs["other"].restarts_without_progress == 0
