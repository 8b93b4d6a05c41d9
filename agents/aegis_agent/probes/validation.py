"""Steps of a validation that are told from what the senses know, and from what programs said."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aegis.model.fault import Condition, Severity
from aegis.model.node import Device, is_gauge
from aegis.model.validation import Step, StepState
from aegis_agent.probes.check_entry import Check
from aegis_agent.probes.check_verdicts import Outcome, Status, verdicts

_GRAVE = (Severity.ERROR, Severity.FATAL)
_MUST_NOT_GROW = ("uncorrectable", "deferred", "bad_pages", "fatal")
_TEXT_MAX = 500
CHILD = ("host memory", "all-reduce")  # what the child tries at least
GATE_UNITS = {
    "loopback_gbps": "Gb/s",
    "allreduce_gbps": "GB/s",
    "h2d_gbps": "GB/s",
    "d2h_gbps": "GB/s",
}


def live(conditions: Sequence[Condition]) -> Step:
    """No condition at error or worse lasts."""
    grave = [f"{one.fault_class} on {one.device}" for one in conditions if one.severity in _GRAVE]
    minor = [f"{one.fault_class} on {one.device}" for one in conditions]
    state = StepState.FAIL if grave else StepState.WARNING if minor else StepState.PASS
    text = f"these last: {', '.join(grave or minor)}" if minor else "nothing is wrong that lasts"
    return Step(name="conditions", state=state, text=text)


def quiet(before: Sequence[Device], after: Sequence[Device]) -> Step:
    """Error counters did not grow while the node was tried."""
    known = {one.name: dict(one.counters) for one in before}
    failed: list[str] = []
    warned: list[str] = []
    counted = 0
    for device in after:
        for name, value in device.counters:
            old = known.get(device.name, {}).get(name)
            if old is None or is_gauge(name) or not device.used or device.kind == "host":
                continue
            counted += 1
            if value > old and "error" in _class_of(name):
                grave = any(word in name for word in _MUST_NOT_GROW)
                (failed if grave else warned).append(f"{device.name} {name} {old} -> {value}")
    if not counted:
        return Step(name="counters", state=StepState.UNKNOWN, text="no error counter is read")
    state = StepState.FAIL if failed else StepState.WARNING if warned else StepState.PASS
    text = ", ".join([*failed, *warned]) or f"{counted} error counters stood still"
    return Step(name="counters", state=state, text=text)


def _class_of(counter: str) -> str:
    """Counters of work done, such as bytes or processes, may well grow."""
    words = ("ecc", "error", "replay", "recover", "nak", "bad_pages", "drop", "discard")
    return "error" if any(word in counter for word in words) else "work"


def parsed(line: Mapping[str, Any]) -> Step:
    """A step as the child wrote it. Raises KeyError, TypeError, ValueError."""
    return Step(
        name=str(line["name"]),
        state=StepState(line["state"]),
        text=str(line["text"])[:_TEXT_MAX],
        value=str(line.get("value", "")),
        gate=str(line.get("gate", "")),
        seconds=float(line.get("seconds", 0.0)),
    )


def unsaid(steps: Sequence[Step], outcome: Outcome, gpus: int) -> tuple[Step, ...]:
    """What the child should have tried and did not tell of, with why."""
    wanted = (*CHILD, "gpu memory") if gpus else CHILD
    missing = [name for name in wanted if name not in {one.name for one in steps}]
    last = outcome.errors.strip().splitlines()[-1:] or [""]
    why = outcome.reason or f"the child ended with {outcome.code}: {last[0]}"
    # It says by itself what a sick node does to it. What becomes of it otherwise (no torch, too
    # little memory or time in the agent's own unit) speaks of its surroundings.
    return tuple(Step(name=name, state=StepState.UNKNOWN, text=why[:_TEXT_MAX]) for name in missing)


def checked(check: Check, outcome: Outcome, seconds: float) -> Step:
    """A site check that runs before a node comes back: any fault keeps it out."""
    said = verdicts(check, outcome, ())
    by_status = {
        status: [f"{device}: {one.message}" for device, one in said.items() if one.status is status]
        for status in (Status.FAULT, Status.UNKNOWN)
    }
    step = Step(name=f"check {check.name}", state=StepState.PASS, text="it found nothing wrong")
    for status, state in ((Status.FAULT, StepState.FAIL), (Status.UNKNOWN, StepState.UNKNOWN)):
        if by_status[status]:
            step = replace(step, state=state, text="; ".join(by_status[status])[:_TEXT_MAX])
            break
    return replace(step, seconds=seconds)


_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+", re.MULTILINE)


def bandwidth(output: str) -> float | None:
    """The average of perftest's last row, in the unit that it was asked for."""
    rows = _ROW.findall(output)
    return float(rows[-1]) if rows else None


def _silences(silent: Mapping[str, str]) -> str:
    """Why ports have no figure; what is so of many is said once."""
    names: dict[str, list[str]] = {}
    for name, why in silent.items():
        names.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(ports)}: {why}" for why, ports in names.items())


def looped(measured: Mapping[str, float | str], gate: float | None, seconds: float) -> Step:
    """Each port's loopback: a figure in Gb/s, or why there is none."""
    silent = {name: one for name, one in measured.items() if isinstance(one, str)}
    speeds = {name: one for name, one in measured.items() if not isinstance(one, str)}
    low = [name for name, one in speeds.items() if one <= 0 or (gate and one < gate)]
    least = min(speeds.values(), default=0.0)
    if low:
        state, text = StepState.FAIL, f"too slow: {', '.join(low)}"
    elif silent:
        state, text = StepState.UNKNOWN, _silences(silent)
    else:
        state, text = StepState.PASS, f"{len(speeds)} ports, the slowest at {least:.0f} Gb/s"
    return Step(
        name="loopback",
        state=state,
        text=text[:_TEXT_MAX],
        value=f"{least:.0f} Gb/s" if speeds else "",
        gate=f">= {gate:g} Gb/s" if gate else "",
        seconds=seconds,
    )
