"""What an NVIDIA GPU has beside error counters: replaced memory, throttling, links between GPUs.

Defective memory is replaced in rows (Ampere and newer) or pages (older), each at the next reset; a
row that could not be replaced, or 60 pages, mean a new GPU. NVIDIA says so in its guide on GPU
memory error management and in that on dynamic page retirement.

The vocabulary has no word for NVLink: its errors are `gpu.xgmi.error`, links between GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis_agent.probes.lasting import Cause
from aegis_agent.probes.subject import Subject

PAGES_MAX = 60  # retired ones: NVIDIA replaces the GPU
_THROTTLE_GRACE_SECONDS = 60.0
# Bits of the clocks event reasons that mean trouble. Power cap (4), idle (1) and the like do not.
_SLOWDOWNS: Mapping[int, str] = {
    0x40: "hardware thermal slowdown",
    0x20: "software thermal slowdown",
    0x80: "power brake: the node's power supply asked for it",
    0x08: "hardware slowdown: temperature or power supply",
}
_RECOVERY: Mapping[int, str] = {
    1: "a reset of this GPU",
    2: "a reboot of the node",
    3: "to drain what uses its peers",
    4: "to drain and reset this GPU",
    5: "to recover its NVLink domain",
    6: "a reset of its PCIe bus",
    7: "a reboot of the system",
}
_UNUSABLE = frozenset({1, 2, 4, 6, 7})  # until it is done
_SOURCE = "NVML field_values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """Memory that was taken out of use."""

    pages: int = 0
    pages_pending: bool = False  # a reset will take them out
    rows: int = 0
    rows_pending: bool = False
    rows_failed: bool = False  # a row could not be replaced

    @property
    def replaced(self) -> int:
        """How many pages and rows, together: a GPU has the one or the other."""
        return self.pages + self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One NVLink, and what it has counted."""

    active: bool
    replays: int = 0
    recoveries: int = 0
    crc_errors: int = 0

    @property
    def errors(self) -> int:
        """All of them."""
        return self.replays + self.recoveries + self.crc_errors


def observe(
    subject: Subject, at: float, before: Retired | None, after: Retired | None
) -> tuple[Fault, ...]:
    """Memory that was taken out of use since the last reading."""
    if before is None or after is None or after.replaced <= before.replaced:
        return ()
    what = "remapped memory rows" if after.rows > before.rows else "retired memory pages"
    evidence = Evidence(
        source=_SOURCE,
        text=f"{what} rose from {before.replaced} to {after.replaced}",
        before=str(before.replaced),
        after=str(after.replaced),
    )
    count = after.replaced - before.replaced
    kind = FaultClass.GPU_MEMORY_BAD_PAGE
    return (subject.fault(kind, Severity.WARNING, at, evidence, count=count),)


def causes(retired: Retired | None) -> tuple[Cause, ...]:
    """What replaced memory means as long as it is so."""
    if retired is None:
        return ()
    what = "row" if retired.rows_pending else "page"
    many = retired.pages >= PAGES_MAX
    return (
        Cause(
            name="memory pending",
            fault_class=FaultClass.GPU_MEMORY_BAD_PAGE,
            severity=Severity.WARNING,
            present=retired.rows_pending or retired.pages_pending,
            source=_SOURCE,
            text=f"a defective memory {what} is replaced at the next reset of the GPU",
        ),
        Cause(
            name="memory worn",
            fault_class=FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD,
            severity=Severity.FATAL,
            present=retired.rows_failed or many,
            source=_SOURCE,
            text=f"{retired.pages} retired memory pages, {PAGES_MAX} are too many: replace it"
            if many
            else "a defective memory row could not be replaced: replace the GPU",
        ),
    )


def observe_links(
    subject: Subject, at: float, before: Mapping[int, Link], after: Mapping[int, Link]
) -> tuple[Fault, ...]:
    """One fault for all links whose errors rose. A smaller number is a counter that began anew."""
    risen = {}
    for number, link in after.items():
        known = before.get(number)
        if known is not None and link.errors != known.errors:
            grown = link.errors - known.errors
            risen[number] = grown if grown > 0 else link.errors
    count = sum(risen.values())
    if not count:
        return ()
    evidence = tuple(
        Evidence(
            source="NVML nvlink",
            text=f"errors of NVLink {number} rose by {grown}: {after[number].replays} replays, "
            f"{after[number].recoveries} recoveries, {after[number].crc_errors} checksum errors",
        )
        for number, grown in risen.items()
        if grown
    )
    kind = FaultClass.GPU_XGMI_ERROR
    return (subject.fault(kind, Severity.WARNING, at, *evidence, count=count),)


def link_causes(before: Mapping[int, Link], after: Mapping[int, Link]) -> tuple[Cause, ...]:
    """A link that was ever active and is not. One that never was is not connected."""
    return tuple(
        Cause(
            name=f"nvlink {number}",
            fault_class=FaultClass.GPU_XGMI_ERROR,
            severity=Severity.ERROR,
            present=not link.active,
            source="NVML nvlink",
            text=f"NVLink {number} was active and is not any more",
        )
        for number, link in after.items()
        if link.active or (number in before and before[number].active)
    )


def remembered(before: Mapping[int, Link], after: Mapping[int, Link]) -> dict[int, Link]:
    """The links to compare with next time: once active counts as active."""
    return {
        number: Link(
            active=link.active or (number in before and before[number].active),
            replays=link.replays,
            recoveries=link.recoveries,
            crc_errors=link.crc_errors,
        )
        for number, link in after.items()
    }


def state_causes(reasons: int | None, recovery_action: int | None) -> tuple[Cause, ...]:
    """What the GPU's state asks for; None was not read and says nothing."""
    found = []
    if reasons is not None:
        told = [words for bit, words in _SLOWDOWNS.items() if reasons & bit]
        found.append(
            Cause(
                name="throttled",
                fault_class=FaultClass.GPU_THERMAL_THROTTLE,
                severity=Severity.WARNING,
                present=bool(told),
                source="NVML clocks_event_reasons",
                text=f"its clocks are held down: {told[0] if told else ''}",
                grace_seconds=_THROTTLE_GRACE_SECONDS,
            )
        )
    if recovery_action is not None:
        wanted = _RECOVERY.get(recovery_action, f"action {recovery_action}")
        found.append(
            Cause(
                name="recovery",
                fault_class=FaultClass.GPU_RAS_RECORD,
                severity=Severity.ERROR if recovery_action in _UNUSABLE else Severity.WARNING,
                present=recovery_action != 0,
                source=_SOURCE,
                text=f"the driver asks for {wanted}",
            )
        )
    return tuple(found)
