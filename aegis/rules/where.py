"""`where:` expressions: CEL, within limits that keep them cheap.

The library compiles and evaluates; what it does not do is done here. Fields are checked by name and
type, because CEL itself calls a wrong type merely unequal and never looks at the half of an `||`
that it does not need. What is missing at run time makes the answer unknown.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from aegis.model.fault import FaultClass, Severity

if TYPE_CHECKING:
    from cel import Program

LENGTH_MAX = 500  # characters
NESTING_MAX = 8  # brackets within brackets
LIST_MAX = 50  # items of a list
FIELDS: Mapping[str, Mapping[str, type]] = {
    "fault": {
        "class": str,
        "severity": str,
        "component": str,
        "count": int,
        "device": str,
        "node": str,
        "job": str,
        "simulated": bool,
    }
}
MAPS = ("details", "labels")  # of text to text; any name
METHODS = ("startsWith", "endsWith", "contains", "matches", "size", "exists", "all", "exists_one")
FUNCTIONS = ("has", "size", "int", "double", "string", "bool")
_LOOPS = ("exists", "all", "exists_one")
_KNOWN_WORDS = {
    "class": tuple(one.value for one in FaultClass),
    "severity": tuple(one.value for one in Severity),
}
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]])""",
    re.VERBOSE,
)
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=", "in")


class WhereError(ValueError):
    """An expression that cannot be used, and at which character of it."""

    def __init__(self, offset: int, sentence: str) -> None:
        super().__init__(sentence)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def check(source: str, classes: Iterable[FaultClass] = ()) -> None:
    """Refuse what is too costly, misspelt or of the wrong type. Raises WhereError.

    It is tried on a sample event of each class that the rule speaks of.
    """
    if len(source) > LENGTH_MAX:
        raise WhereError(0, f"the expression is longer than {LENGTH_MAX} characters: shorten it")
    tokens = list(_tokens(source))
    _within_limits(tokens)
    _compiled_or_why_not(source)
    _names(tokens)
    _comparisons(tokens)
    _patterns(tokens)
    for fault_class in tuple(classes) or (FaultClass.GPU_LOST,):
        _gives_yes_or_no(source, _sample(tokens, fault_class))


def evaluate(source: str, known: Mapping[str, object]) -> bool | None:
    """Whether it holds; None where something that it needs is missing or of another type."""
    try:
        answer = _compiled(source).execute(dict(known))
    # What the library raises for a missing key, a missing name, a wrong type, a bad number.
    except (LookupError, RuntimeError, TypeError, ValueError, ArithmeticError):
        return None
    return answer if isinstance(answer, bool) else None


def values(source: str, known: Mapping[str, object]) -> str:
    """What each part of the expression comes to, and what its fields are."""
    names = {"".join(one.text for one in chain) for chain, _ in _chains(list(_tokens(source)))}
    fields = [
        f"{name} = {_shown(_value(name, known))}"
        for name in sorted(names)
        if _value(name, known) is not _NO_FIELD
    ]
    parts = conjuncts(source)
    told = [f"{part}: {_word(evaluate(part, known))}" for part in parts] if len(parts) > 1 else []
    return "; ".join([*told, *fields]) or "no fields"


def conjuncts(source: str) -> list[str]:
    """The parts that `&&` joins at the top."""
    parts, start, depth = [], 0, 0
    for token in _tokens(source):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.text in ("||", "?") and token.kind == "sign" and depth == 0:
            return [source.strip()]
        if token.text == "&&" and depth == 0:
            parts.append(source[start : token.at].strip())
            start = token.at + 2
    return [*parts, source[start:].strip()]


# What is refused


def _tokens(source: str) -> Iterator[_Token]:
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise WhereError(at, f"{source[at]!r} is not understood here: take it out")
        if found.lastgroup != "space":
            yield _Token(str(found.lastgroup), found.group(), at)
        at = found.end()


