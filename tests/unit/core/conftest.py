"""A fleet of three nodes with one job, driven by plain calls."""

from dataclasses import replace

import pytest

from aegis.core import invariants, recover
from aegis.core.cluster import Cluster
from aegis.core.step import step
from aegis.model import event as ev
from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.job import (
    JobSpec,
    LauncherPhase,
    LauncherState,
    RankFailure,
    RankPhase,
    RankState,
)
from aegis.model.node import NodeReport, Sender
from aegis.model.policy import Mode, Policy
from aegis.rules import parse

RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: test
rules:
  - {id: ecc, title: T, class: gpu.ecc.uncorrectable, remedy: drain_now}
  - {id: deferred, title: T, class: gpu.ecc.deferred, remedy: drain_saving}
  - {id: many, title: T, class: gpu.ecc.correctable, count: 10, remedy: notify}
  - {id: few, title: T, class: gpu.ecc.correctable, remedy: count}
  - {id: careful, title: T, class: gpu.lost, remedy: drain_now, mode: observe}
  - {id: nic, title: T, class: nic.link.down, for: policy, remedy: drain_now}
  - {id: rank, title: T, class: [job.worker.exited, node.lost, node.rebooted], remedy: restart}
"""
SPEC = JobSpec(name="llama", nodes=2, ranks_per_node=2, spares=1)


class Fleet:
    """Nodes that say what a test wants them to say."""

    def __init__(self, **policy) -> None:
        self.rules = parse({"test.yaml": RULES})
        limits = {"mode": Mode.ENFORCE, "hold_down_seconds": 2.0, "probation_seconds": 0.0}
        self.cluster = Cluster(policy=Policy(**(limits | policy)))
        self.at, self.session, self.number = 100.0, 1, 0
        self.sequences, self.launchers = {}, {}
        self.apply(ev.ControllerStarted(at=self.at, epoch=1, version="test"))

    def apply(self, event):
        """One event; every promise must hold afterwards."""
        actions = step(self.cluster, self.rules, event)
        invariants.check(self.cluster)
        return actions

    def connect(self, *nodes, spec=SPEC):
        for node in nodes:
            self.launchers[node] = LauncherState(
                spec=spec, launcher=f"{node}-launcher", address=node, store_port=4000
            )
            self.say(node)

    def say(self, node, sender=Sender.AGENT, session=None, **report):
        """The node's whole state, newer than its last."""
        self.sequences[node] = self.sequences.get(node, 0) + 1
        launcher = self.launchers.get(node)
        fields = {
            "node": node,
            "sender": sender,
            "session": session or self.session,
            "sequence": self.sequences[node],
            "boot_id": "boot",
            "launchers": (launcher,) if launcher else (),
        }
        return self.apply(ev.NodeReported(at=self.at, report=NodeReport(**(fields | report))))

    def obey(self, *nodes):
        """Launchers do what they are told now."""
        for node in nodes:
            (told,) = recover.assignments(self.cluster, node)
            launcher = self.launchers[node]
            if told.world is None:
                ranks = tuple(replace(r, phase=RankPhase.EXITED) for r in launcher.ranks)
                self.launchers[node] = replace(
                    launcher,
                    phase=LauncherPhase.IDLE,
                    generation=told.generation,
                    ranks=ranks,
                    stopped_at=self.at,
                    store_port=launcher.store_port + (told.generation > launcher.generation),
                )
            else:
                self.launchers[node] = self._started(node, launcher, told)
            self.say(node)

    def _started(self, node, launcher, told):
        place = [member.node for member in told.world.members].index(node)
        ranks = tuple(
            RankState(
                rank=place * 2 + number,
                local_rank=number,
                pid=1,
                phase=RankPhase.TRAINING,
                started_at=self.at,
            )
            for number in (0, 1)
        )
        return replace(
            launcher,
            phase=LauncherPhase.RUNNING,
            generation=told.generation,
            ranks=ranks,
            store_port=launcher.store_port + 1,
            failure=None,
        )

    def train(self, *nodes, step, checkpoint=0):
        for node in nodes:
            launcher = self.launchers[node]
            ranks = tuple(
                replace(r, step=step, loaded_at=self.at, first_step_at=self.at)
                for r in launcher.ranks
            )
            self.launchers[node] = replace(
                launcher, ranks=ranks, checkpoint_step=checkpoint, resumed_step=checkpoint
            )
            self.say(node)

    def die(self, node, rank):
        launcher = self.launchers[node]
        failure = RankFailure(
            generation=launcher.generation, rank=rank, at=self.at, signal=9, error="E\nboom\n"
        )
        dead = tuple(replace(r, phase=RankPhase.EXITED) for r in launcher.ranks)
        self.launchers[node] = replace(
            launcher, phase=LauncherPhase.FAILED, failure=failure, ranks=dead, stopped_at=self.at
        )
        return self.say(node)

    def fault(self, node, fault_class, device="gpu3", **fields):
        self.number += 1
        known = {"severity": Severity.ERROR, "observed_at": self.at, "boot_id": "boot"}
        evidence = (Evidence(source="probe", text="a counter rose", before="0", after="1"),)
        fault = Fault(
            fault_class=FaultClass(fault_class),
            node=node,
            device=device,
            evidence=evidence,
            **(known | fields),
        )
        event = ev.FaultObserved(at=self.at, origin="spool", number=self.number, fault=fault)
        return self.apply(event)

    def tick(self, seconds=1.0, silent=()):
        """Time passes, a second at a time; all but these are heard."""
        until = self.at + seconds
        while self.at < until:
            self.at = min(until, self.at + 1.0)
            heard = tuple(name for name in self.cluster.nodes if name not in silent)
            self.apply(ev.Tick(at=self.at, agents_seen=heard))

    @property
    def job(self):
        return self.cluster.jobs["llama"]

    @property
    def incident(self):
        """The newest."""
        return list(self.cluster.incidents.values())[-1]

    @property
    def decision(self):
        return self.incident.decisions[-1]

    def verdict(self, rail):
        return next(one for one in self.decision.verdicts if one.rail == rail)


@pytest.fixture
def make_fleet():
    """Make a fleet whose job trains on n1 and n2, with n3 as its spare."""

    def make(*spares, **policy):
        fleet = Fleet(**policy)
        fleet.connect("n1", "n2", *(spares or ("n3",)))
        fleet.obey("n1", "n2")
        fleet.train("n1", "n2", step=60, checkpoint=50)
        return fleet

    return make


@pytest.fixture
def fleet(make_fleet):
    return make_fleet()
