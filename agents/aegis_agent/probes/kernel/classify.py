"""What one line of the kernel log says: a class with its details, or nothing.

The first word of a message names its printer, and only that printer's tables are read. So what a
program says about "GPU reset begin" is no fault of a GPU, and an ordinary line costs a look-up.
"""

from collections.abc import Callable, Mapping

from aegis_agent.probes.kernel import amdgpu, host, nic, nvidia, pcie
from aegis_agent.probes.kernel.pattern import Finding

__all__ = ["Finding", "classify"]

Reader = Callable[[str], Finding | None]

_AMDGPU = "amdgpu amdgpu: kfd kfd: [drm]"
_PORTS = "pcieport pciehp pci aer dpc"
_HOST = (
    "EDAC mce: MCE: Machine [Hardware BERT: GHES: x86/amd: Memory Out Killed INFO: BUG: NMI "
    "watchdog: Watchdog rcu: Kernel Fatal clocksource: Clocksource tsc: Marking soft Soft RAS: "
    "EXT4-fs XFS"
)
_READERS: Mapping[str, Reader] = {
    **{word: nic.classify for driver in nic.DRIVERS for word in (driver, f"{driver}:")},
    **dict.fromkeys(_AMDGPU.split(), amdgpu.classify),
    **dict.fromkeys(_PORTS.split(), pcie.classify),
    **dict.fromkeys(_HOST.split(), host.classify),
    "NVRM:": nvidia.read,
    "NETDEV": nic.classify_watchdog,
    "bonding:": nic.classify_interface,
    **dict.fromkeys(("qcm", "The", "the", "cp", "Failed"), amdgpu.classify_nameless),
}


LENGTH_MAX = 1024  # of a message that is read; the kernel writes no longer ones


def classify(text: str) -> Finding | None:
    """The fault in one message, given without time stamps; None: context, noise, all is well."""
    if len(text) > LENGTH_MAX:
        text = text[:LENGTH_MAX]
    first, _, rest = text.partition(" ")
    reader = _READERS.get(first)
    if reader is not None:
        return reader(text)
    if not first:
        return classify(text.lstrip()) if rest else None
    return _unnamed(first, rest, text)


def _unnamed(first: str, rest: str, text: str) -> Finding | None:
    """A message whose first word is no name that is known."""
    if first.startswith(nvidia.WORDS) and (found := nvidia.read(text)) is not None:
        return found
    if rest[4:5] == ":" and rest[7:8] == ":":  # a driver and a PCI address
        return pcie.classify(text) or nic.classify_link(text)
    if first.startswith("[drm:"):
        return amdgpu.classify(text)
    if first[0] == "{" or first.startswith("oom-kill:") or " invoked oom-killer: " in text:
        return host.classify(text)
    return nic.classify_unnamed(first, text)
