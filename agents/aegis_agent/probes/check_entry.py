"""A site check as agent.yaml has it: read, and refused with what would be right."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aegis.model.fault import FaultClass, Severity

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PARTS = ("gpu.", "nic.", "pcie.", "host.")  # nodes and jobs are judged by the controller
_DAY_SECONDS = 86400.0
_DEADLINE_SECONDS = 30.0  # where the entry says nothing


class CheckEntryError(ValueError):
    """An entry that cannot be used; the sentence says which key and how to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One site check: a program to run, or a file in which another program leaves its results."""

    name: str
    command: tuple[str, ...] = ()
    file: str = ""
    interval_seconds: float = 60.0  # from start to start
    deadline_seconds: float = _DEADLINE_SECONDS
    max_age_seconds: float = 0.0  # of a file
    fault_class: FaultClass = FaultClass.HOST_CHECK_FAILED
    severity: Severity = Severity.WARNING
    device: str = "host"  # whose fault it is where the program does not say
    when: str = "always"  # or "idle": only while no ranks are here; or "return": see below
    user: str = ""  # as whom it runs; only where the agent is root
    failures: int = 2  # in a row until it is believed
    successes: int = 1  # in a row until it is over

    @property
    def idle(self) -> bool:
        """Whether it runs only while no ranks are here."""
        return self.when == "idle"

    @property
    def on_return(self) -> bool:
        """Whether it runs only in the full validation of a node that is to serve again."""
        return self.when == "return"


def parse_class(value: object) -> FaultClass:
    """One of the vocabulary. Raises ValueError."""
    classes = [one.value for one in FaultClass if one.startswith(_PARTS)]
    if isinstance(value, str) and value in classes:
        return FaultClass(value)
    near = difflib.get_close_matches(str(value), classes, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"a class of gpu, nic, pcie or host such as host.check.failed{hint}")


def parse_severity(value: object) -> Severity:
    """Raises ValueError."""
    if isinstance(value, str) and value in list(Severity):
        return Severity(value)
    raise ValueError("info, warning, error or fatal")


def parse(entry: object, where: str) -> Check:
    """Read one entry; `where` names it in the error."""
    if not isinstance(entry, Mapping):
        raise CheckEntryError(f"{where} must have keys such as name and command, not {entry!r}")
    fields: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            raise CheckEntryError(f"{where}: unknown key {key!r}; the keys are {known}")
        name, read = _KEYS[key]
        try:
            fields[name] = read(value)
        except ValueError as error:
            raise CheckEntryError(f"{where}.{key} must be {error}, not {value!r}") from error
    if "deadline_seconds" not in fields and "interval_seconds" in fields:
        fields["deadline_seconds"] = min(_DEADLINE_SECONDS, fields["interval_seconds"])
    if "name" not in fields:
        raise CheckEntryError(f"{where} has no name: give it one, such as `name: rvs`")
    return _complete(Check(**fields), f"{where} ({fields['name']})")


def parse_all(entries: object, where: str) -> list[Check]:
    """Read a list of entries."""
    if not isinstance(entries, list):
        raise CheckEntryError(f"{where} must be a list of checks, each with a name and a command")
    return [parse(entry, f"{where}[{number}]") for number, entry in enumerate(entries)]


def refuse_twins(checks: list[Check]) -> None:
    """Two checks of one name would be told as one."""
    names = [check.name for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise CheckEntryError(f"two checks are named {name!r}: rename one")


def _complete(check: Check, where: str) -> Check:
    if bool(check.command) == bool(check.file):
        raise CheckEntryError(
            f"{where} needs either a command to run or a file to read, and not both"
        )
    if check.file and (check.user or check.idle):
        raise CheckEntryError(
            f"{where} reads a file, so user and when say nothing: whoever writes it decides"
        )
    if check.command and not check.on_return and check.deadline_seconds > check.interval_seconds:
        raise CheckEntryError(
            f"{where}: deadline_seconds is {check.deadline_seconds:g} and interval_seconds is "
            f"{check.interval_seconds:g}: a run must end before the next begins"
        )
    return check


def _word(words: str, pattern: re.Pattern[str]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        raise ValueError(words)

    return read


def _command(value: object) -> tuple[str, ...]:
    words = list(value) if isinstance(value, list) else []
    if not words or not words[0] or not all(isinstance(word, str | int) for word in words):
        raise ValueError("a list of words such as [/opt/site/check.sh, --fast]")
    return tuple(str(word) for word in words)


def _seconds(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and 0.1 <= float(str(value)) <= 7 * _DAY_SECONDS:
        return float(str(value))
    raise ValueError("a number of seconds between 0.1 and 604800 (a week)")


def _times(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100:
        return value
    raise ValueError("a number of runs between 1 and 100")


def _when(value: object) -> str:
    if value not in ("always", "idle", "return"):
        raise ValueError(
            "always, idle (only while no ranks are on the node) or return (only in the full "
            "validation of a node that is to serve again)"
        )
    return str(value)


_TEXT = re.compile(r"\S+")
_KEYS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "name": ("name", _word("a name of letters, digits, dots and dashes", _NAME)),
    "command": ("command", _command),
    "file": ("file", _word("an absolute path", re.compile(r"/\S+"))),
    "interval_seconds": ("interval_seconds", _seconds),
    "deadline_seconds": ("deadline_seconds", _seconds),
    "max_age_seconds": ("max_age_seconds", _seconds),
    "class": ("fault_class", parse_class),
    "severity": ("severity", parse_severity),
    "device": ("device", _word('a device such as "gpu3", "fab0" or "host"', _TEXT)),
    "when": ("when", _when),
    "user": ("user", _word("a user's name", _TEXT)),
    "failures": ("failures", _times),
    "successes": ("successes", _times),
}
