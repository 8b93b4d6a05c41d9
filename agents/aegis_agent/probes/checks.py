"""Site checks: faults and conditions, from what their runs say (`check_verdicts`).

    ok -> fault   so many faults in a row: the fault once, and the condition as long as it lasts
    fault -> ok   so many healthy runs in a row

"Could not tell" changes neither, and is shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from aegis.model.fault import Condition, Evidence, Fault
from aegis.model.node import Device, Health
from aegis_agent.probes.check_entry import Check
from aegis_agent.probes.check_verdicts import Outcome, Status, Verdict, shortened, verdicts
from aegis_agent.probes.subject import Subject


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
        detail=shortened("; ".join([*failing, *unknown, *doubted])),
        read_at=at,
    )
