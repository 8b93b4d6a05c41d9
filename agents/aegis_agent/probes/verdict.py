"""One look at a node, judged: what is wrong now, what was earlier, what could not be told.

    conditions              wrong now
    unhealthy devices       wrong now, whoever found it
    counters of damage      wrong: since the driver was loaded; a first look cannot know since when
    faults of this boot     wrong, unless what they told is read and is well again
    unknown devices         could not be told

A look is healthy when nothing of warning or worse is found and nothing was unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from aegis.model.catalogue import CATALOGUE
from aegis.model.fault import Condition, Fault, FaultClass, Severity
from aegis.model.node import Device, Health

# Read as a level on each look: a line of the log about them is news only while the level says so.
_LEVELS = frozenset(
    {
        FaultClass.GPU_PROBE_STALLED,
        FaultClass.HOST_CLOCK_SKEW,
        FaultClass.HOST_DISK_FULL,
        FaultClass.NIC_LINK_DOWN,
        FaultClass.PCIE_LINK_DEGRADED,
        FaultClass.PCIE_LINK_RESET,
    }
)
# The application's own: for the owner of the job, not for the node.
_APPLICATION = frozenset(
    {
        FaultClass.GPU_IPC_FAILED,
        FaultClass.GPU_SHADER_ILLEGAL_OPCODE,
        FaultClass.GPU_VM_FAULT,
        FaultClass.HOST_MEMORY_OOM,
    }
)
# Ends of what began before them: neither they nor their beginnings are wrong any more.
_ENDS: Mapping[FaultClass, frozenset[FaultClass]] = {
    FaultClass.GPU_RESET_SUCCEEDED: frozenset(
        {FaultClass.GPU_RESET_BEGIN, FaultClass.GPU_RESET_PROGRESS}
    ),
    FaultClass.NIC_FIRMWARE_RECOVERED: frozenset({FaultClass.NIC_FIRMWARE_STALLED}),
    FaultClass.NIC_LINK_UP: frozenset({FaultClass.NIC_LINK_DOWN}),
}
_DAMAGE: Mapping[str, tuple[FaultClass, str]] = {
    "ecc_correctable": (FaultClass.GPU_ECC_CORRECTABLE, "errors put right"),
    "ecc_uncorrectable": (FaultClass.GPU_ECC_UNCORRECTABLE, "errors not put right"),
    "ecc_deferred": (FaultClass.GPU_ECC_DEFERRED, "errors deferred"),
    "bad_pages": (FaultClass.GPU_MEMORY_BAD_PAGE, "memory pages retired"),
    "aer_corrected": (FaultClass.PCIE_AER_CORRECTED, "PCIe errors put right"),
    "aer_nonfatal": (FaultClass.PCIE_AER_NONFATAL, "PCIe errors not put right"),
    "aer_fatal": (FaultClass.PCIE_AER_FATAL, "fatal PCIe errors"),
    "edac_corrected": (FaultClass.HOST_EDAC_CORRECTED, "memory errors put right"),
    "edac_uncorrected": (FaultClass.HOST_EDAC_UNCORRECTED, "memory errors not put right"),
}
_MENDED = frozenset({"ecc_correctable", "aer_corrected", "edac_corrected"})
_NAMED_MAX = 8
_KINDS = {"gpu": "GPU", "nic": "network port"}
_WORST_FIRST = (Severity.FATAL, Severity.ERROR, Severity.WARNING, Severity.INFO)


class When(StrEnum):
    """Whether a finding still holds."""

    NOW = "now"  # read as such in this look
    BOOT = "this boot"  # it happened, and nothing says that it is over
    EARLIER = "earlier"  # it is over


class Outcome(IntEnum):
    """What a look came to: the exit code of `aegis scan`."""

    HEALTHY = 0
    FINDINGS = 1
    UNKNOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found."""

    fault_class: FaultClass | None  # None: a device is unwell and nobody said of what
    severity: Severity
    device: str
    since: float  # the node's clock; 0.0: not known
    when: When
    count: int = 1
    evidence: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the node is less than healthy for it."""
        if self.fault_class in _APPLICATION or self.when is When.EARLIER:
            return False
        return self.severity is not Severity.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What could not be read, why, and what would allow it."""

    what: str
    why: str
    allow: str = ""
    essential: bool = True  # without it nobody can call the node healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one look came to."""

    outcome: Outcome
    sentence: str
    findings: tuple[Finding, ...]  # what counts first, the worst first
    gaps: tuple[Gap, ...]


