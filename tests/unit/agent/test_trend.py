"""Trends of corrected errors: said only with enough behind them, and honest about the rest."""

import itertools
import random

import pytest
from pydantic import TypeAdapter

from aegis.model.fault import Evidence, FaultClass, Severity
from aegis.model.node import Health
from aegis_agent.probes import gpu, gpu_trend, trend
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import GpuMemory, GpuReading
from aegis_agent.probes.gpu_survey import GpuSurvey
from aegis_agent.probes.trend import DAY_SECONDS, PER_DAY_MAX, Direction, Trend

T0 = 1_000_000_000.0
HOUR = 3600.0


def played(per_occasion, hours, every_hours=1.0, start=T0, state=None):
    """A device that gains so many errors at each occasion."""
    state = state or trend.note(Trend(), start, {})
    for number in range(int(hours / every_hours)):
        state = trend.note(state, start + (number + 1) * every_hours * HOUR, {"a": per_occasion})
    return state


def test_a_steady_rate_is_found() -> None:
    """Two an hour for four days are 48 a day."""
    rate = trend.rate(played(2, 96), ["a"], T0 + 4 * DAY_SECONDS)
    assert rate.per_day == pytest.approx(48)
    assert rate.low < 48 < rate.high
    assert rate.direction is Direction.STEADY
    assert trend.told(rate) == "48 a day over 4 days"


def test_too_little_is_not_spoken_of() -> None:
    """Less than a day, or two occasions, are no trend."""
    assert trend.rate(played(5, 12), ["a"], T0 + 12 * HOUR) is None
    assert trend.rate(played(5, 48, every_hours=24), ["a"], T0 + 2 * DAY_SECONDS) is None
    assert trend.rate(Trend(), ["a"], T0) is None


def test_a_rise_within_the_week_is_told() -> None:
    """Ten times as many in the later half are no chance."""
    quiet = played(1, 72)
    at = T0 + 6 * DAY_SECONDS
    loud = played(10, 72, start=T0 + 3 * DAY_SECONDS, state=quiet)
    assert trend.rate(loud, ["a"], at).direction is Direction.RISING
    calm = played(1, 72, start=T0 + 3 * DAY_SECONDS, state=played(10, 72))
    assert trend.rate(calm, ["a"], at).direction is Direction.FALLING


def test_one_burst_is_no_rise() -> None:
    """A bad row gives many errors at once: that is one occasion."""
    state = played(1, 96, every_hours=12)
    state = trend.note(state, T0 + 95 * HOUR, {"a": 200})
    rate = trend.rate(state, ["a"], T0 + 96 * HOUR)
    assert rate.direction is Direction.STEADY
    assert rate.low == 0.0


def test_the_forecast_is_right_for_what_goes_on_as_it_did() -> None:
    """Of many devices whose pages fail at random, nine of ten reach the limit within the range."""
    draw = random.Random(7)
    within = 0
    for _ in range(200):
        at, state, level = T0, trend.note(Trend(), T0, {}), 0
        while at < T0 + 5 * DAY_SECONDS:
            at += draw.expovariate(4 / DAY_SECONDS)
            state, level = trend.note(state, at, {"a": 1}), level + 1
        now = T0 + 5 * DAY_SECONDS
        rate = trend.rate(state, ["a"], now)
        truth = (200 - level) / 4
        within += (200 - level) / rate.high <= truth <= (200 - level) / max(rate.low, 1e-9)
    assert within >= 170


def test_a_forecast_says_how_sure_it_is() -> None:
    """With few events it is a guess, far away is not counted in days, reached is not forecast."""
    rate = trend.rate(played(1, 96, every_hours=24), ["a"], T0 + 4 * DAY_SECONDS)
    told = trend.forecast(rate, 119, 128, "bad-page threshold")
    assert told == (
        "bad-page threshold in about 9 days at this rate (5 to 50, a guess from few events)"
    )
    assert trend.forecast(rate, 0, 1000, "x") == "x not within a year at this rate"
    assert trend.forecast(rate, 128, 128, "x") == ""


def test_memory_is_bounded() -> None:
    """A year of errors in a hundred series is a week of slots in at most 64 of them."""
    state = Trend()
    for number in range(365 * 6):
        state = trend.note(
            state, T0 + number * 4 * HOUR, {f"block{series}": 1 for series in range(100)}
        )
    assert len(state.slots) == trend.SERIES_MAX
    assert max(len(slots) for slots in state.slots.values()) <= 29


def test_nothing_counted_changes_nothing() -> None:
    """What is unchanged need not be written to disk with every reading."""
    state = played(1, 3)
    assert trend.note(state, T0 + 9 * HOUR, {"a": 0, "b": 0}) is state


