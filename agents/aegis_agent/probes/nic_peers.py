"""Ports of one kind compared with each other: the odd one out is a finding, from the first look.

Seven of eight are up at 400 Gb/s, and one is down or slower: nobody builds a node so. Where half or
more of a kind are down, as the second ports of cards often are, nothing is odd about any.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aegis.model.fault import Evidence, FaultClass, Severity
from aegis_agent.probes.roles import Assigned, Place, Role, told_speed
from aegis_agent.probes.subject import Judgement, Subject

_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A port as it stands."""

    name: str
    kind: tuple[str, ...]
    up: bool
    switched_on: bool = True  # or nobody knows
    speed: int | None = None  # Mb/s
    best_speed: int | None = None  # that it ever had since the agent started


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneMemory:
    """What is remembered of a GPU without a port beside it."""

    boot_id: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the others say of a port."""

    missed: str = ""  # it is down: "7 of 8 ports of its kind are up (fab0, …)"
    slow: str = ""  # it is up: "it runs at …"
    idle: bool = False  # most of its kind are down


def compare(peers: Sequence[Peer]) -> Mapping[str, Comparison]:
    """Each port against those of its kind."""
    found: dict[str, Comparison] = {}
    for kind in dict.fromkeys(peer.kind for peer in peers):
        group = [peer for peer in peers if peer.kind == kind]
        up = [peer for peer in group if peer.up]
        for peer in group:
            found[peer.name] = Comparison(
                missed=_missed(peer, up, group),
                slow=_slow(peer, up),
                idle=2 * len(up) <= len(group),
            )
    return found


def alone(ports: Sequence[Assigned], gpus: Sequence[Place]) -> Mapping[str, str]:
    """GPUs without a fabric port beside them though most have one: the card never came up.

    By the GPU's PCI address, with a sentence. Where two GPUs share a switch with one card or two,
    nothing is told: who belongs to whom is not known there.
    """
    beside = {one.gpu for one in ports if one.role is Role.FABRIC and one.gpu}
    beside &= {gpu.address for gpu in gpus if gpu.bridges}
    if 2 * len(beside) <= len(gpus):
        return {}
    return {
        gpu.address: f"no network port is beside the GPU at {gpu.address}, as {len(beside)} of "
        f"{len(gpus)} GPUs have"
        for gpu in gpus
        if gpu.address not in beside
    }


def without(subject: Subject, memory: AloneMemory, at: float, text: str) -> Judgement[AloneMemory]:
    """Judge a GPU's missing port; an empty text: it has one."""
    if not text:
        return Judgement(memory=AloneMemory(), device=None)
    told = memory.boot_id == subject.boot_id
    evidence = Evidence(source="sysfs bus/pci", text=text)
    memory = memory if told else AloneMemory(boot_id=subject.boot_id, since=at)
    kind, warning = FaultClass.NIC_REMOVED, Severity.WARNING
    return Judgement(
        memory=memory,
        device=None,
        faults=() if told else (subject.fault(kind, warning, at, evidence),),
        conditions=subject.conditions((evidence,), {kind: memory.since}, warning),
    )


def _missed(peer: Peer, up: Sequence[Peer], group: Sequence[Peer]) -> str:
    if peer.up or not peer.switched_on or 2 * len(up) <= len(group):
        return ""
    return f"{len(up)} of {len(group)} ports of its kind are up ({_names(up)})"


def _slow(peer: Peer, up: Sequence[Peer]) -> str:
    if not peer.up or peer.speed is None:
        return ""
    usual, count = _usual(up)
    if peer.speed < usual and 2 * count > len(up):
        fast = [other for other in up if other.speed == usual]
        return (
            f"it runs at {told_speed(peer.speed)} while {count} of {len(up)} ports of its kind run "
            f"at {told_speed(usual)} ({_names(fast)})"
        )
    if peer.best_speed is not None and peer.speed < peer.best_speed:
        return (
            f"it runs at {told_speed(peer.speed)} and ran at {told_speed(peer.best_speed)} before"
        )
    return ""


def _usual(up: Sequence[Peer]) -> tuple[int, int]:
    """The speed that most have, and how many have it."""
    speeds = Counter(peer.speed for peer in up if peer.speed is not None)
    return max(speeds.items(), key=lambda item: (item[1], item[0]), default=(0, 0))


def _names(peers: Sequence[Peer]) -> str:
    names = [peer.name for peer in peers]
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
