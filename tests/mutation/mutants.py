"""Small changes of a module's code, each of which some test ought to notice.

A mutant is known by where it is and what it changes, not by its line, so that its explanation
outlives edits elsewhere in the file.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relevant import statements

SWAPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change: the place of a node, which of its variants, and how it reads."""

    file: str
    line: int
    place: int  # of the node, in the order of a walk
    variant: int
    key: str  # "decide.py _result: a is b => a is not b"
    lines: tuple[int, int] | None  # of its statement; None where it is run on import


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of the file."""
    tree = ast.parse(path.read_text())
    inside = _functions(tree)
    skipped = _skipped(tree)
    lines = statements(tree)
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for place, node in enumerate(ast.walk(tree)):
        if node in skipped:
            continue
        for variant, new in enumerate(_variants(node)):
            key = f"{path.name} {inside.get(node, 'module')}: {_text(node)} => {_text(new)}"
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > 1:
                key = f"{key} #{seen[key]}"
            line = getattr(node, "lineno", 0) or (lines[node] or (0, 0))[0]
            found.append(Mutant(str(path), line, place, variant, key, lines[node]))
    return found


def mutated(mutant: Mutant) -> ast.Module:
    """The file with the change."""
    tree = ast.parse(Path(mutant.file).read_text())
    node = list(ast.walk(tree))[mutant.place]
    new = list(_variants(node))[mutant.variant]
    _put(tree, node, ast.copy_location(new, node))
    return ast.fix_missing_locations(tree)


def _variants(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901, PLR0912 - a table
    """What the node may be changed to."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            for kind in SWAPS[type(operator)]:
                yield ast.Compare(node.left, [kind()], node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            for one in node.values:
                rest = [other for other in node.values if other is not one]
                yield ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() if type(node.op) in OPERATORS and not _is_text(node):
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.Name(id=name) if name in TWINS:
            yield ast.Name(TWINS[name], node.ctx)
        case ast.If():
            yield ast.If(ast.Constant(value=False), node.body, node.orelse)
            yield ast.If(ast.Constant(value=True), node.body, node.orelse)
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not _is_constant(value):
            yield ast.Return(ast.Constant(value=None))
        case ast.Tuple(elts=[_, _, *_], ctx=ast.Load()) | ast.Set(elts=[_, _, *_]):
            yield from _without_each(node)
        case _:
            pass


def _without_each(node: ast.Tuple | ast.Set) -> Iterator[ast.AST]:
    """A table of names that lacks one of them."""
    if not all(isinstance(one, ast.Name | ast.Attribute) for one in node.elts):
        return
    for one in node.elts:
        rest = [other for other in node.elts if other is not one]
        yield ast.Set(rest) if isinstance(node, ast.Set) else ast.Tuple(rest, ast.Load())


def _is_text(node: ast.BinOp) -> bool:
    """Whether it puts texts together."""
    sides = [one for one in ast.walk(node) if isinstance(one, ast.JoinedStr | ast.Constant)]
    return any(isinstance(one, ast.JoinedStr) or isinstance(one.value, str) for one in sides)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _functions(tree: ast.Module) -> dict[ast.AST, str]:
    """The function that each node is in."""
    inside: dict[ast.AST, str] = {}
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef):
            inside.update(dict.fromkeys(ast.walk(one), one.name))
    return inside


def _skipped(tree: ast.Module) -> set[ast.AST]:  # noqa: C901 - a table
    """What is not code that decides: annotations, types, asserts, format specs, match patterns."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        roots: list[ast.AST | None] = []
        match node:
            case ast.FunctionDef():
                roots = [node.returns, *node.decorator_list]
            case ast.arg():
                roots = [node.annotation]
            case ast.AnnAssign():
                roots = [node.annotation]
            case ast.ClassDef():
                roots = list(node.decorator_list)
            case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.match_case():
                roots = [node.pattern] if isinstance(node, ast.match_case) else [node]
            case ast.FormattedValue():
                roots = [node.format_spec]
            case ast.keyword(arg="frozen" | "slots" | "kw_only"):
                roots = [node]
            case ast.Subscript():
                is_type = isinstance(node.slice, ast.Tuple | ast.List) and node.value
                roots = [node] if is_type and isinstance(node.value, ast.Name) else []
            case _:
                pass
        for root in roots:
            skipped.update(ast.walk(root) if root is not None else ())
    return skipped


def _put(tree: ast.Module, old: ast.AST, new: ast.AST) -> None:
    """Put one node in the place of another."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if value is old:
                setattr(node, name, new)
            elif isinstance(value, list) and any(one is old for one in value):
                setattr(node, name, [new if one is old else one for one in value])


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    if isinstance(node, ast.comprehension):
        conditions = "".join(f" if {ast.unparse(one)}" for one in node.ifs)
        return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}{conditions}"
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
