"""Site checks: what a program's exit and its lines say of the devices it looked at.

    exit 0   healthy               a line of JSON says more, or speaks of single devices:
    exit 1   a fault               {"status": "ok" | "fault" | "unknown", "device": …, "class": …,
    exit 2   it could not tell      "severity": …, "message": …, "details": {…}}

Any other end, a line that cannot be understood, and silence are "could not tell", never healthy: a
program that ended so is believed only where it said "fault".

    ok -> fault   so many faults in a row: the fault once, and the condition as long as it lasts
    fault -> ok   so many healthy runs in a row
    could not tell changes neither, and is shown
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.probes.check_entry import Check, parse_class, parse_severity
from aegis_agent.probes.subject import Subject

MESSAGE_LETTERS_MAX = 400
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What is remembered of one device that a check looks at."""

    failures: int = 0  # in a row
    successes: int = 0  # in a row
    failing_since: float = 0.0  # believed
    fault: Verdict | None = None  # the newest that was believed
    unknown: str = ""  # why the last run could not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMemory:
    """What is remembered of a check between runs and over restarts of the agent."""

    boot_id: str = ""
    started_at: float = 0.0  # the last run
    left_at: float = 0.0  # of a file: the last result that was counted
    devices: dict[str, DeviceMemory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJudgement:
    """What one run came to."""

    memory: CheckMemory
    device: Device  # the check itself, as a device
    faults: tuple[Fault, ...]
    conditions: Mapping[str, tuple[Condition, ...]]  # by device

    @property
    def unsettled(self) -> bool:
        """Whether another run soon would settle what this one said."""
        return any(one.failures and not one.failing_since for one in self.memory.devices.values())


def device_name(check: Check) -> str:
    """What the check itself is called among the devices."""
    return f"check:{check.name}"


def observe(
    subject_of: Callable[[str], Subject], check: Check, memory: CheckMemory, outcome: Outcome
) -> CheckJudgement:
    """Judge one run."""
    faults = []
    devices = dict(memory.devices)
    known = tuple(devices)
    again = bool(outcome.left_at) and outcome.left_at == memory.left_at and bool(devices)
    for name, verdict in ({} if again else verdicts(check, outcome, known)).items():
        before = devices.get(name, DeviceMemory())
        after = _counted(check, before, verdict, outcome.at)
        devices[name] = after
        begun = after.failing_since and not before.failing_since
        other = before.fault and after.fault and before.fault.fault_class != after.fault.fault_class
        if after.fault and (begun or (after.failing_since and other)):
            faults.append(_fault(subject_of(name), check, after.fault, outcome.at))
    memory = replace(memory, devices=devices, left_at=outcome.left_at)
    return CheckJudgement(
        memory=memory,
        device=_device(check, memory, outcome.at),
        faults=tuple(faults),
        conditions=lasting(subject_of, check, memory),
    )


def lasting(
    subject_of: Callable[[str], Subject], check: Check, memory: CheckMemory
) -> dict[str, tuple[Condition, ...]]:
    """What the check knows to be wrong, by device."""
    found: dict[str, tuple[Condition, ...]] = {}
    for name, device in memory.devices.items():
        if device.failing_since and device.fault:
            subject = subject_of(name)
            condition = Condition(
                fault_class=device.fault.fault_class,
                device=subject.device,
                since=device.failing_since,
                severity=device.fault.severity,
                simulated=subject.simulated,
                evidence=(_evidence(check, device.fault),),
            )
            found[subject.device] = (*found.get(subject.device, ()), condition)
    return found


def _counted(check: Check, memory: DeviceMemory, verdict: Verdict, at: float) -> DeviceMemory:
    match verdict.status:
        case Status.UNKNOWN:
            return replace(memory, unknown=verdict.message)
        case Status.OK:
            successes = min(memory.successes + 1, check.successes)
            if memory.failing_since and successes < check.successes:
                return replace(memory, successes=successes, failures=0, unknown="")
            return DeviceMemory(successes=successes)
        case Status.FAULT:
            failures = min(memory.failures + 1, check.failures)
            believed = failures >= check.failures or memory.failing_since > 0
            return DeviceMemory(
                failures=failures,
                failing_since=(memory.failing_since or at) if believed else 0.0,
                fault=verdict,
            )


# what a run says


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
        message=_shortened(str(said.get("message") or ("" if status == "ok" else status))),
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
        (_shortened(str(name)), _shortened(value if isinstance(value, str) else json.dumps(value)))
        for name, value in list(said.items())[:_DETAILS_MAX]
    )


def _not_understood(why: str, line: str) -> Verdict:
    message = f"a line cannot be understood ({why}): {line}"
    return Verdict(status=Status.UNKNOWN, message=_shortened(message))


def _worse(one: Verdict, other: Verdict) -> Verdict:
    """Two lines of one device: a fault before what could not be told, the more severe one first."""
    rank = {Status.OK: 0, Status.UNKNOWN: 1, Status.FAULT: 2}

    def weight(verdict: Verdict) -> tuple[int, int]:
        return rank[verdict.status], _ORDER.index(verdict.severity)

    return other if weight(other) > weight(one) else one


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("{")]
    return _shortened(lines[-1]) if lines else ""


def _shortened(text: str) -> str:
    """One line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_LETTERS_MAX else text[: MESSAGE_LETTERS_MAX - 1] + "…"


# what is told


def _evidence(check: Check, verdict: Verdict) -> Evidence:
    return Evidence(source=f"check {check.name}", text=verdict.message)


def _fault(subject: Subject, check: Check, verdict: Verdict, at: float) -> Fault:
    fault = subject.fault(verdict.fault_class, verdict.severity, at, _evidence(check, verdict))
    return replace(fault, details=(("check", check.name), *verdict.details))


def _device(check: Check, memory: CheckMemory, at: float) -> Device:
    failing, unknown, doubted = [], [], []
    for name, device in memory.devices.items():
        message = device.fault.message if device.fault else ""
        if device.failing_since:
            failing.append(f"{name}: {message}")
        elif device.failures:
            doubted.append(f"{name}: failed {device.failures} of {check.failures} times: {message}")
        if device.unknown:
            unknown.append(f"{name}: {device.unknown}")
    health = Health.UNHEALTHY if failing else Health.UNKNOWN if unknown else Health.HEALTHY
    return Device(
        name=device_name(check),
        kind="check",
        health=health,
        detail=_shortened("; ".join([*failing, *unknown, *doubted])),
        read_at=at,
    )
