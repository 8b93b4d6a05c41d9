"""Nodes for a real controller to watch: they speak the agents' protocol and play their part.

Each has an agent's WebSocket with `Report` frames, eight GPUs and a network port, and a launcher
that obeys its assignments as the real one does. Only the ranks are missing: their steps are counted
here.
"""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field, replace
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from aegis.model.fault import Condition, Evidence, Fault, FaultClass, Severity
from aegis.model.job import (
    Assignment,
    JobSpec,
    LauncherPhase,
    LauncherState,
    RankFailure,
    RankPhase,
    RankState,
    RejectedCheckpoint,
    Tier,
)
from aegis.model.node import Device, Health, NodeReport, Sender
from aegis.wire import Answer, Report, SpooledFault, decode_as, encode

REPORT_SECONDS = 0.2
GPUS = 8
CHECKPOINT_STEPS = 20


@dataclass(kw_only=True)
class Controller:
    """A real `aegis controller` as a child process."""

    folder: Path
    port: int
    policy: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        policy = self.folder / "policy.yaml"
        policy.write_text(self.policy or "mode: observe\n")
        command = [
            sys.executable, "-m", "aegis.cli.main", "controller",
            "--data", str(self.folder / "data"), "--policy", str(policy),
            "--listen", f"127.0.0.1:{self.port}",
        ]  # fmt: skip
        log = (self.folder / "controller.log").open("ab")
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        wait(lambda: self.get("/readyz") is not None, 30, "the controller to be ready")

    def stop(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def get(self, path: str):
        """What it answers, or None while it does not."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                body = answer.read().decode()
        except OSError:
            return None
        return json.loads(body) if path.startswith("/api/") else body

    def post(self, path: str, body: dict[str, str]):
        """Send a command as the admin."""
        secret = (self.folder / "data" / "admin.token").read_text().strip()
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def incidents(self):
        """All of them, the last active first."""
        return (self.get("/api/v1/incidents?limit=500") or {"items": []})["items"]


@dataclass
class Checkpoints:
    """What the nodes of a job share: its newest checkpoint, and one that will fail to verify."""

    step: int = 0
    at: float = 0.0
    corrupt: RejectedCheckpoint | None = None

    def spoil(self, reason: str) -> None:
        """Let the newest one fail verification."""
        path = f"/checkpoints/step-{self.step}"
        self.corrupt = RejectedCheckpoint(step=self.step, path=path, reason=reason)

    def restore(self) -> tuple[int, tuple[RejectedCheckpoint, ...]]:
        """The step of the newest good one, and what was passed over."""
        if self.corrupt is None:
            return self.step, ()
        return self.corrupt.step - CHECKPOINT_STEPS, (self.corrupt,)

    def save(self, step: int) -> None:
        """A step was completed; now and then it is saved."""
        if step // CHECKPOINT_STEPS * CHECKPOINT_STEPS > self.step:
            self.step, self.at = step // CHECKPOINT_STEPS * CHECKPOINT_STEPS, time.time()


@dataclass(kw_only=True)
class PlayedNode:
    """One node: an agent, its devices, and a launcher of one job."""

    name: str
    controller: Controller
    spec: JobSpec | None = None
    rack: str = ""
    step_seconds: float = 0.06
    load_seconds: float = 0.4
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    devices: list[Device] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    faults: list[SpooledFault] = field(default_factory=list)
    launcher: LauncherState | None = None
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _obeyed: tuple[int, int] = (0, 0)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0

    def __post_init__(self) -> None:
        self.devices = [self._gpu(index) for index in range(GPUS)]
        self.devices.append(
            Device(
                name="fab0", kind="nic", health=Health.HEALTHY, identity="0000:c1:00.0",
                counters=(("carrier_changes", 1),),
            )
        )  # fmt: skip
        if self.spec:
            digit = self.name[-1]
            self.launcher = LauncherState(
                spec=self.spec, launcher=f"launcher-{self.name}", address=f"10.0.0.{digit}",
                store_port=29500, standbys=self.spec.ranks_per_node,
            )  # fmt: skip

    def _gpu(self, index: int) -> Device:
        return Device(
            name=f"gpu{index}", kind="gpu", health=Health.HEALTHY, identity=self.identity(index),
            counters=(("ecc_correctable", 0), ("ecc_uncorrectable", 0)),
        )  # fmt: skip

    def identity(self, gpu: int) -> str:
        """BDF, UUID and serial, as the agent writes them."""
        digit = self.name[-1]
        uuid = f"a3ff74b5-0000-1000-80{digit}{gpu}-5b3d6e4f1c0{gpu}"
        return f"0000:{0x0C + 0x10 * gpu:02x}:00.0 {uuid} 69231{digit}00{gpu}71"

    def start(self) -> "PlayedNode":
        """Begin to speak."""
        token = self.controller.post("/api/v1/tokens", {"role": "node", "node": self.name})
        self._thread = threading.Thread(target=self._live, args=(token["token"],), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Fall silent."""
        self._closing.set()
        if self._thread:
            self._thread.join(10)

    # What can go wrong

    def uncorrectable_error(self, gpu: int, late_seconds: float = 0.4) -> None:
        """An ECC error in a GPU's memory, read a moment after it came."""
        text = f"uncorrectable errors of block umc on gpu{gpu} rose by 1"
        evidence = Evidence(source="amdsmi ecc_count(umc)", text=text, before="0", after="1")
        self._sick(gpu, "1 uncorrectable error since the agent's baseline")
        self._tell(
            FaultClass.GPU_ECC_UNCORRECTABLE, Severity.ERROR, f"gpu{gpu}", evidence, late_seconds
        )

    def _sick(self, gpu: int, detail: str) -> None:
        counters = (("ecc_correctable", 0), ("ecc_uncorrectable", 1))
        with self._lock:
            self.devices[gpu] = replace(
                self.devices[gpu], health=Health.UNHEALTHY, detail=detail, counters=counters
            )

    def link_down(self) -> None:
        """The fabric port loses its carrier."""
        text = "fab0 lost its carrier"
        evidence = Evidence(source="netlink RTM_NEWLINK", text=text, before="up", after="down")
        with self._lock:
            self.conditions = [
                Condition(
                    fault_class=FaultClass.NIC_LINK_DOWN, device="fab0", since=time.time(),
                    evidence=(evidence,),
                )
            ]  # fmt: skip
            self.devices[-1] = replace(
                self.devices[-1], health=Health.UNHEALTHY, detail="no carrier"
            )
        self._tell(FaultClass.NIC_LINK_DOWN, Severity.ERROR, "fab0", evidence, 0.05)

    def link_up(self) -> None:
        """And has it again."""
        with self._lock:
            self.conditions = []
            self.devices[-1] = replace(self.devices[-1], health=Health.HEALTHY, detail="")

    def kill_rank(self, rank: int, *, error: str = "", victims: tuple[int, ...] = ()) -> None:
        """One rank dies, with words or without; its launcher ends the others."""
        with self._lock:
            assert self.launcher is not None
            failure = RankFailure(
                generation=self.launcher.generation, rank=rank, at=time.time(), signal=9,
                last_step=max(one.step for one in self.launcher.ranks),
                text=f"rank {rank} was killed by SIGKILL", error=error, victims=victims,
            )  # fmt: skip
            self.launcher = replace(
                self.launcher, phase=LauncherPhase.FAILED, ranks=(), failure=failure,
                stopped_at=time.time() + 0.05,
            )  # fmt: skip

    def lose_sight(self, gpu: int) -> None:
        """A GPU can no longer be read."""
        with self._lock:
            self.devices[gpu] = replace(
                self.devices[gpu], health=Health.UNKNOWN, detail="no reading for 30 s"
            )

    def heal(self) -> None:
        """The devices read healthy again."""
        with self._lock:
            self.devices = [replace(one, health=Health.HEALTHY, detail="") for one in self.devices]
            self.conditions = []

    def _tell(
        self,
        fault_class: FaultClass,
        severity: Severity,
        device: str,
        evidence: Evidence,
        late_seconds: float,
    ) -> None:
        with self._lock:
            self._number += 1
            identity = next(one.identity for one in self.devices if one.name == device)
            fault = Fault(
                fault_class=fault_class, severity=severity, node=self.name, device=device,
                observed_at=time.time() - late_seconds, boot_id=f"boot-{self.name}",
                simulated=True, evidence=(evidence,), identity=identity,
            )  # fmt: skip
            self.faults.append(SpooledFault(number=self._number, fault=fault))

    # Its life

    def _live(self, token: str) -> None:
        address = self.controller.url.replace("http", "ws") + "/api/v1/agent/stream"
        headers = {"Authorization": f"Bearer {token}"}
        while not self._closing.is_set():
            try:
                with connect(
                    f"{address}?node={self.name}&sender=agent", additional_headers=headers
                ) as socket:
                    self._speak(socket)
            except (OSError, WebSocketException):
                self._closing.wait(0.2)

    def _speak(self, socket) -> None:
        sequence = 0
        while not self._closing.is_set():
            sequence += 1
            socket.send(encode(self._report(sequence)))
            answered = False
            until = time.monotonic() + REPORT_SECONDS
            while not answered or time.monotonic() < until:
                try:
                    wait_seconds = 10 if not answered else max(until - time.monotonic(), 0.01)
                    answer = decode_as(Answer, socket.recv(wait_seconds))
                except TimeoutError:
                    break
                answered = answered or answer.sequence == sequence
                self._obey(answer)

    def _report(self, sequence: int) -> Report:
        with self._lock:
            self._come_on()
            launchers = (self.launcher,) if self.launcher else ()
            report = NodeReport(
                node=self.name, sender=Sender.AGENT, session=0, sequence=sequence,
                boot_id=f"boot-{self.name}", version="0.1.0", simulated=True,
                labels=(("rack", self.rack),) if self.rack else (),
                devices=tuple(replace(one, read_at=time.time()) for one in self.devices),
                conditions=tuple(self.conditions), launchers=launchers,
            )  # fmt: skip
            return Report(
                sent_at=time.time(), report=report, origin=f"spool-{self.name}",
                faults=tuple(self.faults),
            )  # fmt: skip

    def _obey(self, answer: Answer) -> None:
        with self._lock:
            self.faults = [one for one in self.faults if one.number > answer.stored]
            for one in answer.assignments:
                if self.launcher and (one.epoch, one.sequence) > self._obeyed:
                    self._obeyed = (one.epoch, one.sequence)
                    self._take(self.launcher, one)

    def _take(self, launcher: LauncherState, assignment: Assignment) -> None:
        now = time.time()
        members = assignment.world.members if assignment.world else ()
        place = next((i for i, one in enumerate(members) if one.node == self.name), None)
        if place is None:
            alive = bool(launcher.ranks)
            self.launcher = replace(
                launcher, phase=LauncherPhase.IDLE, ranks=(), epoch=assignment.epoch,
                generation=max(launcher.generation, assignment.generation),
                stopped_at=now + 0.03 if alive else launcher.stopped_at,
            )  # fmt: skip
        elif assignment.generation > launcher.generation:
            per = launcher.spec.ranks_per_node
            ranks = tuple(
                RankState(
                    rank=place * per + local, local_rank=local, pid=4000 + local,
                    phase=RankPhase.STARTING, started_at=now + 0.25,
                )
                for local in range(per)
            )  # fmt: skip
            self.launcher = replace(
                launcher, phase=LauncherPhase.STARTING, ranks=ranks, failure=None,
                generation=assignment.generation, epoch=assignment.epoch, resumed_step=None,
                rejected=(), stopped_at=0.0, store_port=launcher.store_port + 1,
            )  # fmt: skip
        else:
            self.launcher = replace(launcher, epoch=assignment.epoch)

    def _come_on(self) -> None:
        """Let the ranks load, take their first step, and train."""
        launcher, now = self.launcher, time.time()
        if launcher is None or not launcher.ranks:
            return
        started = launcher.ranks[0].started_at
        loaded = started + self.load_seconds
        first = loaded + 2 * self.step_seconds
        if now < loaded:
            return
        resumed = launcher.resumed_step
        if resumed is None:
            resumed, rejected = self.checkpoints.restore()
            found = (Tier.MEMORY,) if resumed else ()
            launcher = replace(
                launcher, resumed_step=resumed, resumed_from=found, rejected=rejected
            )
        steps = 0 if now < first else 1 + int((now - first) / self.step_seconds)
        step = resumed + steps
        ranks = tuple(
            replace(
                rank, phase=RankPhase.TRAINING, step=step if steps else 0, loaded_at=loaded,
                first_step_at=first if steps else 0.0, last_step_at=now if steps else 0.0,
                loss=played_loss(step) if steps else None,
            )
            for rank in launcher.ranks
        )  # fmt: skip
        self.checkpoints.save(step)
        self.launcher = replace(
            launcher, phase=LauncherPhase.RUNNING, ranks=ranks,
            checkpoint_step=self.checkpoints.step, checkpoint_at=self.checkpoints.at,
        )  # fmt: skip


def played_loss(step: int) -> float:
    """A curve that looks like training, the same at the same step."""
    wobble = ((step * 7919) % 97 - 48) / 48
    return 1.9 + 3.6 / (1 + step / 22) + 0.05 * wobble


def wait(ready, seconds: float, what: str):
    """Wait until `ready()` is true and return it."""
    until = time.monotonic() + seconds
    while not (result := ready()):
        assert time.monotonic() < until, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)
    return result
