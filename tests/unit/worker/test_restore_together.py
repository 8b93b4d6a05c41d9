"""Ranks that restore together: what one of them meets ends the restore on all."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: run `make setup`")

SCRIPT = """
import sys
from traceback import StackSummary
import torch, torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from aegis.worker import Checkpointer, restoring

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
checkpointer = Checkpointer(sys.argv[1], model=model, optimizer=optimizer)
assert checkpointer.save(1) and checkpointer.wait()
load = restoring.dcp.load

def fails(*arguments, **named):
    if rank == 1:
        raise CheckpointException("load", {0: (OSError(5, "Input/output error"), StackSummary())})
    load(*arguments, **named)

restoring.dcp.load = fails
try:
    checkpointer.restore()
except CheckpointException as error:
    met = {where: str(one[0]) for where, one in error.failures.items()}
    print(f"rank {rank} ends: {met}\\n", end="", flush=True)
restoring.dcp.load = load
assert checkpointer.restore() == 1
dist.barrier()
dist.destroy_process_group()
"""


def test_a_rank_that_cannot_read_does_not_leave_the_others_waiting(tmp_path):
    """All raise, each names the rank that met it, and all can restore together again."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", script, tmp_path / "checkpoints"],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    ended = sorted(line for line in done.stdout.splitlines() if "ends:" in line)
    assert [line.split(" ends:")[0] for line in ended] == ["rank 0", "rank 1"]
    assert all("{1: " in line and "Input/output error" in line for line in ended)
