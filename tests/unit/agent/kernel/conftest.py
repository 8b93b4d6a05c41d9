"""A small classifier, so that stories about lines do not hang on its patterns."""

import re
from dataclasses import dataclass, field

import pytest

from aegis.model.fault import FaultClass as F
from aegis.model.fault import Severity
from aegis_agent.probes.kernel.follow import Follow
from aegis_agent.probes.kernel.line import Line

MEANINGS = (
    (r"GPU reset begin!", F.GPU_RESET_BEGIN, Severity.WARNING),
    (r"MODE1 reset|trying to resume", F.GPU_RESET_PROGRESS, Severity.INFO),
    (r"GPU reset\(\d+\) succeeded", F.GPU_RESET_SUCCEEDED, Severity.WARNING),
    (r"GPU reset\(\d+\) failed", F.GPU_RESET_FAILED, Severity.FATAL),
    (r"ring \S+ timeout", F.GPU_RING_TIMEOUT, Severity.ERROR),
    (
        r"uncorrectable hardware errors .* in (?P<block>\w+) block",
        F.GPU_ECC_UNCORRECTABLE,
        Severity.ERROR,
    ),
    (r"Accelerator Check Architecture|(?:ACA|aca entry)\[", F.GPU_RAS_RECORD, Severity.INFO),
    (r"no-retry page fault|in page starting", F.GPU_VM_FAULT, Severity.WARNING),
    (r"AER: Correctable error|severity=Corrected", F.PCIE_AER_CORRECTED, Severity.WARNING),
    (r"event severity: fatal|type: fatal", F.HOST_APEI_FATAL, Severity.FATAL),
    (r"event severity: corrected|type: corrected", F.HOST_APEI_CORRECTED, Severity.WARNING),
    (r"Machine check events logged", F.HOST_MCE_CORRECTED, Severity.WARNING),
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    fault_class: F
    severity: Severity
    device: str
    text: str
    details: dict = field(default_factory=dict)


def classify(text):
    for pattern, fault_class, severity in MEANINGS:
        if found := re.search(pattern, text):
            address = re.search(r"\w{4}:\w\w:\w\w\.\d", text)
            return Finding(
                fault_class=fault_class,
                severity=severity,
                device=address[0] if address else "",
                details=found.groupdict(),
                text=text,
            )
    return None


class Log:
    """A kernel log that is followed as it is written."""

    def __init__(self):
        self.follow = Follow(classify)
        self.now = 100.0
        self.signals = []

    def say(self, *texts, after=0.0):
        """Lines, one after the other; what they told at once."""
        told = []
        for text in texts:
            self.wait(after)
            told += self.follow.feed(Line(text=text), happened=self.now, now=self.now)
        self.signals += told
        return told

    def wait(self, seconds):
        """Time goes by, second by second or as it is due; what that told."""
        until, told = self.now + seconds, []
        while (due := self.follow.due()) is not None and due <= until:
            self.now = max(due, self.now + 1e-6)
            told += self.follow.tick(self.now)
        self.now = until
        self.signals += told
        return told


@pytest.fixture
def log():
    return Log()
