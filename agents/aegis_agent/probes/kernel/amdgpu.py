"""Lines of amdgpu and amdkfd, under every name that their printers put before them.

    amdgpu 0000:c1:00.0: amdgpu: {3}socket: 0, die: 1, …     dev_err and RAS_EVENT_LOG
    amdgpu 0000:c1:00.0: [drm] *ERROR* ring gfx timeout, …   drm_err
    [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring …        DRM_ERROR
    kfd kfd: amdgpu: device 1002:74a1 NOT added …            dev_err of the KFD
    amdgpu: Failed to evict process queues                   pr_err
    qcm fence wait loop timeout expired                      pr_err of kernels before 5.0

Names of functions in brackets belong to amdgpu, or the line is of another driver of the DRM.
"""

import re
from dataclasses import replace

from aegis_agent.probes.kernel import amdgpu_device, amdgpu_hang, amdgpu_ras, pcie
from aegis_agent.probes.kernel.pattern import Finding, Table

TABLE = Table(amdgpu_ras.PATTERNS, amdgpu_hang.PATTERNS, amdgpu_device.PATTERNS, pcie.PATTERNS)

_HEAD = re.compile(
    r"(?:amdgpu (?P<device>[0-9a-fA-F:.]+): ?|kfd kfd: )?"
    r"(?:amdgpu: )?"
    r"(?:\[drm(?::\w[\w.]*(?: \[(?P<module>\w+)\])?)?\] ?)?"
    r"(?:\*ERROR\* )?"
    r"(?:amdgpu: )?"
    r"(?:\[powerplay\] ?)?"
    r"\s*(?:\{(?P<event>\d+)\} ?)?"
)
# What old kernels print of the KFD without any name: only these words at the very start.
_NAMELESS = re.compile(
    r"qcm fence wait loop|the cp might be in an unrecoverable|cp queue preemption"
    r"|failed to (?:evict (?:process )?queues?|suspend process|quiesce kfd|restore process queues)",
    re.IGNORECASE,
)


def classify(text: str) -> Finding | None:
    """A line that begins with a name of amdgpu's."""
    head = _HEAD.match(text)
    if head is None or (head["module"] or "amdgpu") != "amdgpu":
        return None
    finding = TABLE.read(text[head.end() :], head["device"] or "", text)
    if finding is None or not head["event"]:
        return finding
    return replace(finding, details={**finding.details, "event": head["event"]})


def classify_nameless(text: str) -> Finding | None:
    """A line that may be of the KFD of an old kernel."""
    return classify(text) if _NAMELESS.match(text) else None
