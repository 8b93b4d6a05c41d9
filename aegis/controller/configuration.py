"""The policy and the rules as files: read whole, refused whole, with a sentence that helps."""

import difflib
import stat
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from aegis.model.policy import Mode, Policy
from aegis.rules import RuleError, RuleSet, parse
from aegis.rules.yaml_text import TextError, read_if_any

PACKAGE = "aegis-supervisor"
FILE_BYTES_MAX = 1 << 20
# What a limit must lie within, where 0 to any number is too much.
_BOUNDS: dict[str, tuple[float, float]] = {
    "nodes_out_fraction": (0, 1),
    "breaker_fraction": (0, 1),
    "silent_fraction_max": (0, 1),
    "nodes_out_window_seconds": (1, float("inf")),
    "approvals_needed": (1, 100),
    "approval_seconds": (1, float("inf")),
}


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
        texts = {file.name: _text(file) for file in wanted}
    except OSError as error:
        raise ConfigurationError(
            f"the rules in {error.filename or folder} cannot be read ({error.strerror}): "
            "make them readable or name another folder with --rules"
        ) from error
    if not texts:
        raise ConfigurationError(
            f"there is no rule file (*.yaml) in {folder}: name another folder with --rules"
        )
    return texts


def _text(file: Path) -> str:
    """What a file says, if it is one that people write. Raises OSError, ConfigurationError."""
    told = file.stat()
    if not stat.S_ISREG(told.st_mode):
        raise ConfigurationError(f"{file} is no file: remove it, or name another folder")
    if told.st_size > FILE_BYTES_MAX:
        most = f"{FILE_BYTES_MAX >> 20} MiB"
        raise ConfigurationError(f"{file} has {told.st_size:,} bytes, more than {most}: split it")
    try:
        return file.read_text()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8: {error.reason}") from error


def is_test(file: Path) -> bool:
    """Whether the file holds tests of rules."""
    return file.stem.endswith("_test")


def load_policy(file: Path | None) -> Policy:
    """The policy of a file; without one, that of a fresh install, which only observes."""
    if file is None:
        return Policy()
    try:
        found = read_if_any(str(file), _text(file))
    except OSError as error:
        raise ConfigurationError(
            f"the policy {file} cannot be read: {(error.strerror or 'unknown').lower()}"
        ) from error
    except TextError as error:
        raise ConfigurationError(f"the policy {error.place}: {error}") from error
    if found is None:
        return Policy()
    value = found[1]
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
    for key, told in value.items():
        number = getattr(policy, key)
        if isinstance(number, int | float) and (wrong := _outside(key, told, number)):
            raise ConfigurationError(f"the policy {file} has {key}: {told}: {wrong}")
    return policy


def _outside(key: str, told: object, number: float) -> str:
    least, most = _BOUNDS.get(key, (0, float("inf")))
    if isinstance(told, bool):
        return "write a number"
    if not least <= number < float("inf"):
        return f"{least} is the least"
    return f"{most} is the most" if number > most else ""
