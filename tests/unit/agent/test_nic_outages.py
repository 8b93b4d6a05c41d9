"""Flap and drop by two timers, and the downtime they sum up."""

from aegis_agent.probes import outages
from aegis_agent.probes.outages import Outages

HOUR = 3600.0


def lived(*edges, until, start=1000.0):
    """What becomes of edges (second, up or down), looked at each second until the end."""
    memory, verdicts, edges = Outages(), [], dict(edges)
    for second in range(until + 1):
        at = start + second
        if second in edges:
            change = outages.rose if edges[second] == "up" else outages.fell
            memory = change(memory, at)
        memory, verdict = outages.passed(memory, at)
        if verdict:
            verdicts.append((second, verdict.kind))
    return memory, verdicts


def test_three_recoveries_from_long_outages_are_a_flap():
    """The third is told once it has been up for five seconds; then counting starts anew."""
    edges = [
        (n * 100 + offset, what) for n in range(5) for offset, what in ((0, "down"), (30, "up"))
    ]
    memory, verdicts = lived(*edges, until=500)
    assert verdicts == [(235, "flap")]
    assert outages.recoveries(memory, 1500.0) == 5


def test_short_outages_count_as_downtime_and_not_as_flaps():
    """A link that trains again within seconds is below the collective's own patience."""
    edges = [(n * 60 + offset, what) for n in range(9) for offset, what in ((0, "down"), (9, "up"))]
    memory, verdicts = lived(*edges, until=600)
    assert (verdicts, outages.recoveries(memory, 1600.0)) == ([], 0)
    assert outages.down_seconds(memory, 1600.0) == 81


def test_a_moment_of_light_does_not_end_an_outage():
    """Up for two seconds, down again: one outage, and its downtime without those two seconds."""
    memory, _ = lived((0, "down"), (20, "up"), (22, "down"), (40, "up"), until=60)
    (outage,) = memory.past
    assert (outage.began, outage.ended, outage.down_seconds) == (1000.0, 1040.0, 38.0)


def test_four_minutes_down_is_a_drop_and_told_once():
    """The next outage may drop again."""
    memory, verdicts = lived((0, "down"), (400, "up"), (500, "down"), until=800)
    assert verdicts == [(240, "drop"), (740, "drop")]
    assert memory.fell_at == 1500.0


def test_the_downtime_of_a_link_that_is_down_grows_in_steps():
    """Each new number is a new report."""
    memory = outages.fell(Outages(), 1000.0)
    assert [outages.down_seconds(memory, 1000.0 + s) for s in (0, 9, 10, 19, 25)] == [
        0, 0, 10, 10, 20,
    ]  # fmt: skip


def test_what_is_older_than_the_window_is_forgotten():
    """Downtime after an hour, recoveries after twelve."""
    memory, _ = lived((0, "down"), (30, "up"), until=60)
    assert outages.down_seconds(memory, 1030.0 + HOUR + 1) == 0
    assert outages.recoveries(memory, 1030.0 + 11 * HOUR) == 1
    assert outages.recoveries(memory, 1030.0 + 13 * HOUR) == 0


def test_a_clock_that_goes_back_makes_no_negative_downtime():
    """Time synchronisation may set it in the middle of an outage."""
    memory = outages.rose(outages.fell(Outages(), 1000.0), 900.0)
    assert memory.before_seconds == 0.0


def test_a_link_that_flaps_for_days_is_remembered_in_bounds():
    """The memory is written at every edge."""
    edges = [
        (n * 20 + offset, what) for n in range(200) for offset, what in ((0, "down"), (9, "up"))
    ]
    memory, _ = lived(*edges, until=4000)
    assert len(memory.past) == 32
