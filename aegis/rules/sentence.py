"""What pydantic finds, as a sentence that says how to mend it."""

import difflib
from collections.abc import Iterable

from pydantic import AliasChoices, BaseModel
from pydantic_core import ErrorDetails

from aegis.model.fault import Severity
from aegis.model.incident import Remedy
from aegis.model.policy import Mode
from aegis.rules.form import ExceptionForm, GuardForm, RungForm
from aegis.rules.match import Scope
from aegis.rules.rule import Status, Told, Verify

_WORDS: dict[str, list[str]] = {
    "severity": [one.value for one in Severity],
    "remedy": [one.value for one in Remedy],
    "mode": [one.value for one in Mode],
    "scope": [one.value for one in Scope],
    "status": [one.value for one in Status],
    "verify": [one.value for one in Verify],
    "notify": [one.value for one in Told],
}
_KINDS = {
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "string_type": "write text, in quotes where YAML reads something else",
    "list_type": "write a list: [one, another]",
    "dict_type": "write names and values: {{rack: r7}}",
    "greater_than_equal": "write {ge} or more",
}
_PARTS: dict[str, type[BaseModel]] = {
    "unless": ExceptionForm,
    "if_fails": RungForm,
    "guard": GuardForm,
}


def of(error: ErrorDetails, form: type[BaseModel]) -> str:  # noqa: PLR0911  one line for each kind
    """What is wrong and how to mend it."""
    names = [part for part in error["loc"] if isinstance(part, str)]
    name = names[-1] if names else "the file"
    match error["type"]:
        case "enum":
            word = next(part for part in reversed(names) if part in _WORDS)
            return f"unknown {word} {error['input']!r}: {suggestion(error['input'], _WORDS[word])}"
        case "extra_forbidden":
            return f"unknown key {name!r}: {suggestion(name, _keys(names, form))}"
        case "missing":
            return f"{name!r} is missing: add it"
        case "literal_error":
            return f"{name} is {error['input']!r}: write {error['ctx']['expected']}"
        case "value_error":
            said = str(error["ctx"]["error"])
            return said if said.startswith(("unknown ", f"{name} is ")) else f"{name}: {said}"
        case "model_type":
            return "a mapping of keys to values is expected here"
        case "too_short" | "string_too_short":
            return f"{name} is empty: write something, or leave it out"
        case kind:
            mend = _KINDS.get(kind, error["msg"].lower()).format(**error.get("ctx", {}))
            return f"{name} is {error['input']!r}: {mend}"


def suggestion(word: object, known: list[str]) -> str:
    """The word that was meant, or all there are."""
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"


def near(word: str, known: Iterable[str], before: str, otherwise: str) -> str:
    """The word that was meant, else something else to do."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"{before}did you mean {close[0]!r}?" if close else otherwise


def _keys(names: list[str], form: type[BaseModel]) -> list[str]:
    part = next((_PARTS[one] for one in reversed(names[:-1]) if one in _PARTS), form)
    found = []
    for name, one in part.model_fields.items():
        choices = one.validation_alias
        first = choices.choices[0] if isinstance(choices, AliasChoices) else one.alias
        found.append(str(first or name))
    return found
