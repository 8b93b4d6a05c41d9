"""The policy and the rules as files: read whole, refused whole, with a sentence that helps."""

import difflib
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from aegis.model.policy import Mode, Policy
from aegis.rules import RuleError, RuleSet, parse

PACKAGE = "aegis-supervisor"


class ConfigurationError(Exception):
    """A file that cannot be used: which, why, and how to mend it."""


def shipped_rules() -> Path:
    """The rules that come with Aegis: in the package, or beside it in the source tree."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "rules" / "shipped"
    return inside if inside.is_dir() else package.parent / "rules"


SITE_RULES = Path("/etc/aegis/rules.d")


def layers(*, given: Sequence[Path] = (), shipped: bool = True) -> tuple[Path, ...]:
    """The folders of rules, lowest layer first: the shipped ones, then the site's."""
    site = tuple(given) or ((SITE_RULES,) if _has_rules(SITE_RULES) else ())
    return (*((shipped_rules(),) if shipped else ()), *site)


def _has_rules(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.y*ml"))


def load_rules(*folders: Path) -> RuleSet:
    """Every *.yaml of the folders, lowest layer first, each in the order of its names."""
    try:
        return parse(*(read_rules(folder) for folder in folders), version=version(PACKAGE))
    except RuleError as error:
        lines = "\n".join(f"{folders[one.layer]}/{one}" for one in error.problems)
        raise ConfigurationError(lines) from error


def read_rules(folder: Path) -> dict[str, str]:
    """The text of every rule file, by name; its tests are none."""
    try:
        files = sorted(folder.iterdir())
        wanted = [one for one in files if one.suffix in (".yaml", ".yml") and not is_test(one)]
        texts = {file.name: file.read_text() for file in wanted}
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
    return texts


def is_test(file: Path) -> bool:
    """Whether the file holds tests of rules."""
    return file.stem.endswith("_test")


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
        if name.endswith(("mode", "mode_max")):
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
