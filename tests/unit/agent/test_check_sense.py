"""The check sense: entries run on time, become devices, faults and conditions, and give way."""

import asyncio
import time

from aegis.model.node import Health
from aegis_agent.book import Book
from aegis_agent.senses.checks import CheckSense
from aegis_agent.settings import read
from aegis_agent.spool import Spool


class Node:
    """A check sense with a book."""

    def __init__(self, config, spool=None):
        self.spool = Spool(None) if spool is None else spool
        self.book = Book(node="n1", boot_id="boot-1", spool=self.spool, urge=lambda: None)
        self.book.place("0000:c1:00.0", "gpu3")
        self.sense = CheckSense(read(config, {"poll_seconds": 0.05}, "n1"), self.book)

    def run(self, until, seconds=30.0):
        """Watch until something holds."""
        asyncio.run(self._run(until, seconds))

    async def _run(self, until, seconds):
        watching = asyncio.create_task(self.sense.watch())
        try:
            async with asyncio.timeout(seconds):
                while not until():
                    assert not watching.done(), watching.result()
                    await asyncio.sleep(0.02)
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    def told(self):
        return [(one.fault.fault_class.value, one.fault.device) for one in self.spool.pending(99)]


def test_a_check_becomes_a_device_a_fault_and_a_condition(agent_yaml, script, tmp_path):
    """Named by an address, told of the GPU there; well again once the check says so."""
    state = tmp_path / "state"
    state.write_text("fault")
    path = script(
        f'echo "{{\\"status\\": \\"$(cat {state})\\", \\"device\\": \\"0000:c1:00.0\\"}}"'
    )
    times = "interval_seconds: 1, deadline_seconds: 1"
    entry = f"{{name: bw, command: [{path}], class: gpu.xgmi.error, {times}}}"
    node = Node(agent_yaml(f"checks: [{entry}]"))
    assert node.sense.source() == "1 site check: bw"
    node.run(node.book.conditions)
    assert node.told() == [("gpu.xgmi.error", "gpu3")]
    assert node.book.device("check:bw").health == Health.UNHEALTHY
    assert not node.book.device("check:bw").used, "a warning keeps no node out"
    again = Node(agent_yaml("checks: []"), spool=node.spool)
    assert again.sense._memories == {}
    state.write_text("ok")
    node.run(lambda: not node.book.conditions())
    assert node.book.device("check:bw").health == Health.HEALTHY
    assert len(node.told()) == 1


def test_no_more_than_two_run_at_once(agent_yaml, script, tmp_path):
    """Ten checks are no load test."""
    log = tmp_path / "log"
    path = script(f"echo begin >>{log}; sleep 0.1; echo end >>{log}")
    entries = "".join(f"  - {{name: c{i}, command: [{path}]}}\n" for i in range(6))
    node = Node(agent_yaml(f"checks:\n{entries}"))
    node.run(lambda: log.exists() and log.read_text().count("end") == 6)
    running = most = 0
    for line in log.read_text().split():
        running += 1 if line == "begin" else -1
        most = max(most, running)
    assert most <= 2


def test_a_check_for_idle_nodes_waits(agent_yaml, script, tmp_path):
    """Also while nobody knows whether ranks are here."""
    mark = tmp_path / "ran"
    path = script(f"touch {mark}")
    node = Node(agent_yaml(f"checks: [{{name: rvs, command: [{path}], when: idle}}]"))
    node.run(lambda: "until no ranks are here these wait: rvs" in node.sense.source())
    node.book.training = True
    assert not mark.exists()
    node.book.training = False
    node.run(lambda: node.book.device("check:rvs") is not None)
    assert mark.exists()


def test_an_old_result_is_none(agent_yaml, script):
    """The check hangs, say, or the agent was stopped for a while."""
    node = Node(agent_yaml(f"checks: [{{name: a, command: [{script('exit 0')}]}}]"))
    node.run(lambda: node.book.device("check:a"))
    assert node.book.device("check:a").health == Health.HEALTHY
    node.sense.tick(time.time() + 100)
    assert node.book.device("check:a").health == Health.HEALTHY
    node.sense.tick(time.time() + 1000)
    device = node.book.device("check:a")
    assert (device.health, device.detail) == (Health.UNKNOWN, "no result for more than 210 s")


def test_a_check_that_runs_seldom_does_not_run_again_with_each_agent(agent_yaml, script, tmp_path):
    """When it last ran is remembered."""
    mark = tmp_path / "ran"
    path = script(f"echo x >>{mark}")
    settings = agent_yaml(f"checks: [{{name: day, command: [{path}], interval_seconds: 86400}}]")
    node = Node(settings)
    node.run(lambda: node.book.device("check:day"))
    again = Node(settings, spool=node.spool)
    assert again.sense._first_pause(again.sense._checks[0]) > 86000


def test_one_look_believes_at_once_and_leaves_out_what_takes_long(agent_yaml, script):
    """`aegis scan` has no second run."""
    bad = script("echo bad; exit 1")
    node = Node(
        agent_yaml(
            f"checks:\n  - {{name: a, command: [{bad}]}}\n"
            f"  - {{name: rvs, command: [{bad}], interval_seconds: 900, deadline_seconds: 600}}\n"
        )
    )
    asyncio.run(node.sense.look())
    assert node.told() == [("host.check.failed", "host")]
    assert node.sense.source().endswith("too long for one look: rvs")
