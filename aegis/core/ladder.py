"""The ladder: which rung of a rule is next, by what was tried on this very device lately.

A rung that was tried as often as the rule says, in the time it says, gives way to the one above.
These keep it from climbing blindly:

- What needs hands first (links, PCIe, on-die memory) skips rungs that only reset or reboot.
- A failure that wanders from device to device is the application's, not the hardware's: the first
  rung stays. The same device twice is hardware.
- A rank that says it lost another one is a victim: the first rung stays, and it is not counted.
- Above the last rung there are only people: a node that a rung may take away is taken and left to
  them, any other rule tells them.
"""

from dataclasses import dataclass

from aegis.core.cluster import Cluster
from aegis.core.words import REMEDIES, duration, listed
from aegis.model.fault import Fault
from aegis.model.incident import Incident, Remedy
from aegis.model.memory import Attempt, Memory
from aegis.rules import Rule, Rung
from aegis.rules.physical import SOFT, needs_hands

STAYING = (Remedy.COUNT, Remedy.NOTIFY, Remedy.RESTART)  # the node keeps its ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is called for now."""

    remedy: Remedy
    why: str = ""  # a clause that says why it is not, or is still, the first rung
    below: Remedy | None = None  # the rung to fall back on where this one may not be done


def choose(cluster: Cluster, rule: Rule, incident: Incident, fault: Fault) -> Step:
    """The rung that the incident has reached."""
    if not rule.if_fails and rule.attempts is None:
        return Step(remedy=rule.remedy)
    if fault.is_victim:
        why = "the rank lost another one, which blames neither it nor its node"
        return Step(remedy=rule.remedy, why=why)
    hands = needs_hands(fault)
    rungs = [one for one in rule.ladder if not (hands and one.remedy.value in SOFT)]
    if not rungs:
        return _end(rule, "it needs hands first, which no reset or reboot is")
    said: list[str] = []
    below: Remedy | None = None
    for rung in rungs:
        here = _tried(cluster, rule, incident, rung)
        if rung.attempts is None or len(here) < rung.attempts:
            return Step(remedy=rung.remedy, why=_why(said, rung.remedy), below=below)
        if elsewhere := _elsewhere(cluster, rule, incident, rung, here):
            return Step(remedy=rung.remedy, why=elsewhere)
        said.append(_told(rung, len(here), incident.device))
        below = Remedy.RESTART if rung.remedy is Remedy.RESTART else below
    return _end(rule, f"{listed(said)}, and there is no rung above: people must look")


def _end(rule: Rule, why: str) -> Step:
    """Where no rung is left."""
    takes = any(one.remedy not in STAYING for one in rule.ladder)
    return Step(remedy=Remedy.DRAIN_NOW if takes else Remedy.NOTIFY, why=why)


def _tried(cluster: Cluster, rule: Rule, incident: Incident, rung: Rung) -> list[Attempt]:
    """The attempts on this rung for this device, in its time, by other incidents."""
    since = cluster.now - rung.within_seconds
    return [
        one
        for one in cluster.memories.get(incident.node or "", Memory()).tried
        if one.at > since
        and one.remedy is rung.remedy
        and one.device == incident.device
        and one.fault_class in rule.classes
        and one.incident != incident.id
    ]


def _elsewhere(
    cluster: Cluster, rule: Rule, incident: Incident, rung: Rung, here: list[Attempt]
) -> str:
    """Why it is the application: the same was tried as often on other devices of the job."""
    if rung.remedy is not Remedy.RESTART or not incident.job:
        return ""
    since, place = cluster.now - rung.within_seconds, (incident.node, incident.device)
    others = {
        (node, one.device, one.incident)
        for node, memory in cluster.memories.items()
        for one in memory.tried
        if one.at > since
        and one.job == incident.job
        and one.remedy is rung.remedy
        and one.fault_class in rule.classes
        and (node, one.device) != place
    }
    if len(others) < len(here):
        return ""
    names = sorted({f"{node} {device}" for node, device, _ in others})
    return f"it was on {listed(names[:3])} too: the application is suspect, not a device"


def _told(rung: Rung, times: int, device: str) -> str:
    count = "once" if times == 1 else f"{times} times"
    return (
        f"to {REMEDIES[rung.remedy]} was tried {count} in {duration(rung.within_seconds)} on "
        f"{device}"
    )


def _why(said: list[str], remedy: Remedy) -> str:
    return f"{listed(said)}; the next rung is to {REMEDIES[remedy]}" if said else ""
