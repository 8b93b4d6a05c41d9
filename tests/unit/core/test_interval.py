"""How often a job should save: figures that can be worked out by hand."""

from dataclasses import replace

import pytest

from aegis.core.forecast import interval
from aegis.model.experience import Experience

DAY = 86400.0
TEN_DAYS_EACH = Experience(node_seconds=100 * DAY, job_failures={"job.worker.exited": 10})


def test_it_is_young_and_daly_s(fleet):
    """Two nodes that fail once in ten days each, a save of half a second, steps of ten."""
    fleet.cluster.experience = TEN_DAYS_EACH
    job = replace(
        fleet.job, checkpoint_stall_seconds=0.5, checkpoint_durable_seconds=30.0, step_seconds=10.0
    )
    nodes = job.spec.nodes
    told = interval(fleet.cluster, job)
    assert told.failure_seconds == pytest.approx(10 * DAY / nodes)
    assert told.advised_seconds == pytest.approx((2 * 0.5 * 10 * DAY / nodes) ** 0.5)
    assert told.advised_steps == round(told.advised_seconds / 10.0)
    assert (told.reason, told.is_bound) == ("", False)


def test_it_is_never_shorter_than_a_save_takes(fleet):
    """The loop would have to wait for the one before."""
    fleet.cluster.experience = TEN_DAYS_EACH
    job = replace(fleet.job, checkpoint_stall_seconds=0.01, checkpoint_durable_seconds=900.0)
    told = interval(fleet.cluster, job)
    assert told.advised_seconds == 900.0
    assert told.advised_steps is None
    assert "takes that long" in told.reason


def test_no_figure_is_made_up(fleet):
    """Neither without a save nor without any time in which a failure could have been seen."""
    assert "has not saved" in interval(fleet.cluster, fleet.job).reason
    job = replace(fleet.job, checkpoint_stall_seconds=0.01, checkpoint_durable_seconds=9.0)
    fleet.cluster.experience = Experience()
    told = interval(fleet.cluster, job)
    assert told.advised_seconds is None
    assert "observed" in told.reason
    assert (told.stall_seconds, told.durable_seconds) == (0.01, 9.0)


def test_few_failures_give_a_bound(fleet):
    """None seen in 100 node-days: they come at most three times in them."""
    fleet.cluster.experience = Experience(node_seconds=100 * DAY)
    job = replace(fleet.job, checkpoint_stall_seconds=0.5, checkpoint_durable_seconds=1.0)
    told = interval(fleet.cluster, job)
    assert told.is_bound
    assert told.failure_seconds == pytest.approx(100 * DAY / 3.0 / job.spec.nodes)
