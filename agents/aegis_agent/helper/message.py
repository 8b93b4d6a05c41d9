"""The order as it comes, the result as it goes: one line of JSON each, read without trust."""

import json
from dataclasses import asdict, fields
from typing import Any

from aegis.model.fault import FaultClass
from aegis.model.order import Order, OrderResult, Verb

VERSION = 1
BYTES_MAX = 1 << 16
_TEXT_MAX = 500
_ITEMS_MAX = 256
_TEXTS = ("id", "node", "boot_id", "incident", "reason", "device", "identity")
_NAMES = frozenset({"v", *(field.name for field in fields(Order))})


class MessageError(ValueError):
    """What came is no order; the sentence says why."""


def read_order(line: bytes) -> Order:
    """The order that a line stands for. Raises MessageError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise MessageError(f"it is no order of version {VERSION}: update agent and helper together")
    if strange := sorted(set(found) - _NAMES) or sorted(_NAMES - set(found)):
        raise MessageError(f"it has unknown or missing fields: {', '.join(strange)}")
    texts = {name: _text(name, found[name]) for name in _TEXTS}
    for name in ("id", "node", "boot_id"):
        if not texts[name]:
            raise MessageError(f"{name} is empty")
    return Order(
        verb=_verb(found["verb"]),
        epoch=_whole("epoch", found["epoch"]),
        expires_at=_number("expires_at", found["expires_at"]),
        fault_class=_fault_class(found["fault_class"]),
        devices=tuple(_text("devices", one) for one in _list("devices", found["devices"])),
        processes=tuple(_whole("processes", one) for one in _list("processes", found["processes"])),
        **texts,
    )


def write_order(order: Order) -> bytes:
    """The line that the agent sends."""
    return json.dumps({"v": VERSION, **asdict(order)}).encode() + b"\n"


def write_result(result: OrderResult) -> bytes:
    """The line that it is answered with."""
    return json.dumps({"v": VERSION, **asdict(result)}).encode() + b"\n"


def _verb(value: object) -> Verb:
    try:
        return Verb(str(value))
    except ValueError as error:
        raise MessageError(f"unknown verb {value!r}: it knows {', '.join(Verb)}") from error


def _fault_class(value: object) -> FaultClass:
    try:
        return FaultClass(str(value))
    except ValueError as error:
        raise MessageError(f"unknown class of fault {value!r}") from error


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_MAX or not value.isprintable():
        raise MessageError(f"{name} is no text of at most {_TEXT_MAX} letters")
    return value


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise MessageError(f"{name} is no whole number")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 40:
        raise MessageError(f"{name} is no time in seconds")
    return float(value)


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _ITEMS_MAX:
        raise MessageError(f"{name} is no list of at most {_ITEMS_MAX}")
    return value
