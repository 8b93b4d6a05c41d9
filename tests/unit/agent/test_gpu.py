"""A GPU's health over a series of samples."""

from dataclasses import replace

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis.model.node import Health
from aegis_agent.probes import gpu, gpu_names
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import LOST_READINGS, GpuMemory, GpuReading, Silence
from aegis_agent.probes.gpu_survey import GpuSurvey

CALLS = frozenset({"ecc_count(umc)", "vram_usage"})
GONE = GpuReading(at=5.0, failed={"ecc_count(umc)": 2, "vram_usage": 2})


def reading(at=1.0, uncorrectable=0, **fields):
    return GpuReading(
        at=at, ecc={"umc": EccCounts(uncorrectable=uncorrectable)}, worked=CALLS, **fields
    )


@pytest.fixture
def known(subject):
    """A GPU that has been read once, healthy."""
    return gpu.observe(subject, GpuMemory(name="gpu3"), reading()).memory


def test_first_sight_is_healthy_whatever_was_counted_before(subject):
    """An agent that is installed today does not blame errors of last month."""
    seen = gpu.observe(subject, GpuMemory(name="gpu3"), reading(uncorrectable=4))
    assert (seen.faults, seen.device.health) == ((), Health.HEALTHY)
    assert dict(seen.device.counters)["ecc_uncorrectable"] == 4


def test_an_uncorrectable_error_is_told_once_and_stands_until_a_reset(subject, known):
    """The fault is an edge, the device's health a level."""
    first = gpu.observe(subject, known, reading(2.0, uncorrectable=1))
    again = gpu.observe(subject, first.memory, reading(3.0, uncorrectable=1))
    assert [fault.fault_class for fault in first.faults] == [FaultClass.GPU_ECC_UNCORRECTABLE]
    assert again.faults == ()
    assert first.device.health == again.device.health == Health.UNHEALTHY
    assert "1 in UMC" in again.device.detail
    cleared = gpu.observe(subject, again.memory, reading(4.0))
    assert cleared.device.health == Health.HEALTHY
    assert [fault.severity for fault in cleared.faults] == [Severity.INFO]


def test_what_is_counted_after_a_reboot_happened_since(subject, known):
    """Counters start at zero with the boot: what they show is new, were it as much before."""
    before = gpu.observe(subject, known, reading(uncorrectable=1)).memory
    rebooted = replace(subject, boot_id="boot-2")
    seen = gpu.observe(rebooted, before, reading(uncorrectable=1))
    assert [fault.fault_class for fault in seen.faults] == [FaultClass.GPU_ECC_UNCORRECTABLE]
    calm = gpu.observe(rebooted, before, reading())
    assert (calm.faults, calm.device.health) == ((), Health.HEALTHY)


def test_a_gpu_is_lost_when_all_that_worked_fails_repeatedly(subject, known):
    """NOT_SUPPORTED where it worked before means gone; one failed poll may be a reset."""
    memory, seen = known, []
    for _ in range(LOST_READINGS + 1):
        seen.append(gpu.observe(subject, memory, GONE))
        memory = seen[-1].memory
    assert [judgement.device.health for judgement in seen[:2]] == [Health.UNKNOWN] * 2
    assert [len(judgement.faults) for judgement in seen] == [0, 0, 1, 0]
    (fault,) = seen[2].faults
    assert (fault.fault_class, fault.severity) == (FaultClass.GPU_LOST, Severity.FATAL)
    assert "ecc_count(umc) answered 2" in fault.evidence[0].text
    assert seen[3].device.health == Health.UNHEALTHY
    assert [condition.fault_class for condition in seen[3].conditions] == [FaultClass.GPU_LOST]
    back = gpu.observe(subject, memory, reading(9.0))
    assert (back.conditions, back.device.health) == ((), Health.HEALTHY)


def test_a_busy_gpu_is_unknown_and_not_lost(subject, known):
    """During a reset calls answer busy; that says nothing about the device."""
    memory = known
    for _ in range(LOST_READINGS + 1):
        seen = gpu.observe(subject, memory, GpuReading(at=5.0, failed={"ecc_count(umc)": 30}))
        memory = seen.memory
    assert (seen.faults, seen.device.health) == ((), Health.UNKNOWN)