def _within_limits(tokens: list[_Token]) -> None:
    depth, loops = 0, 0
    items: list[int] = []
    for token in tokens:
        if token.text in ("(", "["):
            depth += 1
            items.append(1)
        elif token.text in (")", "]") and items:
            depth -= 1
            items.pop()
        elif token.text == "," and items:
            items[-1] += 1
        loops += token.kind == "name" and token.text in _LOOPS
        if depth > NESTING_MAX:
            raise WhereError(token.at, f"more than {NESTING_MAX} brackets deep: split it")
        if items and items[-1] > LIST_MAX:
            raise WhereError(
                token.at,
                f"a list of more than {LIST_MAX} items: use a glob or a regular expression",
            )
        if loops > 1:
            raise WhereError(
                token.at, "too costly: one all, exists or exists_one is enough for a rule"
            )


def _names(tokens: list[_Token]) -> None:
    bound = {
        tokens[place + 2].text
        for place, token in enumerate(tokens[:-2])
        if token.text in _LOOPS and tokens[place + 1].text == "("
    }
    for place, token in enumerate(tokens):
        if token.kind != "name" or token.text in ("true", "false", "null", "in"):
            continue
        called = place + 1 < len(tokens) and tokens[place + 1].text == "("
        after_dot = place > 0 and tokens[place - 1].text == "."
        if called:
            known = METHODS if after_dot else FUNCTIONS
            if token.text not in known:
                raise WhereError(
                    token.at, f"unknown function {token.text!r}: {_near(token, known)}"
                )
        elif not after_dot and token.text not in (*FIELDS, *MAPS, *bound):
            roots = (*FIELDS, *MAPS)
            raise WhereError(token.at, f"unknown name {token.text!r}: {_near(token, roots)}")
    for chain, _end in _chains(tokens):
        _field(chain)


def _field(chain: list[_Token]) -> None:
    root = chain[0].text
    if root in MAPS and len(chain) > 3:
        raise WhereError(chain[3].at, f"{root}.{chain[2].text} is text and has no fields")
    if root not in FIELDS:
        return
    if len(chain) < 3:
        raise WhereError(chain[0].at, f"name a field of it: {', '.join(FIELDS[root])}")
    if chain[2].text not in FIELDS[root]:
        raise WhereError(
            chain[2].at, f"unknown field {chain[2].text!r}: {_near(chain[2], tuple(FIELDS[root]))}"
        )
    if len(chain) > 3:
        raise WhereError(chain[3].at, f"{root}.{chain[2].text} has no fields")


def _chains(tokens: list[_Token]) -> Iterator[tuple[list[_Token], int]]:
    """Each field that is named, `fault.count`, and where it ends; a method is no field."""
    place = 0
    while place < len(tokens):
        token = tokens[place]
        dotted = place > 0 and tokens[place - 1].text == "."
        if token.kind != "name" or dotted or token.text not in (*FIELDS, *MAPS):
            place += 1
            continue
        chain, place = [token], place + 1
        while (
            place + 1 < len(tokens)
            and tokens[place].text == "."
            and not (place + 2 < len(tokens) and tokens[place + 2].text == "(")
        ):
            chain += tokens[place : place + 2]
            place += 2
        yield chain, place


def _comparisons(tokens: list[_Token]) -> None:
    """A field is only compared with what it can be."""
    for chain, end in _chains(tokens):
        kind = _kind(chain)
        name = chain[-1].text if chain[0].text in FIELDS else ""
        if kind is None:
            continue
        if end + 1 < len(tokens) and tokens[end].text in _COMPARISONS:
            for literal in _literals(tokens, end + 1):
                _same_kind(chain, kind, name, literal)
        start = tokens.index(chain[0])
        if start > 1 and tokens[start - 1].text in _COMPARISONS[:-1]:
            _same_kind(chain, kind, name, tokens[start - 2])


def _kind(chain: list[_Token]) -> type | None:
    if chain[0].text in MAPS:
        return str if len(chain) == 3 else None
    return FIELDS[chain[0].text][chain[2].text]


def _literals(tokens: list[_Token], place: int) -> list[_Token]:
    if tokens[place].text != "[":
        return [tokens[place]]
    found = []
    for token in tokens[place + 1 :]:
        if token.text == "]":
            break
        found.append(token)
    return [token for token in found if token.text != ","]


