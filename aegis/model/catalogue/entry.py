"""What the catalogue says of one class of fault."""

from dataclasses import dataclass

from aegis.model.fault import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where to read more, open to everyone."""

    title: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One class of fault, for whoever is called at night and has not met it before."""

    title: str  # as a headline begins: "Uncorrectable memory error"
    description: str  # what it is
    effect: str  # what it does to the work
    severity: Severity  # where a probe has no reason to say otherwise
    raised: str = ""  # when the severity is another
    scope: str  # what the fault takes with it
    seen: tuple[str, ...]  # where the agent reads it
    answer: str  # what is usually done first
    check: tuple[str, ...]  # what a person should look at; commands in backquotes
    afids: tuple[int, ...] = ()  # AMD's field ids
    xids: tuple[int, ...] = ()  # NVIDIA's error numbers
    references: tuple[Reference, ...]
