"""The dashboard's TypeScript types, written from the dataclasses that the API answers with.

`python tests/browser/model_types.py` writes `dashboards/web/src/types.ts`; a test compares, so that
page and API cannot drift apart.
"""

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from aegis.controller.api.checkpoints import CheckpointPage
from aegis.controller.views import IncidentView, JobVerb, Summary
from aegis.core.history import History
from aegis.core.job_plan import JobPlan
from aegis.model.incident import Incident
from aegis.model.job import Job
from aegis.model.node import Node

FILE = Path(__file__).resolve().parents[2] / "dashboards" / "web" / "src" / "types.ts"
ROOTS = (CheckpointPage, History, Incident, IncidentView, Job, JobPlan, JobVerb, Node, Summary)
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
HEAD = (
    "// Written from the API's dataclasses by `python tests/browser/model_types.py`; do not edit.\n"
)


def render() -> str:
    """The whole file."""
    return HEAD + "".join(f"\n{_declaration(kind)}" for kind in _reachable())


def _reachable() -> list[type[Any]]:
    found: dict[type[Any], None] = {}
    todo = list(ROOTS)
    while todo:
        kind = todo.pop(0)
        if kind not in found:
            found[kind] = None
            todo += _mentioned(kind)
    return sorted(found, key=lambda kind: kind.__name__)


def _mentioned(kind: type[Any]) -> Iterator[type[Any]]:
    todo = list(get_type_hints(kind).values()) if is_dataclass(kind) else []
    while todo:
        hint = todo.pop(0)
        todo += get_args(hint)
        if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, StrEnum)):
            yield hint


def _declaration(kind: type[Any]) -> str:
    if issubclass(kind, StrEnum):
        return f"export type {kind.__name__} =" + "".join(f'\n  | "{one}"' for one in kind) + ";\n"
    hints = get_type_hints(kind)
    lines = [f"  readonly {field.name}: {_type(hints[field.name])};\n" for field in fields(kind)]
    return f"export interface {kind.__name__} {{\n{''.join(lines)}}}\n"


def _type(hint: Any) -> str:
    if hint in PLAIN:
        return PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " | ".join(_type(one) for one in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"readonly [{', '.join(_type(one) for one in arguments)}]"
    if origin is dict:
        key, value = (_type(one) for one in arguments)
        record = f"Record<{key}, {value}>"
        return f"Readonly<{record if key == 'string' else f'Partial<{record}>'}>"
    if origin in (tuple, frozenset):
        item = _type(arguments[0])
        return f"readonly {f'({item})' if ' ' in item else item}[]"
    return str(hint.__name__)


if __name__ == "__main__":
    FILE.write_text(render())
