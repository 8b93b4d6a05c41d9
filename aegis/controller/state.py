"""What the controller believes, how an event changes it, and how it comes back after a restart.

State is the newest intact snapshot and the events after it. Nothing else goes in: rules and policy
are events too, and every event is stepped with the time that was logged with it, so a replay gives
the very same state. An event that breaks a promise is set aside and left out of all replays; the
controller then comes back on hold (see `loop`).
"""

import logging
import zlib
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from aegis.controller.changes import Changes
from aegis.controller.store import Quarantined, Snapshot, Store, StoreError
from aegis.core.cluster import Cluster
from aegis.core.invariants import check
from aegis.core.step import step
from aegis.model.action import Action
from aegis.model.event import Event, FaultObserved, NodeReported, RulesLoaded
from aegis.rules import RuleError, RuleSet, parse_text
from aegis.wire import WireError, decode

log = logging.getLogger(__name__)

PROMISES_MAX = 50  # broken in one start: after that the log is not the problem


class PromiseBrokenError(Exception):
    """Stepping an event failed, and the state in hand may be half changed."""


@dataclass(slots=True, kw_only=True)
class State:
    """The cluster after the event of this number, and the rules then in force."""

    cluster: Cluster = field(default_factory=Cluster)
    rules: RuleSet = field(default_factory=RuleSet)
    number: int = 0

    def apply(self, number: int, event: Event) -> list[Action]:
        """Step once. The caller reads and clears `cluster.touched`."""
        try:
            if isinstance(event, RulesLoaded):
                self.rules = parse_text(event.text)
            actions = step(self.cluster, self.rules, event)
        # The last resort: whatever the core trips over, the same event would trip it again after
        # every restart, so any failure is treated like an assertion.
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise PromiseBrokenError(reason) from error
        self.number = number
        return actions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """What a snapshot holds."""

    cluster: Cluster
    rules_text: str


_SAVED = TypeAdapter(_Saved)


def freeze(state: State, version: str) -> Snapshot:
    """The whole state as a snapshot."""
    saved = _Saved(cluster=state.cluster, rules_text=state.rules.text)
    return Snapshot(
        number=state.number,
        at=state.cluster.now,
        version=version,
        rules_digest=state.rules.digest,
        body=_SAVED.dump_json(saved),
        intact=True,
    )


def revive(store: Store, changes: Changes) -> State:
    """The state of the log. Raises StoreError when the log alone cannot give it."""
    for _ in range(PROMISES_MAX):
        broken = _replay(store, changes)
        if isinstance(broken, State):
            return broken
        log.error("event set aside: number=%d reason=%s", broken.number, broken.reason)
        store.put_in_quarantine(broken)
    raise StoreError(
        f"more than {PROMISES_MAX} events of the log in {store.folder} cannot be replayed by this "
        "version: install the version that wrote it"
    )


def _replay(store: Store, changes: Changes) -> State | Quarantined:
    """The state after all events, or the first event that must be set aside."""
    state = _newest_intact(store)
    changes.begin(state.number)
    left_out = {one.number for one in store.quarantined()}
    for number, at, kind, body in store.events_after(state.number):
        event: Event | None = None
        try:
            if number not in left_out:
                event = decode(body)
                state.apply(number, event)
        except (PromiseBrokenError, WireError, zlib.error) as error:
            return set_aside(number, at, kind, event, error)
        changes.note(number, state.cluster.touched)
        state.cluster.touched.clear()
        state.number = number
    check(state.cluster)
    return state


def _newest_intact(store: Store) -> State:
    for snapshot in store.snapshots():
        state = _thaw(snapshot)
        if state is not None:
            return state
        log.error("snapshot damaged, the one before it is used: number=%d", snapshot.number)
    if store.first_number() > 1:
        raise StoreError(
            f"every snapshot in {store.folder} is damaged and the log no longer reaches back to "
            "its beginning: put back a copy of the folder, or move it away to begin anew"
        )
    return State()


def _thaw(snapshot: Snapshot) -> State | None:
    if not snapshot.intact:
        return None
    try:
        return thaw(snapshot.number, snapshot.body)
    except (ValidationError, RuleError) as error:
        log.error("snapshot unreadable: number=%d reason=%s", snapshot.number, error)  # noqa: TRY400
        return None


def thaw(number: int, body: bytes) -> State:
    """The state that a snapshot's body tells. Raises ValidationError or RuleError."""
    saved = _SAVED.validate_json(body)
    return State(cluster=saved.cluster, rules=parse_text(saved.rules_text), number=number)


def set_aside(
    number: int, at: float, kind: str, event: Event | None, error: Exception
) -> Quarantined:
    """The record of an event that broke a promise, and of whom it came from."""
    node, spool, spool_number = "", "", 0
    if isinstance(event, NodeReported):
        node = event.report.node
    if isinstance(event, FaultObserved):
        node, spool, spool_number = event.fault.node, event.origin, event.number
    return Quarantined(
        number=number,
        at=at,
        kind=kind,
        reason=" ".join(str(error).split()),
        node=node,
        spool=spool,
        spool_number=spool_number,
    )
