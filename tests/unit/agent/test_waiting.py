"""What waits for the controller: merged where nothing is lost by it, dropped only at the last."""

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.node import Suppressed
from aegis_agent.spool.waiting import ALONE_MAX, Waiting

CORRECTABLE = FaultClass.GPU_ECC_CORRECTABLE


def fault(
    kind=CORRECTABLE, severity=Severity.INFO, device="gpu0", *, count=1, text="seen", details=()
):
    return Fault(
        fault_class=kind,
        severity=severity,
        node="n1",
        device=device,
        observed_at=1.0,
        count=count,
        evidence=(Evidence(source="kernel log", text=text),),
        details=details,
    )


def filled(*faults, limit=100):
    waiting = Waiting(faults_max=limit)
    for number, one in enumerate(faults, 1):
        waiting.add(number, one)
        waiting.drop()
    return waiting


def told(waiting):
    return [(one.fault.device, one.fault.count) for one in waiting.pending(100)]


def test_like_faults_that_wait_are_one_with_their_counts_added() -> None:
    """Ten thousand corrected errors are one fault that says ten thousand, first and newest."""
    waiting = filled(*(fault(text=f"number {one}") for one in range(10_000)))
    (spooled,) = waiting.pending(100)
    assert (spooled.number, spooled.fault.count) == (1, 10_000)
    assert [one.text for one in spooled.fault.evidence] == ["number 0", "number 9999"]
    assert waiting.suppressed() == (Suppressed(fault_class=CORRECTABLE, merged=9_999),)


def test_different_things_stay_apart() -> None:
    """Another device, class, severity, or block is another fault."""
    waiting = filled(
        fault(),
        fault(device="gpu1"),
        fault(severity=Severity.WARNING),
        fault(FaultClass.GPU_RAS_RECORD),
        fault(details=(("block", "umc"),)),
        fault(details=(("block", "gfx"), ("address", "0x1"))),
        fault(details=(("block", "gfx"), ("address", "0x2"))),
    )
    assert len(waiting) == 6
    assert waiting.pending(100)[-1].fault.details == (("block", "gfx"),)


def test_what_only_tells_more_of_a_fault_adds_its_details() -> None:
    """The kernel log sends the context after the first line; nothing of it is lost meanwhile."""
    waiting = filled(
        fault(details=(("block", "umc"),)),
        fault(count=0, details=(("block", "umc"), ("bank", "0x96"))),
    )
    (spooled,) = waiting.pending(100)
    assert spooled.fault.count == 1
    assert dict(spooled.fault.details) == {"block": "umc", "bank": "0x96"}


def test_what_the_controller_may_have_seen_is_not_changed() -> None:
    """Its answer confirms what it saw: a count added afterwards would be lost."""
    waiting = filled(fault())
    waiting.pending(100)
    waiting.add(2, fault(count=5))
    waiting.add(3, fault(count=6))
    assert told(waiting) == [("gpu0", 1), ("gpu0", 11)]
    assert waiting.forget(1) == [1]
    assert told(waiting) == [("gpu0", 11)]


def test_what_waited_on_disk_is_not_changed() -> None:
    """Nobody knows whether it was seen before the agent was restarted."""
    waiting = Waiting(faults_max=100)
    waiting.load({1: fault()})
    waiting.add(2, fault(count=5))
    assert told(waiting) == [("gpu0", 1), ("gpu0", 5)]


def test_errors_stay_alone_until_there_are_as_many_as_an_incident_keeps() -> None:
    """Then they are counted: a storm of them must not fill the memory either."""
    error = fault(FaultClass.GPU_RING_TIMEOUT, Severity.ERROR)
    waiting = filled(*[error] * 10_000)
    assert len(waiting) == ALONE_MAX
    assert sum(one.fault.count for one in waiting.pending(100)) == 10_000
    assert waiting.suppressed()[0].dropped == 0


def test_the_least_important_go_first_and_are_counted_by_class() -> None:
    """Corrected counts, then infos, then warnings, the oldest first; errors never."""
    waiting = filled(
        fault(FaultClass.GPU_MEMORY_BAD_PAGE, Severity.WARNING, "gpu1"),
        fault(FaultClass.NIC_LINK_UP, Severity.INFO, "fab0"),
        fault(FaultClass.HOST_EDAC_CORRECTED, Severity.WARNING, "host"),
        fault(FaultClass.GPU_LOST, Severity.FATAL, "gpu2"),
        fault(FaultClass.GPU_LOST, Severity.FATAL, "gpu3"),
        fault(FaultClass.GPU_LOST, Severity.FATAL, "gpu4"),
        limit=4,
    )
    assert [device for device, _ in told(waiting)] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    for number in (7, 8):
        waiting.add(number, fault(FaultClass.GPU_LOST, Severity.FATAL, f"gpu{number}"))
        waiting.drop()
    assert [device for device, _ in told(waiting)] == ["gpu2", "gpu3", "gpu4", "gpu7", "gpu8"]
    dropped = {one.fault_class: one.dropped for one in waiting.suppressed()}
    assert dropped == {
        FaultClass.HOST_EDAC_CORRECTED: 1,
        FaultClass.NIC_LINK_UP: 1,
        FaultClass.GPU_MEMORY_BAD_PAGE: 1,
    }
    assert waiting.dropped == 3


def test_after_a_drop_the_next_one_waits_anew() -> None:
    """Nothing is merged into a fault that is no more."""
    waiting = filled(fault(), fault(FaultClass.GPU_LOST, Severity.FATAL, "gpu1"), limit=1)
    waiting.add(3, fault(count=2))
    assert told(waiting) == [("gpu1", 1), ("gpu0", 2)]
