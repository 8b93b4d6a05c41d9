"""Records are replaced, not changed."""

import dataclasses

import pytest

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.job import JobSpec, LauncherState
from aegis.model.node import Node
from aegis.model.record import replace

SPEC = JobSpec(name="llama", nodes=2, ranks_per_node=8)
FAULT = Fault(
    fault_class=FaultClass.GPU_LOST,
    severity=Severity.ERROR,
    node="n1",
    device="gpu0",
    observed_at=100.0,
)


def test_the_named_fields_change_and_no_other() -> None:
    """Everything else is the very same object as before."""
    before = Node(name="n1", labels=(("rack", "r1"),), reason="new here")

    after = replace(before, reason="cordoned", held_by="alice")

    assert (after.reason, after.held_by) == ("cordoned", "alice")
    assert after.labels is before.labels
    assert dataclasses.replace(after, reason="new here", held_by="") == before


def test_the_record_itself_stays_as_it_was() -> None:
    """Whoever holds the old one sees the old one."""
    before = Node(name="n1", reason="new here")

    replace(before, reason="cordoned")

    assert before.reason == "new here"


@pytest.mark.parametrize(
    "record",
    [
        SPEC,
        FAULT,
        Node(name="n1", boot_id="boot"),
        LauncherState(spec=SPEC, launcher="l1", address="n1", store_port=1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_it_does_what_that_of_dataclasses_does(record: object) -> None:
    """With no change and with any single one, equal in value, hash and kind."""
    assert replace(record) == record
    assert replace(record) is not record
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        mine = replace(record, **{field.name: "other"})
        usual = dataclasses.replace(record, **{field.name: "other"})  # type: ignore[type-var]
        assert mine == usual
        assert hash(mine) == hash(usual)
        assert type(mine) is type(record)


def test_one_record_may_be_replaced_many_times_over() -> None:
    """A change goes on from the last, and later ones win."""
    node = Node(name="n1")
    for number in range(3):
        node = replace(replace(node, reason=f"for the {number}. time"), boot_id=f"boot{number}")

    assert node == Node(name="n1", reason="for the 2. time", boot_id="boot2")


def test_the_new_record_is_as_frozen_as_the_old() -> None:
    """No field of it can be set."""
    after = replace(Node(name="n1"), reason="cordoned")

    with pytest.raises(dataclasses.FrozenInstanceError):
        after.reason = "ready"  # type: ignore[misc]


def test_a_name_that_is_no_field_is_refused() -> None:
    """A misspelt change is an error, not a change that is lost."""
    with pytest.raises(AttributeError, match="raeson"):
        replace(Node(name="n1"), raeson="cordoned")


def test_kinds_of_records_do_not_get_mixed_up() -> None:
    """Two kinds that share a field's name each keep their own fields."""
    node, spec = replace(Node(name="n1"), name="n2"), replace(SPEC, name="tiny")

    assert node == Node(name="n2")
    assert spec == JobSpec(name="tiny", nodes=2, ranks_per_node=8)
