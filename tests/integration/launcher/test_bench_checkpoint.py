"""The measurement of checkpoints runs, and what it restores is what was saved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "checkpoint.py"


def test_it_prints_its_figures(tmp_path):
    """Small and short; the figures themselves are nobody's to judge here."""
    pytest.importorskip("torch", reason="needs torch: run `make setup`")
    command = [sys.executable, str(BENCH), "--short", "--peers", "--json", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"stall_ratio", "cost_ratio", "durable_ratio", "state_bytes"} <= found.keys()
    assert found["aegis_with_peers"]["copy_s"]["median"] > 0
    assert found["exact"]
    assert not list(tmp_path.iterdir())
