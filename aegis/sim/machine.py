"""A node: hardware, boots, an agent that comes and goes, and a launcher for each of its jobs."""

from collections.abc import Callable
from dataclasses import dataclass, field

from aegis.model.fault import FaultClass, Severity
from aegis.model.job import Assignment
from aegis.model.node import NodeReport, Sender
from aegis.sim.agent import LINK, Hardware, SimAgent, Spool
from aegis.sim.controller import SimController
from aegis.sim.helper import SimHelper
from aegis.sim.launcher import SimLauncher
from aegis.sim.network import Network
from aegis.sim.promises import Promises
from aegis.sim.scene import Scene
from aegis.sim.setting import JobPlan
from aegis.sim.training import Generation
from aegis.sim.uplink import Spooled, Uplink
from aegis.wire import Answer

REBOOT_SECONDS = 40.0  # at most
ALONE_SECONDS = 2.0  # a launcher without its agent then speaks for itself


@dataclass(slots=True, eq=False, kw_only=True)
class Machine:
    """One node of the fleet."""

    scene: Scene
    network: Network
    controller: SimController
    promises: Promises
    name: str
    labels: tuple[tuple[str, str], ...]
    find: Callable[[JobPlan, Assignment], Generation]
    fence: Callable[[str], int]  # of a job's checkpoint folder
    plans: Callable[[], tuple[JobPlan, ...]]  # that have a launcher here, while they are wanted
    skew_seconds: float = 0.0
    is_on: bool = False
    boots: int = 0
    hardware: Hardware = field(default_factory=Hardware)
    spool: Spool = field(init=False)
    helper: SimHelper = field(init=False)
    agent: SimAgent | None = None
    launchers: dict[str, SimLauncher] = field(default_factory=dict)  # by job
    _direct: dict[str, Uplink] = field(default_factory=dict)  # by launcher
    _spools: int = 0
    _starts: int = 0
    _ports: int = 20000

    def __post_init__(self) -> None:
        self.helper = SimHelper(
            scene=self.scene,
            node=self.name,
            skew_seconds=self.skew_seconds,
            boot_id=lambda: self._boot_id() if self.is_on else "",
            is_live=lambda device: device in self.hardware.sick,
            heal=self.hardware.sick.clear,
            reboot=self.reboot,
            begun=lambda order: self.promises.begun(order, self._boot_id()),
            changed=lambda: self.agent.uplink.urge() if self.agent else None,
        )

    def boot(self, plans: tuple[JobPlan, ...]) -> None:
        """Power on: the agent starts, and the user's launchers."""
        self.is_on = True
        self.boots += 1
        if not self._spools:
            self.new_spool()
        self.scene.soon(1.0, self.start_agent)
        for plan in plans:
            self.scene.soon(2.0, lambda plan=plan: self.launch(plan))  # type: ignore[misc]

    def power_off(self) -> None:
        """All ends at once, and nobody says so."""
        self.is_on = False
        if self.agent is not None:
            self.agent.die()
            self.agent = None
        for launcher in list(self.launchers.values()):
            launcher.die()
        self._note_link(None)

    def reboot(self) -> None:
        """Start anew, as told; it takes a while."""
        self.power_off()
        self.scene.truth.reboots[self.name] = self.boots

        def boot() -> None:
            if not self.is_on:
                self.boot(self.plans())

        self.scene.soon(REBOOT_SECONDS, boot)

    def new_spool(self) -> None:
        """The disk was wiped, or is new: the spool begins anew under another name."""
        self._spools += 1
        self.helper.results.clear()
        self.spool = Spool(f"{self.name}/spool{self._spools}")

    def _boot_id(self) -> str:
        return f"{self.name}/boot{self.boots}"

    # The agent

    def start_agent(self) -> None:
        """Start the agent, unless it runs."""
        if not self.is_on or self.agent is not None:
            return
        agent = SimAgent(
            scene=self.scene,
            node=self.name,
            boot_id=self._boot_id(),
            labels=self.labels,
            skew_seconds=self.skew_seconds,
            hardware=self.hardware,
            spool=self.spool,
            helper=self.helper,
            acknowledged=self.promises.acknowledged,
        )
        agent.begin(self._uplink(Sender.AGENT, "", agent.compose, agent.heed, agent.spooled))
        self.agent = agent
        for launcher in self.launchers.values():
            self._attach_soon(launcher)

    def stop_agent(self) -> None:
        """The agent dies; its launchers notice at once."""
        if self.agent is None:
            return
        self.agent.die()
        self.agent = None
        for launcher in self.launchers.values():
            self.scene.later(ALONE_SECONDS, lambda one=launcher: self._speak_alone(one))  # type: ignore[misc]

    def _attach_soon(self, launcher: SimLauncher) -> None:
        def attach() -> None:
            agent = self.agent
            if agent is not None and not launcher.is_over and not agent.is_attached(launcher):
                agent.attach(launcher)
                self._hang_up(launcher)

        self.scene.soon(1.9, attach)

    def _speak_alone(self, launcher: SimLauncher) -> None:
        """The agent is away for too long: speak to the controller directly."""
        if launcher.is_over or self.agent is not None or launcher.launcher in self._direct:
            return

        def compose() -> NodeReport:
            return NodeReport(
                node=self.name,
                sender=Sender.LAUNCHER,
                session=0,
                sequence=0,
                boot_id=self._boot_id(),
                launchers=(launcher.state(),),
            )

        def heed(answer: Answer) -> None:
            for order in answer.assignments:
                if order.job == launcher.plan.spec.name:
                    launcher.obey(order)

        uplink = self._uplink(Sender.LAUNCHER, launcher.plan.spec.name, compose, heed)
        self._direct[launcher.launcher] = uplink
        uplink.open()

    def _hang_up(self, launcher: SimLauncher) -> None:
        uplink = self._direct.pop(launcher.launcher, None)
        if uplink is not None:
            uplink.close()

    def _uplink(
        self,
        sender: Sender,
        job: str,
        compose: Callable[[], NodeReport],
        heed: Callable[[Answer], None],
        spooled: Callable[[], Spooled] = Spooled,
    ) -> Uplink:
        return Uplink(
            scene=self.scene,
            network=self.network,
            controller=self.controller,
            node=self.name,
            sender=sender,
            job=job,
            compose=compose,
            heed=heed,
            spooled=spooled,
        )

    def reset_connections(self) -> None:
        """Every connection of the node breaks."""
        for uplink in [*([self.agent.uplink] if self.agent else []), *self._direct.values()]:
            uplink.reset()

    # Launchers

    def launch(self, plan: JobPlan) -> None:
        """Start a launcher of the job, unless one runs."""
        if not self.is_on or plan.spec.name in self.launchers:
            return
        self._starts += 1
        launcher = SimLauncher(
            scene=self.scene,
            plan=plan,
            node=self.name,
            launcher=f"{plan.spec.name}@{self.name}#{self._starts}",
            skew_seconds=self.skew_seconds,
            generation=self.fence(plan.spec.name),
            find=lambda order: self.find(plan, order),
            new_port=self._new_port,
            spawned=self.promises.spawned,
            changed=lambda: self._changed(launcher),
            ended=self._ended,
        )
        self.launchers[plan.spec.name] = launcher
        self.scene.log(f"{launcher.launcher} is there")
        launcher.begin()
        self._attach_soon(launcher)
        self.scene.later(ALONE_SECONDS, lambda: self._speak_alone(launcher))

    def _new_port(self) -> int:
        self._ports += 1
        return self._ports

    def _changed(self, launcher: SimLauncher) -> None:
        if self.agent is not None and self.agent.is_attached(launcher):
            self.agent.uplink.urge()
        elif uplink := self._direct.get(launcher.launcher):
            uplink.urge()

    def _ended(self, launcher: SimLauncher) -> None:
        name = launcher.plan.spec.name
        if self.launchers.get(name) is launcher:
            del self.launchers[name]
        if self.agent is not None:
            self.agent.detach(launcher)
        self._hang_up(launcher)
        self.scene.log(f"{launcher.launcher} is over, exit code {launcher.exit_code}")

    # Hardware

    def link_down(self) -> None:
        """The fabric link loses its carrier."""
        if self.hardware.link_down_at is None and self.is_on:
            self._note_link(self.scene.now)
            self.hardware.link_changes += 1
            self._observe(FaultClass.NIC_LINK_DOWN, Severity.ERROR, LINK)

    def link_up(self) -> None:
        """The carrier is back."""
        down_at = self.hardware.link_down_at
        if down_at is not None and self.is_on:
            self._note_link(None)
            self.hardware.link_changes += 1
            self._observe(FaultClass.NIC_LINK_UP, Severity.INFO, LINK)

    def _note_link(self, down_at: float | None) -> None:
        truth, before = self.scene.truth, self.hardware.link_down_at
        self.hardware.link_down_at = down_at
        if before is not None:
            longest = max(truth.link_down_seconds.get(self.name, 0.0), self.scene.now - before)
            truth.link_down_seconds[self.name] = longest
            truth.link_down_at.pop(self.name, None)
        if down_at is not None:
            truth.link_down_at[self.name] = down_at

    def break_device(
        self, fault_class: FaultClass, severity: Severity, device: str, count: int = 1
    ) -> None:
        """A device shows a fault."""
        self.scene.truth.faults.setdefault(self.name, set()).add(fault_class)
        self._observe(fault_class, severity, device, count)

    def _observe(
        self, fault_class: FaultClass, severity: Severity, device: str, count: int = 1
    ) -> None:
        """Nobody sees an edge while the agent is away; a level is seen when it is back."""
        if self.agent is not None:
            text = f"{self.spool.origin} {self.spool.last + 1}"
            self.agent.observe(fault_class, severity, device, text, count)
