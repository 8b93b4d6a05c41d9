"""What of a report is news, and what only a name in the next tick."""

from dataclasses import replace

import pytest

from aegis.controller.intake import REFRESH_SECONDS, Intake
from aegis.controller.state import State
from aegis.model.node import Device, Health, NodeReport, Sender
from aegis.wire import Report

GPU = Device(name="gpu0", kind="gpu", health=Health.HEALTHY, read_at=1.0)


class Clock:
    at = 100.0

    def __call__(self):
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def say(clock):
    """What becomes of a report with this GPU: the events."""
    intake, sequence = Intake(State(), [], clock), iter(range(1, 99))

    def say(device):
        report = NodeReport(
            node="n1", sender=Sender.AGENT, session=0, sequence=next(sequence), devices=(device,)
        )
        events = intake.events([(Report(sent_at=clock.at, report=report), 1)])
        intake.accepted()
        return events

    return say


def test_a_value_that_comes_and_goes_is_no_news(say, clock):
    """A thousand nodes with warm GPUs fill no event log; the newest is logged now and then."""
    warm = (("ecc_uncorrectable", 0), ("temp_hotspot_c", 61), ("power_w", 700))
    assert say(replace(GPU, counters=warm))
    hot = (("ecc_uncorrectable", 0), ("temp_hotspot_c", 64), ("power_w", 690))
    assert say(replace(GPU, counters=hot, read_at=2.0)) == []
    clock.at += REFRESH_SECONDS
    (event,) = say(replace(GPU, counters=hot, read_at=16.0))
    assert dict(event.report.devices[0].counters)["temp_hotspot_c"] == 64


def test_a_counter_of_errors_is_news_at_once(say):
    """And so is a device whose health changes."""
    assert say(replace(GPU, counters=(("ecc_uncorrectable", 0),)))
    assert say(replace(GPU, counters=(("ecc_uncorrectable", 1),)))
    assert say(replace(GPU, counters=(("ecc_uncorrectable", 1),), health=Health.UNHEALTHY))
