"""Where rules and policy are read, and how the last reading went."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from aegis.controller.configuration import load_policy, load_rules
from aegis.model.policy import Policy
from aegis.rules import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where rules and policy are read."""

    rules: tuple[Path, ...] = ()  # folders, the lowest layer first
    policy: Path | None = None

    def read(self) -> tuple[RuleSet, Policy]:
        """Both of them. Raises ConfigurationError."""
        return load_rules(*self.rules), load_policy(self.policy)


@dataclass(slots=True)
class Reloads:
    """How the last reading of rules and policy went."""

    files: Files = field(default_factory=Files)
    error: str = ""  # why it was refused; the ones before stay in force
    good_at: float = field(default_factory=time.time)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)  # what was read last is in force
