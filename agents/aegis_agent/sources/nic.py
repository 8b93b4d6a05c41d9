"""Network links: pushed by netlink on a real node, polled from sysfs under another root.

Netlink answers for the network namespace of the agent, whatever is mounted at /sys, tells of a
change within milliseconds, and its messages carry the carrier counters.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from aegis_agent.probes.nic import LinkSample
from aegis_agent.sources.inotify import FolderWatch
from aegis_agent.sources.netlink import Link, Netlink

_log = logging.getLogger(__name__)

SYS = Path("/sys")
_SYSFS_POLL_SECONDS = 0.1  # nobody pushes
_CONSISTENT_TRIES = 5
_SIMULATED = "aegis_simulated"  # a tree that holds this file is none of the kernel's
_SWITCHED_ON = 1  # IFF_UP
_PAUSE_SECONDS = 1.0

Tell = Callable[[str, LinkSample], None]


def nothing() -> None:
    """Nobody wants to know."""


async def watch(
    root: Path,
    interfaces: Collection[str],
    poll_seconds: float,
    tell: Tell,
    others: Callable[[], None] = nothing,
) -> None:
    """Tell each interface's state now, on every change and at every poll, until cancelled.

    The interfaces may change meanwhile. `others` is called when a link that is none of them comes,
    goes or gets another name.
    """
    if root == SYS and has_netlink():
        await _watch_netlink_always(interfaces, poll_seconds, tell, others)
    else:
        await _watch_sysfs(root, interfaces, poll_seconds, tell)


async def look(root: Path, interfaces: Collection[str], tell: Tell) -> None:
    """Tell each interface's state once."""
    if root != SYS or not has_netlink():
        for interface in list(interfaces):
            tell(interface, read_sysfs(root, interface))
    elif interfaces:
        with contextlib.closing(Netlink()) as netlink:
            await _tell_all(netlink, interfaces, tell)


# sysfs


async def _watch_sysfs(
    root: Path, interfaces: Collection[str], poll_seconds: float, tell: Tell
) -> None:
    """All of it at every poll; between, the count of changes tells whether to look.

    The kernel does not say that a file under /sys changed, so its counts are read ten times a
    second. Of a tree that is files it does, and nothing is read until then.
    """
    with _changing(root) as changing:
        seen: dict[str, bytes] = {}
        pause = poll_seconds if changing else min(poll_seconds, _SYSFS_POLL_SECONDS)
        told_at = 0.0
        while True:
            now = time.monotonic()
            whole = now - told_at >= poll_seconds
            told_at = now if whole else told_at
            for interface in list(interfaces):
                changes = _bytes(f"{root}/class/net/{interface}/carrier_changes")
                if whole or changes != seen.get(interface):
                    seen[interface] = changes
                    tell(interface, read_sysfs(root, interface))
            await (changing.wait(pause) if changing else asyncio.sleep(pause))


@contextlib.contextmanager
def _changing(root: Path) -> Iterator[FolderWatch | None]:
    """Tells when a simulated interface changed; None for a tree of the kernel's."""
    folder = root / "class" / "net"
    try:
        watch = FolderWatch(folder) if (root / _SIMULATED).exists() else None
    except OSError:
        watch = None
    try:
        yield watch
    finally:
        if watch is not None:
            watch.close()


