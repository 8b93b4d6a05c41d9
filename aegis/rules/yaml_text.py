"""YAML text that knows where each of its values stands."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A character of a file; lines and columns count from 1."""

    file: str
    line: int = 0  # 0: the file as a whole
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


VALUES_MAX = 100_000  # of a file once its aliases are unfolded
_BEING_COUNTED = 0
_TAG = "tag:yaml.org,2002:"
# What people mean by true, by a number. YAML 1.1 knows more: on, 010 (it is 8), 12:30 (750), 1_0.
_MEANT = {
    _TAG + "bool": re.compile(r"true|false"),
    _TAG + "int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    _TAG + "float": re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE),
}


class TextError(ValueError):
    """Text that is not usable YAML, and where."""

    def __init__(self, place: Place, sentence: str) -> None:
        super().__init__(sentence)
        self.place = place


def read(file: str, text: str) -> tuple[yaml.Node, Any]:
    """The tree, which knows its lines, and the plain values in it. Raises TextError."""
    found = read_if_any(file, text)
    if found is None:
        empty = "the file is empty: write rules into it or remove it"
        raise TextError(Place(file, 1, 1), empty)
    return found


def read_if_any(file: str, text: str) -> tuple[yaml.Node, Any] | None:
    """The same; None where the text holds nothing but comments."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _count(file, root, {})
        return root, loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise TextError(place, f"not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, TextError):
            raise
        raise TextError(Place(file), f"not YAML: {' '.join(str(error).split())}") from error


def child(node: yaml.Node, path: Iterable[int | str]) -> yaml.Node:
    """The deepest part of the path that exists."""
    for part in path:
        deeper = _child(node, part)
        if deeper is None:
            break
        node = deeper
    return node


def place_of(file: str, node: yaml.Node, path: Iterable[int | str]) -> Place:
    """Where the deepest part of the path that exists stands."""
    return at(file, child(node, path))


def has(node: yaml.Node, key: str) -> bool:
    """Whether the mapping has the key."""
    return _child(node, key) is not None


def inside(file: str, node: yaml.Node, key: str, text: str, offset: int) -> Place:
    """Where a character of a text value stands in the file."""
    value = _child(node, key)
    if not isinstance(value, yaml.ScalarNode):
        return at(file, node)
    start = at(file, value)
    before = text[:offset]
    if value.style in ("|", ">"):  # the text begins on the next line, indented
        return Place(file, start.line + 1 + before.count("\n"), 1)
    if value.end_mark.line != value.start_mark.line:
        return start
    quote = 1 if value.style in ("'", '"') else 0
    return Place(file, start.line, start.column + quote + len(before))


def at(file: str, node: yaml.Node) -> Place:
    """Where the node begins."""
    return Place(file, node.start_mark.line + 1, node.start_mark.column + 1)


def _child(node: yaml.Node, part: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((item for key, item in node.value if key.value == part), None)
    return None


def _count(file: str, node: yaml.Node, counted: dict[int, int]) -> int:
    """How many values it holds, each alias unfolded. Refuses what would not be what it seems."""
    if (known := counted.get(id(node))) is not None:
        if known == _BEING_COUNTED:
            raise TextError(at(file, node), "it holds an alias of itself: write it out")
        return known
    counted[id(node)] = _BEING_COUNTED
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        parts = node.value
    elif isinstance(node, yaml.MappingNode):
        _refuse_twins(file, node)
        parts = [part for pair in node.value for part in pair]
    else:
        _refuse_lookalike(file, node)
    total = 1 + sum(_count(file, part, counted) for part in parts)
    if total > VALUES_MAX:
        sentence = f"it unfolds to more than {VALUES_MAX:,} values: make it smaller"
        raise TextError(at(file, node), sentence)
    counted[id(node)] = total
    return total


def _refuse_twins(file: str, node: yaml.MappingNode) -> None:
    """A key given twice would silently hide the first."""
    seen: set[str] = set()
    for key, _item in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise TextError(at(file, key), f"{key.value!r} is given twice: remove one")
        seen.add(str(key.value))


def _refuse_lookalike(file: str, node: yaml.Node) -> None:
    """A label `on` would silently become true, and `010` eight."""
    meant = _MEANT.get(node.tag)
    if meant and isinstance(node, yaml.ScalarNode) and not meant.fullmatch(node.value):
        kind = {"bool": "true or false"}.get(node.tag.removeprefix(_TAG), "another number")
        sentence = (
            f"YAML reads {node.value} as {kind}: write text in quotes, numbers in plain digits"
        )
        raise TextError(at(file, node), sentence)
