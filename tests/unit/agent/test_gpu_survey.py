"""What changes slowly about a GPU, over a series of surveys."""

import pytest

from aegis.model.fault import FaultClass
from aegis_agent.probes import gpu_survey
from aegis_agent.probes.gpu_survey import LINK_WINDOW_SECONDS, GpuSurvey, SurveyMemory

FULL = {"width": 16, "max_width": 16, "speed": 32000, "max_speed": 32000}


class Surveyed:
    """One GPU, surveyed every ten seconds."""

    def __init__(self, subject):
        self.subject, self.memory, self.at = subject, SurveyMemory(), 1000.0

    def __call__(self, after=10.0, **fields):
        """The classes of the faults that this survey shows."""
        self.at += after
        self.memory, self.faults = gpu_survey.observe(
            self.subject, self.memory, GpuSurvey(at=self.at, **fields)
        )
        return [fault.fault_class for fault in self.faults]

    @property
    def lasting(self):
        return [one.fault_class for one in gpu_survey.lasting(self.subject, self.memory)]


@pytest.fixture
def surveyed(subject):
    return Surveyed(subject)


def test_a_link_is_degraded_once_it_was_so_twice(surveyed):
    """It trains anew after a reset; one look may come in between."""
    narrow = FULL | {"width": 8}
    assert surveyed(pcie=narrow) == []
    assert surveyed(pcie=FULL) == []
    assert surveyed(pcie=narrow) == []
    assert surveyed(pcie=narrow) == [FaultClass.PCIE_LINK_DEGRADED]
    assert surveyed(pcie=narrow) == []
    assert surveyed.lasting == [FaultClass.PCIE_LINK_DEGRADED]
    assert "runs at x8" in gpu_survey.told(surveyed.memory)
    assert surveyed(pcie={}) == []  # not readable: as it was
    assert surveyed.lasting == [FaultClass.PCIE_LINK_DEGRADED]
    surveyed(pcie=FULL)
    assert surveyed.lasting == []
    assert gpu_survey.told(surveyed.memory) == ""


def test_a_card_without_work_may_slow_its_link(surveyed):
    """To save power. With a process on it, it may not."""
    slow = FULL | {"speed": 2500}
    for _ in range(3):
        assert surveyed(pcie=slow, processes=0) == []
    assert surveyed(pcie=slow, processes=1) == []
    assert surveyed(pcie=slow, processes=1) == [FaultClass.PCIE_LINK_DEGRADED]


def test_link_errors_count_from_the_first_look(surveyed):
    """A hundred within the hour are too many; those from before count for nothing."""
    assert surveyed(pcie={"nak_sent": 5000}) == []
    assert surveyed(pcie={"nak_sent": 5100}) == []
    assert surveyed(pcie={"nak_sent": 5101}) == [FaultClass.PCIE_LINK_DEGRADED]
    assert surveyed(pcie={"nak_sent": 5900}) == []
    assert surveyed.lasting == [FaultClass.PCIE_LINK_DEGRADED]


def test_an_hour_without_errors_is_a_good_link(surveyed):
    """Not a minute less: the window that was bad must end, and one that is not must follow."""
    surveyed(pcie={"l0_recovery": 0})
    surveyed(pcie={"l0_recovery": 300})
    surveyed(LINK_WINDOW_SECONDS, pcie={"l0_recovery": 300})
    surveyed(pcie={"l0_recovery": 301})
    assert surveyed.lasting == [FaultClass.PCIE_LINK_DEGRADED]
    surveyed(LINK_WINDOW_SECONDS, pcie={"l0_recovery": 310})
    assert surveyed.lasting == []


def test_a_few_errors_in_each_hour_are_none(surveyed):
    """A link recovers now and then."""
    for hour in range(50):
        assert surveyed(LINK_WINDOW_SECONDS, pcie={"l0_recovery": 90 * hour}) == []


def test_a_counter_that_fell_began_anew(surveyed):
    """After a reset of the GPU."""
    surveyed(pcie={"nak_received": 90})
    assert surveyed(pcie={"nak_received": 60}) == []
    assert surveyed(pcie={"nak_received": 150}) == []
    assert surveyed(pcie={"nak_received": 161}) == [FaultClass.PCIE_LINK_DEGRADED]


def test_heat_must_be_gone_twice(surveyed):
    """It comes and goes with the load: one fault while it does."""
    assert surveyed(throttled={"power": 100.0, "socket": 0.4}) == []
    assert surveyed(throttled={"socket": 12.0}) == [FaultClass.GPU_THERMAL_THROTTLE]
    assert surveyed(throttled={"socket": 0.0}) == []
    assert surveyed(throttled={"socket": 30.0}) == []
    assert surveyed(throttled={"socket": 0.0}) == []
    assert surveyed.lasting == [FaultClass.GPU_THERMAL_THROTTLE]
    surveyed(throttled={"socket": 0.0})
    assert surveyed.lasting == []


def test_a_limit_that_is_not_known_is_not_exceeded(surveyed):
    """The card knows its limit; we do not."""
    assert surveyed(temperatures={"hotspot": 103}) == []
    hot = {"memory": 105, "memory_critical": 105}
    assert surveyed(temperatures=hot) == [FaultClass.GPU_THERMAL_THROTTLE]


def test_links_that_are_all_down_are_no_hive(surveyed):
    """A single card has none; a disabled link is meant to be."""
    for links in ("DDD", "UUX"):
        assert surveyed(links=links) == []
        assert surveyed(links=links) == []
    surveyed(links="UDUD")
    assert surveyed(links="UDUD") == [FaultClass.GPU_XGMI_ERROR]
    assert dict(surveyed.faults[0].details) == {"links": "1, 3"}


def test_only_what_was_read_is_shown():
    """No zero stands for what is not known; how old it is stands beside it."""
    told = gpu_survey.counters(GpuSurvey(at=1234.5, power_w=600, links="UUD"))
    assert told == {"power_w": 600, "xgmi_links_up": 2, "surveyed_at": 1234}
