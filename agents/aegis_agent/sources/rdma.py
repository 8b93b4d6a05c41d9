"""RDMA ports: their state and counters, from sysfs, or from `rdma` where sysfs has none.

    class/infiniband/D/ports/P/{state,phys_state,rate}
                             …/counters/*      of most drivers; bnxt_re has no such folder
                             …/hw_counters/*   the driver's own

A counter that cannot be read, or holds no number, is left out and hides no other. Each read may
ask the card's firmware and may hang: run them through `patience`.
"""

import asyncio
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from aegis_agent.probes import rdma, rdma_statistic
from aegis_agent.sources import ports

_FOLDERS = ("counters", "hw_counters")
_LIST_READS = 30  # then the folders are listed again
_COMMAND_SECONDS = 5.0
_BYTES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read of one port."""

    present: bool = True
    state: str = ""  # "ACTIVE", …
    physical_state: str = ""  # "LinkUp", …
    rate: int | None = None  # Mb/s
    speed: int | None = None  # Mb/s, of the interface
    counters: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    has_counters: bool = True  # sysfs has a folder of them


class Reader:
    """One port. Not for two threads at once."""

    def __init__(self, sys_root: Path, device: str, port: int, interface: str) -> None:
        self._folder = sys_root / "class" / "infiniband" / device / "ports" / str(port)
        self._speed = sys_root / "class" / "net" / interface / "speed" if interface else None
        self._files: dict[str, str] = {}  # by the counter's name
        self._reads = 0

    def state(self) -> Reading:
        """The state, and how often InfiniBand lost its link."""
        state = ports.read(self._folder / "state")
        downed = _number(str(self._folder / "counters" / "link_downed"))
        return Reading(
            present=bool(state) or self._folder.is_dir(),
            state=_word(state),
            physical_state=_word(ports.read(self._folder / "phys_state")),
            counters={} if downed is None else {"link_downed": downed},
        )

    def all(self) -> Reading:
        """State, rate and every counter that is judged."""
        speed = ports.read(self._speed) if self._speed else ""
        if not self._folder.is_dir():
            return Reading(present=False, speed=_positive(speed), has_counters=False)
        if self._reads % _LIST_READS == 0 or not self._files:
            self._list()
        self._reads += 1
        counters = {name: _number(path) for name, path in self._files.items()}
        return Reading(
            state=_word(ports.read(self._folder / "state")),
            physical_state=_word(ports.read(self._folder / "phys_state")),
            rate=ports.parse_rate(ports.read(self._folder / "rate")),
            speed=_positive(speed),
            counters={name: value for name, value in counters.items() if value is not None},
            unreadable=tuple(name for name, value in counters.items() if value is None),
            has_counters=bool(self._files),
        )

    def _list(self) -> None:
        self._files = {
            name: str(self._folder / folder / name)
            for folder in _FOLDERS
            for name in ports.listed(self._folder / folder)
            if rdma.judged(name) and not name.startswith(".")
        }


def read_states(readers: Mapping[str, Reader], read: MutableMapping[str, Reading]) -> None:
    """The state of each, into `read` as it comes: one that hangs keeps only those after it."""
    for name, reader in readers.items():
        read[name] = reader.state()


async def ask_command() -> dict[rdma_statistic.PortKey, Mapping[str, int]]:
    """What `rdma -j statistic` says of this machine's ports; nothing where it cannot."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("rdma", "-j", "statistic"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return {}
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        return {}
    return rdma_statistic.parse(output.decode(errors="replace"))


def _word(text: str) -> str:
    """The "ACTIVE" of "4: ACTIVE"."""
    return text.partition(":")[2].strip() or text


def _positive(text: str) -> int | None:
    return int(text) or None if text.isdigit() else None


def _number(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _BYTES_MAX).strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return int(text) if text.isdigit() else None
