"""The disposable child: a real all-reduce over gloo, real memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aegis.worker import validate, validate_ranks

REPOSITORY = Path(__file__).parents[3]


def run(*flags, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "aegis.worker.validate", "--megabytes", "8", *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)} | environment,
    )
    steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, {step["name"]: step for step in steps}


def test_ranks_meet_and_sum_up_right():
    """Three real ranks over gloo; GPUs that torch does not see could not be tried."""
    code, steps = run("--ranks", "3", "--gpus", "8")
    assert code == 0
    assert steps["host memory"]["state"] == "pass"
    assert steps["all-reduce"]["state"] == "pass"
    assert steps["all-reduce"]["text"].startswith("over 3 ranks on the CPU")
    assert steps["all-reduce"]["value"].endswith("GB/s")
    assert steps["gpu memory"]["state"] == "unknown"
    assert steps["gpu memory"]["text"].startswith("8 GPUs are watched, and torch sees none")


def test_without_torch_it_could_not_be_told(tmp_path):
    """Never a pass."""
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')\n")
    code, steps = run("--gpus", "8", PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    assert code == 0
    assert (steps["all-reduce"]["state"], steps["gpu memory"]["state"]) == ("unknown", "unknown")
    assert "torch cannot be loaded" in steps["all-reduce"]["text"]
    assert steps["host memory"]["state"] == "pass"


def test_memory_that_does_not_read_back_fails():
    """Said with how much of it."""
    step = validate.host_memory(2)
    assert (step["state"], step["name"]) == ("pass", "host memory")


@pytest.mark.parametrize(
    ("told", "silent", "state", "words"),
    [
        ({0: {"wrong": 0, "allreduce_gbps": 320.0}, 1: {"wrong": 0, "allreduce_gbps": 287.0}}, {},
         "fail", "too slow"),
        ({0: {"wrong": 0, "allreduce_gbps": 320.0}, 1: {"wrong": 0, "allreduce_gbps": 311.0}}, {},
         "pass", "every sum was right"),
        ({0: {"wrong": 4, "allreduce_gbps": 320.0}, 1: {"wrong": 0, "allreduce_gbps": 320.0}}, {},
         "fail", "rank 0: 4 sums are wrong"),
        ({0: {"wrong": 0, "allreduce_gbps": 320.0}}, {1: "it did not end within 35 s"},
         "fail", "rank 1: it did not end within 35 s"),
    ],
)  # fmt: skip
def test_gpus_are_judged_by_the_slowest_and_the_silent(told, silent, state, words):
    """The gate is data; a rank that hangs or errs on a GPU fails."""
    step = validate_ranks.allreduce(told, silent, 2, 2, {"allreduce_gbps": 310.0})
    assert step["state"] == state
    assert words in step["text"]


def test_the_memory_of_a_gpu_is_judged_by_what_it_reads_back():
    """Bytes, copies and the count of GPUs."""
    good = {"bad_bytes": 0, "tried_bytes": 10**10, "h2d_gbps": 52.0, "d2h_gbps": 50.0}
    gates = {"h2d_gbps": 48.0, "d2h_gbps": 44.0}
    judge = validate_ranks.gpu_memory
    assert judge({0: good, 1: good}, {}, 2, gates)["state"] == "pass"
    assert judge({0: good, 1: good | {"bad_bytes": 1}}, {}, 2, gates)["state"] == "fail"
    slow = judge({0: good, 1: good | {"h2d_gbps": 20.0}}, {}, 2, gates)
    assert (slow["state"], slow["gate"]) == ("fail", ">= 48 / 44 GB/s")
    assert "torch sees 1 GPUs, 2 are watched" in judge({0: good}, {}, 2, gates)["text"]
    oom = judge({0: good, 1: {"gpu_error": "out of memory"}}, {}, 2, gates)
    assert "GPU 1 could not be tried: out of memory" in oom["text"]
