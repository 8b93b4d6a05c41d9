"""The policy and the rules as files: read whole, refused whole, with a sentence that helps."""

import difflib
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from aegis.model.policy import Mode, Policy
from aegis.rules import RuleError, RuleSet, parse


class ConfigurationError(Exception):
    """A file that cannot be used: which, why, and how to mend it."""


def shipped_rules() -> Path:
    """The rules that come with Aegis: in the package, or beside it in the source tree."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "rules" / "shipped"
    return inside if inside.is_dir() else package.parent / "rules"


def load_rules(folder: Path) -> RuleSet:
    """Every *.yaml of the folder, in the order of their names."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))
        texts = {file.name: file.read_text() for file in files}
    except OSError as error:
        raise ConfigurationError(
            f"the rules in {error.filename or folder} cannot be read ({error.strerror}): "
            "make them readable or name another folder with --rules"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the rules in {folder} are not UTF-8: {error.reason}") from error
    if not texts:
        raise ConfigurationError(
            f"there is no rule file (*.yaml) in {folder}: name another folder with --rules"
        )
    try:
        return parse(texts)
    except RuleError as error:
        raise ConfigurationError(f"{folder}/{error}") from error


def load_policy(file: Path | None) -> Policy:
    """The policy of a file; without one, that of a fresh install, which only observes."""
    if file is None:
        return Policy()
    try:
        value = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigurationError(
            f"the policy {file} cannot be read: {(error.strerror or 'unknown').lower()}"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the policy {file} is not YAML: {_one_line(error)}") from error
    if value is None:
        return Policy()
    if not isinstance(value, dict):
        raise ConfigurationError(f"the policy {file} must be a mapping, such as `mode: observe`")
    return _policy(file, value)


def _policy(file: Path, value: dict[Any, Any]) -> Policy:
    known = {field.name: field for field in fields(Policy)}
    for key in value:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            help_ = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise ConfigurationError(f"the policy {file} has an unknown key {key!r}: {help_}")
    try:
        policy = TypeAdapter(Policy).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        wanted = first["msg"].lower()
        if name.endswith("mode"):
            wanted = f"write one of {', '.join(Mode)}"
        raise ConfigurationError(
            f"the policy {file} has {name}: {first['input']!r}: {wanted}"
        ) from error
    for key in value:
        number = getattr(policy, key)
        if isinstance(number, int | float) and not 0 <= number < float("inf"):
            raise ConfigurationError(f"the policy {file} has {key}: {number}: 0 is the least")
    return policy


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
