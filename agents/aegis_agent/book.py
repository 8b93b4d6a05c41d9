"""What is known of this node's devices, as all senses together have it.

Each sense tells its own part. The faults it saw and what it remembers go to the spool in one
transaction, so that a crash loses and repeats nothing.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.node import Device
from aegis_agent.probes.clock import ControllerTime
from aegis_agent.probes.subject import Judgement, Memory, Subject
from aegis_agent.spool import Spool

_log = logging.getLogger(__name__)
_SPOOL = "spool"  # its own trouble is told like that of a sense
_KINDS = ("gpu", "nic", "host")  # in the order in which they are shown
_TAKES_NODES = (Severity.ERROR, Severity.FATAL)


@dataclass
class Book:
    """The devices of this node as they stand."""

    node: str
    boot_id: str
    spool: Spool
    urge: Callable[[], None]  # called when something must be told at once
    training: bool | None = None  # ranks run on this node; None: it is not known yet
    controller_time: ControllerTime | None = None  # the controller's newest answer, by its clock
    checkpoint_folders: tuple[str, ...] = ()  # of the jobs that have a launcher here
    counted: Counter[tuple[str, FaultClass]] = field(default_factory=Counter)  # told so far
    resetting: dict[str, float] = field(default_factory=dict)  # device: since when, node's clock
    reset_at: dict[str, float] = field(default_factory=dict)  # device: its last that succeeded
    _devices: dict[str, Device] = field(default_factory=dict)  # by name
    _counters: dict[tuple[str, str], tuple[tuple[str, int], ...]] = field(default_factory=dict)
    _conditions: dict[tuple[str, str], tuple[Condition, ...]] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)  # address: device
    _unused: set[str] = field(default_factory=set)  # devices that training does not use
    _simulated: set[str] = field(default_factory=set)  # senses whose devices are
    _disk_full_at: float = 0.0

    # what stands in it

    @property
    def simulated(self) -> bool:
        """Whether some of this node's devices are."""
        return bool(self._simulated)

    def devices(self) -> tuple[Device, ...]:
        """Every device, kind by kind, in the order of their numbers."""
        return tuple(sorted(map(self._whole, self._devices.values()), key=_order))

    def device(self, name: str) -> Device | None:
        """One of them."""
        found = self._devices.get(name)
        return self._whole(found) if found else None

    def conditions(self) -> tuple[Condition, ...]:
        """What is wrong and lasts."""
        keys = sorted(self._conditions, key=lambda key: (key[1], key[0]))
        return tuple(condition for key in keys for condition in self._conditions[key])

    def _whole(self, device: Device) -> Device:
        """The device with what other senses have counted of it."""
        more = [
            counter
            for (_, name), counters in sorted(self._counters.items())
            if name == device.name
            for counter in counters
        ]
        return replace(device, counters=(*device.counters, *more)) if more else device

    # where devices sit

    def place(self, address: str, device: str, *, matters: bool = True) -> None:
        """A device was found at a PCI address, or under an interface's or an RDMA device's name.

        `matters=False`: training does not use it, and none of its faults may take the node away.
        """
        self._places[address] = device
        (self._unused.discard if matters else self._unused.add)(device)

    def device_at(self, address: str) -> str | None:
        """The name of the device there; None where no sense has found one."""
        return self._places.get(address)

    def subject(self, device: str, identity: str = "", *, simulated: bool = False) -> Subject:
        """The device as a probe wants it."""
        return Subject(
            node=self.node,
            device=device,
            boot_id=self.boot_id,
            identity=identity,
            simulated=simulated,
        )

    def _severity(self, device: str, severity: Severity) -> Severity:
        """What training does not use may be broken without any harm to it."""
        unused = device in self._unused and severity in _TAKES_NODES
        return Severity.WARNING if unused else severity

    # what senses tell

    def mark_simulated(self, sense: str, *, simulated: bool) -> None:
        """Whether the devices of this sense are simulated."""
        (self._simulated.add if simulated else self._simulated.discard)(sense)

    def keep(
        self,
        sense: str,
        subject: Subject,
        judgement: Judgement[Memory],
        key: str = "",
        adapter: TypeAdapter[Memory] | None = None,
    ) -> None:
        """Take in a judgement; with a key, its memory goes to the spool beside its faults."""
        memory = {}
        if key and adapter is not None:
            memory[key] = adapter.dump_json(judgement.memory).decode()
        self.append(judgement.faults, memory)
        if judgement.device is not None:
            self.put(judgement.device)
        self.set_conditions(sense, subject.device, judgement.conditions)

    def append(self, faults: Sequence[Fault], memory: Mapping[str, str] | None = None) -> None:
        """Faults and what is remembered, in one transaction; the controller hears at once."""
        faults = [
            replace(fault, severity=self._severity(fault.device, fault.severity))
            for fault in faults
        ]
        for fault in faults:
            self.counted[fault.device, fault.fault_class] += fault.count
        alone = self.spool.append(faults, memory or {}) if faults or memory else []
        for fault in alone:
            _log.warning(
                "A fault was seen.",
                extra={
                    "class": fault.fault_class.value,
                    "severity": fault.severity.value,
                    "device": fault.device,
                    "evidence": "; ".join(evidence.text for evidence in fault.evidence),
                },
            )
        if faults:
            self.urge()

    def put(self, device: Device) -> None:
        """A device as it was last read."""
        device = replace(device, used=device.name not in self._unused)
        before = self._devices.get(device.name)
        self._devices[device.name] = device
        if before is None or before.health != device.health:
            self.urge()

    def remove(self, device: str) -> None:
        """A device is no more, and was none."""
        if self._devices.pop(device, None) is not None:
            self.urge()

    def set_conditions(self, sense: str, device: str, conditions: tuple[Condition, ...]) -> None:
        """What this sense knows to last on the device, whole."""
        conditions = tuple(
            replace(one, severity=self._severity(one.device, one.severity)) for one in conditions
        )
        if conditions == self._conditions.get((sense, device), ()):
            return
        if conditions:
            self._conditions[sense, device] = conditions
        else:
            del self._conditions[sense, device]
        self.urge()

    def set_counters(self, sense: str, device: str, counters: Mapping[str, int]) -> None:
        """What this sense has counted of a device that another one owns, whole."""
        self._counters[sense, device] = tuple(counters.items())

    def recall(self, prefix: str, adapter: TypeAdapter[Memory]) -> dict[str, Memory]:
        """What was remembered under the prefix, by the rest of its key."""
        found = {}
        for key, body in self.spool.recall().items():
            if key.startswith(prefix) and (memory := _recalled(adapter, key, body)) is not None:
                found[key.removeprefix(prefix)] = memory
        return found

    # time

    def tick(self, now: float) -> None:
        """Time passed: the disk may have room again."""
        self.spool.retry()
        if bool(self.spool.trouble) == bool(self._disk_full_at):
            return
        self._disk_full_at = now if self.spool.trouble else 0.0
        if not self.spool.trouble:
            self.set_conditions(_SPOOL, "host", ())
            return
        evidence = Evidence(source="spool", text=self.spool.trouble)
        subject, kind = self.subject("host"), FaultClass.HOST_DISK_FULL
        self.append([subject.fault(kind, Severity.WARNING, now, evidence)])
        lasting = subject.conditions((evidence,), {kind: now}, Severity.WARNING)
        self.set_conditions(_SPOOL, "host", lasting)


def _recalled(adapter: TypeAdapter[Memory], key: str, body: str) -> Memory | None:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        # Written by another version: the device is seen for the first time again.
        _log.warning(
            "What was remembered of a device cannot be read and starts anew.",
            extra={"device": key, "reason": str(error).splitlines()[0]},
        )
        return None


def _order(device: Device) -> tuple[int, str, int, str]:
    number = re.search(r"\d+$", device.name)
    place = _KINDS.index(device.kind) if device.kind in _KINDS else len(_KINDS)
    return place, device.kind, int(number[0]) if number else -1, device.name
