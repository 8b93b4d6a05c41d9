"""The measurements run and say what they found. How fast anything was decides no test."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench" / "agent.py"


def run(*flags):
    done = subprocess.run(
        [sys.executable, BENCH, *flags], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_lines_are_counted_beside_a_baseline_of_the_same_run() -> None:
    """A figure without its machine and its yardstick says nothing."""
    found = run("--only", "lines", "--lines", "20000")
    assert found["machine"]["cores"]
    assert found["lines"]["fault_lines"]["wordings"] > 100
    for kind in ("ordinary_log", "fault_lines"):
        assert found["lines"][kind]["followed_per_second"] > 0
    assert found["lines"]["baseline"]["per_second"] > 0


def test_events_reach_the_report_and_the_simulator_is_told_apart() -> None:
    """A small node: every event of each kind arrives, and the cost of both sides is printed."""
    found = run(
        *("--only", "latency", "--only", "load", "--gpus", "1", "--nics", "1"),
        *("--events", "2", "--minutes", "0.03", "--settle", "1"),
    )
    told = found["latency"]
    for kind in ("kernel_line", "link_edge_simulated", "ecc_change"):
        assert told[kind]["events"] == 2, told
    assert told["storm"]["faults_counted_within_5_s"] == told["storm"]["lines"]
    assert found["load"]["simulator"]["calls_per_second"] > 0
    assert found["load"]["cpu_percent"] > 0
