"""Real launchers, real ranks on gloo; only their agent is a few lines of Unix socket."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aegis.model.job import Assignment, LauncherState, Member, RankPhase, StopKind, World
from aegis.wire import decode_as, encode
from aegis.worker import shelf

# All ranks here are on gloo, more of them than this machine may have GPUs.
os.environ.update({"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""})

EXAMPLE = Path(__file__).parents[3] / "examples" / "bytes_lm" / "train.py"
PATIENCE_SECONDS = 90


class Agent:
    """A node's agent as its launcher sees it: hears states, passes on assignments."""

    def __init__(self, path):
        self.path = path
        self.state = None
        self.states = []
        self._connections = []
        self.open()

    def open(self):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection):
        with contextlib.suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                self.state = decode_as(LauncherState, line)
                self.states.append(self.state)

    def assign(self, assignment):
        self._connections[-1].sendall(encode(assignment).encode() + b"\n")

    def close(self):
        """Be gone, as an agent that was killed."""
        self.path.unlink(missing_ok=True)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._connections.clear()


class Stage:
    """One job's launchers and the assignments they are given."""

    def __init__(self, folder):
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.losses = folder / "losses.jsonl"
        self.agents = {}
        self.processes = {}
        self.sequence = 0
        self.generation = 0
        self.epoch = 1
        self.used = set()  # stores that a generation was given

    def launch(self, node, *script, flags=(), nodes=1, ranks=2):
        """Start a launcher on a node and wait until it is ready."""
        home = self.folder / node
        home.mkdir(exist_ok=True)
        self.agents[node] = Agent(home / "agent.sock")
        command = [
            sys.executable, "-m", "aegis.cli.main", "run", "--job", "test", "--node", node,
            "--nnodes", str(nodes), "--nproc-per-node", str(ranks), "--address", "127.0.0.1",
            "--agent-socket", str(home / "agent.sock"), "--log-dir", str(home / "logs"),
            "--checkpoint-folder", str(self.checkpoints), *flags, *map(str, script),
        ]  # fmt: skip
        with (home / "launcher.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=self.folder,
            )  # fmt: skip

    def ready(self, *nodes):
        for node in nodes:
            self.wait(
                lambda node=node: (
                    (state := self.state(node)) and state.store_port and state.standbys
                )
            )

    def state(self, node):
        return self.agents[node].state

    def log(self, node):
        return (self.folder / node / "launcher.log").read_text()

    def wait(self, ready, seconds=PATIENCE_SECONDS):
        until = time.monotonic() + seconds
        while not (found := ready()):
            if time.monotonic() > until:
                logs = {node: self.log(node)[-3000:] for node in self.processes}
                states = {node: agent.state for node, agent in self.agents.items()}
                pytest.fail(f"waited in vain: {states}\n" + "\n".join(logs.values()))
            time.sleep(0.01)
        return found

    def assignment(self, **fields):
        self.sequence += 1
        return Assignment(
            job="test", epoch=self.epoch, sequence=self.sequence,
            generation=fields.pop("generation", self.generation), **fields,
        )  # fmt: skip

    def begin(self, *nodes):
        """Start the next generation on these nodes; the assignment that said so."""
        self.generation += 1
        self.wait(lambda: self.state(nodes[0]).store_port not in {0, *self.used})
        self.used.add(self.state(nodes[0]).store_port)
        states = [self.state(node) for node in nodes]
        members = tuple(
            Member(node=node, launcher=state.launcher, address=state.address)
            for node, state in zip(nodes, states, strict=True)
        )
        world = World(
            members=members, ranks_per_node=states[0].spec.ranks_per_node,
            master_address=states[0].address, master_port=states[0].store_port,
        )  # fmt: skip
        assignment = self.assignment(world=world)
        for node in nodes:
            self.agents[node].assign(assignment)
        return assignment

    def stop(self, *nodes, kind=StopKind.NOW, grace=0.0):
        """Ask for no ranks."""
        assignment = self.assignment(stop=kind, stop_grace_seconds=grace)
        for node in nodes:
            self.agents[node].assign(assignment)

    def finish(self, *nodes, exit_code=0):
        """The job is over; the launchers' exit codes."""
        assignment = self.assignment(finished=True, exit_code=exit_code, reason="over")
        for node in nodes:
            self.agents[node].assign(assignment)
        return [self.processes[node].wait(PATIENCE_SECONDS) for node in nodes]

    def pids(self, node):
        return [rank.pid for rank in self.state(node).ranks if rank.phase is not RankPhase.EXITED]

    def trains(self, *nodes, generation=None, beyond=0):
        """Wait until every rank of the generation on these nodes has got beyond a step."""
        wanted = generation or self.generation

        def there():
            states = [self.state(node) for node in nodes]
            return all(
                state.generation == wanted
                and state.ranks
                and all(rank.first_step_at and rank.step > beyond for rank in state.ranks)
                for state in states
            )

        self.wait(there)

    def phase(self, node, phase):
        return self.wait(
            lambda: (
                (state := self.state(node)).phase is phase
                and state.generation == self.generation
                and state
            )
        )

    def trained(self):
        """What the first rank has written: (step, loss, generation)."""
        lines = self.losses.read_text().splitlines() if self.losses.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith("}")]
        return [(entry["step"], entry["loss"], entry["generation"]) for entry in entries]

    def close(self):
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
        for agent in self.agents.values():
            agent.close()


def memory_of(stage, node):
    """Where the launcher of a node keeps shards."""
    pid = stage.processes[node].pid
    [folder] = Path("/dev/shm").glob(f"aegis-run-{pid}-*")
    return folder / "memory"


def kept_steps(stage, node, tier):
    """The newest step that lies there, by rank."""
    found = [one for one in shelf.kept(memory_of(stage, node)) if one.path.parent.name == tier]
    return {rank: max(one.entry.step for one in found if one.entry.rank == rank)
            for rank in {one.entry.rank for one in found}}  # fmt: skip


@pytest.fixture
def stage(tmp_path):
    pytest.importorskip("torch", reason="needs torch: run `make setup`")
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def train(stage):
    """The example's command line, paced so that a test can look on."""

    def command(*more, steps=100_000, every=5, pace=0.02):
        return (
            EXAMPLE, "--steps", steps, "--checkpoint-every", every, "--step-seconds", pace,
            "--losses", stage.losses, *more,
        )  # fmt: skip

    return command


@pytest.fixture
def script(tmp_path):
    """A training script of the test's own."""

    def write(text, name="script.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def is_alive(pid):
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def run_alone(tmp_path):
    """Start `aegis run` in the test's folder; whatever is left of it ends with the test."""
    started = []

    def start(*words):
        command = [sys.executable, "-m", "aegis.cli.main", "run", "--log-dir", "logs"]
        with (tmp_path / "run.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *map(str, words)], stdout=log, stderr=log, cwd=tmp_path,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def losses():
    """Read what a script has written, a line of JSON for each step; half a line is left out."""

    def read(path):
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    return read


@pytest.fixture
def alive():
    return is_alive


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """The losses of the example under plain torchrun, never interrupted: {step: loss}."""
    pytest.importorskip("torch", reason="needs torch: run `make setup`")
    losses = tmp_path_factory.mktemp("plain") / "losses.jsonl"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
        str(EXAMPLE), "--steps", "60", "--checkpoint-every", "0", "--losses", str(losses),
    ]  # fmt: skip
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=240)
    entries = [json.loads(line) for line in losses.read_text().splitlines()]
    return {entry["step"]: entry["loss"] for entry in entries}
