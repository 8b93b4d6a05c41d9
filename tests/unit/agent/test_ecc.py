"""Error counters become faults."""

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes import ecc
from aegis_agent.probes.ecc import EccCounts


def test_a_rise_is_a_fault_that_names_block_and_counts(subject):
    """An operator must see which counter of which block moved, and how far."""
    (fault,) = ecc.observe(subject, 7.0, {"umc": EccCounts()}, {"umc": EccCounts(uncorrectable=2)})
    assert fault.fault_class == FaultClass.GPU_ECC_UNCORRECTABLE
    assert (fault.severity, fault.count, fault.observed_at) == (Severity.ERROR, 2, 7.0)
    assert (fault.node, fault.device, fault.boot_id) == ("n1", "gpu3", "boot-1")
    (evidence,) = fault.evidence
    assert evidence.source == "amdsmi ecc_count(umc)"
    assert evidence.text == "uncorrectable errors in block UMC rose from 0 to 2"
    assert (evidence.before, evidence.after) == ("0", "2")


def test_each_kind_has_its_class_the_worst_first(subject):
    """One reading may show several kinds of errors at once."""
    after = {"gfx": EccCounts(correctable=3, uncorrectable=1, deferred=2)}
    faults = ecc.observe(subject, 1.0, {"gfx": EccCounts()}, after)
    assert [(fault.fault_class, fault.severity, fault.count) for fault in faults] == [
        (FaultClass.GPU_ECC_UNCORRECTABLE, Severity.ERROR, 1),
        (FaultClass.GPU_ECC_DEFERRED, Severity.ERROR, 2),
        (FaultClass.GPU_ECC_CORRECTABLE, Severity.INFO, 3),
    ]


def test_the_first_sight_of_a_block_is_a_baseline(subject):
    """Errors from before the agent came are no news."""
    assert ecc.observe(subject, 1.0, {}, {"umc": EccCounts(uncorrectable=9)}) == ()


def test_a_fall_is_the_trace_of_a_reset_and_no_repair(subject):
    """The operator cleared the error by a driver reload; that is told, and blames nobody."""
    before, after = {"umc": EccCounts(uncorrectable=1)}, {"umc": EccCounts()}
    (fault,) = ecc.observe(subject, 1.0, before, after)
    assert (fault.fault_class, fault.severity) == (FaultClass.GPU_RESET_PROGRESS, Severity.INFO)
    assert "fell from 1 to 0" in fault.evidence[0].text
    assert "nothing was repaired" in fault.evidence[0].text


def test_what_a_counter_shows_after_a_fall_happened_since(subject):
    """Counters restart at zero, so five that became two are two new errors."""
    before, after = {"umc": EccCounts(uncorrectable=5)}, {"umc": EccCounts(uncorrectable=2)}
    reset, rise = ecc.observe(subject, 1.0, before, after)
    assert reset.fault_class == FaultClass.GPU_RESET_PROGRESS
    assert (rise.fault_class, rise.count) == (FaultClass.GPU_ECC_UNCORRECTABLE, 2)


def test_errors_of_the_links_between_gpus_are_not_memory_errors(subject):
    """XGMI needs hands: corrected ones warn, all others are AFID 18."""
    before = {"xgmi_wafl": EccCounts()}
    (warned,) = ecc.observe(subject, 1.0, before, {"xgmi_wafl": EccCounts(correctable=1)})
    (fatal,) = ecc.observe(subject, 1.0, before, {"xgmi_wafl": EccCounts(uncorrectable=1)})
    assert warned.fault_class == fatal.fault_class == FaultClass.GPU_XGMI_ERROR
    assert (warned.severity, fatal.severity) == (Severity.WARNING, Severity.FATAL)
