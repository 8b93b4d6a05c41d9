"""Replay is exact, whatever the state was when it was saved."""

import pytest

from aegis.controller.changes import Changes
from aegis.controller.state import State, freeze, revive
from aegis.controller.store import StoreError, open_store
from aegis.model.event import ControllerStarted, FaultObserved, NodeReported, RulesLoaded, Tick
from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.job import JobSpec, LauncherState
from aegis.model.node import NodeReport, Sender
from aegis.rules import parse

RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: test
rules:
  - {id: ecc, title: ECC, class: gpu.ecc.uncorrectable, remedy: drain_now}
"""


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def story():
    """A controller starts, three nodes report, one breaks, time passes."""
    rules = parse({"test.yaml": RULES})
    yield ControllerStarted(at=0.0, epoch=1, version="1")
    yield RulesLoaded(at=0.0, digest=rules.digest, text=rules.text)
    for number in range(3):
        spec = JobSpec(name="llama", nodes=2, ranks_per_node=1, spares=1)
        launcher = LauncherState(spec=spec, launcher=f"l{number}", address="a", store_port=1000)
        report = NodeReport(
            node=f"n{number}",
            sender=Sender.AGENT,
            session=1,
            sequence=1,
            launchers=(launcher,),
        )
        yield NodeReported(at=1.0 + number, report=report)
    fault = Fault(
        fault_class=FaultClass.GPU_ECC_UNCORRECTABLE,
        severity=Severity.ERROR,
        node="n0",
        device="gpu1",
        observed_at=4.0,
    )
    yield FaultObserved(at=4.1, origin="s", number=1, fault=fault)
    for number in range(20):
        yield Tick(at=5.0 + number, agents_seen=("n0", "n1", "n2"))


def test_a_replay_gives_the_same_state_from_every_snapshot(store):
    """Whether it starts at the beginning or anywhere in the middle."""
    state = State()
    saved = []
    for event in story():
        [number] = store.append([event])
        state.apply(number, event)
        state.cluster.touched.clear()
        saved.append(freeze(state, "1"))
    assert state.cluster.incidents
    assert state.cluster.jobs
    assert revive(store, Changes(0)) == state
    for snapshot in saved:
        store.save_snapshot(snapshot)
        assert revive(store, Changes(0)) == state


def test_damage_to_everything_is_said(store):
    """Without a good snapshot and without the first event there is nothing to start from."""
    events = list(story())
    store.append(events)
    state = revive(store, Changes(0))
    store.save_snapshot(freeze(state, "1"))
    with store.transaction() as connection:
        connection.execute("UPDATE snapshots SET body = x'7b'")
        connection.execute("DELETE FROM events WHERE number = 1")
    with pytest.raises(StoreError, match="put back a copy"):
        revive(store, Changes(0))