def judge(
    devices: Iterable[Device],
    conditions: Iterable[Condition],
    faults: Iterable[Fault],
    gaps: Iterable[Gap],
) -> Verdict:
    """Judge a look as a whole."""
    devices = tuple(devices)
    now = [_of_condition(one) for one in conditions]
    found = [*now, *_of_faults(faults, devices, now)]
    found += [one for device in devices for one in _of_counters(device, found)]
    found += [
        _of_device(device)
        for device in devices
        if device.health is Health.UNHEALTHY and not any(_is_why(one, device) for one in found)
    ]
    found.sort(key=_order)
    unknown = [
        Gap(what=device.name, why=device.detail)
        for device in devices
        if device.health is Health.UNKNOWN
    ]
    return _verdict(devices, tuple(found), (*unknown, *gaps))


def _verdict(
    devices: tuple[Device, ...], found: tuple[Finding, ...], gaps: tuple[Gap, ...]
) -> Verdict:
    counted = [one for one in found if one.counts]
    blind = [gap.what for gap in gaps if gap.essential]
    if counted:
        outcome = Outcome.FINDINGS
        worst = dict.fromkeys(_WORST_FIRST, 0)
        for one in counted:
            worst[one.severity] += 1
        told = ", ".join(
            f"{number} {severity}{'s' if number > 1 and severity is not Severity.FATAL else ''}"
            for severity, number in worst.items()
            if number
        )
        places = list(dict.fromkeys(one.device for one in counted))
        more = f" and {len(places) - _NAMED_MAX} more" if len(places) > _NAMED_MAX else ""
        sentence = f"Findings: {told}, at {', '.join(places[:_NAMED_MAX])}{more}."
    elif blind:
        outcome = Outcome.UNKNOWN
        sentence = f"It cannot be told whether this node is healthy: no word of {', '.join(blind)}."
    else:
        outcome = Outcome.HEALTHY
        sentence = f"Healthy: {_counted(devices)}, nothing found."
    if counted and blind:
        sentence += f" And no word of {', '.join(blind)}."
    return Verdict(outcome=outcome, sentence=sentence, findings=found, gaps=gaps)


def _counted(devices: tuple[Device, ...]) -> str:
    numbers: dict[str, int] = {}
    for device in devices:
        words = _KINDS.get(device.kind, device.kind)
        numbers[words] = numbers.get(words, 0) + 1
    return ", ".join(
        f"{number} {words}{'' if number == 1 else 's'}" for words, number in numbers.items()
    )


def _of_condition(one: Condition) -> Finding:
    return Finding(
        fault_class=one.fault_class,
        severity=one.severity,
        device=one.device,
        since=one.since,
        when=When.NOW,
        evidence=tuple(evidence.text for evidence in one.evidence),
    )


def _of_faults(
    faults: Iterable[Fault], devices: tuple[Device, ...], now: list[Finding]
) -> Iterable[Finding]:
    faults = sorted(faults, key=lambda fault: fault.observed_at)
    lasting = {(one.fault_class, one.device) for one in now}
    for fault in faults:
        if (fault.fault_class, fault.device) in lasting:
            continue
        yield Finding(
            fault_class=fault.fault_class,
            severity=fault.severity,
            device=fault.device,
            since=fault.observed_at,
            when=When.EARLIER if _is_over(fault, faults, devices) else When.BOOT,
            count=fault.count,
            evidence=tuple(evidence.text for evidence in fault.evidence),
        )


def _is_over(fault: Fault, faults: list[Fault], devices: tuple[Device, ...]) -> bool:
    well = {device.name for device in devices if device.health is Health.HEALTHY}
    if fault.fault_class in _LEVELS and fault.device in well:
        return True
    if fault.fault_class in _ENDS:
        return True
    return any(
        fault.fault_class in _ENDS.get(later.fault_class, ()) and later.device == fault.device
        for later in faults
        if later.observed_at >= fault.observed_at
    )


def _of_counters(device: Device, found: list[Finding]) -> Iterable[Finding]:
    told = {(one.fault_class, one.device) for one in found}
    for name, value in device.counters:
        if name not in _DAMAGE or value <= 0:
            continue
        fault_class, words = _DAMAGE[name]
        if (fault_class, device.name) in told:
            continue
        severity = Severity.INFO if name in _MENDED else CATALOGUE[fault_class].severity
        if not device.used and severity is not Severity.INFO:
            severity = Severity.WARNING
        yield Finding(
            fault_class=fault_class,
            severity=severity,
            device=device.name,
            since=0.0,
            when=When.BOOT,
            count=value,
            evidence=(f"{value} {words} since counting began",),
        )


def _is_why(finding: Finding, device: Device) -> bool:
    return finding.device == device.name and finding.counts


def _of_device(device: Device) -> Finding:
    return Finding(
        fault_class=None,
        severity=Severity.ERROR if device.used else Severity.WARNING,
        device=device.name,
        since=0.0,
        when=When.NOW,
        evidence=(device.detail,),
    )


def _order(one: Finding) -> tuple[bool, int, str, str, float]:
    kind = one.fault_class or ""
    return not one.counts, _WORST_FIRST.index(one.severity), one.device, kind, one.since