def test_a_clock_that_went_back_is_survived() -> None:
    """Errors noted before the beginning belong to the newest slot."""
    state = trend.note(played(1, 48), T0 - DAY_SECONDS, {"a": 1})
    assert sum(slot.added for slot in state.slots["a"]) == 49
    assert trend.rate(state, ["a"], T0 - DAY_SECONDS) is None


def test_a_trend_is_remembered() -> None:
    """It reads back from the spool as it was."""
    adapter = TypeAdapter(Trend)
    state = played(3, 30)
    assert adapter.validate_json(adapter.dump_json(state)) == state


# GPUs


def counts(correctable):
    return {"umc": EccCounts(correctable=correctable), "xgmi_wafl": EccCounts(correctable=9)}


def gpu_played(readings, pages=None):
    """Readings of the UMC block's counter, an hour apart, and of the pages."""
    state = gpu_trend.note(Trend(), T0, ({}, counts(readings[0])), (None, None))
    pages = pages or [0] * len(readings)
    pairs = zip(itertools.pairwise(readings), itertools.pairwise(pages), strict=True)
    for number, ((before, after), both) in enumerate(pairs):
        at = T0 + (number + 1) * HOUR
        state = gpu_trend.note(state, at, (counts(before), counts(after)), both)
    return state, T0 + (len(readings) - 1) * HOUR


def test_a_first_sight_is_no_rise_and_a_reset_is_no_fall() -> None:
    """What stood in the counter before is nobody's rate; what came since a reset is."""
    state, _ = gpu_played([1000, 1001, 3, 5])
    assert sum(slot.added for slot in state.slots["ecc umc"]) == 1 + 3 + 2
    assert list(state.slots) == ["ecc umc"]


def test_many_corrected_errors_in_a_day_are_a_warning(subject) -> None:
    """The same fault weighs more once the device counts a hundred a day."""
    rise = subject.fault(
        FaultClass.GPU_ECC_CORRECTABLE, Severity.INFO, T0, Evidence(source="amdsmi", text="…")
    )
    few, at = gpu_played([0, 1, 2, 3])
    (fault,) = gpu_trend.weigh((rise,), few, at, None, None)
    assert fault == rise
    many, at = gpu_played([0, PER_DAY_MAX // 2, PER_DAY_MAX])
    (fault,) = gpu_trend.weigh((rise,), many, at, None, None)
    assert fault.severity is Severity.WARNING
    assert fault.evidence[1].text == "100 within a day, 100 are many"


def test_the_device_tells_its_trend_and_forecast() -> None:
    """The sentence of the issue: when the bad-page threshold is reached at this rate."""
    readings = list(range(0, 2 * 121, 2))
    pages = [100 + hour // 12 for hour in range(121)]
    state, at = gpu_played(readings, pages)
    told = gpu_trend.told(state, at, 110, 128)
    assert "retired memory pages: 2 a day over 5 days" in told
    assert "bad-page threshold (128) in about 9 days at this rate" in told
    assert "correctable errors in UMC: 48 a day over 5 days" in told
    assert gpu_trend.told(state, at + 100, 110, 128) == told
    assert gpu_trend.told(Trend(), at, 110, 128) == ""


def test_a_new_page_carries_its_forecast(subject) -> None:
    """Whoever reads the incident sees how long the GPU will last."""
    state, at = gpu_played([0] * 121, [100 + hour // 12 for hour in range(121)])
    fault = subject.fault(
        FaultClass.GPU_MEMORY_BAD_PAGE, Severity.WARNING, at, Evidence(source="x", text="y")
    )
    (weighed,) = gpu_trend.weigh((fault,), state, at, 110, 128)
    assert "in about 9 days" in weighed.evidence[1].text


def test_a_gpu_s_readings_come_to_a_trend(subject) -> None:
    """From polls to the sentence on the device and the evidence of its faults, over a reboot."""
    memory = GpuMemory(name="gpu3")
    for hour in range(121):
        at = T0 + hour * HOUR
        survey = GpuSurvey(at=at, bad_pages=100 + hour // 12, bad_page_threshold=128)
        looked = gpu.surveyed(subject, memory, survey)
        memory, retired = looked.memory, looked.faults
        reading = GpuReading(
            at=at,
            ecc={"umc": EccCounts(correctable=hour % 60)},  # a reset half way
            worked=frozenset({"ecc_count(umc)"}),
        )
        judgement = gpu.observe(subject, memory, reading)
        memory = judgement.memory
    assert judgement.device.health is Health.HEALTHY
    assert "bad-page threshold (128) in about 9 days at this rate" in judgement.device.detail
    assert "correctable errors in UMC: 24 a day over 5 days" in judgement.device.detail
    assert retired[0].evidence[-1].source == "trend"