def _bytes(path: str) -> bytes:
    """What a small file holds; nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 64)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def read_sysfs(root: Path, interface: str) -> LinkSample:
    """One interface as sysfs has it."""
    simulated = os.path.exists(f"{root}/{_SIMULATED}")  # noqa: PTH110  asked every second
    folder = f"{root}/class/net/{interface}"
    if not os.path.isdir(folder):  # noqa: PTH112  the same
        return LinkSample(at=time.time(), source="sysfs", simulated=simulated, present=False)
    return _read_consistent(folder, simulated=simulated)


def _read_consistent(folder: str, *, simulated: bool) -> LinkSample:
    """State and counters of one moment: read again while the counter moves meanwhile."""
    for _ in range(_CONSISTENT_TRIES):
        changes = _number(folder, "carrier_changes")
        sample = _read_files(folder, changes, simulated=simulated)
        if _number(folder, "carrier_changes") == changes:
            break
    return sample


def _read_files(folder: str, changes: int | None, *, simulated: bool) -> LinkSample:
    operstate = _text(folder, "operstate") or "unknown"
    carrier = _number(folder, "carrier")  # not readable while the port is switched off
    return LinkSample(
        at=time.time(),
        source="sysfs",
        simulated=simulated,
        up=_is_up(operstate, carrier),
        switched_on=_switched_on(_text(folder, "flags")),
        operstate=operstate,
        carrier_changes=changes,
        carrier_downs=_number(folder, "carrier_down_count"),
    )


def _text(folder: str, name: str) -> str:
    return _bytes(f"{folder}/{name}").decode(errors="replace").strip()


def _number(folder: str, name: str) -> int | None:
    text = _text(folder, name)
    return int(text) if text.isdigit() else None


def _switched_on(flags: str) -> bool | None:
    try:
        return bool(int(flags, 16) & _SWITCHED_ON)
    except ValueError:
        return None


def _is_up(operstate: str, carrier: int | None) -> bool:
    """The carrier is first to know; devices without an operational state say "unknown"."""
    return (operstate == "up" and carrier != 0) or (operstate == "unknown" and carrier == 1)


# netlink


def has_netlink() -> bool:
    """Whether this process may ask; a sandbox may forbid it."""
    try:
        Netlink().close()
    except OSError:
        return False
    return True


async def _watch_netlink_always(
    interfaces: Collection[str], poll_seconds: float, tell: Tell, others: Callable[[], None]
) -> None:
    reason = ""
    while True:
        try:
            await _watch_netlink(interfaces, poll_seconds, tell, others)
        except (OSError, TimeoutError) as error:  # its buffer overran, for one
            if str(error) != reason:
                reason = str(error)
                _log.warning("Netlink failed and is opened again.", extra={"reason": reason})
        others()  # what came and went meanwhile was not heard
        await asyncio.sleep(min(poll_seconds, _PAUSE_SECONDS))


async def _watch_netlink(
    interfaces: Collection[str], poll_seconds: float, tell: Tell, others: Callable[[], None]
) -> None:
    with (
        contextlib.closing(Netlink(pushes=True)) as pushes,
        contextlib.closing(Netlink()) as questions,
    ):
        pushing = asyncio.create_task(_tell_pushes(pushes, interfaces, tell, others))
        try:
            while not pushing.done():
                await _tell_all(questions, interfaces, tell)
                await asyncio.wait([pushing], timeout=poll_seconds)
            await pushing
        finally:
            pushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pushing


async def _tell_pushes(
    pushes: Netlink, interfaces: Collection[str], tell: Tell, others: Callable[[], None]
) -> None:
    names: dict[int, str] = {}
    while True:
        for link in await pushes.changes():
            if link.there and link.name in interfaces:
                tell(link.name, _sample(link))
            if not link.there or names.get(link.index) != link.name:
                others()
            if link.there:
                names[link.index] = link.name
            else:
                names.pop(link.index, None)


async def _tell_all(questions: Netlink, interfaces: Collection[str], tell: Tell) -> None:
    for interface in list(interfaces):
        link = await questions.ask(interface)
        if link is None:
            tell(interface, LinkSample(at=time.time(), source="netlink", present=False))
        else:
            tell(interface, _sample(link))


def _sample(link: Link) -> LinkSample:
    return LinkSample(
        at=time.time(),
        source="netlink",
        up=_is_up(link.operstate, link.carrier),
        switched_on=link.switched_on,
        operstate=link.operstate,
        carrier_changes=link.carrier_changes,
        carrier_downs=link.carrier_downs,
    )
