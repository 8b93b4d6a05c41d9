"""How long a training job stands still after a fault, beside torchrun in the same run.

    python bench/recovery.py                        every part, 5 repetitions each (15 minutes)
    python bench/recovery.py --only unchanged       that part and the baseline it is compared with
    python bench/recovery.py --short                what CI can afford: 1 repetition, one machine

Every time is from the fault (kill -9, SIGSTOP, links cut) to the moment when all ranks have taken
their first new step, read from what the ranks write. The same script runs under both. torchrun is
given TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, without which its restarts seldom work; its defaults
are measured apart. Every ratio is torchrun's median divided by ours.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from recovery_parts import nodes, one_machine, torchrun_nodes

Part = Callable[[Path, int], dict[str, Any]]

PARTS: dict[str, Part] = {
    "torchrun": one_machine.torchrun_unchanged,
    "torchrun_early": one_machine.torchrun_early,
    "torchrun_inplace": one_machine.torchrun_inplace,
    "torchrun_defaults": one_machine.torchrun_defaults,
    "unchanged": one_machine.aegis_unchanged,
    "early": one_machine.aegis_early,
    "inplace": one_machine.aegis_inplace,
    "stopped": one_machine.aegis_stopped,
    "torchrun_node": torchrun_nodes.killed,
    "node_killed": nodes.killed,
    "node_cut": nodes.cut,
    "node_cut_defaults": nodes.cut_defaults,
}
BASELINE = {
    "unchanged": "torchrun",
    "early": "torchrun_early",
    "inplace": "torchrun_inplace",
    "node_killed": "torchrun_node",
}
SHORT = ("torchrun", "unchanged")


def measure(wanted: list[str], repetitions: int, folder: Path) -> dict[str, Any]:
    """Each part after the other."""
    found: dict[str, Any] = {}
    for name in wanted:
        print(f"{name}: {repetitions} repetitions", file=sys.stderr)
        found[name] = PARTS[name](folder, repetitions)
    return found


def conclude(parts: dict[str, Any]) -> dict[str, Any]:
    """The ratios, `ratio` being that of the script that builds before it asks for its rank."""
    found: dict[str, Any] = {}
    for name, key in (
        ("early", "ratio"),
        ("unchanged", "ratio_unchanged"),
        ("inplace", "ratio_inplace"),
        ("node_killed", "ratio_node"),
    ):
        ours, theirs = (_median(parts, one) for one in (name, BASELINE[name]))
        if ours and theirs:
            found[key] = round(theirs / ours, 2)
    found["aegis_median_s"] = _median(parts, "early") or _median(parts, "unchanged")
    found["torchrun_median_s"] = _median(parts, "torchrun_early") or _median(parts, "torchrun")
    return found


def _median(parts: dict[str, Any], name: str) -> float | None:
    return parts.get(name, {}).get("seconds", {}).get("median")


def main() -> int:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="this part (repeat)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="1 repetition on one machine, for CI")
    parser.add_argument("--no-baseline", action="store_true", help="torchrun only where named")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    wanted = list(arguments.only or (SHORT if arguments.short else PARTS))
    if not arguments.no_baseline:
        wanted = [BASELINE[one] for one in wanted if one in BASELINE] + wanted
    repetitions = 1 if arguments.short else arguments.repetitions
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        parts = measure(list(dict.fromkeys(wanted)), repetitions, Path(folder))
    found = conclude(parts) | {
        "cpus": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
        "parts": parts,
    }
    print(json.dumps(found, indent=None if arguments.json else 2))
    return 1 if any("lost" in part for part in parts.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
