"""JSON for the frozen dataclasses of `aegis.model`, by pydantic's TypeAdapter."""

import json
import math
import re
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from aegis.model.event import Event
from aegis.model.job import Assignment, LauncherState
from aegis.wire.frames import Answer, Report

VERSION = 1

T = TypeVar("T")
_LOGGED = re.compile(rb'\{(?P<number>(?:"number":\d+,)?)"v":%d,"type":"(?P<type>\w+)"' % VERSION)
_TYPES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*get_args(Event), Report, Answer, LauncherState, Assignment)
}


class WireError(ValueError):
    """A message that is not one of ours, with a sentence that says why."""


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_jsonable(value: object) -> Any:
    """A model object as dicts, lists, strings and numbers."""
    return _adapter(type(value)).dump_python(value, mode="json")


def encode(message: object) -> str:
    """The message as one line of JSON that names its type and the version of this format."""
    body = _adapter(type(message)).dump_json(message).decode()
    head = f'{{"v":{VERSION},"type":"{type(message).__name__}"'
    return head + ("}" if body == "{}" else "," + body[1:])


def decode(line: str | bytes) -> Any:
    """The message that a line stands for. Raises WireError on anything unknown or misshapen."""
    try:
        fields = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except ValueError as error:
        raise WireError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise WireError("not a message: nested too deeply") from error
    if not isinstance(fields, dict):
        raise WireError(f"not a message: {type(fields).__name__}")
    if (version := fields.pop("v", None)) != VERSION:
        raise WireError(f"protocol version {version!r}; this side speaks {VERSION}")
    kind = _TYPES.get(fields.pop("type", ""))
    if kind is None:
        raise WireError("unknown message type")
    return _validate(kind, fields)


def decode_logged(line: bytes) -> Any:
    """Like decode, in two thirds of its time: an event of an exported log, which was checked."""
    head = _LOGGED.match(line)
    kind = _TYPES.get(head["type"].decode()) if head else None
    if head is None or kind is None:
        return decode(line)
    try:
        return _adapter(kind).validate_json(b"{" + line[head.end("number") :])
    except ValidationError as error:
        raise WireError(f"{kind.__name__}: {error.errors(include_url=False)[0]['msg']}") from error


def decode_as(kind: type[T], line: str | bytes) -> T:
    """Like decode, and of just this type."""
    message = decode(line)
    if not isinstance(message, kind):
        raise WireError(f"expected {kind.__name__}, got {type(message).__name__}")
    return message


def _finite(text: str) -> float:
    """A number that comes back from JSON as it went in: NaN and infinity do not."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def _validate(kind: type[Any], fields: dict[str, Any]) -> Any:
    try:
        return _adapter(kind).validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise WireError(f"{kind.__name__}.{place}: {first['msg']}") from error
