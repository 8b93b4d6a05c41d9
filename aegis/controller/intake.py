"""Reports in, events out: what is new is an event, what is not is a name in the next Tick."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from aegis.controller.state import State
from aegis.controller.store import Quarantined
from aegis.model.event import Event, FaultObserved, NodeReported, Tick
from aegis.model.node import NodeReport, Sender, is_gauge
from aegis.wire import Report

REFRESH_SECONDS = 15.0  # an unchanged report is logged whole this often, for times and gauges


@dataclass(frozen=True, slots=True)
class _Known:
    report: NodeReport
    at: float


_Key = tuple[str, Sender, str]  # node, who speaks, of which job when a launcher does


class Intake:
    """What has been reported so far, and what of it waits for the log.

    `events` and `tick` offer; only `accepted` says that the log has taken it. What was offered in
    vain comes again, since reports are levels and spools keep their faults.
    """

    def __init__(
        self, state: State, aside: Iterable[Quarantined], now: Callable[[], float]
    ) -> None:
        self._state, self._now = state, now
        self._known: dict[_Key, _Known] = {}
        self._fresh: dict[_Key, _Known] = {}
        self._seen: dict[Sender, set[str]] = {sender: set() for sender in Sender}
        self._ticked = False
        # Numbers grow within a spool, so the last one set aside stands for those before it.
        self._stored_aside = {one.spool: one.spool_number for one in aside if one.spool}
        muted = [one for one in aside if not one.released]
        self._mute_nodes = {one.node for one in muted if one.node}
        self._mute_ticks = any(one.kind == Tick.__name__ for one in muted)

    def stored(self, spool: str) -> int:
        """Up to which number the faults of a spool are on disk."""
        known = self._state.cluster.origins.get(spool, 0)
        return max(known, self._stored_aside.get(spool, 0))

    def events(self, reports: Iterable[tuple[Report, int]]) -> list[Event]:
        """The reports, with their session, that say something new, each before its new faults."""
        events: list[Event] = []
        newest: dict[str, int] = {}
        self._fresh = {}
        for report, session in reports:
            if report.report.node in self._mute_nodes:
                continue
            events += self._news(replace(report.report, session=session))
            spool = report.origin
            for one in report.faults:
                if one.number > newest.setdefault(spool, self.stored(spool)):
                    newest[spool] = one.number
                    events.append(
                        FaultObserved(
                            at=self._now(), origin=spool, number=one.number, fault=one.fault
                        )
                    )
        return events

    def _news(self, report: NodeReport) -> list[Event]:
        key, at = _key(report), self._now()
        known = self._fresh.get(key) or self._known.get(key)
        plain = _plain(report)
        if known and known.report == plain and at - known.at < REFRESH_SECONDS:
            self._seen[report.sender].add(report.node)
            return []
        self._fresh[key] = _Known(plain, at)
        return [NodeReported(at=at, report=report)]

    def tick(self) -> list[Event]:
        """Time passes, and these have spoken. None while no node is known."""
        self._ticked = bool(self._state.cluster.nodes) and not self._mute_ticks
        if not self._ticked:
            return []
        return [
            Tick(
                at=self._now(),
                agents_seen=tuple(sorted(self._seen[Sender.AGENT])),
                launchers_seen=tuple(sorted(self._seen[Sender.LAUNCHER])),
            )
        ]

    def accepted(self) -> None:
        """What was offered since the last time is in the log."""
        self._known.update(self._fresh)
        self._fresh = {}
        if self._ticked:
            self._ticked = False
            for names in self._seen.values():
                names.clear()


def _key(report: NodeReport) -> _Key:
    job = ""
    if report.sender is Sender.LAUNCHER and report.launchers:
        job = report.launchers[0].spec.name
    return report.node, report.sender, job


def _plain(report: NodeReport) -> NodeReport:
    """The report without what changes each time and says nothing."""
    devices = tuple(
        replace(
            device,
            read_at=0.0,
            counters=tuple(one for one in device.counters if not is_gauge(one[0])),
        )
        for device in report.devices
    )
    return replace(report, sequence=0, devices=devices, suppressed=())
