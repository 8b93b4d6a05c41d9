"""Whose samples a probe judges, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device

Memory = TypeVar("Memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The device under judgement."""

    node: str
    device: str  # "gpu3", "fab0"
    boot_id: str
    identity: str = ""
    simulated: bool = False

    def fault(
        self,
        fault_class: FaultClass,
        severity: Severity,
        at: float,
        *evidence: Evidence,
        count: int = 1,
        details: Mapping[str, str] | None = None,
    ) -> Fault:
        """A fault of this device."""
        return Fault(
            fault_class=fault_class,
            severity=severity,
            node=self.node,
            device=self.device,
            observed_at=at,
            boot_id=self.boot_id,
            count=count,
            simulated=self.simulated,
            evidence=evidence,
            identity=self.identity,
            details=tuple((details or {}).items()),
        )

    def conditions(
        self,
        evidence: tuple[Evidence, ...],
        since: Mapping[FaultClass, float],
        severity: Severity = Severity.ERROR,
    ) -> tuple[Condition, ...]:
        """What lasts on this device; a class with the time 0.0 does not."""
        return tuple(
            Condition(
                fault_class=fault_class,
                device=self.device,
                since=at,
                severity=severity,
                simulated=self.simulated,
                evidence=evidence,
            )
            for fault_class, at in since.items()
            if at
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement(Generic[Memory]):
    """What one sample came to."""

    memory: Memory  # to be remembered until the next sample, also over a restart of the agent
    device: Device | None  # None: another sense tells of the device as a whole
    faults: tuple[Fault, ...] = ()
    conditions: tuple[Condition, ...] = ()
