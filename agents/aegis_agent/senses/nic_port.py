"""A network port under watch: what it is for, what was read of it last, and how to judge it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aegis.model.node import Device
from aegis_agent.probes import rdma
from aegis_agent.probes.nic import LinkMemory, LinkSample, Stance
from aegis_agent.probes.nic_peers import Comparison, Peer
from aegis_agent.probes.rdma import RdmaMemory
from aegis_agent.probes.roles import NAMED, Assigned, Port, Role
from aegis_agent.sources.rdma import Reader, Reading

_LISTED = 4
_LOOKED_FOR = "it is gone under this name, and may have another: all ports are being looked at"
_JUDGED_SECONDS = 10.0
_LINK_DOWNED_MAX = 255  # InfiniBand's count of lost links stops there


@dataclass(slots=True)
class WatchedPort:
    """One port."""

    assigned: Assigned
    reader: Reader
    link: LinkMemory
    rdma: RdmaMemory
    sample: LinkSample | None = None  # of its link, the newest
    reading: Reading | None = None  # of its RDMA side, the newest
    best_speed: int | None = None
    compared: Comparison = field(default_factory=lambda: Comparison(idle=True))
    expected: bool = False  # to be up: once so, always so
    moved: str = ""  # gone under this name, but not away
    gone_at: float = 0.0  # monotonic; when it was last missed under this name
    device: Device | None = None  # as it was judged last
    judged_at: float = 0.0

    @property
    def name(self) -> str:
        """As in reports."""
        return self.assigned.name

    @property
    def is_fabric(self) -> bool:
        """Whether training uses it."""
        return self.assigned.role is Role.FABRIC

    @property
    def is_told_by_rdma(self) -> bool:
        """Whether its link is read from its RDMA device."""
        port = self.assigned.port
        return port.is_told_by_rdma and self.name == port.rdma

    @property
    def is_there(self) -> bool:
        """Whether it is, or nobody has looked yet."""
        return self.sample is None or self.sample.present

    @property
    def is_up(self) -> bool:
        """Whether the link is, by the newest sample."""
        return self.sample is not None and self.sample.present and self.sample.up

    @property
    def speed(self) -> int | None:
        """In Mb/s, while the link is up."""
        if not self.is_up or self.reading is None:
            return self.assigned.port.speed if self.is_up else None
        return self.reading.rate if self.is_told_by_rdma else self.reading.speed

    @property
    def is_listed(self) -> bool:
        """Whether reports have it: ports that never were up and need not be are no devices."""
        link = self.link
        return self.expected or bool(link.up or link.down_at or link.removed_at)

    def settle(self, sys_root: Path, assigned: Assigned) -> Assigned:
        """The port as it was found again, and what it is now.

        One that is down, or has lost its RDMA device, looks like another: it keeps its role.
        """
        before = self.assigned
        lost_rdma = bool(before.port.rdma) and not assigned.port.rdma
        if lost_rdma or (assigned.role is not before.role and not self.is_up):
            return before
        if (assigned.port.rdma, assigned.port.interface) != (
            before.port.rdma,
            before.port.interface,
        ):
            self.reader = reader_of(sys_root, assigned.port)
        self.assigned = assigned
        return assigned

    def take(self, sample: LinkSample) -> None:
        """A new reading of the link."""
        self.sample = sample
        speed = self.speed or sample.speed
        if sample.up and speed is not None:
            self.best_speed = max(self.best_speed or 0, speed)
        self.sample = replace(sample, speed=speed)

    def whereabouts(self, looked_at: float) -> str:
        """Where it may be, now that it is missed: gone is only what was looked for since then."""
        if self.sample is not None and self.sample.present:
            self.gone_at = time.monotonic()
        return self.moved or (_LOOKED_FOR if self.gone_at > looked_at else "")

    def is_as_before(self, sample: LinkSample) -> bool:
        """Whether judging it could bring nothing new: up, as before, and judged lately."""
        before = self.sample
        return (
            before is not None
            and sample.up
            and not self.link.outages.began
            and 0 <= sample.at - self.judged_at < _JUDGED_SECONDS
            and replace(sample, at=before.at, speed=before.speed) == before
        )

    def stance(self) -> Stance:
        """How its link is to be judged."""
        link, compared = self.link, self.compared
        named = self.assigned.named
        was_there = bool(link.up or link.down_at or link.removed_at)
        needed = bool(compared.missed) or (link.was_up and not compared.idle)
        self.expected |= named or was_there or (self.is_fabric and needed)
        role = self.assigned.role.value
        return Stance(
            expected=self.expected,
            why="" if named else f"{role}: {self.assigned.why}",
            peers=compared.missed,
            slow=compared.slow,
            facts=self._facts(),
        )

    def _facts(self) -> tuple[tuple[str, str], ...]:
        port = self.assigned.port
        facts = (
            ("role", self.assigned.role.value),
            ("why", self.assigned.why),
            ("driver", port.driver),
            ("rdma", port.rdma),
            ("link_layer", port.link_layer),
            ("gpu", self.assigned.gpu),
        )
        return tuple((name, value) for name, value in facts if value)

    def peer(self) -> Peer:
        """What it is to others of its kind."""
        sample = self.sample
        return Peer(
            name=self.name,
            kind=self.assigned.port.kind,
            up=self.is_up,
            switched_on=sample is None or sample.switched_on is not False,
            speed=self.speed,
            best_speed=self.best_speed,
        )


def unseen(name: str) -> Assigned:
    """A name in the settings under which nothing was found, or a virtual interface."""
    port = Port(interface=name)
    return Assigned(port=port, name=name, role=Role.FABRIC, why=NAMED, named=True)


def missing(name: str) -> Assigned:
    """A fabric port that an agent before us saw in this boot."""
    port = Port(interface=name)
    return Assigned(port=port, name=name, role=Role.FABRIC, why="it was here earlier in this boot")


def reader_of(sys_root: Path, port: Port) -> Reader:
    """What reads the RDMA side of the port, and its speed."""
    return Reader(sys_root, port.rdma, port.rdma_port, port.interface)


def infiniband(reading: Reading, *, simulated: bool) -> LinkSample:
    """The link as the RDMA device has it: usable only while the subnet manager has it active."""
    downed = reading.counters.get("link_downed")
    return LinkSample(
        at=time.time(),
        source="sysfs",
        simulated=simulated,
        present=reading.present,
        up=reading.state == rdma.ACTIVE,
        operstate=f"{reading.state.lower() or 'unknown'} ({reading.physical_state or 'unknown'})",
        carrier_downs=None if downed is None or downed >= _LINK_DOWNED_MAX else downed,
    )


def told(ports: Sequence[WatchedPort], others: Iterable[Assigned], how: str) -> str:
    """What is watched and why, and what is not, in a sentence."""
    fabric = [port.name for port in ports if port.is_fabric]
    parts = [f"{len(fabric)} fabric ports by {how}"]
    if fabric:
        parts[0] += f" ({_names(fabric)}): {_reasons(ports)}"
    aside = [*(port.assigned for port in ports if not port.is_fabric), *others]
    for role in (Role.STORAGE, Role.MANAGEMENT):
        found = [f"{one.name}, {one.why}" for one in aside if one.role is role]
        if found:
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            parts.append(f"{role.value}: {'; '.join(found[:_LISTED])}{more}")
    if idle := [port.name for port in ports if port.is_fabric and not port.is_listed]:
        parts.append(f"without a link, and nothing tells that there should be one: {_names(idle)}")
    return ". ".join([*parts, *_counted(ports)])


def _counted(ports: Sequence[WatchedPort]) -> list[str]:
    readings = {port.assigned.port.rdma: port.reading for port in ports if port.assigned.port.rdma}
    read = {name: one for name, one in readings.items() if one is not None and one.counters}
    parts = []
    if readings:
        count = sum(len(one.counters) for one in read.values())
        parts.append(f"{count} counters of {len(read)} of {len(readings)} RDMA devices")
    unreadable = [f"{name} {counter}" for name, one in read.items() for counter in one.unreadable]
    if unreadable:
        parts.append(f"unreadable: {_names(unreadable)}")
    full = [
        f"{name} {counter}" for name, one in read.items() for counter in rdma.full(one.counters)
    ]
    if full:
        parts.append(f"full, and counting no more until they are cleared: {_names(full)}")
    return parts


def _reasons(ports: Sequence[WatchedPort]) -> str:
    """Why they are, without which GPU each is near."""
    found = [port.assigned.why.partition(" at 0")[0] for port in ports if port.is_fabric]
    return "; ".join(dict.fromkeys(found))


def _names(names: Sequence[str]) -> str:
    """All of a node's eight rails, or the first of more."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
