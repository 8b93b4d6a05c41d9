"""The words survive the wire: whatever is sent is what arrives."""

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.model.event import Event
from aegis.model.job import Assignment, LauncherState
from aegis.wire import (
    VERSION,
    Answer,
    Report,
    WireError,
    decode,
    decode_as,
    decode_logged,
    encode,
    to_jsonable,
)

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))

MESSAGES = (*get_args(Event), Report, Answer, LauncherState, Assignment)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_as_it_went(kind):
    """To JSON and back is the identity, for any message of each type."""

    @settings(max_examples=40, deadline=None)
    @given(st.from_type(kind))
    def check(message):
        assert decode_as(kind, encode(message)) == message

    check()


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_comes_back_from_an_exported_log(kind):
    """Also a fault, whose number in its spool is not its number in the log."""

    @settings(max_examples=20, deadline=None)
    @given(st.from_type(kind))
    def check(event):
        line = encode(event).encode()
        assert decode_logged(line) == event
        assert decode_logged(b'{"number":7,' + line[1:]) == event

    check()


@pytest.mark.parametrize(
    "line", [b"", b'{"v":1,"type":"Tock"}', b'{"number":1,"v":1,"type":"Tick"}']
)
def test_what_is_no_event_of_a_log_is_refused(line):
    """With the same kind of error."""
    with pytest.raises(WireError):
        decode_logged(line)


@given(st.from_type(Report))
@settings(max_examples=20, deadline=None)
def test_a_message_names_its_type_and_version(report):
    """So that either side can refuse what it does not speak."""
    line = encode(report)
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["v"] == VERSION
    assert fields["type"] == "Report"
    assert to_jsonable(report)["sent_at"] == report.sent_at


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not a message"),
        ('{"type":"Tick","at":1}', "version None"),
        ('{"v":2,"type":"Tick","at":1}', "version 2"),
        ('{"v":1,"type":"Tock"}', "unknown message type"),
        ('{"v":1,"type":"Tick"}', "Tick.at"),
        ('{"v":1,"type":"Tick","at":NaN}', "not a finite number"),
        ('{"v":1,"type":"Tick","at":1e999}', "not a finite number"),
        ('{"v":1,"type":"Tick","at":"soon"}', "Tick.at"),
    ],
)
def test_what_is_none_of_ours_is_refused_with_a_reason(line, why):
    """One kind of error, whatever is wrong."""
    with pytest.raises(WireError, match=why):
        decode(line)


def test_a_message_of_another_type_is_refused():
    """An agent that sends an Answer is no agent."""
    with pytest.raises(WireError, match="expected Report, got Answer"):
        decode_as(Report, encode(Answer(epoch=1, sent_at=0.0)))


@given(st.text())
def test_no_text_makes_the_decoder_fail_otherwise(text):
    """Whatever arrives, it is a message or a WireError."""
    with pytest.raises(WireError):
        decode(text)
