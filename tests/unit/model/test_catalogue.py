"""The catalogue: every class of fault is explained, whole, to someone who has not met it."""

import pytest

from aegis.model.catalogue import CATALOGUE
from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.afid_table import AFIDS

ENTRIES = [pytest.param(one, entry, id=one) for one, entry in CATALOGUE.items()]


def test_every_class_is_explained_in_the_order_of_the_vocabulary() -> None:
    """A class without a page would be met for the first time at night."""
    assert list(CATALOGUE) == list(FaultClass)
    titles = [entry.title for entry in CATALOGUE.values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(("fault_class", "entry"), ENTRIES)
def test_each_entry_is_whole(fault_class, entry) -> None:
    """What it is, what it does, where it is seen, what to do, what to look at, what to read."""
    sentences = [entry.description, entry.effect, entry.answer]
    assert all(text[0].isupper() and text.endswith(".") for text in sentences)
    assert not entry.title.endswith(".")
    assert entry.scope
    assert entry.seen
    assert all(entry.seen)
    assert 2 <= len(entry.check) <= 4
    assert isinstance(entry.severity, Severity)
    assert entry.references
    assert all(one.title and one.url.startswith("https://") for one in entry.references)


@pytest.mark.parametrize(("fault_class", "entry"), ENTRIES)
def test_commands_are_closed(fault_class, entry) -> None:
    """A command in a page must be one that can be copied."""
    assert all(text.count("`") % 2 == 0 for text in (*entry.check, entry.answer))


def test_each_field_id_stands_beside_its_class() -> None:
    """What the decoder makes of an AFID is what the class's page says."""
    missing = [
        (number, afid.fault_class)
        for number, afid in AFIDS.items()
        if afid.fault_class is not None and number not in CATALOGUE[afid.fault_class].afids
    ]
    assert missing == []


def test_what_was_corrected_is_no_error() -> None:
    """What the hardware put right costs nobody anything."""
    corrected = [one for one in FaultClass if one.endswith((".correctable", ".corrected"))]
    assert {CATALOGUE[one].severity for one in corrected} <= {Severity.INFO, Severity.WARNING}
