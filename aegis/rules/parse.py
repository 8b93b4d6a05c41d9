"""Rule files: YAML text in, rules out. An error names its place and says how to mend it.

    apiVersion: aegis/v1
    kind: RuleSet
    name: amd-gpu
    rules:
      - id: gpu.ecc.uncorrectable
        title: Uncorrectable memory error
        class: gpu.ecc.uncorrectable    # or a list
        severity: [error, fatal]        # any, when left out
        min_count: 1
        device: gpu*                    # a glob
        hold_down: policy               # or seconds; acts on what lasts longer
        remedy: drain_now
        mode: enforce                   # the most this rule may do
        runbook: https://…
        references: [AMD Service Action Guide]

Files are read in the order of their names; the first rule that matches a fault decides about it.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from aegis.model.fault import FaultClass, Severity
from aegis.model.incident import Remedy
from aegis.model.policy import Mode
from aegis.rules.rule import Rule, RuleSet

_MARKER = "#=== file: "
_SPLIT = re.compile(rf"^{_MARKER}(.+)\n", re.MULTILINE)


class RuleError(ValueError):
    """A rule file that cannot be used: where, what is wrong, how to mend it."""


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _held_down(value: object) -> object:
    if value is None or value == "policy" or _is_positive(value):
        return value
    raise ValueError(f"hold_down is {value!r}: write `policy` or a number of seconds above 0")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    title: Annotated[str, Field(min_length=1)]
    description: str = ""
    classes: Annotated[
        list[FaultClass], BeforeValidator(_listed), Field(alias="class", min_length=1)
    ]
    severity: Annotated[list[Severity], BeforeValidator(_listed)] = []
    min_count: Annotated[int, Field(ge=1)] = 1
    device: str = "*"
    hold_down: Annotated[Literal["policy"] | float | None, BeforeValidator(_held_down)] = None
    remedy: Remedy
    mode: Mode = Mode.ENFORCE
    runbook: str = ""
    references: list[str] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    api_version: Annotated[Literal["aegis/v1"], Field(alias="apiVersion")]
    kind: Literal["RuleSet"]
    name: Annotated[str, Field(min_length=1)]
    rules: Annotated[list[_Rule], Field(min_length=1)]


def parse(texts: Mapping[str, str]) -> RuleSet:
    """The rules of some files, by file name. Raises RuleError at the first thing wrong."""
    rules: list[Rule] = []
    places: dict[str, str] = {}
    for file in sorted(texts):
        for rule, place in _read(file, texts[file]):
            if rule.id in places:
                raise RuleError(
                    f"{place}: the rule id {rule.id!r} is taken at {places[rule.id]}: rename one"
                )
            places[rule.id] = place
            rules.append(rule)
    text = "".join(f"{_MARKER}{file}\n{texts[file].rstrip()}\n" for file in sorted(texts))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return RuleSet(rules=tuple(rules), text=text, digest=digest)


def parse_text(text: str) -> RuleSet:
    """The rule set whose `text` this is."""
    _, *parts = _SPLIT.split(text)
    return parse(dict(zip(parts[::2], parts[1::2], strict=True)))


def _read(file: str, text: str) -> Iterable[tuple[Rule, str]]:
    root, value = _load(file, text)
    try:
        read = _File.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RuleError(f"{_place(file, root, first['loc'])}: {_sentence(first)}") from error
    for number, one in enumerate(read.rules):
        yield _rule(one, file), _place(file, root, ("rules", number))


def _load(file: str, text: str) -> tuple[yaml.Node, Any]:
    """The YAML tree, which knows its lines, and the plain values in it."""
    if _MARKER in text:
        raise RuleError(f"{file}: it holds {_MARKER!r}, which Aegis itself writes: take it out")
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise RuleError(f"{file}:1:1: the file is empty: write rules into it or remove it")
        _refuse_twins(file, root)
        return root, loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise RuleError(f"{place}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise RuleError(f"{file}: not YAML: {error}") from error


def _refuse_twins(file: str, node: yaml.Node) -> None:
    """A key given twice would silently hide the first."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_twins(file, item)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, item in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise RuleError(f"{_at(file, key)}: {key.value!r} is given twice: remove one")
            seen.add(str(key.value))
            _refuse_twins(file, item)


def _place(file: str, node: yaml.Node, path: Iterable[int | str]) -> str:
    """The line and column of the deepest part of the path that exists."""
    for part in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
        elif isinstance(node, yaml.MappingNode):
            found = next((item for key, item in node.value if key.value == part), None)
            if found is None:
                break
            node = found
        else:
            break
    return _at(file, node)


def _at(file: str, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


_WORDS: dict[str, list[str]] = {
    "class": [one.value for one in FaultClass],
    "severity": [one.value for one in Severity],
    "remedy": [one.value for one in Remedy],
    "mode": [one.value for one in Mode],
}
_RULE_KEYS = [field.alias or name for name, field in _Rule.model_fields.items()]
_FILE_KEYS = [field.alias or name for name, field in _File.model_fields.items()]


def _sentence(error: ErrorDetails) -> str:  # noqa: PLR0911  one line for each kind of error
    """What is wrong and how to mend it."""
    names = [part for part in error["loc"] if isinstance(part, str)]
    name = names[-1] if names else "the file"
    match error["type"]:
        case "enum":
            word = next(part for part in reversed(names) if part in _WORDS)
            return f"unknown {word} {error['input']!r}: {_suggestion(error['input'], _WORDS[word])}"
        case "extra_forbidden":
            known = _RULE_KEYS if len(names) > 1 else _FILE_KEYS
            return f"unknown key {name!r}: {_suggestion(name, known)}"
        case "missing":
            return f"{name!r} is missing: add it"
        case "literal_error":
            return f"{name} is {error['input']!r}: write {error['ctx']['expected']}"
        case "value_error":
            return str(error["ctx"]["error"])
        case "model_type":
            return "a mapping of keys to values is expected here"
        case _:
            return f"{name} is {error['input']!r}: {error['msg'].lower()}"


def _suggestion(word: object, known: list[str]) -> str:
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if len(known) <= len(_RULE_KEYS):
        return f"use one of {', '.join(known)}"
    return "the vocabulary is in aegis/model/fault.py"


def _rule(read: _Rule, file: str) -> Rule:
    waits = read.hold_down is not None
    seconds = None if isinstance(read.hold_down, str) else read.hold_down
    return Rule(
        id=read.id,
        title=read.title,
        description=read.description,
        classes=tuple(read.classes),
        severities=tuple(read.severity),
        min_count=read.min_count,
        device=read.device,
        waits=waits,
        hold_down_seconds=seconds,
        remedy=read.remedy,
        mode=read.mode,
        runbook=read.runbook,
        references=tuple(read.references),
        file=file,
    )
