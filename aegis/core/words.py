"""Fault classes and remedies in plain words, for headlines that anyone on call can read."""

from aegis.model.catalogue import CATALOGUE
from aegis.model.fault import FaultClass
from aegis.model.incident import Remedy

FAULTS: dict[FaultClass, str] = {one: entry.title for one, entry in CATALOGUE.items()}

REMEDIES: dict[Remedy, str] = {
    Remedy.COUNT: "count it",
    Remedy.NOTIFY: "tell people",
    Remedy.RESTART: "restart the job's ranks",
    Remedy.DRAIN_SAVING: "save, then move off the node",
    Remedy.DRAIN_NOW: "move off the node without saving",
    Remedy.RESET_DOMAIN: "move off the node and reset its GPUs",
    Remedy.REBOOT: "move off the node and reboot it",
}

CRASH = "Fatal Python error"  # how a crash's stack begins, innermost call first

REPAIR_VERBS: dict[Remedy, str] = {
    Remedy.RESET_DOMAIN: "reset its GPUs",
    Remedy.REBOOT: "reboot",
}


def who_must(agree: int) -> str:
    """Whose word is needed."""
    return "a person" if agree == 1 else f"{agree} people"


def once_agreed(needed: int) -> str:
    """What has to happen where people are asked."""
    return "a person agrees" if needed == 1 else f"{needed} people agree"


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 step", "3 steps"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names with commas and an `and`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
