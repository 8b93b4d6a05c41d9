"""Resets: begun, then succeeded, failed, or not heard of again."""

from aegis.model.fault import FaultClass as F
from aegis.model.fault import Severity
from aegis_agent.probes.kernel.line import Line
from aegis_agent.probes.kernel.reset import SILENCE_SECONDS

A, B = "amdgpu 0000:05:00.0: amdgpu:", "amdgpu 0000:26:00.0: amdgpu:"


def classes(signals):
    return [signal.fault_class for signal in signals]


def test_a_reset_that_succeeds(log):
    """Under way from begin to end, and the end says how long it took."""
    assert classes(log.say(f"{A} GPU reset begin!")) == [F.GPU_RESET_BEGIN]
    assert log.follow.resetting() == {"0000:05:00.0": 100.0}
    log.say(f"{A} MODE1 reset", after=4.0)
    log.say(f"{A} GPU reset succeeded, trying to resume", after=6.0)
    assert list(log.follow.resetting()) == ["0000:05:00.0"]
    (end,) = log.say(f"{A} GPU reset(2) succeeded!", after=2.5)
    assert (end.fault_class, end.details["seconds"]) == (F.GPU_RESET_SUCCEEDED, "12.5")
    assert log.follow.resetting() == {}
    assert F.GPU_RESET_FAILED not in classes(log.wait(1000.0))


def test_a_reset_that_fails(log):
    """The driver says so: nothing more is added."""
    log.say(f"{A} GPU reset begin!")
    (end,) = log.say(f"{A} GPU reset(2) failed", after=9.0)
    assert (end.fault_class, end.severity) == (F.GPU_RESET_FAILED, Severity.FATAL)
    assert F.GPU_RESET_FAILED not in classes(log.wait(1000.0))


def test_a_reset_that_is_not_heard_of_again_has_failed(log):
    """The thread that resets is stuck: nobody else would ever say so."""
    log.say(f"{A} GPU reset begin!")
    assert classes(log.wait(SILENCE_SECONDS - 1)) == []
    (failed,) = log.wait(2.0)
    assert (failed.fault_class, failed.severity) == (F.GPU_RESET_FAILED, Severity.FATAL)
    assert failed.device == "0000:05:00.0"
    assert "has not ended within 60 s" in failed.evidence[0]
    assert failed.evidence[1] == f"{A} GPU reset begin!"
    assert log.follow.resetting() == {}
    assert classes(log.say(f"{A} GPU reset(2) succeeded!")) == [F.GPU_RESET_SUCCEEDED]


def test_each_step_is_a_sign_of_life(log):
    """The driver tries three times; that takes longer than the silence which counts as failure."""
    log.say(f"{A} GPU reset begin!")
    for _ in range(3):
        log.say(f"{A} MODE1 reset", after=SILENCE_SECONDS - 1)
    (end,) = log.say(f"{A} GPU reset(4) succeeded!", after=1.0)
    assert end.fault_class is F.GPU_RESET_SUCCEEDED
    assert F.GPU_RESET_FAILED not in classes(log.signals)


def test_gpus_of_a_hive_are_reset_together(log):
    """One begins, all take part, each ends: none is left under way, none is called failed."""
    log.say(f"{A} GPU reset begin!")
    log.say(f"{A} MODE1 reset", f"{B} MODE1 reset", after=1.0)
    assert sorted(log.follow.resetting()) == ["0000:05:00.0", "0000:26:00.0"]
    told = log.say(f"{A} GPU reset(1) succeeded!", f"{B} GPU reset(1) succeeded!", after=9.0)
    assert [(s.device, s.fault_class) for s in told] == [
        ("0000:05:00.0", F.GPU_RESET_SUCCEEDED),
        ("0000:26:00.0", F.GPU_RESET_SUCCEEDED),
    ]
    assert log.follow.resetting() == {}
    assert F.GPU_RESET_FAILED not in classes(log.wait(1000.0))


def test_a_begin_that_is_left_to_another_reset_owes_nothing(log):
    """Two rings of one hive time out at once; the driver resets once."""
    log.say(f"{A} GPU reset begin!", f"{B} GPU reset begin!")
    log.say(f"{B} Bailing on TDR for s_job:1f, hive: 7 as another already in progress")
    log.say(f"{A} GPU reset(1) succeeded!", after=5.0)
    assert log.follow.resetting() == {}
    assert F.GPU_RESET_FAILED not in classes(log.wait(1000.0))


def test_where_lines_were_lost_silence_says_nothing(log):
    """The end of the reset may have been among them."""
    log.say(f"{A} GPU reset begin!")
    log.follow.missed()
    assert list(log.follow.resetting()) == ["0000:05:00.0"]
    assert F.GPU_RESET_FAILED not in classes(log.wait(1000.0))
    assert log.follow.resetting() == {}


def test_two_resets_at_once_end_each_for_itself(log):
    """The success of one does not excuse the other."""
    log.say(f"{A} GPU reset begin!", f"{B} GPU reset begin!")
    log.say(f"{A} GPU reset(1) succeeded!", after=5.0)
    failed = [s for s in log.wait(1000.0) if s.fault_class is F.GPU_RESET_FAILED]
    assert [signal.device for signal in failed] == ["0000:26:00.0"]


def test_the_drivers_own_reset_at_load_owes_nothing(log):
    """MODE1 reset without a begin is part of loading."""
    assert classes(log.say(f"{A} MODE1 reset")) == [F.GPU_RESET_PROGRESS]
    assert log.follow.resetting() == {}
    assert F.GPU_RESET_FAILED not in classes(log.wait(1000.0))


def test_a_begin_read_late_is_measured_by_when_it_happened(log):
    """The agent was away for ten minutes; begin and end are read at once."""
    begin, end = Line(text=f"{A} GPU reset begin!"), Line(text=f"{A} GPU reset(1) succeeded!")
    log.follow.feed(begin, happened=100.0, now=700.0)
    (told,) = log.follow.feed(end, happened=112.0, now=700.0)
    assert told.details["seconds"] == "12.0"
    log.follow.feed(begin, happened=200.0, now=700.0)
    assert classes(log.follow.tick(700.0)) == [F.GPU_RESET_FAILED]
