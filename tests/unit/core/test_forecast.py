"""What is expected from what was measured: figures that can be worked out by hand."""

from dataclasses import replace
from math import comb

import pytest

from aegis.core import forecast, lemons
from aegis.model import event as ev
from aegis.model.experience import Experience
from aegis.model.incident import IncidentState

ECC = "gpu.ecc.uncorrectable"


def test_the_binomial_quantile_is_the_least_number_that_is_enough():
    """Against the sum written out, and at its ends."""

    def enough(count, chance, k):
        return sum(comb(count, i) * chance**i * (1 - chance) ** (count - i) for i in range(k + 1))

    for count, chance in ((10, 0.1), (128, 0.01), (1000, 0.003)):
        k = forecast.binomial_quantile(count, chance, 0.99)
        assert enough(count, chance, k) >= 0.99
        assert k == 0 or enough(count, chance, k - 1) < 0.99
    assert forecast.binomial_quantile(8, 0.0, 0.99) == 0
    assert forecast.binomial_quantile(8, 1.0, 0.99) == 8
    # 128 nodes that fail once in 100 days each, and are a day away for it.
    assert forecast.binomial_quantile(128, 0.01, 0.99) == 4


def test_nothing_observed_is_nothing_known(fleet):
    """No figure is made up; what is asked for is said."""
    fleet.cluster.experience = Experience()
    said = forecast.spares(fleet.cluster)
    assert (said.needed, said.rate.per_node_day) == (None, None)
    expected = forecast.ettr(fleet.cluster, fleet.job)
    assert expected.expected is None
    assert "has been observed" in expected.reason


def test_few_failures_give_a_bound_and_not_a_rate(fleet):
    """None in 100 node-days: at most 3 in them, with 95 % confidence."""
    fleet.cluster.experience = Experience(node_seconds=100 * 86400.0)
    rate = forecast.spares(fleet.cluster).rate
    assert (rate.per_node_day, rate.is_bound) == (0.03, True)
    failures = {ECC: 6}
    fleet.cluster.experience = Experience(node_seconds=100 * 86400.0, node_failures=failures)
    rate = forecast.spares(fleet.cluster).rate
    assert (rate.per_node_day, rate.is_bound) == (0.06, False)


def test_the_expected_ratio_is_that_of_the_model(fleet):
    """Two nodes, a failure per node and ten days, a restart of 60 s, checkpoints each 600 s."""
    fleet.cluster.experience = Experience(
        node_seconds=100 * 86400.0,
        job_failures={ECC: 10},
        restart_count=2,
        restart_seconds=120.0,
    )
    fleet.cluster.put_job(replace(fleet.job, checkpoint_seconds=600.0))
    said = forecast.ettr(fleet.cluster, fleet.job)
    assert said.expected == pytest.approx(1 - 2 * 0.1 / 86400 * (60 + 300))


def test_the_measured_ratio_counts_standing_still_and_steps_trained_again(fleet):
    """An hour in which a fault cost 10 s of standing still and 5 steps of 2 s each."""
    job = replace(fleet.job, submitted_at=fleet.at - 7200.0, trained_at=fleet.at - 7100.0)
    fleet.cluster.put_job(replace(job, step_seconds=2.0))
    fleet.fault("n1", ECC)
    incident = fleet.incident
    phases = replace(incident.phases, observed_at=fleet.at - 1000.0, first_step_at=fleet.at - 990.0)
    fleet.cluster.put_incident(
        replace(
            incident,
            state=IncidentState.CLOSED,
            closed_at=fleet.at - 990.0,
            phases=phases,
            generation_before=1,
            steps_lost=5,
        )
    )
    said = forecast.ettr(fleet.cluster, fleet.job)
    assert said.window_seconds == forecast.ETTR_WINDOW_SECONDS
    assert said.lost_seconds == pytest.approx(20.0)
    assert said.measured == pytest.approx(1 - 20 / 3600)


def test_what_helped_is_counted_and_said_at_the_next_decision(make_fleet):
    """And taken back when the same device shows the same again within a day."""
    fleet = make_fleet("n3", "n4", nodes_out_max=9, cooldown_seconds=0)
    fleet.fault("n1", ECC)
    fleet.obey("n1", "n2")
    fleet.obey("n2", "n3")
    fleet.train("n2", "n3", step=61, checkpoint=50)
    assert fleet.incident.state is IncidentState.CLOSED
    tried = fleet.cluster.experience.remedies[f"{ECC} drain_now"]
    assert (tried.times, tried.helped) == (1, 1)
    fleet.fault("n2", ECC)
    assert "it helped in 1 of 1 such case here" in fleet.decision.reason
    fleet.apply(ev.NodeReturned(at=fleet.at, node="n1", actor="alice", reason="replaced"))
    assert fleet.cluster.experience.repairs == 1
    fleet.fault("n1", ECC)
    assert fleet.cluster.experience.remedies[f"{ECC} drain_now"].helped == 0


def test_a_node_that_fails_far_more_often_than_the_rest_is_a_lemon(fleet):
    """By the policy's number, or because chance does not explain it; the last choice as a spare."""

    def taken(name, times):
        node = fleet.cluster.nodes[name]
        fleet.cluster.put_node(replace(node, taken_at=(fleet.at,) * times))

    taken("n1", 4)
    assert lemons.find(fleet.cluster) == frozenset()
    taken("n1", 5)
    assert lemons.find(fleet.cluster) == {"n1"}
    for index in range(50):
        fleet.connect(f"m{index:02}")
    taken("n1", 4)
    assert lemons.find(fleet.cluster) == {"n1"}
    for index in range(50):
        taken(f"m{index:02}", 2)
    assert lemons.find(fleet.cluster) == frozenset()
    fleet.cluster.lemons = frozenset({"n3"})
    spares = [node.name for node in fleet.cluster.spares(fleet.job)]
    assert spares[-1] == "n3"


@pytest.mark.parametrize(
    ("times", "mean", "tail"), [(0, 1.0, 1.0), (1, 1.0, 0.632), (3, 0.5, 0.0144)]
)
def test_the_tail_of_poisson(times, mean, tail):
    """From the tables."""
    assert lemons.poisson_tail(times, mean) == pytest.approx(tail, abs=5e-4)
