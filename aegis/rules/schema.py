"""The JSON Schema of rule files, for editors and for programs that write rules."""

from typing import Any

from aegis.rules.form import AppendForm, DisableForm, FileForm, RuleForm

URL = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The form of a file, with that of its rules put in."""
    whole = FileForm.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = {}
    for form in (RuleForm, AppendForm, DisableForm):
        one = form.model_json_schema(by_alias=True)
        definitions |= one.pop("$defs", {})
        definitions[form.__name__] = one
    append = definitions["AppendForm"]
    append["properties"] = definitions["RuleForm"]["properties"] | append["properties"]
    append["additionalProperties"] = False
    whole["properties"]["rules"]["items"] = _either(
        "disable", "DisableForm", _either("append", "AppendForm", _form("RuleForm"))
    )
    return {**whole, "$schema": URL, "title": "Aegis rule file", "$defs": definitions}


def _either(override: str, form: str, otherwise: dict[str, Any]) -> dict[str, Any]:
    """One form for rules with this `override`, another for the rest."""
    has = {"properties": {"override": {"const": override}}, "required": ["override"]}
    return {"if": has, "then": _form(form), "else": otherwise}


def _form(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}
