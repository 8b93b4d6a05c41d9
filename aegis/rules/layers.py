"""Layers of rule files, and what a layer changes in the ones below.

A layer's own rules are asked before those of the layers below. A rule that overrides one keeps the
place of that one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from aegis.rules import sentence, yaml_text
from aegis.rules.form import AppendForm, DisableForm, FileForm
from aegis.rules.problem import Problem
from aegis.rules.yaml_text import Place, TextError

JOINT = "#=== "  # begins the lines by which Aegis joins files
_GROWING = ("class", "severity", "unless", "if_fails", "references")
_MERGING = ("labels", "details", "guard")


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule as it stands in a file, or in two: what it adds, and what it adds to."""

    id: str
    raw: dict[str, Any]
    file: str
    node: yaml.Node
    layer: int
    below: "Entry | None" = None

    def place(self, path: Sequence[int | str] = ()) -> Place:
        """Where a part of it stands."""
        if self.below and path and not yaml_text.has(self.node, str(path[0])):
            return self.below.place(path)
        return yaml_text.place_of(self.file, self.node, path)

    def place_inside(self, key: str, text: str, offset: int) -> Place:
        """Where a character of one of its values stands."""
        if self.below and not yaml_text.has(self.node, key):
            return self.below.place_inside(key, text, offset)
        return yaml_text.inside(self.file, self.node, key, text, offset)

    def problem(self, place: Place, text: str, *, is_doubt: bool = False) -> Problem:
        """Something wrong with it."""
        return Problem(place, text, self.layer, is_doubt)


@dataclass(slots=True)
class Gathered:
    """The rules of all layers in the order in which they are asked."""

    version: str  # of Aegis; empty: not looked at
    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, layer: int, texts: Mapping[str, str]) -> None:
        """Lay the files over what is there."""
        read: list[Entry] = []
        for file in sorted(texts):
            read += self._file(layer, file, texts[file])
        own: list[Entry] = []
        seen: dict[str, Entry] = {}
        for entry in read:
            if entry.id in seen:
                taken = f"the rule id {entry.id!r} is taken at {seen[entry.id].place()}: rename one"
                self.problems.append(entry.problem(entry.place(), taken))
                continue
            seen[entry.id] = entry
            own += self._laid(entry)
        self.entries = [*own, *self.entries]

    def _laid(self, entry: Entry) -> list[Entry]:
        """Do what it does to the rules below; itself, when it is a new one."""
        below = next((one for one in self.entries if one.id == entry.id), None)
        override = entry.raw.get("override")
        if override is None:
            if below is not None:
                text = (
                    f"the rule id {entry.id!r} is taken at {below.place()}, below: rename it, or "
                    "say `override: replace`, `append` or `disable`"
                )
                self.problems.append(entry.problem(entry.place(), text))
            return [entry]
        if below is None:
            known = [one.id for one in self.entries]
            text = f"it overrides {entry.id!r}, and no layer below has such a rule"
            text += sentence.near(entry.id, known, ": ", "; it is new: leave `override` out")
            self.problems.append(entry.problem(entry.place(("override",)), text))
            return []
        place = self.entries.index(below)
        match override:
            case "disable":
                del self.entries[place]
            case "append":
                self.entries[place] = _added(entry, below)
            case _:
                self.entries[place] = entry
        return []

    def _file(self, layer: int, file: str, text: str) -> list[Entry]:
        if text.startswith(JOINT) or f"\n{JOINT}" in text:
            why = f"a line begins with {JOINT!r}, which Aegis itself writes: take it out"
            self.problems.append(Problem(Place(file), why, layer))
            return []
        try:
            root, value = yaml_text.read(file, text)
            head = FileForm.model_validate(value)
        except TextError as error:
            self.problems.append(Problem(error.place, str(error), layer))
            return []
        except ValidationError as error:
            self.problems += of_form(error, FileForm, file, root, layer)
            return []
        if self.version and head.requires and _older(self.version, head.requires):
            place = yaml_text.place_of(file, root, ("requires",))
            why = f"it needs Aegis {head.requires} and this is {self.version}: install that one"
            self.problems.append(Problem(place, why, layer))
        entries = (
            self._entry(file, yaml_text.child(root, ("rules", number)), raw, layer)
            for number, raw in enumerate(head.rules)
        )
        return [entry for entry in entries if entry is not None]

    def _entry(self, file: str, node: yaml.Node, raw: Any, layer: int) -> Entry | None:
        """A rule that says who it is. Whether it is a whole one is looked at later."""
        forms: dict[object, type[BaseModel]] = {"disable": DisableForm, "append": AppendForm}
        if not isinstance(raw, dict):
            text = "a mapping of keys to values is expected here"
            self.problems.append(Problem(yaml_text.at(file, node), text, layer))
            return None
        form = forms.get(raw.get("override"))
        if form is not None:
            try:
                form.model_validate(raw)
            except ValidationError as error:
                self.problems += of_form(error, form, file, node, layer)
                return None
        name = raw.get("id")
        if not isinstance(name, str) or not name:
            given = "'id' is missing: add it" if name is None else f"id is {name!r}: write a name"
            place = yaml_text.place_of(file, node, ("id",))
            self.problems.append(Problem(place, given, layer))
            return None
        return Entry(name, raw, file, node, layer)


def of_form(
    error: ValidationError, form: type[BaseModel], file: str, node: yaml.Node, layer: int
) -> list[Problem]:
    """What the form does not allow."""
    return [
        Problem(yaml_text.place_of(file, node, one["loc"]), sentence.of(one, form), layer)
        for one in error.errors(include_url=False)
    ]


def _added(entry: Entry, below: Entry) -> Entry:
    raw = dict(below.raw)
    for key, value in entry.raw.items():
        if key == "override":
            continue
        before = raw.get(key)
        if key in _GROWING and before is not None:
            raw[key] = [*_listed(before), *_listed(value)]
        elif key in _MERGING and isinstance(before, dict) and isinstance(value, dict):
            raw[key] = {**before, **value}
        else:
            raw[key] = value
    return replace(entry, raw=raw, below=below)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _older(version: str, requires: str) -> bool:
    def parts(text: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", text)[:3]]

    return parts(version) < parts(requires)
