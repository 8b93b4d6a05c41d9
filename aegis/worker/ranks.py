"""All ranks of the job, talking to each other about checkpoints over a process group of their own.

The trainer's own group stays undisturbed: mixed into its collectives, a save can block for ever.
Whatever goes wrong on one rank is raised on every rank, so that none waits for another.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from aegis.worker.fence import FenceError

T = TypeVar("T")

# In torch 2.13 a group's worker that lets go of a tensor holds the group's lock and wants the
# interpreter's. A group that is torn down in that moment holds the one, wants the other, and waits
# for ever. So no group is torn down before the interpreter itself, but for those that were left
# long since (`aegis.worker.groups`).
kept: list[Any] = []


class ElsewhereError(OSError):
    """Something failed on another rank."""


class Ranks:
    """This rank among the others; one rank alone where nothing is distributed."""

    def __init__(self) -> None:
        alone = not (dist.is_available() and dist.is_initialized())
        self.group = None if alone else dist.new_group(backend="gloo")
        kept.append(self.group)
        self.rank = 0 if alone else dist.get_rank()
        self.size = 1 if alone else dist.get_world_size()

    def highest(self, *values: int) -> list[int]:
        """The highest of each value that any rank has. The quickest talk there is."""
        if self.group is None:
            return list(values)
        told = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self.group)
        return [int(value) for value in told]

    def collect(self, value: T) -> list[T] | None:
        """What each rank has, in rank order, on the first; None on the others."""
        if self.group is None:
            return [value]
        told: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, told, dst=0, group=self.group)
        return told

    def deal(self, values: list[T] | None) -> T:
        """To each rank its own of the values that the first rank has."""
        dealt: list[Any] = [values[0] if values else None]
        if self.group is not None:
            dist.scatter_object_list(dealt, values, src=0, group=self.group)
        mine: T = dealt[0]
        return mine

    def spread(self, value: T, source: int = 0) -> T:
        """What one rank has, the first by default, on every rank."""
        told: list[Any] = [value]
        if self.group is not None:
            dist.broadcast_object_list(told, src=source, group=self.group)
        first: T = told[0]
        return first

    def share(self, find: Callable[[], T]) -> T:
        """What the first rank finds, or the error that it meets, on every rank."""
        told: list[Any] = [_attempt(find) if self.rank == 0 else None]
        if self.group is not None:
            dist.broadcast_object_list(told, src=0, group=self.group)
        value, error = told[0]
        if error is not None:
            raise error
        found: T = value
        return found

    def gather(self, find: Callable[[], T]) -> list[T]:
        """What each rank finds, in rank order; the first rank's error if any meets one."""
        told: list[Any] = [_attempt(find)] * self.size
        if self.group is not None:
            dist.all_gather_object(told, told[0], group=self.group)
        for rank, (_, error) in enumerate(told):
            if error is not None:
                raise ElsewhereError(error.errno, f"rank {rank}: {error.strerror or error}")
        return [value for value, _ in told]


def _attempt(find: Callable[[], T]) -> tuple[T | None, OSError | FenceError | None]:
    try:
        return find(), None
    except (OSError, FenceError) as error:
        return None, error
