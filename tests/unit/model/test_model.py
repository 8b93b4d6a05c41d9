"""The words are plain, frozen and whole."""

import dataclasses
import importlib
import pkgutil
from enum import Enum

import pytest

import aegis.model
from aegis.model.fault import FaultClass

MODULES = [
    importlib.import_module(f"aegis.model.{module.name}")
    for module in pkgutil.iter_modules(aegis.model.__path__)
]
CLASSES = [
    thing
    for module in MODULES
    for thing in vars(module).values()
    if isinstance(thing, type) and thing.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_word_is_an_enum_or_a_frozen_record(kind):
    """Whoever holds one may keep it: nobody can change it, and no field hides in a position."""
    if issubclass(kind, Enum):
        assert issubclass(kind, str)
        return
    assert dataclasses.is_dataclass(kind)
    parameters = kind.__dataclass_params__
    assert parameters.frozen
    assert all(field.kw_only for field in dataclasses.fields(kind))


def test_a_fault_class_names_component_subject_and_kind():
    """One name from metric to rule to page."""
    for one in FaultClass:
        parts = one.value.split(".")
        assert len(parts) in (2, 3)
        assert parts[0] in ("gpu", "nic", "pcie", "host", "node", "job")
        assert one.name.lower() == one.value.replace(".", "_")
