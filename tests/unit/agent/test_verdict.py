"""A look at a node, judged as a whole: healthy is only what was seen and is well."""

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes.verdict import Gap, Outcome, When, judge

EVIDENCE = (Evidence(source="x", text="seen"),)


def gpu(name="gpu0", health=Health.HEALTHY, detail="", *, used=True, **counters):
    return Device(
        name=name,
        kind="gpu",
        health=health,
        detail=detail,
        used=used,
        counters=tuple(counters.items()),
    )


def fault(kind, severity=Severity.ERROR, device="gpu0", at=1.0):
    return Fault(
        fault_class=kind,
        severity=severity,
        node="n1",
        device=device,
        observed_at=at,
        evidence=EVIDENCE,
    )


def told(verdict):
    return [(one.fault_class, one.device, one.when) for one in verdict.findings]


def test_nothing_found_and_nothing_unknown_is_healthy() -> None:
    """Counters of what was put right are told and cost nobody the verdict."""
    verdict = judge([gpu(ecc_correctable=3), gpu("gpu1")], [], [], [])
    assert verdict.outcome is Outcome.HEALTHY
    assert verdict.sentence == "Healthy: 2 GPUs, nothing found."
    assert told(verdict) == [(FaultClass.GPU_ECC_CORRECTABLE, "gpu0", When.BOOT)]


def test_no_data_is_not_healthy() -> None:
    """A device that could not be read, or a source that is closed, leaves the verdict open."""
    verdict = judge([gpu(health=Health.UNKNOWN, detail="no answer")], [], [], [])
    assert verdict.outcome is Outcome.UNKNOWN
    assert "no word of gpu0" in verdict.sentence
    assert verdict.gaps[0].why == "no answer"
    closed = Gap(what="error records", why="for root alone", essential=False)
    assert judge([gpu()], [], [], [closed]).outcome is Outcome.HEALTHY
    missing = Gap(what="8 AMD GPUs on the bus", why="no library reads them")
    assert judge([], [], [], [missing]).outcome is Outcome.UNKNOWN


def test_what_is_found_outweighs_what_is_not_known() -> None:
    """Both are said."""
    verdict = judge([gpu(health=Health.UNKNOWN), gpu("gpu1", ecc_uncorrectable=2)], [], [], [])
    assert verdict.outcome is Outcome.FINDINGS
    assert verdict.sentence == "Findings: 1 error, at gpu1. And no word of gpu0."
    assert verdict.findings[0].evidence == ("2 errors not put right since counting began",)


def test_a_level_is_told_once() -> None:
    """The condition, its edge in the log and the unhealthy device are one finding."""
    condition = Condition(
        fault_class=FaultClass.NIC_LINK_DOWN, device="fab0", since=5.0, evidence=EVIDENCE
    )
    port = Device(name="fab0", kind="nic", health=Health.UNHEALTHY, detail="the link is down")
    verdict = judge([port], [condition], [fault(FaultClass.NIC_LINK_DOWN, device="fab0")], [])
    assert told(verdict) == [(FaultClass.NIC_LINK_DOWN, "fab0", When.NOW)]
    assert verdict.findings[0].since == 5.0


def test_what_is_well_again_is_told_as_over() -> None:
    """A link that went down three days ago and is up does not make the node unwell now."""
    port = Device(name="fab0", kind="nic", health=Health.HEALTHY)
    verdict = judge([port], [], [fault(FaultClass.NIC_LINK_DOWN, device="fab0")], [])
    assert verdict.outcome is Outcome.HEALTHY
    assert told(verdict) == [(FaultClass.NIC_LINK_DOWN, "fab0", When.EARLIER)]


def test_a_reset_that_succeeded_is_over_and_what_led_to_it_is_not() -> None:
    """Its beginning is no finding any more; a beginning after its end is one."""
    began = fault(FaultClass.GPU_RESET_BEGIN, Severity.WARNING, at=2.0)
    ended = fault(FaultClass.GPU_RESET_SUCCEEDED, Severity.WARNING, at=3.0)
    hang = fault(FaultClass.GPU_RING_TIMEOUT, at=1.0)
    verdict = judge([gpu()], [], [hang, began, ended], [])
    assert [one.fault_class for one in verdict.findings if one.counts] == ["gpu.ring.timeout"]
    again = fault(FaultClass.GPU_RESET_BEGIN, Severity.WARNING, at=4.0)
    assert judge([gpu()], [], [ended, again], []).outcome is Outcome.FINDINGS


def test_the_application_s_own_faults_blame_no_node() -> None:
    """They are listed, for the owner of the job."""
    verdict = judge([gpu()], [], [fault(FaultClass.GPU_VM_FAULT, Severity.WARNING)], [])
    assert verdict.outcome is Outcome.HEALTHY
    assert len(verdict.findings) == 1


def test_an_unhealthy_device_is_a_finding_whoever_found_it() -> None:
    """Also where no class was told; of a device that training does not use, a warning."""
    verdict = judge(
        [
            gpu(health=Health.UNHEALTHY, detail="replace it"),
            gpu("gpu1", Health.UNHEALTHY, "broken", used=False),
        ],
        [],
        [],
        [],
    )
    assert [(one.device, one.severity) for one in verdict.findings] == [
        ("gpu0", Severity.ERROR),
        ("gpu1", Severity.WARNING),
    ]
    assert verdict.sentence == "Findings: 1 error, 1 warning, at gpu0, gpu1."


def test_the_worst_comes_first_and_many_places_are_counted() -> None:
    """A sentence that names forty devices is read by nobody."""
    lost = fault(FaultClass.GPU_LOST, Severity.FATAL, "gpu39")
    hangs = [fault(FaultClass.GPU_RING_TIMEOUT, device=f"gpu{number}") for number in range(20)]
    verdict = judge([], [], [*hangs, lost], [])
    assert verdict.findings[0].device == "gpu39"
    assert verdict.sentence.startswith("Findings: 1 fatal, 20 errors, at gpu39, gpu0,")
    assert verdict.sentence.endswith("and 13 more.")