def _same_kind(chain: list[_Token], kind: type, name: str, literal: _Token) -> None:
    kinds = {"text": str, "number": int}
    found = bool if literal.text in ("true", "false") else kinds.get(literal.kind)
    if found is None:
        return
    field = "".join(one.text for one in chain)
    words = {str: "text", int: "a number", bool: "true or false"}
    if found is not kind:
        raise WhereError(
            literal.at,
            f"{field} is {words[kind]} and {literal.text} is {words[found]}: "
            + ("write int(…) around the field" if kind is str and found is int else "mend one"),
        )
    known = _KNOWN_WORDS.get(name)
    if known and literal.text[1:-1] not in known:
        word = _Token("name", literal.text[1:-1], literal.at)
        raise WhereError(literal.at, f"unknown {name} {word.text!r}: {_near(word, known)}")


def _patterns(tokens: list[_Token]) -> None:
    for place, token in enumerate(tokens[:-2]):
        if token.text != "matches" or tokens[place + 1].text != "(":
            continue
        pattern = tokens[place + 2]
        if pattern.kind != "text":
            raise WhereError(pattern.at, "write the regular expression of matches() out")
        try:
            _compiled(f"''.matches({pattern.text})").execute({})
        except (RuntimeError, ValueError) as error:
            raise WhereError(
                pattern.at, f"{pattern.text} is no regular expression: mend it"
            ) from error


def _sample(tokens: list[_Token], fault_class: FaultClass) -> dict[str, dict[str, object]]:
    """An event that has every field that is named."""
    typical: dict[type, object] = {str: "1", int: 1, bool: True}
    sample: dict[str, dict[str, object]] = {name: {} for name in MAPS}
    sample["fault"] = {name: typical[kind] for name, kind in FIELDS["fault"].items()}
    component = fault_class.partition(".")[0]
    sample["fault"] |= {"class": str(fault_class), "component": component, "severity": "error"}
    for chain, _end in _chains(tokens):
        if chain[0].text in MAPS and len(chain) == 3:
            sample[chain[0].text][chain[2].text] = "1"
    for place, token in enumerate(tokens[:-2]):
        if token.text in MAPS and tokens[place + 1].text == "[":
            sample[token.text][tokens[place + 2].text[1:-1]] = "1"
    return sample


def _gives_yes_or_no(source: str, sample: dict[str, dict[str, object]]) -> None:
    try:
        answer = _compiled(source).execute(dict(sample))
    except (LookupError, RuntimeError, TypeError, ValueError, ArithmeticError) as error:
        why = " ".join(str(error).split()).partition(". ")[0]
        raise WhereError(0, f"it cannot be evaluated: {why}") from error
    if not isinstance(answer, bool):
        raise WhereError(0, f"it gives {answer!r}: write a condition that is true or false")


def _near(token: _Token, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(token.text, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"use one of {', '.join(known)}" if len(known) < 20 else "see `aegis faults`"


# The library


def _compiled_or_why_not(source: str) -> None:
    try:
        _compiled(source)
    except ValueError as error:
        found = re.search(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)", str(error))
        if found is None:
            raise WhereError(0, f"not a CEL expression: {str(error).splitlines()[0]}") from error
        line, column, why = int(found[1]), int(found[2]), found[3]
        before = sum(len(text) + 1 for text in source.split("\n")[: line - 1])
        why = why.partition(" expecting ")[0]
        why = why.replace("mismatched input '<EOF>'", "it ends too early")
        raise WhereError(before + column - 1, f"not a CEL expression: {why}") from error


@lru_cache(maxsize=1024)
def _compiled(source: str) -> "Program":
    # The library takes a second to import, and most rule sets have no expression.
    import cel  # noqa: PLC0415

    return cel.compile(source)


# Telling


class _NoField:
    """What is there is not a field but a map."""


_NO_FIELD = _NoField()


def _value(name: str, known: Mapping[str, object]) -> object:
    root, _, rest = name.partition(".")
    held = known.get(root)
    if not rest or not isinstance(held, Mapping):
        return _NO_FIELD
    return held.get(rest)


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)


def _word(answer: bool | None) -> str:  # noqa: FBT001  it is what is told
    return {True: "true", False: "false", None: "unknown"}[answer]
