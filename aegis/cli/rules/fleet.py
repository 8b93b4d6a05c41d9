"""A small fleet in memory that does what it is told: rules are tested on the real core with it."""

from dataclasses import replace

from aegis.core import correlate, operate
from aegis.core.cluster import Cluster
from aegis.core.recover import assignments
from aegis.core.step import step
from aegis.model import event as ev
from aegis.model.fault import Condition, Fault
from aegis.model.job import (
    Assignment,
    JobSpec,
    LauncherPhase,
    LauncherState,
    RankPhase,
    RankState,
)
from aegis.model.node import NodeReport, Sender
from aegis.model.policy import Policy
from aegis.rules import RuleSet

JOB = "job"
START = 1_000_000.0
ROUNDS_MAX = 12
PACE_SECONDS = 0.2


class Fleet:
    """Nodes n1, n2, … with one job on the first of them; the rest are spares."""

    def __init__(
        self,
        rules: RuleSet,
        policy: Policy,
        nodes: int,
        spares: int,
        labels: dict[str, dict[str, str]],
    ) -> None:
        self.cluster, self.rules, self.at = Cluster(), rules, START
        self._reports: dict[str, NodeReport] = {}
        self._numbers: dict[str, int] = {}
        self._step = 0
        self._do(ev.ControllerStarted(at=self.at, epoch=1, version="test"))
        self._do(ev.RulesLoaded(at=self.at, digest=rules.digest, text=rules.text))
        self._do(ev.PolicyChanged(at=self.at, policy=policy, actor="test"))
        spec = JobSpec(name=JOB, nodes=nodes, ranks_per_node=2, spares=spares, restarts_max=100)
        for number in range(1, nodes + spares + 1):
            name = f"n{number}"
            launcher = LauncherState(
                spec=spec, launcher=f"launcher-{name}", address=name, store_port=1000
            )
            self._reports[name] = NodeReport(
                node=name,
                sender=Sender.AGENT,
                session=number,
                sequence=0,
                boot_id="boot",
                labels=tuple(labels.get(name, {}).items()),
                launchers=(launcher,),
            )
            self._say(name)
        self.settle()

    def wait_until(self, after: float) -> None:
        """Let time pass: the job comes on, and every node is heard."""
        until = START + after
        while self.at < until:
            self.at = min(until, self.at + max(1.0, (until - self.at) / 8))
            self.settle()

    def settle(self) -> None:
        """Every launcher does what it was told, as long as there is something to do."""
        for _round in range(ROUNDS_MAX):
            changed = [name for name in self._reports if self._obey(name)]
            for name in changed:
                self._say(name)
            self.at += PACE_SECONDS
            self._train()
            self._do(ev.Tick(at=self.at, agents_seen=tuple(self._reports)))
            if not changed:
                break

    def show(self, fault: Fault) -> None:
        """A fault comes: of a device from its agent's spool, of a job from what launchers say."""
        fault = replace(fault, observed_at=self.at, boot_id="boot")
        if fault.fault_class.startswith("job."):
            job = self.cluster.jobs[JOB]
            correlate.observe(self.cluster, self.rules, replace(fault, job=job.spec.name))
        else:
            number = self._numbers.get(fault.node, 0) + 1
            self._numbers[fault.node] = number
            self._do(ev.FaultObserved(at=self.at, origin=fault.node, number=number, fault=fault))
        self.settle()

    def begin(self, fault: Fault) -> None:
        """A fault that lasts."""
        condition = Condition(
            fault_class=fault.fault_class,
            device=fault.device,
            since=self.at,
            severity=fault.severity,
        )
        self._set(fault.node, conditions=(*self._reports[fault.node].conditions, condition))
        self._say(fault.node)
        self.settle()

    def end(self, fault: Fault) -> None:
        """It is over."""
        left = tuple(
            one
            for one in self._reports[fault.node].conditions
            if (one.fault_class, one.device) != (fault.fault_class, fault.device)
        )
        self._set(fault.node, conditions=left)
        self._say(fault.node)
        self.settle()

    def give_back(self, node: str) -> str | None:
        """A person returns the node; why not, when that is refused."""
        event = ev.NodeReturned(at=self.at, node=node, actor="test", reason="repaired")
        refused = operate.refusal(self.cluster, event)
        if refused is None:
            self._do(event)
            self.settle()
        return refused

    # What the nodes do

    def _obey(self, node: str) -> bool:
        report = self._reports[node]
        launcher = report.launchers[0]
        for assignment in assignments(self.cluster, node):
            launcher = self._obeyed(node, launcher, assignment)
        self._set(node, launchers=(launcher,))
        return launcher != report.launchers[0]

    def _obeyed(self, node: str, launcher: LauncherState, order: Assignment) -> LauncherState:
        if order.world is None:
            dead = tuple(replace(one, phase=RankPhase.EXITED) for one in launcher.ranks)
            if launcher.phase is LauncherPhase.IDLE and launcher.ranks == dead:
                return launcher
            return replace(
                launcher,
                phase=LauncherPhase.IDLE,
                generation=order.generation,
                ranks=dead,
                stopped_at=self.at,
            )
        if launcher.generation == order.generation and launcher.phase is LauncherPhase.RUNNING:
            return launcher
        place = [one.node for one in order.world.members].index(node)
        ranks = tuple(
            RankState(
                rank=place * 2 + number,
                local_rank=number,
                pid=100 + number,
                phase=RankPhase.TRAINING,
                started_at=self.at,
                loaded_at=self.at,
                step=self._step,
            )
            for number in range(2)
        )
        return replace(
            launcher,
            phase=LauncherPhase.RUNNING,
            generation=order.generation,
            ranks=ranks,
            resumed_step=self._step,
            checkpoint_step=self._step,
            store_port=launcher.store_port + 1,
        )

    def _train(self) -> None:
        self._step += 1
        for node, report in self._reports.items():
            launcher = report.launchers[0]
            if launcher.phase is not LauncherPhase.RUNNING:
                continue
            ranks = tuple(
                replace(
                    one,
                    step=self._step,
                    loss=2.0,
                    first_step_at=one.first_step_at or self.at,
                    last_step_at=self.at,
                )
                for one in launcher.ranks
            )
            moved = replace(launcher, ranks=ranks, checkpoint_step=self._step)
            self._set(node, launchers=(moved,))
            self._say(node)

    # The frame

    def _set(self, node: str, **changes: object) -> None:
        self._reports[node] = replace(self._reports[node], **changes)  # type: ignore[arg-type]

    def _say(self, node: str) -> None:
        report = self._reports[node]
        self._set(node, sequence=report.sequence + 1)
        self._do(ev.NodeReported(at=self.at, report=self._reports[node]))

    def _do(self, event: ev.Event) -> None:
        step(self.cluster, self.rules, event)
        self.cluster.touched.clear()
