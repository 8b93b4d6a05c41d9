"""How many nodes and ranks a job is to have, and whether this node can carry its part of them.

GPUs are counted by what the kernel shows, without asking any library: a launcher that opened a
device would hold it. Where none is shown any number of ranks may run.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from aegis_agent.launcher.errors import UsageError

_RANKS_PER_NODE_MAX = 1024
# What hides GPUs from ranks, in the words of the libraries that heed it.
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def read_nodes(text: str) -> int:
    """What --nnodes asks for, or UsageError. A range of torchrun's is not for us to choose from."""
    least, colon, most = text.partition(":")
    number = read_number(least, "--nnodes")
    if colon and (highest := read_number(most, "--nnodes")) != number:
        if highest < number:
            raise UsageError(f"--nnodes {text}: at least {number} and at most {highest} is no size")
        raise UsageError(
            f"--nnodes {text}: the number of nodes is fixed here; to train on {number} and keep "
            f"others standing by, say --nnodes {number} --spares N"
        )
    return number


def read_ranks_per_node(
    text: str, environment: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> int:
    """What --nproc-per-node asks for, or UsageError where this node has not so many GPUs."""
    gpus, hidden_by = _visible(count_gpus(root), environment)
    if text in ("gpu", "auto", "cpu"):
        if text == "gpu" and not gpus:
            raise UsageError("--nproc-per-node gpu: this machine shows no GPU; say a number")
        return (0 if text == "cpu" else gpus) or os.cpu_count() or 1
    number = read_number(text, "--nproc-per-node")
    if number > _RANKS_PER_NODE_MAX:
        raise UsageError(f"--nproc-per-node {number}: say {_RANKS_PER_NODE_MAX} or fewer")
    if 0 < gpus < number and not _is_partitioned(root):
        shown = f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
        raise UsageError(
            f"--nproc-per-node {number}: this node shows {shown}{hidden_by}, and two ranks cannot "
            f"have the same; say {gpus}, or CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES= before the "
            "command where ranks use none"
        )
    return number


def count_gpus(root: Path = Path("/")) -> int:
    """The GPUs that the kernel shows."""
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
    amd = sum(1 for path in nodes if path.read_text().strip() not in ("", "0"))
    return amd or len(list((root / "dev").glob("nvidia[0-9]*")))


def _visible(gpus: int, environment: Mapping[str, str]) -> tuple[int, str]:
    """How many of them ranks see, and what hides the others."""
    hidden_by = ""
    for name in _HIDING:
        if name not in environment:
            continue
        listed = [one.strip() for one in environment[name].split(",")]
        seen = next((at for at, one in enumerate(listed) if one in ("", "-1")), len(listed))
        if seen < gpus:
            gpus, hidden_by = seen, f" ({name}={environment[name]})"
    return gpus, hidden_by


def _is_partitioned(root: Path) -> bool:
    """NVIDIA's MIG makes several devices of one, and each rank chooses its own."""
    return any((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*"))


def read_number(text: str, flag: str) -> int:
    """A number of nodes or ranks, or UsageError."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{flag} {text}: say a number, 1 or more") from None
    return at_least(number, 1, flag)


def at_least(number: int, least: int, flag: str) -> int:
    """The number, or UsageError where it is smaller."""
    if number < least:
        raise UsageError(f"{flag} {number}: say a number, {least} or more")
    return number
