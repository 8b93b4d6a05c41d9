"""What the kernel counts of the host under /proc."""

from pathlib import Path

from aegis_agent.probes.host import Interrupts, Memory

_KB_PER_MB = 1024


def read_memory(proc_root: Path) -> Memory | None:
    """How much there is, and how much could be had without swapping."""
    values = _table(proc_root / "meminfo")
    total, available = values.get("MemTotal"), values.get("MemAvailable")
    if not total or available is None:
        return None
    return Memory(total_mb=total // _KB_PER_MB, available_mb=available // _KB_PER_MB)


def read_oom_kills(proc_root: Path) -> int | None:
    """Processes that the kernel killed for want of memory, in any control group, since the boot."""
    return _table(proc_root / "vmstat").get("oom_kill")


def read_interrupts(proc_root: Path) -> Interrupts:
    """What processors counted of machine checks, summed. Long on many processors: read seldom."""
    found = {}
    try:
        with (proc_root / "interrupts").open() as lines:
            for line in lines:
                name, _, rest = line.strip().partition(":")
                if name in ("MCE", "DFR"):
                    found[name] = sum(int(word) for word in rest.split() if word.isdigit())
    except OSError:
        pass
    return Interrupts(machine_checks=found.get("MCE"), deferred=found.get("DFR"))


def _table(path: Path) -> dict[str, int]:
    """Lines such as "MemTotal:  131072 kB" and "oom_kill 3"."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, *words = line.replace(":", " ").split()[:2] or [""]
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found
