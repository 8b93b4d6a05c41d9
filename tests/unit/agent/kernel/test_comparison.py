"""The comparison with node-scraper, where node-scraper is not installed."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_without_node_scraper_our_figures_are_printed_and_how_to_install_it(tmp_path):
    """It is no dependency."""
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "bench" / "classify.py")),
            *("--node-scraper", str(tmp_path / "no-python"), "--seconds", "0.01"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["node_scraper"].startswith("not installed: python3 -m venv")
    assert "pip install amd-node-scraper==" in result["node_scraper"]
    assert "node_scraper" not in result["held_out"]
    assert result["held_out"]["aegis"]["named_right"] > 0
    assert result["lines_per_second"]["fault_lines_alone"]["aegis"] > 0
