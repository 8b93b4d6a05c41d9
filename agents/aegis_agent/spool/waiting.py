"""The faults that wait for the controller: like ones are merged, the least important may go.

- What the controller may have seen already is never changed: an answer that confirms it would
  confirm what it has not seen. Only a fault that was never handed out takes in the next one.
- Info and warning of one class and device are merged at once; errors when twenty of them wait, as
  many as an incident keeps. Counts add up, so nothing is lost by it.
- Above the limit whole faults are dropped, the least important first and the oldest of those:
  counts of corrected errors, then other infos, then warnings. Errors never go.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import TypeAlias

from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.node import Suppressed
from aegis.wire import SpooledFault

ALONE_MAX = 20
_IMPORTANCE = {Severity.INFO: 1, Severity.WARNING: 2}  # others are never dropped
_CORRECTED = frozenset(one for one in FaultClass if one.endswith((".correctable", ".corrected")))
_TOLD_APART = frozenset({"afid", "block", "check", "counter", "xid"})
_Kind: TypeAlias = tuple[FaultClass, Severity, str, str, str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Newest:
    """The newest fault of one kind, and how many of the kind wait and were never handed out."""

    number: int
    alone: int = 1


@dataclass(slots=True)
class Waiting:
    """Faults by number, the oldest first."""

    faults_max: int
    _faults: dict[int, Fault] = field(default_factory=dict)
    _newest: dict[_Kind, _Newest] = field(default_factory=dict)
    _handed_out: int = 0  # the controller may have seen all up to this number
    _merged: Counter[FaultClass] = field(default_factory=Counter)
    _dropped: Counter[FaultClass] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self._faults)

    def get(self, number: int) -> Fault | None:
        """One of them; None: it waits no more."""
        return self._faults.get(number)

    def all(self) -> dict[int, Fault]:
        """Every one."""
        return dict(self._faults)

    def load(self, faults: Mapping[int, Fault]) -> None:
        """Take in what waited on disk. Whether the controller has seen it is not known."""
        self._faults = dict(sorted({**faults, **self._faults}.items()))
        self._handed_out = max([self._handed_out, *faults])

    def add(self, number: int, fault: Fault) -> int:
        """Keep a fault, or merge it; the number under which it waits."""
        kind = _kind(fault)
        newest = self._newest.get(kind)
        if newest is None or newest.number <= self._handed_out:
            self._newest[kind] = _Newest(number)
        elif fault.severity in _IMPORTANCE or newest.alone >= ALONE_MAX:
            self._faults[newest.number] = _merge(self._faults[newest.number], fault)
            self._merged[fault.fault_class] += 1
            return newest.number
        else:
            newest.number, newest.alone = number, newest.alone + 1
        self._faults[number] = fault
        return number

    def drop(self) -> list[int]:
        """Drop what is least important above the limit; the numbers that are gone."""
        excess = len(self._faults) - self.faults_max
        if excess <= 0:
            return []
        droppable = sorted(
            (_importance(fault), number)
            for number, fault in self._faults.items()
            if fault.severity in _IMPORTANCE
        )
        # A little more than needed, so that a full spool is not sorted with each fault.
        numbers = [number for _, number in droppable[: excess + self.faults_max // 20]]
        for number in numbers:
            self._dropped[self._faults.pop(number).fault_class] += 1
        self._newest = {
            kind: newest for kind, newest in self._newest.items() if newest.number in self._faults
        }
        return numbers

    def pending(self, limit: int) -> tuple[SpooledFault, ...]:
        """The oldest ones, to be handed out."""
        pending = tuple(
            SpooledFault(number=number, fault=fault)
            for number, fault in islice(self._faults.items(), limit)
        )
        if pending and pending[-1].number > self._handed_out:
            self._handed_out = pending[-1].number
            self._newest = {
                kind: newest
                for kind, newest in self._newest.items()
                if newest.number > self._handed_out
            }
        return pending

    def forget(self, stored: int) -> list[int]:
        """The controller has stored all up to this number; those that are gone."""
        numbers = list(takewhile(lambda number: number <= stored, self._faults))
        for number in numbers:
            del self._faults[number]
        self._handed_out = max(self._handed_out, stored)
        return numbers

    @property
    def dropped(self) -> int:
        """How many faults were dropped."""
        return self._dropped.total()

    def suppressed(self) -> tuple[Suppressed, ...]:
        """What was merged and dropped, by class."""
        return tuple(
            Suppressed(fault_class=one, merged=self._merged[one], dropped=self._dropped[one])
            for one in sorted(self._merged.keys() | self._dropped.keys())
        )


def _kind(fault: Fault) -> _Kind:
    told_apart = tuple(one for one in fault.details if one[0] in _TOLD_APART)
    return (
        fault.fault_class,
        fault.severity,
        fault.device,
        fault.boot_id,
        fault.identity,
        told_apart,
    )


def _merge(first: Fault, newest: Fault) -> Fault:
    """One fault for both: when it began, how it stands now, how often."""
    began = first.evidence[:1]
    evidence = (*began, *(one for one in newest.evidence if one not in began))
    return replace(
        first,
        count=first.count + newest.count,
        evidence=evidence,
        details=_details(first, newest),
    )


def _details(first: Fault, newest: Fault) -> tuple[tuple[str, str], ...]:
    """What holds for both. One that counts nothing only tells more of what was counted before."""
    if newest.count == 0:
        return tuple({**dict(first.details), **dict(newest.details)}.items())
    return _common(first.details, newest.details)


def _common(
    first: Iterable[tuple[str, str]], newest: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    kept = set(newest)
    return tuple(one for one in first if one in kept)


def _importance(fault: Fault) -> int:
    return 0 if fault.fault_class in _CORRECTED else _IMPORTANCE[fault.severity]
