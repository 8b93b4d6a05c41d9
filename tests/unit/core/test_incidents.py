"""An incident keeps what its decisions rest on, however much else is told of it."""

from aegis.core.incidents import FAULTS_KEPT, cause
from aegis.model.fault import FaultClass
from aegis.model.policy import Mode


def test_a_flood_of_other_signals_does_not_push_out_what_the_incident_is_about(make_fleet) -> None:
    """It began as one thing, is about another, and hears of a hundred more of the first."""
    fleet = make_fleet(mode=Mode.OBSERVE)
    fleet.fault("n1", FaultClass.GPU_ECC_DEFERRED)
    fleet.fault("n1", FaultClass.GPU_ECC_UNCORRECTABLE)
    for _ in range(5 * FAULTS_KEPT):
        fleet.fault("n1", FaultClass.GPU_ECC_DEFERRED)
    assert fleet.incident.fault_class is FaultClass.GPU_ECC_UNCORRECTABLE
    assert (cause(fleet.incident).fault_class, cause(fleet.incident).count) == (
        FaultClass.GPU_ECC_UNCORRECTABLE,
        1,
    )
    fleet.fault("n1", FaultClass.GPU_ECC_UNCORRECTABLE)
    assert fleet.incident.times == 2
    assert fleet.decision.rule == "ecc"


def test_the_first_and_the_newest_signals_are_kept(make_fleet) -> None:
    """What it was opened for, and how it stands now; both within the bound."""
    fleet = make_fleet(mode=Mode.OBSERVE)
    fleet.fault("n1", FaultClass.GPU_ECC_DEFERRED, count=7)
    for count in range(1, 3 * FAULTS_KEPT):
        fleet.fault("n1", FaultClass.GPU_ECC_DEFERRED, count=count)
    counts = [fault.count for fault in fleet.incident.faults]
    assert counts == [7, *range(2 * FAULTS_KEPT + 1, 3 * FAULTS_KEPT)]
