"""A fleet that only talks: invented nodes, rules and jobs for measuring the core."""

from dataclasses import replace

from aegis.core import recover
from aegis.core.cluster import Cluster
from aegis.core.step import step
from aegis.model import event as ev
from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.job import JobSpec, LauncherPhase, LauncherState, RankPhase, RankState
from aegis.model.node import Device, Health, NodeReport, Sender
from aegis.model.policy import Mode, Policy
from aegis.rules import RuleSet, parse

BEGINNING = 1_000_000.0
DEVICES = 8
RULES_PER_CLASS = 15
TAKEN = FaultClass.GPU_ECC_UNCORRECTABLE  # its last rule takes the node
TOLD = FaultClass.GPU_THERMAL_THROTTLE  # its last rule only tells people
UNRULED = FaultClass.HOST_CLOCK_SKEW  # has rules, none of which matches


def rules(count: int) -> RuleSet:
    """So many rules, spread evenly: to find the one that matches, all others of a class are asked.

    A class has rules for groups of nodes that do not exist, and then one for all the rest.
    """
    lines = ["apiVersion: aegis/v1", "kind: RuleSet", "name: bench", "rules:"]
    others = [one for one in FaultClass if one not in (TAKEN, TOLD, UNRULED)]
    classes = [TAKEN, TOLD, UNRULED, *others][: count // RULES_PER_CLASS]
    for name in classes:
        for number in range(RULES_PER_CLASS):
            last = number == RULES_PER_CLASS - 1 and name is not UNRULED
            remedy = "drain_now" if name is TAKEN else "notify"
            only = "" if last else f", labels: {{group: group{number}}}"
            lines.append(
                f"  - {{id: {name}.{number}, title: T, class: {name}, remedy: {remedy}{only}}}"
            )
    return parse({"bench.yaml": "\n".join(lines) + "\n"})


class Fleet:
    """Nodes with eight devices each, and what they say."""

    def __init__(self, nodes: int, rule_count: int = 300, **policy: object) -> None:
        limits: dict[str, object] = {"mode": Mode.ENFORCE, **policy}
        self.rules = rules(rule_count)
        self.cluster = Cluster(policy=Policy(**limits))  # type: ignore[arg-type]
        self.at, self.faults = BEGINNING, 0
        self.names = [f"node{number:05d}" for number in range(nodes)]
        self.reports: dict[str, NodeReport] = {}
        self.apply(ev.ControllerStarted(at=self.at, epoch=1, version="bench"))
        for number, name in enumerate(self.names):
            self.reports[name] = NodeReport(
                node=name,
                sender=Sender.AGENT,
                session=1,
                sequence=0,
                boot_id="boot",
                labels=(
                    ("group", "training"),
                    ("rack", f"rack{number // 16:03d}"),
                    ("switch", f"switch{number // 64:03d}"),
                ),
                devices=tuple(_gpu(gpu, 40) for gpu in range(DEVICES)),
            )
            self.apply(self.report(name))

    def apply(self, event: ev.Event) -> None:
        """One step, as the controller's loop makes it."""
        step(self.cluster, self.rules, event)
        self.cluster.touched.clear()

    def report(self, name: str) -> ev.NodeReported:
        """The node's next report: each of its temperatures has changed."""
        before = self.reports[name]
        sequence = before.sequence + 1
        warm = tuple(_gpu(gpu, 40 + (sequence + gpu) % 40) for gpu in range(DEVICES))
        report = replace(before, sequence=sequence, devices=warm)
        self.reports[name] = report
        return ev.NodeReported(at=self.at, report=report)

    def fault(self, name: str, fault_class: FaultClass, device: str = "gpu3") -> ev.FaultObserved:
        """A fault of the node from its spool."""
        self.faults += 1
        fault = Fault(
            fault_class=fault_class,
            severity=Severity.ERROR,
            node=name,
            device=device,
            observed_at=self.at,
            boot_id="boot",
            evidence=(Evidence(source="bench", text="a counter rose", before="0", after="1"),),
        )
        return ev.FaultObserved(at=self.at, origin="spool", number=self.faults, fault=fault)

    def tick(self, seconds: float, heard: tuple[str, ...]) -> ev.Tick:
        """Time passes, and these have spoken."""
        self.at += seconds
        return ev.Tick(at=self.at, agents_seen=heard)

    # A job on some of them

    def train(self, names: list[str]) -> None:
        """Start a job on these nodes and let it run."""
        spec = JobSpec(name="llama", nodes=len(names), ranks_per_node=DEVICES)
        for name in names:
            launcher = LauncherState(spec=spec, launcher=name, address=name, store_port=1)
            self._say(name, launcher)
        self.apply(self.tick(1.0, tuple(self.names)))
        for place, name in enumerate(names):
            (told,) = recover.assignments(self.cluster, name)
            launcher = replace(
                self.reports[name].launchers[0],
                phase=LauncherPhase.RUNNING,
                generation=told.generation,
                resumed_step=0,
                ranks=tuple(_rank(place * DEVICES + gpu, gpu, self.at) for gpu in range(DEVICES)),
            )
            self._say(name, launcher)
        self.apply(self.tick(1.0, tuple(self.names)))

    def _say(self, name: str, launcher: LauncherState) -> None:
        self.reports[name] = replace(self.reports[name], launchers=(launcher,))
        self.apply(self.report(name))

    def progress(self, name: str, training_step: int) -> ev.NodeReported:
        """The node's next report, its ranks at this step."""
        (launcher,) = self.reports[name].launchers
        ranks = tuple(replace(rank, step=training_step) for rank in launcher.ranks)
        self.reports[name] = replace(
            self.reports[name], launchers=(replace(launcher, ranks=ranks),)
        )
        return self.report(name)


def _rank(rank: int, local_rank: int, at: float) -> RankState:
    return RankState(
        rank=rank,
        local_rank=local_rank,
        pid=1,
        phase=RankPhase.TRAINING,
        started_at=at,
        loaded_at=at,
        first_step_at=at,
    )


def _gpu(number: int, celsius: int) -> Device:
    return Device(
        name=f"gpu{number}",
        kind="gpu",
        health=Health.HEALTHY,
        counters=(("ecc_uncorrectable", 0), ("temp_hotspot_c", celsius)),
    )
