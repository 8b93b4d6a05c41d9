"""The demo's processes: one controller, an agent and a launcher on each of three nodes."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from aegis.cli.demo.network import Network

NODES = ["node-1", "node-2", "node-3"]
JOB = "bytes-lm"
GPUS_PER_NODE = 8
# More ranks than a workstation has GPUs: they use none.
ON_PROCESSORS = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
RANKS_PER_NODE = 2
POLICY = """\
# The demo's own policy. A fresh install only observes.
mode: enforce
nodes_out_max: 2                # nodes that Aegis may take out ...
nodes_out_window_seconds: 600   # ... in 10 minutes
spare_floor: 0                  # spares that must be left
probation_seconds: 0            # a returned node is ready at once
validate_on_return: none        # its GPUs are simulated: there is nothing to try
cooldown_seconds: 0             # a returned node may be taken again
hold_down_seconds: 2            # a link must be down this long
silence_seconds: 10             # a node without a word, its job without progress
gather_seconds: 30              # wait this long for the spare to register
"""


class DemoFailedError(Exception):
    """The demo did not go as told; the sentence says where to look."""


@dataclass(slots=True)
class Fleet:
    """Everything the demo started, ended by pid when it is over."""

    folder: Path
    network: Network
    port: int
    steps_max: int
    checkpoint_every: int
    step_seconds: float
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _listeners: list[socket.socket] = field(default_factory=list)
    _logs: list[IO[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The controller as this machine reaches it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def losses(self) -> Path:
        """Where the job's first rank writes the loss of each step."""
        return self.folder / "losses.jsonl"

    @property
    def admin_token(self) -> Path:
        """The token that the controller wrote at its first start."""
        return self.folder / "controller" / "admin.token"

    def start_controller(self) -> None:
        """Start the controller on listening sockets that outlive it."""
        if not self._listeners:
            self._listeners = self._listen()
        policy = self.folder / "policy.yaml"
        policy.write_text(POLICY)
        command = [
            sys.executable, "-m", "aegis.cli.main", "controller",
            "--data", str(self.folder / "controller"), "--policy", str(policy),
        ]  # fmt: skip
        self._spawn("controller", activated(command, self._listeners), self._listeners)
        self.wait(lambda: self.get("/readyz") is not None, 30, "the controller to be ready")

    def _listen(self) -> list[socket.socket]:
        try:
            return self.network.listeners(self.port)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise DemoFailedError(
                f"the dashboard cannot listen on port {self.port} ({reason}); "
                "choose another with --port"
            ) from error

    def start_node(self, node: str) -> None:
        """Mint the node's token, lay out its simulated GPUs, start its agent and its launcher."""
        home = self.folder / node
        home.mkdir(parents=True, exist_ok=True)
        self._mint(node, home / "node.token")
        simulate("init", str(home / "gpus"), str(GPUS_PER_NODE))
        self.start_agent(node)
        self.start_launcher(node)

    def _mint(self, node: str, token: Path) -> None:
        answer = httpx.post(
            f"{self.url}/api/v1/tokens",
            json={"role": "node", "node": node},
            headers={"Authorization": f"Bearer {self.admin_token.read_text().strip()}"},
        )
        answer.raise_for_status()
        token.touch(mode=0o600)
        token.write_text(answer.json()["token"])

    def start_agent(self, node: str) -> None:
        """Start the node's agent over what it left on disk, if anything."""
        home = self.folder / node
        simulated = {
            "ROCM_PATH": str(self.folder / "rocm"),
            "ROCM_HOME": str(self.folder / "rocm"),
            "AEGIS_SIM_AMDSMI": str(home / "gpus"),
        }
        command = [
            *self.network.prefix(node), sys.executable, "-m", "aegis.cli.main", "agent",
            "--node", node, "--controller", self.network.controller_url(self.port),
            "--token-file", str(home / "node.token"), "--state-dir", str(home / "agent"),
            "--socket", str(home / "agent.sock"), "--poll-seconds", "0.5",
            *self.network.agent_arguments(node),
        ]  # fmt: skip
        self._spawn(f"agent-{node}", command, environment=simulated)

    def start_launcher(self, node: str) -> None:
        """Start the node's launcher; it registers for the job at its agent."""
        home = self.folder / node
        command = [
            *self.network.prefix(node), sys.executable, "-m", "aegis.cli.main", "run",
            "--job", JOB, "--nnodes", "2", "--spares", "1",
            "--nproc-per-node", str(RANKS_PER_NODE), "--address", self.network.address(node),
            "--node", node, "--agent-socket", str(home / "agent.sock"),
            "--controller", self.network.controller_url(self.port),
            "--token-file", str(home / "node.token"),
            "--checkpoint-folder", str(self.folder / "checkpoints"),
            "--log-dir", str(home / "ranks"), str(training_script()), *self._training_arguments(),
        ]  # fmt: skip
        environment = self.network.rank_environment() | ON_PROCESSORS
        self._spawn(f"launcher-{node}", command, environment=environment)

    def _training_arguments(self) -> list[str]:
        return [
            "--steps", str(self.steps_max), "--checkpoint-every", str(self.checkpoint_every),
            "--step-seconds", str(self.step_seconds), "--losses", str(self.losses),
        ]  # fmt: skip

    def _spawn(
        self,
        name: str,
        command: list[str],
        sockets: list[socket.socket] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self._logs.append(log)
        self.processes[name] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | (environment or {}),
            pass_fds=[listener.fileno() for listener in sockets or []],
            start_new_session=True,
        )

    def get(self, path: str) -> Any | None:
        """The controller's answer, or None while there is none."""
        try:
            answer = httpx.get(self.url + path, timeout=5)
        except httpx.TransportError:
            return None
        if answer.status_code != httpx.codes.OK:
            return None
        kind = answer.headers.get("content-type", "")
        return answer.json() if kind.startswith("application/json") else answer.text

    def job(self) -> dict[str, Any] | None:
        """The job as the controller sees it."""
        return self.get(f"/api/v1/jobs/{JOB}")

    def step(self) -> int:
        """The newest step that every rank has completed."""
        return int((self.job() or {}).get("step", 0))

    def members(self) -> list[str]:
        """The nodes that hold the job's ranks, in rank order."""
        job = self.job()
        return [member["node"] for member in job["members"]] if job else []

    def wait(self, ready: Any, seconds: float, what: str) -> Any:
        """Wait until `ready()` is true and return it; a process that ended is an error at once."""
        until = time.monotonic() + seconds
        while not (result := ready()):
            self.check()
            if time.monotonic() > until:
                raise DemoFailedError(
                    f"waited {seconds:.0f} s for {what}; the logs are in {self.folder}"
                )
            time.sleep(0.05)
        return result

    def check(self) -> None:
        """Raise if a program that should run has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = self.folder / f"{name}.log"
                tail = log.read_text(errors="replace").strip().splitlines()[-5:]
                raise DemoFailedError(
                    f"{name} ended with {process.returncode}; {log} ends with:\n" + "\n".join(tail)
                )

    def stop(self) -> None:
        """End all that runs, each kind at once: launchers first, the controller last."""
        for kind in ("launcher", "agent", "controller"):
            self.stop_kind(kind)

    def stop_kind(self, kind: str) -> None:
        """Ask every program of this kind to end, then wait; one that does not is killed."""
        names = [name for name in self.processes if name.startswith(kind)]
        ending = [self.processes.pop(name) for name in names]
        for process in ending:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in ending:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """End everything and leave nothing but the folder."""
        self.stop()
        for log in self._logs:
            log.close()
        for listener in self._listeners:
            listener.close()
        self.network.close()


def activated(command: list[str], listeners: list[socket.socket]) -> list[str]:
    """The command behind systemd's socket activation: it finds its sockets at 3, 4, ….

    LISTEN_PID must be the pid of the program itself, so a shell sets it and becomes the program.
    """
    # Two rounds through high numbers, so that no socket is overwritten before it was moved.
    high = " ".join(f"{100 + i}<&{s.fileno()}" for i, s in enumerate(listeners))
    low = " ".join(f"{3 + i}<&{100 + i} {100 + i}<&-" for i, _ in enumerate(listeners))
    script = f'exec {high}; exec {low}; exec env LISTEN_PID=$$ LISTEN_FDS={len(listeners)} "$@"'
    return [shutil.which("bash") or "bash", "-c", script, "aegis", *command]


def simulate(*words: str) -> None:
    """Change the simulated hardware, as a person would."""
    command = [sys.executable, "-m", "aegis_agent.simulated", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DemoFailedError((done.stderr or done.stdout).strip())


def training_script() -> Path:
    """The example that is trained, in the source tree or beside an installed package."""
    here = Path(__file__).resolve()
    for place in (here.parents[3] / "examples" / "bytes_lm", here.parent / "bytes_lm"):
        if (place / "train.py").is_file():
            return place / "train.py"
    raise DemoFailedError("examples/bytes_lm/train.py is missing: install Aegis again")


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one step in one generation."""

    step: int
    loss: float
    generation: int


def read_losses(path: Path) -> list[Loss]:
    """What the first rank wrote, in order; a step that was trained twice stands there twice."""
    losses = []
    for line in path.read_text().splitlines() if path.exists() else []:
        # A line may be half written: its rank was killed in the middle of it.
        with contextlib.suppress(ValueError, KeyError):
            entry = json.loads(line)
            losses.append(Loss(entry["step"], entry["loss"], entry["generation"]))
    return losses