def test_one_unreadable_block_hides_no_other(subject):
    """The readable block's error is told; the device as a whole is unknown, never healthy."""
    both = {"umc": EccCounts(), "gfx": EccCounts()}
    worked = frozenset({"ecc_count(umc)", "ecc_count(gfx)"})
    memory = gpu.observe(
        subject, GpuMemory(name="gpu3"), GpuReading(at=1.0, ecc=both, worked=worked)
    ).memory
    partly = GpuReading(
        at=2.0,
        ecc={"gfx": EccCounts(correctable=1)},
        worked=frozenset({"ecc_count(gfx)"}),
        failed={"ecc_count(umc)": 2},
    )
    seen = gpu.observe(subject, memory, partly)
    assert [fault.fault_class for fault in seen.faults] == [FaultClass.GPU_ECC_CORRECTABLE]
    assert (seen.device.health, seen.conditions) == (Health.UNKNOWN, ())
    assert "ecc_count(umc) answered 2" in seen.device.detail


def test_no_counter_at_all_is_unknown(subject):
    """A success with nothing in it is not health."""
    empty = GpuReading(at=1.0, worked=frozenset({"vram_usage"}), failed={"ecc_count(umc)": 2})
    seen = gpu.observe(subject, GpuMemory(name="gpu3"), empty)
    assert seen.device.health == Health.UNKNOWN


def test_a_stall_is_told_once_and_lasts_until_the_next_reading(subject, known):
    """The child is killed and restarted many times; that is one fault."""
    stall = Silence(at=3.0, reason="amdsmi ecc_count(umc) did not answer", stalled=True)
    first = gpu.silent(subject, known, stall)
    second = gpu.silent(subject, first.memory, replace(stall, at=9.0))
    assert [fault.fault_class for fault in first.faults] == [FaultClass.GPU_PROBE_STALLED]
    assert (second.faults, second.device.health) == ((), Health.UNKNOWN)
    assert [condition.since for condition in second.conditions] == [3.0]
    assert gpu.observe(subject, second.memory, reading(10.0)).conditions == ()


def test_a_silence_without_a_stall_is_unknown_and_no_fault(subject, known):
    """No driver, no data: never a disruptive act."""
    seen = gpu.silent(subject, known, Silence(at=3.0, reason="the driver is not loaded"))
    assert (seen.faults, seen.conditions) == ((), ())
    assert (seen.device.health, seen.device.detail) == (Health.UNKNOWN, "the driver is not loaded")


def test_bad_pages_warn_and_their_threshold_is_fatal(subject, known):
    """Each retired page is told; as many as the maker allows mean a new GPU."""

    def retired(memory, pages):
        survey = GpuSurvey(at=1.0, bad_pages=pages, bad_page_threshold=8)
        judgement = gpu.surveyed(subject, memory, survey)
        return judgement.memory, judgement.faults

    memory, faults = retired(known, 6)
    assert faults == ()
    memory, faults = retired(memory, 7)
    assert [fault.fault_class for fault in faults] == [FaultClass.GPU_MEMORY_BAD_PAGE]
    memory, faults = retired(memory, 8)
    assert [fault.fault_class for fault in faults] == [
        FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD,
        FaultClass.GPU_MEMORY_BAD_PAGE,
    ]
    memory, faults = retired(memory, None)  # not readable this time
    seen = gpu.observe(subject, memory, reading(3.0))
    assert (faults, seen.device.health) == ((), Health.UNHEALTHY)


def test_a_missing_gpu_is_lost_and_keeps_its_number(subject, known):
    """When gpu3 disappears, gpu4 must not become gpu3."""
    seen = gpu.missing(subject, known, 4.0, listed=7)
    assert [fault.fault_class for fault in seen.faults] == [FaultClass.GPU_LOST]
    assert gpu.missing(subject, seen.memory, 5.0, listed=7).faults == ()
    names = gpu_names.name_gpus(
        {"a u1 s1": "gpu0", "b u2 s2": "gpu1", "c u3 s3": "gpu2"}, ["a u1 s1", "c u3 s3"]
    )
    assert names == {"a u1 s1": "gpu0", "c u3 s3": "gpu2"}


