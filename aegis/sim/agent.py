"""An agent: it speaks for its node and its launchers, and keeps faults until they are stored.

Like the real one it keeps a launcher whose connection was lost in its report for a short grace, and
remembers what it was told to pass on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.job import Assignment, LauncherState
from aegis.model.node import Device, Health, NodeReport, Sender
from aegis.sim.helper import SimHelper
from aegis.sim.launcher import SimLauncher
from aegis.sim.scene import Scene
from aegis.sim.uplink import Spooled, Uplink
from aegis.sim.validator import SimValidator
from aegis.wire import Answer, SpooledFault

GRACE_SECONDS = 2.0  # a launcher that is lost may only be reconnecting
SETTLE_SECONDS = 2.5
LINK = "fab0"
GPUS = ("gpu0", "gpu1")


@dataclass(slots=True)
class Spool:
    """Faults on the node's disk; it outlives agent and boot."""

    origin: str
    faults: list[SpooledFault] = field(default_factory=list)
    last: int = 0
    stored: int = 0

    def keep(self, fault: Fault) -> None:
        """Write a fault down."""
        self.last += 1
        self.faults.append(SpooledFault(number=self.last, fault=fault))

    def forget(self, stored: int) -> None:
        """The controller has these."""
        self.stored = max(self.stored, stored)
        self.faults = [one for one in self.faults if one.number > stored]


@dataclass(slots=True)
class Hardware:
    """What the node's devices are like."""

    sick: dict[str, FaultClass] = field(default_factory=dict)  # by GPU
    link_down_at: float | None = None
    link_changes: int = 0

    def devices(self) -> tuple[Device, ...]:
        """The devices as they are read."""
        gpus = [
            Device(
                name=name,
                kind="gpu",
                health=Health.UNHEALTHY if name in self.sick else Health.HEALTHY,
                detail=f"shows {self.sick[name]}" if name in self.sick else "",
            )
            for name in GPUS
        ]
        counters = (("carrier_changes", self.link_changes),)
        health = Health.HEALTHY if self.link_down_at is None else Health.UNHEALTHY
        return (*gpus, Device(name=LINK, kind="nic", health=health, counters=counters))


@dataclass(slots=True)
class _Known:
    state: LauncherState
    launcher: SimLauncher | None  # None: its connection is lost


@dataclass(slots=True, eq=False, kw_only=True)
class SimAgent:
    """One life of an agent."""

    scene: Scene
    node: str
    boot_id: str
    labels: tuple[tuple[str, str], ...]
    skew_seconds: float
    hardware: Hardware
    spool: Spool
    helper: SimHelper
    acknowledged: Callable[[Spool], None]  # promises look on
    uplink: Uplink = field(init=False)
    validator: SimValidator = field(init=False)
    is_over: bool = False
    asked_at: float = 0.0  # when the newest report was put together, by the node's clock
    _known: dict[str, _Known] = field(default_factory=dict)  # by job
    _orders: dict[str, Assignment] = field(default_factory=dict)  # by job

    def begin(self, uplink: Uplink) -> None:
        """The process has started; it waits for launchers that were there before."""
        self.uplink = uplink
        self.validator = SimValidator(
            scene=self.scene,
            node=self.node,
            boot_id=self.boot_id,
            skew_seconds=self.skew_seconds,
            changed=self._news,
        )
        settles = self.scene.setting.temper.agents_settle
        self.scene.later(SETTLE_SECONDS if settles else 0.1, self._speak)

    def _speak(self) -> None:
        if not self.is_over:
            self.uplink.open()

    def _news(self) -> None:
        if not self.is_over:
            self.uplink.urge()

    def die(self) -> None:
        """The process ends; launchers and spool do not."""
        self.is_over = True
        self.uplink.close()

    # What it says

    def compose(self) -> NodeReport:
        """The node's whole state."""
        self.asked_at = self.scene.now + self.skew_seconds
        for known in self._known.values():
            if known.launcher is not None:
                known.state = known.launcher.state()
        down_at = self.hardware.link_down_at
        down = Condition(
            fault_class=FaultClass.NIC_LINK_DOWN,
            device=LINK,
            since=(down_at or 0.0) + self.skew_seconds,
        )
        return NodeReport(
            node=self.node,
            sender=Sender.AGENT,
            session=0,
            sequence=0,
            boot_id=self.boot_id,
            version="sim",
            simulated=True,
            labels=self.labels,
            devices=self.hardware.devices(),
            conditions=() if down_at is None else (down,),
            launchers=tuple(self._known[job].state for job in sorted(self._known)),
            has_helper=True,
            order_results=tuple(one for _, one in sorted(self.helper.results.items())),
            validates=self.validator.able,
            validation_results=tuple(one for _, one in sorted(self.validator.results.items())),
        )

    def spooled(self) -> Spooled:
        """The faults that are not yet known to be stored."""
        return Spooled(self.spool.origin, tuple(self.spool.faults))

    def observe(
        self, fault_class: FaultClass, severity: Severity, device: str, text: str, count: int = 1
    ) -> None:
        """A probe has seen a fault."""
        self.spool.keep(
            Fault(
                fault_class=fault_class,
                severity=severity,
                node=self.node,
                device=device,
                observed_at=self.scene.now + self.skew_seconds,
                boot_id=self.boot_id,
                count=count,
                simulated=True,
                evidence=(Evidence(source="sim", text=text),),
            )
        )
        self.uplink.urge()

    # Between launchers and controller

    def attach(self, launcher: SimLauncher) -> None:
        """A launcher has connected: hear it, and tell it what is known of its job."""
        job = launcher.plan.spec.name
        self._known[job] = _Known(launcher.state(), launcher)
        if job in self._orders:
            self._pass_on(launcher, self._orders[job])
        self.uplink.urge()

    def detach(self, launcher: SimLauncher) -> None:
        """A launcher's connection is lost."""
        job = launcher.plan.spec.name
        known = self._known.get(job)
        if known is not None and known.launcher is launcher:
            lost = self._known[job] = _Known(known.state, None)
            self.scene.later(GRACE_SECONDS, lambda: self._let_go(job, lost))

    def _let_go(self, job: str, lost: _Known) -> None:
        if self._known.get(job) is lost:
            del self._known[job]
            self.uplink.urge()

    def is_attached(self, launcher: SimLauncher) -> bool:
        """Whether this very launcher speaks through the agent."""
        known = self._known.get(launcher.plan.spec.name)
        return known is not None and known.launcher is launcher

    def heed(self, answer: Answer) -> None:
        """What the controller has stored, and what the launchers should be running."""
        if self.is_over:
            return
        if answer.stored > self.spool.stored:
            self.spool.forget(answer.stored)
            self.acknowledged(self.spool)
        if self.is_newest(answer):
            self.helper.take(
                answer.orders, epoch=answer.epoch, sent_at=answer.sent_at, asked_at=self.asked_at
            )
            self.validator.take(
                answer.validations,
                epoch=answer.epoch,
                sent_at=answer.sent_at,
                asked_at=self.asked_at,
            )
        self._orders = {order.job: order for order in answer.assignments}
        for job, known in self._known.items():
            if known.launcher is not None and job in self._orders:
                self._pass_on(known.launcher, self._orders[job])

    def is_newest(self, answer: Answer) -> bool:
        """Whether the answer is to the newest report: an older one says what stood then."""
        connection = self.uplink.connection
        return connection is not None and answer.sequence == connection.sequence

    def _pass_on(self, launcher: SimLauncher, order: Assignment) -> None:
        self.scene.later(0.002, lambda: launcher.obey(order))
