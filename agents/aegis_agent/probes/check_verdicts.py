"""What one run of a site check says of each device.

    exit 0   healthy               a line of JSON says more, or speaks of single devices:
    exit 1   a fault               {"status": "ok" | "fault" | "unknown", "device": …, "class": …,
    exit 2   it could not tell      "severity": …, "message": …, "details": {…}}

Any other end, a line that cannot be understood, and silence are "could not tell", never healthy: a
program that ended so is believed only where it said "fault".
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.check_entry import Check, parse_class, parse_severity

_MESSAGE_LETTERS_MAX = 400
_LINES_MAX = 200
_DETAILS_MAX = 16
_ORDER = (Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL)
_EXIT_OK, _EXIT_FAULT, _EXIT_UNKNOWN = 0, 1, 2


class Status(StrEnum):
    """What a check says of a device."""

    OK = "ok"
    FAULT = "fault"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one run ended."""

    at: float  # when it ended
    code: int | None = None  # None: it did not come to an end of its own
    reason: str = ""  # why not
    output: str = ""
    errors: str = ""  # what it wrote to its standard error
    left_at: float = 0.0  # of a file that another program leaves: which of its results this is


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one run says of one device."""

    status: Status
    message: str = ""
    fault_class: FaultClass = FaultClass.HOST_CHECK_FAILED
    severity: Severity = Severity.WARNING
    details: tuple[tuple[str, str], ...] = ()


def verdicts(check: Check, outcome: Outcome, known: tuple[str, ...]) -> dict[str, Verdict]:
    """By device. `known` are those that earlier runs spoke of."""
    lines = _lines(check, outcome)
    found: dict[str, Verdict] = {}
    for device, verdict in lines:
        found[device] = _worse(found[device], verdict) if device in found else verdict
    ended_well = outcome.code in (_EXIT_OK, _EXIT_FAULT)
    if not ended_well:
        found = {
            device: Verdict(status=Status.UNKNOWN, message=_why(outcome))
            if verdict.status is Status.OK
            else verdict
            for device, verdict in found.items()
        }
    faulty = any(verdict.status is Status.FAULT for verdict in found.values())
    if not found or (outcome.code == _EXIT_FAULT and not faulty):
        found[check.device] = _plain(check, outcome)
    for device in known:
        found.setdefault(device, _unnamed(outcome))
    return found


def _plain(check: Check, outcome: Outcome) -> Verdict:
    """By the exit alone, of the device that the entry names."""
    message = _last_line(outcome.output) or _last_line(outcome.errors)
    match outcome.code:
        case 0:
            return Verdict(status=Status.OK, message=message)
        case 1:
            return Verdict(
                status=Status.FAULT,
                message=message or "it said nothing, and exited with 1",
                fault_class=check.fault_class,
                severity=check.severity,
            )
        case _:
            return Verdict(status=Status.UNKNOWN, message=_why(outcome))


def _unnamed(outcome: Outcome) -> Verdict:
    """A device that this run says nothing of, and an earlier one did."""
    if outcome.code == _EXIT_OK:
        return Verdict(status=Status.OK)
    message = _why(outcome) or "the last run did not speak of it"
    return Verdict(status=Status.UNKNOWN, message=message)


def _why(outcome: Outcome) -> str:
    if outcome.reason:
        return outcome.reason
    if outcome.code in (_EXIT_OK, _EXIT_FAULT):
        return ""
    said = _last_line(outcome.errors) or _last_line(outcome.output)
    told = (
        "it could not tell" if outcome.code == _EXIT_UNKNOWN else f"it exited with {outcome.code}"
    )
    return f"{told}: {said}" if said else told


def _lines(check: Check, outcome: Outcome) -> list[tuple[str, Verdict]]:
    found: list[tuple[str, Verdict]] = []
    for line in outcome.output.splitlines():
        if len(found) == _LINES_MAX:
            break
        if line.lstrip().startswith("{"):
            found.append(_parsed(check, line.strip()))
    return found


def _parsed(check: Check, line: str) -> tuple[str, Verdict]:
    try:
        said = json.loads(line)
        device = str(said.get("device") or check.device)
    except ValueError:
        return check.device, _not_understood("it is no JSON", line)
    try:
        return device, _understood(check, said)
    except ValueError as error:
        return device, _not_understood(str(error), line)


def _understood(check: Check, said: Mapping[str, Any]) -> Verdict:
    status = said.get("status")
    if status not in list(Status):
        raise ValueError("status must be ok, fault or unknown")
    return Verdict(
        status=Status(status),
        message=shortened(str(said.get("message") or ("" if status == "ok" else status))),
        fault_class=_read(said, "class", parse_class, check.fault_class),
        severity=_read(said, "severity", parse_severity, check.severity),
        details=_details(said.get("details")),
    )


def _read(said: Mapping[str, Any], key: str, parse: Callable[[object], Any], default: Any) -> Any:
    if key not in said:
        return default
    try:
        return parse(said[key])
    except ValueError as error:
        raise ValueError(f"{key} must be {error}") from error


def _details(said: object) -> tuple[tuple[str, str], ...]:
    if said is None:
        return ()
    if not isinstance(said, Mapping):
        raise ValueError("details must be an object of names and values")  # noqa: TRY004  it is data
    return tuple(
        (shortened(str(name)), shortened(value if isinstance(value, str) else json.dumps(value)))
        for name, value in list(said.items())[:_DETAILS_MAX]
    )


def _not_understood(why: str, line: str) -> Verdict:
    message = f"a line cannot be understood ({why}): {line}"
    return Verdict(status=Status.UNKNOWN, message=shortened(message))


def _worse(one: Verdict, other: Verdict) -> Verdict:
    """Two lines of one device: a fault before what could not be told, the more severe one first."""
    rank = {Status.OK: 0, Status.UNKNOWN: 1, Status.FAULT: 2}

    def weight(verdict: Verdict) -> tuple[int, int]:
        return rank[verdict.status], _ORDER.index(verdict.severity)

    return other if weight(other) > weight(one) else one


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("{")]
    return shortened(lines[-1]) if lines else ""


def shortened(text: str) -> str:
    """One line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= _MESSAGE_LETTERS_MAX else text[: _MESSAGE_LETTERS_MAX - 1] + "…"
