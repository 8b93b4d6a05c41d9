"""The GPUs' error records (CPER): judged, remembered by GPU, counted; and why none can be read."""

from collections import defaultdict
from collections.abc import Mapping

from pydantic import TypeAdapter

from aegis_agent.book import Book
from aegis_agent.probes import cper_records
from aegis_agent.probes.cper_records import TOLD_AGES, CperMemory, CperReading
from aegis_agent.probes.subject import Subject
from aegis_agent.sources.gpu_cper import NO_PERMISSION, NOT_OFFERED

_MEMORY = TypeAdapter(CperMemory)
_KEY, _SIMULATED_KEY = "cper ", "simulated-cper "
_NAME = "cper"
_NOT_SUPPORTED = 2


class CperDesk:
    """Where records arrive. GPUs by their identity."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._simulated = False
        self._memories: dict[str, CperMemory] = {}
        self._failed: dict[str, int] = {}  # by device: what the call answers

    def recall(self, *, simulated: bool) -> None:
        """What is remembered of GPUs of that kind."""
        self._simulated = simulated
        self._memories = self._book.recall(self._key(""), _MEMORY) | self._memories

    def forget(self, identity: str) -> None:
        """The GPU was replaced."""
        self._memories.pop(identity, None)
        self._book.spool.erase(self._key(identity))

    def record(self, subject: Subject, reading: CperReading) -> None:
        """Take in one record: its faults and that it was told go to the spool together."""
        memory = self._memories.get(subject.identity, CperMemory())
        judgement = cper_records.observe(subject, memory, reading)
        if judgement.memory == memory:
            return
        self._memories[subject.identity] = judgement.memory
        body = _MEMORY.dump_json(judgement.memory).decode()
        self._book.append(judgement.faults, {self._key(subject.identity): body})

    def looked(self, device: str, status: int, found: Mapping[str, int]) -> None:
        """Take in how a look at the ring went, and how many records of each age were found so far.

        A process that was started anew reads the whole ring again: its numbers replace ours.
        """
        self._failed.pop(device, None)
        if status:
            self._failed[device] = status
        old = sum(count for age, count in found.items() if age not in TOLD_AGES)
        if found:
            counted = {"error_records": sum(found.values()), "error_records_old": old}
            self._book.set_counters(_NAME, device, counted)

    def trouble(self) -> str:
        """Why records of some GPUs cannot be read; empty when they can."""
        by_status: defaultdict[int, list[str]] = defaultdict(list)
        for device, status in sorted(self._failed.items()):
            by_status[status].append(device)
        return "; ".join(_told(status, devices) for status, devices in by_status.items())

    def _key(self, identity: str) -> str:
        return (_SIMULATED_KEY if self._simulated else _KEY) + identity


def _told(status: int, devices: list[str]) -> str:
    if status == NO_PERMISSION:
        return "error records (CPER) are for root alone to read: run the agent as root"
    if status == NOT_OFFERED:
        return "this amdsmi reads no error records (CPER)"
    if status == _NOT_SUPPORTED:
        return f"the driver keeps no error records (CPER) of {', '.join(devices)}"
    return (
        f"error records (CPER) of {', '.join(devices)} cannot be read: "
        f"amdsmi gpu_cper_entries answered {status}"
    )
