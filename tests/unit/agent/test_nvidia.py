"""What becomes of readings of NVIDIA GPUs: faults, conditions, health, and what is remembered."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from aegis.model.fault import Severity
from aegis.model.node import Health
from aegis_agent.probes import nvidia
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.nvidia import NvidiaMemory, NvidiaReading, NvidiaSilence
from aegis_agent.probes.nvidia_parts import Link, Retired
from aegis_agent.probes.subject import Subject
from aegis_agent.sources import nvidia_here

SUBJECT = Subject(node="n1", device="gpu0", boot_id="b1", identity="0000:19:00.0 GPU-5a 16503")
CALLS = frozenset({"memory_error_counter(dram)", "field_values", "clocks_event_reasons"})
GOOD = NvidiaReading(
    at=100.0,
    errors={"dram": EccCounts(), "sram": EccCounts()},
    uncorrectable_ever=0,
    retired=Retired(),
    clocks_event_reasons=0,
    recovery_action=0,
    links={0: Link(active=True), 1: Link(active=True), 2: Link(active=False)},
    worked=CALLS,
)


class Story:
    """One GPU, read again and again."""

    def __init__(self, subject=SUBJECT):
        self.subject, self.memory, self.at = subject, NvidiaMemory(name="gpu0"), 100.0
        self.faults = []
        self.read()

    def read(self, **changes):
        self.at = changes.pop("at", self.at + 1)
        return self._take(nvidia.observe, replace(GOOD, at=self.at, **changes))

    def silent(self, **changes):
        self.at += 1
        return self._take(nvidia.silent, NvidiaSilence(at=self.at, **changes))

    def _take(self, judge, sample):
        self.last = judge(self.subject, self.memory, sample)
        self.memory = self.last.memory
        self.faults += self.last.faults
        return self.last

    @property
    def told(self):
        return [
            (fault.fault_class.value, fault.severity.value, fault.count) for fault in self.faults
        ]

    @property
    def lasting(self):
        return [condition.fault_class.value for condition in self.last.conditions]

    @property
    def health(self):
        return self.last.device.health


def test_a_healthy_gpu_says_nothing():
    """Readings that do not change make no fault and change nothing that is remembered."""
    story = Story()
    before = story.memory
    story.read()
    assert (story.told, story.lasting, story.health) == ([], [], Health.HEALTHY)
    assert story.memory == before


def test_what_a_gpu_had_before_it_was_first_seen_is_its_baseline():
    """An agent on an old node does not report the node's history."""
    story = Story()
    story.memory = NvidiaMemory(name="gpu0")
    story.read(errors={"dram": EccCounts(correctable=7, uncorrectable=1)}, retired=Retired(rows=3))
    assert (story.told, story.health) == ([], Health.HEALTHY)


def test_an_uncorrectable_error_makes_the_gpu_unhealthy_until_a_reset():
    """The count since driver load stands until then; its restart is told, and is no repair."""
    story = Story()
    story.read(errors={"dram": EccCounts(uncorrectable=2)}, uncorrectable_ever=2)
    assert story.told == [("gpu.ecc.uncorrectable", "error", 2)]
    assert story.faults[0].evidence[0].source == "NVML memory_error_counter(dram)"
    assert story.health is Health.UNHEALTHY
    assert "uncorrectable errors: 2 in DRAM" in story.last.device.detail
    story.read(uncorrectable_ever=2)
    assert story.health is Health.HEALTHY
    assert story.told[1:] == [("gpu.reset.progress", "info", 1)]


def test_correctable_errors_are_information():
    """Each location by itself."""
    story = Story()
    story.read(errors={"dram": EccCounts(correctable=5), "sram": EccCounts(correctable=1)})
    assert story.told == [("gpu.ecc.correctable", "info", 5), ("gpu.ecc.correctable", "info", 1)]
    assert story.health is Health.HEALTHY


def test_errors_before_a_reboot_that_nobody_saw_are_found_in_the_count_of_a_life():
    """The node died of it, so no reading saw it; NVIDIA's second counter did."""
    story = Story()
    story.subject = replace(SUBJECT, boot_id="b2")
    story.read(uncorrectable_ever=3)
    assert story.told == [("gpu.ecc.uncorrectable", "error", 3)]
    assert "were not seen" in story.faults[0].evidence[0].text
    story.read(uncorrectable_ever=3)
    assert len(story.told) == 1


