"""Network links: pushed by netlink on a real node, polled from sysfs under another root.

Netlink answers for the network namespace of the agent, whatever is mounted at /sys, tells of a
change within milliseconds, and its messages carry the carrier counters.
"""

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aegis_agent.probes.nic import LinkSample

_log = logging.getLogger(__name__)

SYS = Path("/sys")
_SYSFS_POLL_SECONDS = 0.1  # nobody pushes
_CONSISTENT_TRIES = 5
_SIMULATED = "aegis_simulated"  # a tree that holds this file is none of the kernel's

Tell = Callable[[str, LinkSample], None]


async def watch(root: Path, interfaces: Sequence[str], poll_seconds: float, tell: Tell) -> None:
    """Tell each interface's state now, on every change and at every poll, until cancelled."""
    if not interfaces:
        return
    if root == SYS:
        await _watch_netlink_always(interfaces, poll_seconds, tell)
    else:
        await _watch_sysfs(root, interfaces, min(poll_seconds, _SYSFS_POLL_SECONDS), tell)


async def look(root: Path, interfaces: Sequence[str], tell: Tell) -> None:
    """Tell each interface's state once."""
    if root != SYS:
        _tell_sysfs(root, interfaces, tell)
    elif interfaces:
        from pyroute2 import AsyncIPRoute  # noqa: PLC0415  heavy, and seldom needed

        async with AsyncIPRoute() as route:
            await _tell_netlink(route, interfaces, tell)


async def _watch_sysfs(
    root: Path, interfaces: Sequence[str], poll_seconds: float, tell: Tell
) -> None:
    while True:
        _tell_sysfs(root, interfaces, tell)
        await asyncio.sleep(poll_seconds)


def _tell_sysfs(root: Path, interfaces: Sequence[str], tell: Tell) -> None:
    for interface in interfaces:
        tell(interface, read_sysfs(root, interface))


def read_sysfs(root: Path, interface: str) -> LinkSample:
    """One interface as sysfs has it."""
    simulated = (root / _SIMULATED).exists()
    try:
        folder = os.open(root / "class" / "net" / interface, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return LinkSample(at=time.time(), source="sysfs", simulated=simulated, present=False)
    try:
        return replace(_read_consistent(folder), simulated=simulated)
    finally:
        os.close(folder)


def _read_consistent(folder: int) -> LinkSample:
    """State and counters of one moment: read again while the counter moves meanwhile."""
    for _ in range(_CONSISTENT_TRIES):
        changes = _number(folder, "carrier_changes")
        sample = _read_files(folder, changes)
        if _number(folder, "carrier_changes") == changes:
            break
    return sample


def _read_files(folder: int, changes: int | None) -> LinkSample:
    operstate = _text(folder, "operstate") or "unknown"
    carrier = _number(folder, "carrier")  # not readable while the port is switched off
    return LinkSample(
        at=time.time(),
        source="sysfs",
        up=_is_up(operstate, carrier),
        operstate=operstate,
        carrier_changes=changes,
        carrier_downs=_number(folder, "carrier_down_count"),
        speed=_number(folder, "speed"),
    )


def _text(folder: int, name: str) -> str | None:
    try:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=folder)
    except OSError:
        return None
    try:
        return os.read(descriptor, 64).decode().strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _number(folder: int, name: str) -> int | None:
    text = _text(folder, name)
    return int(text) if text and text.lstrip("-").isdigit() else None


def _is_up(operstate: str, carrier: int | None) -> bool:
    """The carrier is first to know; devices without an operational state say "unknown"."""
    return (operstate == "up" and carrier != 0) or (operstate == "unknown" and carrier == 1)


async def _watch_netlink_always(interfaces: Sequence[str], poll_seconds: float, tell: Tell) -> None:
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415  with AsyncIPRoute

    while True:
        try:
            await _watch_netlink(interfaces, poll_seconds, tell)
        except (OSError, NetlinkError) as error:  # its buffer overran, for one
            _log.warning("Netlink failed and is opened again.", extra={"reason": error})
        await asyncio.sleep(min(poll_seconds, 1.0))


async def _watch_netlink(interfaces: Sequence[str], poll_seconds: float, tell: Tell) -> None:
    from pyroute2 import AsyncIPRoute  # noqa: PLC0415  heavy, and seldom needed
    from pyroute2.netlink.rtnl import RTMGRP_LINK  # noqa: PLC0415

    async with AsyncIPRoute() as pushes, AsyncIPRoute() as questions:
        await pushes.bind(groups=RTMGRP_LINK)
        pushing = asyncio.create_task(_tell_pushes(pushes, interfaces, tell))
        try:
            while not pushing.done():
                await _tell_netlink(questions, interfaces, tell)
                await asyncio.wait([pushing], timeout=poll_seconds)
            await pushing
        finally:
            pushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pushing


async def _tell_pushes(route: Any, interfaces: Sequence[str], tell: Tell) -> None:
    while True:
        async for message in route.get():
            name = message.get_attr("IFLA_IFNAME")
            if name in interfaces and message.get("event") == "RTM_NEWLINK":
                tell(name, _from_message(message))


async def _tell_netlink(route: Any, interfaces: Sequence[str], tell: Tell) -> None:
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415  with AsyncIPRoute

    for interface in interfaces:
        try:
            messages = await route.link("get", ifname=interface)
        except NetlinkError as error:
            if error.code != errno.ENODEV:
                raise
            tell(interface, LinkSample(at=time.time(), source="netlink", present=False))
        else:
            tell(interface, _from_message(messages[0]))


def _from_message(message: Any) -> LinkSample:
    operstate = str(message.get_attr("IFLA_OPERSTATE") or "unknown").lower()
    return LinkSample(
        at=time.time(),
        source="netlink",
        up=_is_up(operstate, message.get_attr("IFLA_CARRIER")),
        operstate=operstate,
        carrier_changes=message.get_attr("IFLA_CARRIER_CHANGES"),
        carrier_downs=message.get_attr("IFLA_CARRIER_DOWN_COUNT"),
    )
