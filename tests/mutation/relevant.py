"""Which tests run which lines: only those can notice that one of them is wrong."""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Lines = dict[str, set[int]]  # by file


@contextmanager
def traced(paths: list[Path]) -> Iterator[Lines]:
    """The lines of these files that are run meanwhile."""
    lines: Lines = {path.name: set() for path in paths}
    seen_in = {str(path): lines[path.name] for path in paths}

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        seen = seen_in.get(frame.f_code.co_filename)
        if seen is None:
            return None
        seen.add(frame.f_lineno)

        def line(inner: FrameType, _event: str, _arg: Any) -> Any:
            seen.add(inner.f_lineno)
            return line

        return line

    sys.settrace(enter)
    try:
        yield lines
    finally:
        sys.settrace(None)


class Tracing:
    """A pytest plugin that traces each test, its fixtures included."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.lines: dict[str, Lines] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test from its set-up to its tear-down."""
        with traced(self.paths) as lines:
            result = yield
        self.lines[item.nodeid] = lines
        return result


class Only:
    """A pytest plugin that leaves these tests, in this order."""

    def __init__(self, wanted: list[str]) -> None:
        self.place = {name: number for number, name in enumerate(wanted)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop the others."""
        items[:] = sorted(
            (one for one in items if one.nodeid in self.place),
            key=lambda one: self.place[one.nodeid],
        )


def statements(tree: ast.Module) -> dict[ast.AST, tuple[int, int] | None]:
    """The lines of the statement that each node is in; None where it is run on import.

    Of a statement that holds others, only the lines before them.
    """
    found: dict[ast.AST, tuple[int, int] | None] = {}

    def visit(node: ast.AST, lines: tuple[int, int] | None, *, inside: bool) -> None:
        if isinstance(node, ast.stmt) and inside:
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            lines = node.lineno, max(node.lineno, last)
        found[node] = lines
        for name, value in ast.iter_fields(node):
            is_body = isinstance(node, ast.FunctionDef) and name == "body"
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    visit(one, lines, inside=inside or is_body)

    visit(tree, None, inside=False)
    return found
