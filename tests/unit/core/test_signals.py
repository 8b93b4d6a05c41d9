"""Slow ranks and losses that are none: people are told, and nobody is taken out."""

from dataclasses import replace

from aegis.model.incident import IncidentState
from aegis.model.job import JobState, RankSignal, SignalKind
from aegis.model.node import NodeState
from aegis.rules import parse

RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: signals
rules:
  - {id: loss, title: T, class: [job.loss.nan, job.loss.spike], remedy: notify}
  - {id: slow, title: T, class: job.straggler, remedy: notify}
"""


def found(fleet, fault_class):
    return [one for one in fleet.cluster.incidents.values() if one.fault_class == fault_class]


def test_a_loss_that_is_no_number_is_told_once_for_all_ranks(fleet) -> None:
    """Named is the rank that had it first; the job's own figure says NaN, not nothing."""
    fleet.rules = parse({"signals.yaml": RULES})
    for node, step in (("n1", 62), ("n2", 61)):
        launcher = fleet.launchers[node]
        signal = RankSignal(
            kind=SignalKind.LOSS_NAN, rank=launcher.ranks[0].rank, step=step, at=fleet.at,
            text="the loss became NaN", before="2.4", after="NaN",
        )  # fmt: skip
        ranks = tuple(replace(one, loss=None, loss_not_finite="NaN") for one in launcher.ranks)
        fleet.launchers[node] = replace(launcher, signals=(signal,), ranks=ranks)
        fleet.say(node)
    fleet.tick(5)
    (incident,) = found(fleet, "job.loss.nan")
    assert (incident.node, incident.device) == ("n2", "rank2")
    assert incident.state is IncidentState.CLOSED
    assert fleet.job.loss_not_finite == "NaN"
    assert fleet.job.state is JobState.RUNNING


def pace(fleet, node, *own_seconds):
    launcher = fleet.launchers[node]
    ranks = tuple(
        replace(rank, own_seconds=own)
        for rank, own in zip(launcher.ranks, own_seconds, strict=True)
    )
    fleet.launchers[node] = replace(launcher, ranks=ranks)
    fleet.say(node)


def test_a_rank_that_stays_slow_is_told_of_and_keeps_its_node(fleet) -> None:
    """Slow for a minute, against the median of all; a slow moment is nobody's business."""
    fleet.rules = parse({"signals.yaml": RULES})
    pace(fleet, "n1", 0.1, 0.1)
    pace(fleet, "n2", 0.1, 0.3)
    fleet.tick(30)
    pace(fleet, "n2", 0.1, 0.1)
    fleet.tick(5)
    pace(fleet, "n2", 0.1, 0.3)
    fleet.tick(50)
    assert not found(fleet, "job.straggler")
    fleet.tick(100)
    (incident,) = found(fleet, "job.straggler")
    assert (incident.node, incident.device) == ("n2", "rank3")
    assert "needs 0.3 s of its own" in incident.faults[0].evidence[0].text
    assert fleet.cluster.nodes["n2"].state is NodeState.READY