def test_what_was_seen_before_a_reset_is_not_told_again_after_it():
    """The count of a life holds it as well."""
    story = Story()
    story.read(errors={"dram": EccCounts(uncorrectable=1)}, uncorrectable_ever=1)
    story.read(uncorrectable_ever=1)
    assert [told for told in story.told if told[0] == "gpu.ecc.uncorrectable"] == [
        ("gpu.ecc.uncorrectable", "error", 1)
    ]


def test_a_row_that_waits_for_a_reset_is_a_lasting_warning():
    """The GPU goes on; the reset replaces the row."""
    story = Story()
    story.read(retired=Retired(rows=1, rows_pending=True))
    assert story.told == [("gpu.memory.bad_page", "warning", 1)]
    assert story.lasting == ["gpu.memory.bad_page"]
    assert story.health is Health.HEALTHY
    assert "at the next reset" in story.last.device.detail
    story.read(retired=Retired(rows=1))
    assert story.lasting == []


@pytest.mark.parametrize("retired", [Retired(rows=9, rows_failed=True), Retired(pages=60)])
def test_memory_that_cannot_be_replaced_any_more_means_a_new_gpu(retired):
    """NVIDIA's rule: a row that could not be remapped, or 60 retired pages. Also at first sight."""
    story = Story()
    story.memory = NvidiaMemory(name="gpu0")
    story.read(retired=retired)
    assert story.told == [("gpu.memory.bad_page_threshold", "fatal", 1)]
    assert story.lasting == ["gpu.memory.bad_page_threshold"]
    assert story.last.conditions[0].severity is Severity.FATAL
    assert story.health is Health.UNHEALTHY


def test_only_heat_and_lack_of_power_are_throttling():
    """A power cap (4), idling (1) and clocks that someone has set (2) are as it should be."""
    story = Story()
    story.read(clocks_event_reasons=1 | 2 | 4)
    assert (story.told, story.lasting) == ([], [])
    story.read(clocks_event_reasons=0x40 | 4)
    assert story.told == [("gpu.thermal.throttle", "warning", 1)]
    assert story.lasting == ["gpu.thermal.throttle"]
    assert "thermal" in story.last.device.detail


def test_throttling_that_comes_and_goes_is_told_once():
    """It is over when it has been gone for a minute."""
    story = Story()
    for _ in range(5):
        story.read(clocks_event_reasons=0x20)
        story.read(clocks_event_reasons=0)
    assert len(story.told) == 1
    story.read(at=story.at + 61)
    assert story.lasting == []


def test_errors_of_all_links_are_one_fault():
    """A restarted counter counts from zero; what has no NVLink has no errors of it."""
    story = Story()
    story.read(links={0: Link(active=True, replays=2), 1: Link(active=True, crc_errors=5)})
    assert story.told == [("gpu.xgmi.error", "warning", 7)]
    assert [evidence.text.split(":")[0] for evidence in story.faults[0].evidence] == [
        "errors of NVLink 0 rose by 2", "errors of NVLink 1 rose by 5",
    ]  # fmt: skip
    story.read(links={0: Link(active=True, replays=1), 1: Link(active=True, crc_errors=5)})
    assert story.told[1:] == [("gpu.xgmi.error", "warning", 1)]


def test_a_link_that_was_up_and_is_down_is_wrong_and_one_that_never_was_is_not():
    """Link 2 has no other end."""
    story = Story()
    story.read(links={0: Link(active=True), 1: Link(active=False), 2: Link(active=False)})
    assert story.told == [("gpu.xgmi.error", "error", 1)]
    assert (story.lasting, story.health) == (["gpu.xgmi.error"], Health.UNHEALTHY)
    story.read(links=None)  # read seldom: nothing said, nothing changed
    assert story.lasting == ["gpu.xgmi.error"]
    story.read()
    assert (story.lasting, story.health) == ([], Health.HEALTHY)


@pytest.mark.parametrize(("status", "words"), [(15, "is lost"), (16, "must be reset")])
def test_nvml_itself_says_that_a_gpu_is_lost(status, words):
    """No second look is needed; it stays lost until it is read again."""
    story = Story()
    story.read(errors={}, worked=frozenset(), failed={"field_values": status})
    assert story.told == [("gpu.lost", "fatal", 1)]
    assert (story.lasting, story.health) == (["gpu.lost"], Health.UNHEALTHY)
    assert words in story.last.device.detail
    story.silent(reason="NVML handle answered", status=status)
    assert (len(story.told), story.health) == (1, Health.UNHEALTHY)
    story.read()
    assert (story.lasting, story.health) == ([], Health.HEALTHY)


