"""What a line of the kernel log means: one row per wording, in tables that are read from the top.

A row says how bad the line is, gives the expression that knows it, a line of its kind, and who
prints it. Expressions follow the kernel's own formats, so that another count, ring, bank or version
of the driver is known as well. Named groups become the details of a finding (`block__2` is
`block` in another wording). A row without a class says that the line only looks like a fault.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from aegis.model.fault import FaultClass, Severity

INFO, WARNING, ERROR, FATAL = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one line says."""

    fault_class: FaultClass
    severity: Severity
    device: str  # a PCI address, an interface or an RDMA device, as the line names it; "" unknown
    details: Mapping[str, str] = field(default_factory=dict)
    text: str  # the message


@dataclass(frozen=True, slots=True)
class Pattern:
    """One wording. Rows are written without keywords: a table is read by its columns."""

    fault_class: FaultClass | None  # None: looks like a fault and is none
    severity: Severity
    word: str  # every line of this wording has it, in lower case; looked for first, as it is quick
    expression: str  # searched in the message after the name of its driver and device
    example: str  # a whole line
    source: str  # who prints it


class Table:
    """Patterns, compiled. The first that knows a message decides."""

    def __init__(self, *tables: Iterable[Pattern]) -> None:
        self._patterns = tuple(pattern for table in tables for pattern in table)
        self._rows = [
            (pattern.word, re.compile(pattern.expression, re.IGNORECASE).search, pattern)
            for pattern in self._patterns
        ]

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self._patterns)

    def read(self, message: str, device: str, text: str) -> Finding | None:
        """The fault in a message of this device; its text is the whole of it, for the reader."""
        lower = message.lower()
        for word, search, pattern in self._rows:
            if word in lower and (found := search(message)) is not None:
                if pattern.fault_class is None:
                    return None
                return Finding(
                    fault_class=pattern.fault_class,
                    severity=pattern.severity,
                    device=device,
                    details={
                        name.partition("__")[0]: value.strip()
                        for name, value in found.groupdict().items()
                        if value
                    },
                    text=text,
                )
        return None
