"""The form of a rule file, as pydantic reads it. The JSON Schema is made from it.

A duration is a number of seconds or text such as `10m`. A class is a name or a glob such as
`gpu.ecc.*`. What may be a list may be one value too.
"""

import difflib
import fnmatch
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from aegis.model.fault import FaultClass, Severity
from aegis.model.incident import Remedy
from aegis.model.policy import Mode
from aegis.rules.match import Scope
from aegis.rules.rule import Status, Told, Verify

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)")
_DURATION_SCHEMA = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|min|h|d)$"},
    ]
}


def seconds(value: object) -> float:
    """A duration as a number of seconds. Raises ValueError with a sentence."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
        return float(value)
    if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        length = float(found[1]) * UNITS[found[2]]
        if length > 0:
            return length
    raise ValueError(f"{value!r} is no duration: write seconds above 0, or text such as 10m or 24h")


def _per_second(value: object) -> float:
    """A rate such as `10/h`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|m|min|h|d)\s*", str(value))
    if found is None or not float(found[1]):
        raise ValueError(f"{value!r} is no rate: write so many per time, such as 10/h")
    return float(found[1]) / UNITS[found[2]]


def _for(value: object) -> object:
    if value is None or value == "policy":
        return value
    try:
        return seconds(value)
    except ValueError as error:
        raise ValueError(
            f"for is {value!r}: write `policy`, a number of seconds above 0, or text such as 10m"
        ) from error


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def meant(value: str) -> tuple[FaultClass, ...]:
    """A class, or all that a glob means."""
    return tuple(one for one in FaultClass if fnmatch.fnmatchcase(one, value))


def _class(value: str) -> str:
    if meant(value):
        return value
    words = [one.value for one in FaultClass]
    close = difflib.get_close_matches(value, words, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "`aegis faults` lists them"
    raise ValueError(f"unknown class {value!r}: {hint}")


def _texts(value: object) -> object:
    """Labels are text; a number that YAML read out of one is meant as text."""
    if not isinstance(value, dict):
        return value
    return {str(key): _as_written(one) for key, one in value.items()}


def _as_written(value: object) -> object:
    """What `yaml_text` lets through as a truth or a whole number stands for its own text."""
    return str(value).lower() if isinstance(value, int) else value


def _one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


Duration = Annotated[float, BeforeValidator(seconds), WithJsonSchema(_DURATION_SCHEMA)]
Rate = Annotated[
    float,
    BeforeValidator(_per_second),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*/\s*(s|m|min|h|d)$"}),
]
For = Annotated[
    Literal["policy"] | float | None,
    BeforeValidator(_for),
    WithJsonSchema({"anyOf": [{"const": "policy"}, *_DURATION_SCHEMA["anyOf"]]}),
]
Classes = Annotated[
    list[Annotated[str, AfterValidator(_class)]],
    BeforeValidator(_listed),
    _one_or_many(
        {
            "anyOf": [
                {"enum": [one.value for one in FaultClass]},
                {"type": "string", "pattern": r"^[a-z_.]*[*?\[].*$", "description": "a glob"},
            ]
        }
    ),
]
Severities = Annotated[
    list[Severity],
    BeforeValidator(_listed),
    _one_or_many({"enum": [one.value for one in Severity]}),
]
Texts = Annotated[dict[str, str], BeforeValidator(_texts)]
Text = Annotated[str, Field(min_length=1)]
_STRICT = ConfigDict(extra="forbid")


class _Match(BaseModel):
    """Conditions on a fault. Every one that is given must hold; missing data matches nothing."""

    model_config = _STRICT

    severity: Annotated[Severities, Field(description="one or a list; any when left out")] = []
    device: Annotated[str, Field(description="a glob such as gpu*")] = "*"
    scope: Annotated[Scope, Field(description="among whom count and rate count")] = Scope.DEVICE
    count: Annotated[
        int,
        Field(
            ge=1,
            validation_alias=AliasChoices("count", "min_count"),
            description="how many at least: in the incident, or in the time that `within` gives",
        ),
    ] = 1
    within: Annotated[Duration | None, Field(description="the time in which to count")] = None
    rate: Annotated[Rate | None, Field(description="at least so many per time: 10/h")] = None
    labels: Annotated[Texts, Field(description="of the node: name and glob")] = {}
    details: Annotated[Texts, Field(description="of the fault: name and glob")] = {}
    where: Annotated[str, Field(description="a CEL expression over fault, details, labels")] = ""


class ExceptionForm(_Match):
    """What the rule does not speak of after all."""

    classes: Annotated[Classes, Field(alias="class")] = []
    description: str = ""


class RungForm(BaseModel):
    """A step of the ladder, tried when the one before was tried often enough."""

    model_config = _STRICT

    remedy: Remedy
    attempts: Annotated[int | None, Field(ge=1)] = None
    attempts_within: Duration = 86400.0


class GuardForm(BaseModel):
    """Limits of this rule; they only tighten those of the policy."""

    model_config = _STRICT

    cooldown: Annotated[Duration | None, Field(description="before the same node again")] = None
    max_per_rack: Annotated[int | None, Field(ge=0)] = None
    needs_spare: bool = False
    budget: Annotated[int | None, Field(ge=0, description="nodes in the policy's window")] = None


class RuleForm(_Match):
    """What to do about some faults."""

    id: Text
    title: Text
    description: str = ""
    status: Status = Status.TEST
    override: Annotated[
        Literal["replace", "append", "disable"] | None,
        Field(description="of the rule with this id in a layer below"),
    ] = None
    classes: Annotated[Classes, Field(alias="class", min_length=1)]
    unless: Annotated[list[ExceptionForm], BeforeValidator(_listed)] = []
    for_: Annotated[
        For,
        Field(
            alias="for",
            validation_alias=AliasChoices("for", "hold_down"),
            description="how long it must last: `policy` or a duration",
        ),
    ] = None
    remedy: Remedy
    attempts: Annotated[
        int | None, Field(ge=1, description="of this remedy, before the next rung")
    ] = None
    attempts_within: Duration = 86400.0
    if_fails: Annotated[list[RungForm], BeforeValidator(_listed)] = []
    guard: GuardForm = GuardForm()
    verify: Verify = Verify.POLICY
    notify: Told = Told.SEVERITY
    mode: Annotated[Mode, Field(description="the most this rule may do")] = Mode.ENFORCE
    runbook: str = ""
    references: list[str] = []


class DisableForm(BaseModel):
    """Takes the rule of this id out."""

    model_config = _STRICT

    id: Text
    override: Literal["disable"]
    description: str = ""


class AppendForm(BaseModel):
    """Adds to the rule of this id: lists grow, single values take the place of those there."""

    model_config = ConfigDict(extra="allow")

    id: Text
    override: Literal["append"]


class FileForm(BaseModel):
    """A rule file."""

    model_config = _STRICT

    api_version: Annotated[Literal["aegis/v1"], Field(alias="apiVersion")]
    kind: Literal["RuleSet"]
    name: Text
    requires: Annotated[str, Field(pattern=r"^>=\d+(\.\d+)*$")] = ""
    rules: Annotated[list[Any], Field(min_length=1)]