def test_all_calls_failing_is_unknown_at_first_and_lost_the_third_time():
    """One failed poll may be a reset under way."""
    story = Story()
    for health in (Health.UNKNOWN, Health.UNKNOWN, Health.UNHEALTHY):
        story.read(errors={}, worked=frozenset(), failed=dict.fromkeys(CALLS, 999))
        assert story.health is health
    assert story.told == [("gpu.lost", "fatal", 1)]


def test_a_call_that_worked_and_fails_leaves_the_gpu_unknown():
    """Half a reading is not health."""
    story = Story()
    story.read(worked=CALLS - {"field_values"}, failed={"field_values": 999})
    assert story.health is Health.UNKNOWN
    assert story.last.device.detail == "cannot be read any more: field_values answered 999"


def test_a_gpu_without_error_counters_is_healthy_when_it_is_read():
    """Some have no ECC; what never was is not missing."""
    story = Story()
    story.memory = NvidiaMemory(name="gpu0")
    story.read(errors={}, retired=None, worked=frozenset({"clocks_event_reasons"}))
    assert story.health is Health.HEALTHY


def test_a_stalled_call_is_told_once_and_leaves_the_gpu_unknown():
    """Until it is read again."""
    story = Story()
    for _ in range(3):
        story.silent(reason="NVML field_values did not answer within 2 s", stalled=True)
    assert story.told == [("gpu.probe.stalled", "error", 1)]
    assert (story.lasting, story.health) == (["gpu.probe.stalled"], Health.UNKNOWN)
    story.read(hung=("clocks_event_reasons",))
    assert (story.lasting, story.health) == (["gpu.probe.stalled"], Health.UNKNOWN)
    story.read()
    assert (story.lasting, story.health) == ([], Health.HEALTHY)


def test_what_the_driver_asks_for_makes_the_gpu_unhealthy():
    """A GPU that must be reset is not ready for work."""
    story = Story()
    story.read(recovery_action=1)
    assert story.told == [("gpu.ras.record", "error", 1)]
    assert story.last.device.detail == "the driver asks for a reset of this GPU"
    assert story.health is Health.UNHEALTHY


def test_a_gpu_that_is_not_listed_any_more_is_lost():
    """The number of GPUs fell."""
    story = Story()
    judgement = nvidia.missing(SUBJECT, story.memory, 200.0, 7)
    assert [fault.fault_class.value for fault in judgement.faults] == ["gpu.lost"]
    assert "NVML lists 7 GPUs" in judgement.device.detail


def test_an_xid_event_has_the_class_and_the_action_of_the_kernel_log():
    """The same table for both."""
    fault = nvidia.xid(SUBJECT, 5.0, 31)
    assert (fault.fault_class, fault.severity) == ("gpu.vm.fault", "warning")
    assert dict(fault.details) == {
        "xid": "31", "meaning": "memory page fault", "action": "RESTART_APP", "by": "application",
    }  # fmt: skip


def test_what_is_remembered_survives_a_restart():
    """As JSON in the spool."""
    story = Story()
    story.read(clocks_event_reasons=0x40, retired=Retired(rows=1, rows_pending=True))
    adapter = TypeAdapter(NvidiaMemory)
    assert adapter.validate_json(adapter.dump_json(story.memory)) == story.memory


def test_a_node_is_nvidias_by_its_driver_or_by_a_gpu_that_computes(tmp_path, monkeypatch):
    """A card for a display is no reason to look for NVML."""
    monkeypatch.delenv("AEGIS_SIM_NVML", raising=False)
    assert not nvidia_here.is_here(tmp_path)
    device = tmp_path / "bus/pci/devices/0000:19:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030000\n")
    assert not nvidia_here.is_here(tmp_path)
    (device / "class").write_text("0x030200\n")
    assert nvidia_here.is_here(tmp_path)
    (device / "vendor").write_text("0x1002\n")
    assert not nvidia_here.is_here(tmp_path)
    (tmp_path / "module/nvidia").mkdir(parents=True)
    assert nvidia_here.is_here(tmp_path)
