"""Leaving the process groups of a generation whose other ranks are gone, without waiting for any.

RCCL and NCCL can be aborted. Gloo cannot: whoever waits in one of its collectives waits until the
peer's connection ends. So the connections that a group has made are noted when it is made, and
ended here; that frees this process, and its peers as well.
"""

import contextlib
import functools
import os
import socket
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from aegis.worker import ranks

# A group that is torn down while one of its threads lets go of a tensor can wait for ever. By the
# next restart those threads have long been idle, as their connections are ended: then it may go,
# with its threads and sockets.
_left: list[Any] = []  # at the newest restart
_links: set[str] = set()  # "socket:[inode]" of the groups' connections


def watch() -> None:
    """Note from now on which connections groups make."""
    plain = c10d._new_process_group_helper  # noqa: SLF001  every group comes out of it
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def make(*arguments: Any, **named: Any) -> Any:
        before = set(_sockets())
        try:
            return plain(*arguments, **named)
        finally:
            _links.update(set(_sockets()) - before)

    c10d._new_process_group_helper = make  # noqa: SLF001


def release() -> None:
    """End all connections and abort what can be; from any thread."""
    for group in list(c10d._world.pg_map):  # noqa: SLF001
        with contextlib.suppress(Exception):
            if dist.get_backend(group) != "gloo":
                group.abort()
    for link, descriptor in _sockets().items():
        if link in _links:
            with contextlib.suppress(OSError):
                _end(descriptor)


def leave() -> None:
    """Be in no group any more; a new one can be joined at another store."""
    release()
    _links.clear()
    _left[:] = [*c10d._world.pg_map, *ranks.kept]  # noqa: SLF001
    ranks.kept.clear()
    if not dist.is_initialized():
        return
    try:
        c10d._abort_process_group()  # noqa: SLF001
    except Exception:  # noqa: BLE001  a group that is broken may be so in any way
        dist.destroy_process_group()


def _sockets() -> dict[str, int]:
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  a hot path of every restart
        with contextlib.suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            if link.startswith("socket:"):
                found[link] = int(name)
    return found


def _end(descriptor: int) -> None:
    """End a connection; a listener stays, as gloo does not bear it to go."""
    with socket.socket(fileno=os.dup(descriptor)) as one:
        one.getpeername()
        one.shutdown(socket.SHUT_RDWR)
