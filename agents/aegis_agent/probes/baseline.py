"""What a node had when it last trained, and how it differs from that now.

A repair can change more than it should: a GPU that does not come back, a link that trains at half
its width, a partition mode that fell back to its default, another driver. Each difference is named.
What makes the node less than it was is a failure, what may well be meant is a warning.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aegis.model.node import Device, Health
from aegis.model.validation import Step, StepState

KINDS = ("gpu", "nic", "host")
LESS = {  # gauges that must not fall: what they are, and whether a fall is a failure
    "pcie_width": ("PCIe lanes", True),
    "pcie_speed_mts": ("MT/s of PCIe", False),  # an idle link may rest at a lower speed
    "xgmi_links_up": ("XGMI links", True),
    "nvlink_links_up": ("NVLink links", True),
    "speed_mbps": ("Mb/s", True),
    "memory_gb": ("GB of memory", True),
}
SAME = {  # facts that must not change, and whether a change is a failure
    "model": True,
    "vram_mb": True,
    "partition": True,
    "link_layer": True,
    "role": False,
    "driver": False,
    "rdma": False,
}
_FIRMWARE = ("vbios", "firmware", "fw_version")
_SLACK = 0.98  # of a gauge: the kernel keeps a little memory for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One device as it was."""

    name: str
    kind: str
    identity: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    gauges: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """All devices that training uses, as they were."""

    at: float = 0.0  # the node's clock
    trained: bool = False  # False: nothing has trained here yet; it is what was seen first
    devices: tuple[Known, ...] = ()


def learn(devices: Iterable[Device], at: float, *, trained: bool) -> Baseline | None:
    """What is here now; None where a device that counts is not healthy."""
    used = [one for one in devices if one.used and one.kind in KINDS]
    counted = [one for one in used if one.kind != "host"]
    if not counted or any(one.health is not Health.HEALTHY for one in counted):
        return None
    return Baseline(at=at, trained=trained, devices=tuple(_known(one) for one in used))


def _known(device: Device) -> Known:
    return Known(
        name=device.name,
        kind=device.kind,
        identity=device.identity,
        facts=tuple(one for one in device.facts if _is_kept(one[0])),
        gauges=tuple(one for one in device.counters if one[0] in LESS),
    )


def _is_kept(fact: str) -> bool:
    return fact in SAME or any(word in fact for word in _FIRMWARE)


def compare(baseline: Baseline | None, devices: Sequence[Device]) -> tuple[Step, ...]:
    """The steps `devices` and `configuration`."""
    used = [one for one in devices if one.used and one.kind in KINDS]
    if baseline is None:
        text = "nothing is remembered of what was here before"
        found = _count(one.kind for one in used)
        unknown = Step(name="devices", state=StepState.UNKNOWN, text=text, value=found)
        return (unknown, Step(name="configuration", state=StepState.UNKNOWN, text=text))
    return (_devices(baseline, used), _configuration(baseline, used))


def _devices(baseline: Baseline, used: Sequence[Device]) -> Step:
    """Each one that was there is there, and is read as healthy."""
    named = {one.name: one for one in used}
    failed, warned = [], []
    for known in baseline.devices:
        now = named.get(known.name)
        if now is None:
            failed.append(f"{known.name} is gone ({known.identity or known.kind})")
        elif now.health is not Health.HEALTHY and known.kind != "host":
            failed.append(f"{known.name} is {now.health}" + (f": {now.detail}" * bool(now.detail)))
        elif _serial(now.identity) != _serial(known.identity):
            warned.append(f"{known.name} is another one, {now.identity}; it was {known.identity}")
    names = {known.name for known in baseline.devices}
    warned += [f"{one.name} is new" for one in used if one.name not in names]
    healthy = (one.kind for one in used if one.health is Health.HEALTHY or one.kind == "host")
    return _step(
        "devices",
        failed,
        warned,
        "all that was here is here, and reads as healthy",
        value=_count(healthy),
        gate=_count(one.kind for one in baseline.devices),
    )


def _serial(identity: str) -> str:
    """Which it is, wherever it sits."""
    _, _, rest = identity.partition(" ")
    return rest or identity


def _configuration(baseline: Baseline, used: Sequence[Device]) -> Step:
    """Partition mode, driver, firmware, link widths and speeds are what they were."""
    named = {one.name: one for one in used}
    failed: dict[str, list[str]] = {}
    warned: dict[str, list[str]] = {}
    for known in baseline.devices:
        if (now := named.get(known.name)) is None:
            continue
        facts, gauges = dict(now.facts), dict(now.counters)
        for fact, before in known.facts:
            if (value := facts.get(fact)) != before:
                told = f"{fact} is {value or 'not read'}, it was {before}"
                grave = SAME.get(fact, False) and value is not None
                (failed if grave else warned).setdefault(told, []).append(known.name)
        for gauge, amount in known.gauges:
            if (number := gauges.get(gauge)) is not None and number < amount * _SLACK:
                words, grave = LESS[gauge]
                told = f"{number} {words}, it had {amount}"
                (failed if grave else warned).setdefault(told, []).append(known.name)
    all_well = "partition mode, driver, firmware and links are as before"
    return _step("configuration", _told(failed), _told(warned), all_well)


def _told(differences: dict[str, list[str]]) -> list[str]:
    """One difference of many devices is told once."""
    return [f"{', '.join(names)}: {what}" for what, names in differences.items()]


def _step(
    name: str, failed: list[str], warned: list[str], well: str, *, value: str = "", gate: str = ""
) -> Step:
    state = StepState.FAIL if failed else StepState.WARNING if warned else StepState.PASS
    text = "; ".join([*failed, *warned]) or well
    return Step(name=name, state=state, text=text, value=value, gate=gate)


def _count(kinds: Iterable[str]) -> str:
    found = [one for one in kinds if one != "host"]
    return ", ".join(f"{found.count(kind)} {kind}" for kind in KINDS if kind in found) or "none"
