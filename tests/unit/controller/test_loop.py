"""The loop when an event breaks a promise: it ends, and comes back deaf to what broke it."""

import asyncio
import contextlib

import pytest

from aegis.controller import state as module
from aegis.controller.changes import Changes
from aegis.controller.loop import Loop, Retention
from aegis.controller.notify import Notifier
from aegis.controller.state import PromiseBrokenError, revive
from aegis.controller.store import open_store
from aegis.controller.streams import Streams
from aegis.controller.systemd import Watchdog
from aegis.core.step import step
from aegis.model.event import NodeReported, Tick
from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.node import NodeReport, Sender
from aegis.model.policy import Mode, Policy
from aegis.rules import RuleSet
from aegis.wire import Report, SpooledFault


def breaking(fits):
    """A core with a mistake in it."""

    def broken(cluster, rules, event):
        assert not fits(event), "two generations at once"
        return step(cluster, rules, event)

    return broken


def report(node, sequence=1, faults=()):
    body = NodeReport(node=node, sender=Sender.AGENT, session=0, sequence=sequence)
    return Report(sent_at=0.0, report=body, origin=f"spool-{node}", faults=faults)


def fault(node, number):
    one = Fault(
        fault_class=FaultClass.GPU_LOST,
        severity=Severity.FATAL,
        node=node,
        device="gpu0",
        observed_at=0.0,
    )
    return SpooledFault(number=number, fault=one)


@contextlib.asynccontextmanager
async def running(folder, policy=None):
    """A loop over a folder, from its revival to the closing of its store."""
    store = open_store(folder)
    changes = Changes(store.last_number)
    loop = Loop(
        store=store,
        state=revive(store, changes),
        changes=changes,
        streams=Streams(),
        notifier=Notifier("", b"", "", "1"),
        version="1",
        retention=Retention(),
        watchdog=Watchdog(),
    )
    await loop.begin(RuleSet(), policy or Policy(mode=Mode.ENFORCE))
    task = asyncio.create_task(loop.run())
    try:
        yield loop, task
    finally:
        task.cancel()
        await asyncio.wait({task})
        store.close()


async def broken_by(folder, sent):
    """Send it; the loop must end of it."""
    async with running(folder) as (loop, task):
        asking = asyncio.create_task(loop.report(sent, 1))
        with pytest.raises(PromiseBrokenError, match="two generations"):
            await asyncio.wait_for(task, 30)
        asking.cancel()
        await asyncio.wait({asking})


def test_a_report_that_breaks_a_promise_is_not_heard_again(tmp_path, monkeypatch):
    """Its node is deaf to the controller until the hold is lifted; the others are not."""
    core = breaking(lambda event: isinstance(event, NodeReported) and event.report.node == "n1")
    monkeypatch.setattr(module, "step", core)

    async def story():
        await broken_by(tmp_path, report("n1"))
        async with running(tmp_path) as (loop, task):
            assert "two generations at once" in loop.held
            assert loop.state.cluster.policy.mode is Mode.OBSERVE
            await loop.report(report("n1"), 2)
            await loop.report(report("n2"), 3)
            assert set(loop.state.cluster.nodes) == {"n2"}
            assert not task.done()

    asyncio.run(story())


def test_a_fault_that_breaks_a_promise_counts_as_stored(tmp_path, monkeypatch):
    """Or its spool would send it for ever, and the controller would end each time."""
    core = breaking(lambda event: type(event).__name__ == "FaultObserved")
    monkeypatch.setattr(module, "step", core)

    async def story():
        await broken_by(tmp_path, report("n1", faults=(fault("n1", 7),)))
        async with running(tmp_path) as (loop, _task):
            assert loop.answer("n1", spool="spool-n1").stored == 7

    asyncio.run(story())


def test_a_tick_that_breaks_a_promise_stops_time(tmp_path, monkeypatch):
    """While on hold; reports still arrive."""
    monkeypatch.setattr(module, "step", breaking(lambda event: isinstance(event, Tick)))

    async def story():
        async with running(tmp_path) as (loop, task):
            with contextlib.suppress(asyncio.CancelledError):
                await loop.report(report("n1"), 1)
            with pytest.raises(PromiseBrokenError):
                await asyncio.wait_for(task, 30)
        async with running(tmp_path) as (loop, task):
            before = loop.state.number
            for sequence in range(2, 5):
                await loop.report(report("n2", sequence), 2)
            assert set(loop.state.cluster.nodes) == {"n1", "n2"}
            assert loop.state.number > before
            assert not task.done()

    asyncio.run(story())
