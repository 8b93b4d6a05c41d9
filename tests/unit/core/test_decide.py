"""Decisions: the first rule that matches, and a record that leaves no question open."""

from dataclasses import replace

from aegis.model.incident import DecisionResult, IncidentState, Remedy
from aegis.model.job import JobSpec, JobState, LauncherPhase
from aegis.model.policy import Unanswered
from aegis.rules import parse


def test_the_first_rule_that_matches_decides(fleet) -> None:
    """Ten errors at once match the rule for many before the one for few."""
    fleet.fault("n1", "gpu.ecc.correctable", count=12)
    assert (fleet.decision.rule, fleet.decision.remedy) == ("many", Remedy.NOTIFY)


def test_a_decision_names_its_rules_by_their_content(fleet) -> None:
    """Months later one can tell by which text it was made."""
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    assert (fleet.decision.rule, fleet.decision.rules_digest) == ("ecc", fleet.rules.digest)


def test_a_decision_says_what_was_not_chosen_and_why(fleet) -> None:
    """The reader need not guess whether a milder way was thought of."""
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    refused = {one.remedy: one.reason for one in fleet.decision.alternatives}
    assert set(refused) == {Remedy.RESTART, Remedy.DRAIN_SAVING}
    assert refused[Remedy.RESTART] == "the ranks would be back on the same device"


def test_what_no_rule_speaks_of_is_told_to_people(fleet) -> None:
    """An unknown kind of fault never takes a node out."""
    actions = fleet.fault("n1", "gpu.xgmi.error")
    assert (fleet.decision.rule, fleet.decision.result) == ("", DecisionResult.NOTHING)
    assert [action.kind for action in actions] == ["incident.opened", "incident.closed"]


def test_counting_disturbs_nobody(fleet) -> None:
    """Correctable errors gather in one incident, without a word to anyone."""
    assert fleet.fault("n1", "gpu.ecc.correctable") == []
    assert fleet.fault("n1", "gpu.ecc.correctable") == []
    assert (len(fleet.cluster.incidents), fleet.incident.suppressed) == (1, 1)
    assert fleet.incident.state is IncidentState.CLOSED


def test_the_same_answer_is_given_once(make_fleet) -> None:
    """A held incident is looked at with every tick, and its record grows only with news."""
    fleet = make_fleet(spare_floor=1)
    fleet.fault("n1", "gpu.ecc.uncorrectable")
    fleet.tick(20)
    assert len(fleet.incident.decisions) == 1


def test_a_node_that_is_out_already_is_not_taken_again(fleet) -> None:
    """A sick node in quarantine may go on complaining."""
    fleet.fault("n3", "gpu.ecc.uncorrectable")
    fleet.fault("n3", "gpu.ecc.uncorrectable", device="gpu5")
    assert (fleet.decision.result, fleet.incident.state) == (
        DecisionResult.NOTHING,
        IncidentState.CLOSED,
    )


def test_what_only_explains_a_fault_opens_no_second_incident(fleet) -> None:
    """The context of a line follows it as a fault that counts none."""
    fleet.fault("n1", "gpu.vm.fault")
    told = fleet.incident
    assert told.state is IncidentState.CLOSED
    fleet.fault("n1", "gpu.vm.fault", count=0)
    assert (fleet.incident.id, fleet.incident.suppressed) == (told.id, 1)


def test_a_fault_is_counted_once_however_often_it_is_delivered(fleet) -> None:
    """Spools deliver at least once; a number that was seen is not new."""
    fleet.fault("n1", "gpu.ecc.correctable")
    fleet.number -= 1
    fleet.fault("n1", "gpu.ecc.correctable")
    assert fleet.incident.suppressed == 0


ASKED = """\
apiVersion: aegis/v1
kind: RuleSet
name: test
rules:
  - {id: rank, title: T, class: job.worker.exited, remedy: restart}
  - {id: boot, title: T, class: node.rebooted, remedy: restart, mode: approve}
"""


def test_a_reboot_restarts_no_ranks_that_were_started_after_it(make_fleet) -> None:
    """While people are asked its launcher's end restarts the job: one reboot, one restart."""
    fleet = make_fleet(approval_seconds=5.0, approval_unanswered=Unanswered.ACT)
    fleet.rules = parse({"test.yaml": ASKED})
    fleet.connect("m1", "m2", spec=JobSpec(name="solo", nodes=1, ranks_per_node=2, spares=1))
    fleet.obey("m1")
    fleet.launchers["m1"] = replace(
        fleet.launchers["m1"], launcher="anew", phase=LauncherPhase.IDLE, ranks=(), store_port=5000
    )
    fleet.say("m1", boot_id="another", session=2)
    solo = fleet.cluster.jobs["solo"]
    assert (solo.state, solo.generation, solo.restarts) == (JobState.STARTING, 2, 1)
    fleet.tick(10)
    assert fleet.cluster.jobs["solo"].restarts == 1