def test_a_replaced_gpu_takes_over_name_and_slot():
    """A new serial in the old slot is another GPU under the same number."""
    known = {"a u1 s1": "gpu0", "b u2 s2": "gpu1"}
    listed = ["a u1 s1", "b u9 s9"]
    assert gpu_names.replaced(list(known), listed) == ["b u2 s2"]
    assert gpu_names.name_gpus(known, listed) == {"a u1 s1": "gpu0", "b u9 s9": "gpu1"}


def test_while_it_is_reset_a_gpu_is_unknown_whatever_fails(subject, known):
    """The kernel has said so: neither lost nor stalled."""
    memory = known
    for _ in range(LOST_READINGS + 1):
        seen = gpu.observe(subject, memory, GONE, resetting=True)
        memory = seen.memory
        assert (seen.faults, seen.device.health) == ((), Health.UNKNOWN)
    stall = Silence(at=6.0, reason="amdsmi ecc_count(umc) did not answer", stalled=True)
    seen = gpu.silent(subject, memory, stall, resetting=True)
    assert (seen.faults, seen.conditions) == ((), ())
    seen = gpu.missing(subject, seen.memory, 7.0, 7, resetting=True)
    assert (seen.faults, seen.conditions) == ((), ())
    assert "being reset" in seen.device.detail
    assert gpu.observe(subject, seen.memory, reading(8.0)).device.health == Health.HEALTHY


def test_after_a_reset_the_errors_before_it_are_history(subject, known):
    """A reset does not start the counters anew; the next error is new all the same."""
    memory = gpu.observe(subject, known, reading(2.0, uncorrectable=2)).memory
    memory = gpu.was_reset(memory)
    seen = gpu.observe(subject, memory, reading(3.0, uncorrectable=2))
    assert (seen.faults, seen.device.health) == ((), Health.HEALTHY)
    seen = gpu.observe(subject, seen.memory, reading(4.0, uncorrectable=3))
    assert [fault.count for fault in seen.faults] == [1]
    assert seen.device.health == Health.UNHEALTHY


def test_a_call_that_is_left_out_keeps_the_stall(subject, known):
    """What else there is of the GPU is read, and its errors are told."""
    stall = Silence(at=3.0, reason="amdsmi pcie_info did not answer within 2 s", stalled=True)
    memory = gpu.silent(subject, known, stall).memory
    seen = gpu.observe(subject, memory, reading(4.0, uncorrectable=1, hung=("pcie_info",)))
    assert [fault.fault_class for fault in seen.faults] == [FaultClass.GPU_ECC_UNCORRECTABLE]
    assert [one.fault_class for one in seen.conditions] == [FaultClass.GPU_PROBE_STALLED]
    seen = gpu.observe(subject, memory, reading(4.0, hung=("pcie_info",)))
    assert seen.device.health == Health.UNKNOWN
    assert gpu.observe(subject, seen.memory, reading(5.0)).device.health == Health.HEALTHY


def test_a_call_that_crashes_its_process_is_named_while_it_is_left_out(subject, known):
    """The GPU is well as far as it is read, and what is not read of it stands there."""
    seen = gpu.observe(subject, known, reading(4.0, hung=("temp_metric",)))
    assert seen.device.health == Health.HEALTHY
    assert "not read for now: temp_metric" in seen.device.detail
    assert gpu.observe(subject, seen.memory, reading(5.0)).device.detail == ""


def test_what_is_lost_stays_lost_until_it_is_read(subject, known):
    """A crash of its reader in between says nothing new."""
    memory = known
    for _ in range(LOST_READINGS):
        memory = gpu.observe(subject, memory, GONE).memory
    seen = gpu.silent(subject, memory, Silence(at=9.0, reason="the process died"))
    assert seen.device.health == Health.UNHEALTHY
    assert [one.fault_class for one in seen.conditions] == [FaultClass.GPU_LOST]
