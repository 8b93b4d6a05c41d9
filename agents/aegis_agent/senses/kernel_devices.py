"""Which device of this node a kernel line is about, and how much its fault may weigh."""

import re
from collections.abc import Callable
from pathlib import Path

from aegis.model.fault import Severity
from aegis_agent.book import Book
from aegis_agent.probes.kernel.signals import Signal
from aegis_agent.sources import pci
from aegis_agent.sources.pci import Tree

_ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_TREE_SECONDS = 300.0  # cards are seldom plugged
_TAKES_NODES = (Severity.ERROR, Severity.FATAL)
# The devices that lines of a family are about: where one is found, all are.
_KINDS = {"gpu": ("gpu",), "nic": ("nic",), "pcie": ("gpu", "nic")}


class KernelDevices:
    """Addresses of the kernel's lines to devices of the book."""

    def __init__(self, book: Book, sys_root: Path, monotonic: Callable[[], float]) -> None:
        self._book = book
        self._sys_root = sys_root
        self._monotonic = monotonic
        self._tree, self._tree_at = Tree(), -_TREE_SECONDS

    def is_ready(self, signal: Signal) -> bool:
        """Whether nothing more can be learnt of it by waiting for other senses."""
        kinds = _KINDS.get(_family(signal), ())
        found = any(one.kind in kinds for one in self._book.devices())
        return found or not kinds or self._known(signal) is not None

    def find(self, signal: Signal) -> tuple[str, Severity]:
        """The device's name and the severity of its fault.

        A GPU is taken for used by training though no sense has found it: it may be so broken that
        only the kernel still speaks of it. A card or a port that nobody knows is not.
        """
        family, address, severity = _family(signal), signal.device, signal.severity
        if family == "host":
            return "host", severity
        known = self._known(signal)
        if known is not None:
            return known, severity
        if family == "gpu":
            return address or self._only_gpu(), severity
        below = self._below(address)
        if len(below) == 1:
            return below[0], severity
        if below:  # a port above several: the fault is of neither alone
            return address, severity
        return address or family, Severity.WARNING if severity in _TAKES_NODES else severity

    def gpus(self) -> list[str]:
        """All of this node's."""
        return [device.name for device in self._book.devices() if device.kind == "gpu"]

    def _known(self, signal: Signal) -> str | None:
        reported = signal.details.get("from", "")  # by a port, of a device behind it
        for address in (signal.device, reported, signal.beside):
            found = self._book.device_at(address)
            if found is None and _ADDRESS.fullmatch(address.lower()):
                whole = address.lower() if address.count(":") == 2 else f"0000:{address.lower()}"
                found = self._book.device_at(whole)
            if found is not None:
                return found
        return None

    def _only_gpu(self) -> str:
        gpus = self.gpus()
        return gpus[0] if len(gpus) == 1 else "gpu"

    def _below(self, address: str) -> list[str]:
        """Devices that training uses, behind a port."""
        if not _ADDRESS.fullmatch(address):
            return []
        now = self._monotonic()
        if now - self._tree_at >= _TREE_SECONDS:
            self._tree, self._tree_at = pci.discover(self._sys_root), now
        names = [
            name
            for one in self._tree.below(address)
            for key in (one.address, *one.interfaces)
            if (name := self._book.device_at(key)) is not None
        ]
        used = [name for name in names if (found := self._book.device(name)) and found.used]
        return list(dict.fromkeys(used))


def _family(signal: Signal) -> str:
    return signal.fault_class.split(".", 1)[0]
