"""What the agent costs and how fast it tells, as JSON.

    python bench/agent.py                     about four minutes
    python bench/agent.py --minutes 5 --polls 10000 --events 200      the whole, half an hour
    python bench/agent.py --only lines

A node with simulated GPUs and network cards, a real agent with all its children, a controller that
only confirms. GPUs and links are looked at every second, the rest every ten. What the simulator
itself costs is measured apart and taken off in the open. Nothing is judged here: it prints what it
found beside what was aimed for, and ends with 0.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import latency
import lines
import load
import real_links
from rig import Hardware

_PARTS = ("load", "latency", "lines", "growth")
_AIMS = {
    "load": "8 GPUs and 8 NICs: at most 2 % of a core (aim: 1), at most 150 MB PSS, over 5 minutes",
    "latency": "kernel line or link edge to report: 50 ms p99; ECC change: one poll and 50 ms",
    "lines": "100,000 a second with 1 % faults, 15,000 fault lines a second with details",
    "growth": "none over 10,000 polls back to back",
}


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minutes", type=float, default=1.0, help="at rest (default: 1; the whole: 5)")
    add("--polls", type=int, default=1000, help="back to back (default: 1000; the whole: 10000)")
    add("--events", type=int, default=20, help="of each kind (default: 20)")
    add("--lines", type=int, default=400_000, help="of the log (default: 400000)")
    add("--gpus", type=int, default=8)
    add("--nics", type=int, default=8)
    add("--settle", type=float, default=15.0, help="seconds after a start (default: 15)")
    add("--kmsg", action="store_true", help="write fault lines into this machine's own kernel log")
    add("--only", choices=_PARTS, action="append", help="only this; may be repeated")
    chosen = parser.parse_args()
    parts = chosen.only or list(_PARTS)
    found: dict[str, Any] = {"machine": load.machine(), "aims": {one: _AIMS[one] for one in parts}}
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        for part in parts:
            found[part] = _measure(part, chosen, Path(folder) / part)
    print(json.dumps(found, indent=2))
    return 0


def _measure(part: str, chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    if part == "lines":
        return lines.measure(chosen.lines)
    folder.mkdir()
    hardware = Hardware(folder, chosen.gpus, chosen.nics)
    match part:
        case "load":
            return load.steady(hardware, chosen.minutes, chosen.settle)
        case "latency":
            found = latency.measure(hardware, chosen.events, chosen.settle, kmsg=chosen.kmsg)
            return found | {"link_edge": real_links.measure(chosen.events, chosen.nics)}
        case _:
            return load.growth(hardware, chosen.polls, chosen.settle)


if __name__ == "__main__":
    sys.exit(main())
