"""A real `aegis controller` process on a free port, and agents that speak to it by WebSocket."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlencode

import httpx
import pytest
from websockets.sync.client import connect

from aegis.model.fault import Evidence, Fault, FaultClass, Severity
from aegis.model.job import JobSpec, LauncherState
from aegis.model.node import Device, Health, NodeReport, Sender
from aegis.wire import Report, SpooledFault, decode, encode

PATIENCE_SECONDS = 60


def wait_for(ready, what, seconds=PATIENCE_SECONDS):
    """The first true answer of `ready`, within a generous limit."""
    until = time.monotonic() + seconds
    while not (result := ready()):
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.05)
    return result


class Program:
    """One controller process over one folder, started as often as a test wants."""

    def __init__(self, data, listen="127.0.0.1:0"):
        self.data, self.listen = data, listen
        self.process, self.url, self.flags = None, "", []
        self.log = data.parent / f"{data.name}.log"

    def start(self, *flags):
        self.flags = list(flags)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(*flags), stdout=subprocess.PIPE, stderr=log, text=True
            )
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.said = line
        self.url = line.split(" at ")[1].split("/ ")[0]
        self.listen = self.url.removeprefix("http://")
        return self

    def command(self, *flags):
        base = [sys.executable, "-m", "aegis.cli.main", "controller"]
        return [*base, "--data", str(self.data), "--listen", self.listen, *map(str, flags)]

    def refused(self, *flags):
        """Start it where it must refuse: its exit code and what it says."""
        done = subprocess.run(
            self.command(*flags), capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stderr.strip().splitlines()[-1]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        """End it as systemd does; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=PATIENCE_SECONDS)
        self.process.stdout.close()
        return code

    @property
    def admin_token(self):
        return (self.data / "admin.token").read_text().strip()

    def get(self, path, **headers):
        return httpx.get(self.url + path, headers=headers, timeout=30)

    def json(self, path):
        answer = self.get("/api/v1" + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path, body, token=None, **headers):
        token = self.admin_token if token is None else token
        if token:
            headers["authorization"] = f"Bearer {token}"
        return httpx.post(self.url + "/api/v1" + path, json=body, headers=headers, timeout=30)

    def mint(self, node):
        answer = self.post("/tokens", {"role": "node", "node": node})
        assert answer.status_code == 201, answer.text
        return answer.json()["token"]

    def metric(self, name):
        """All samples of a metric: label text to value."""
        lines = self.get("/metrics").text.splitlines()
        found = [line.rsplit(" ", 1) for line in lines if line.startswith(name)]
        return {key.removeprefix(name): float(value) for key, value in found}

    def cli(self, *words, token_file=None):
        command = [sys.executable, "-m", "aegis.cli.main", *words, "--controller", self.url]
        command += ["--token-file", str(token_file or self.data / "admin.token")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def state(self):
        """Everything the controller believes, in an order that does not depend on hashing."""
        nodes, jobs = self.json("/nodes")["items"], self.json("/jobs")["items"]
        incidents = self.json("/incidents?limit=500")["items"]
        for job in jobs:
            job["awaiting"].sort()
            job["ended_launchers"].sort()
        return {"nodes": nodes, "jobs": jobs, "incidents": incidents}


class Agent:
    """A node's agent as the protocol knows it: it reports, and is answered."""

    def __init__(self, program, node, token=None, sender=Sender.AGENT, spool="spool-1", **names):
        self.program, self.node, self.sender, self.spool = program, node, sender, spool
        self.token = token or program.mint(node)
        self.sequence, self.socket, self._open = 0, None, ExitStack()
        self.names = {"node": node, "sender": sender.value, **names}  # of the stream
        self.report = NodeReport(
            node=node,
            sender=sender,
            session=0,
            sequence=0,
            boot_id="boot-1",
            version="0.1.0",
            simulated=True,
            devices=tuple(
                Device(name=f"gpu{n}", kind="gpu", health=Health.HEALTHY, read_at=time.time())
                for n in range(2)
            ),
        )

    def connect(self):
        address = self.program.url.replace("http", "ws", 1) + "/api/v1/agent/stream"
        self.socket = self._open.enter_context(
            connect(
                f"{address}?{urlencode(self.names)}",
                additional_headers={"Authorization": f"Bearer {self.token}"},
                open_timeout=30,
            )
        )
        return self

    def send(self, *faults, **changes):
        """Report, with these faults still in the spool; returns the answer to it."""
        self.sequence += 1
        self.report = replace(self.report, **changes)
        frame = Report(
            sent_at=time.time(),
            report=replace(self.report, sequence=self.sequence),
            origin=self.spool,
            faults=tuple(SpooledFault(number=n, fault=fault) for n, fault in faults),
        )
        self.socket.send(encode(frame))
        while True:
            answer = self.receive()
            if answer.sequence == self.sequence:
                return answer

    def receive(self):
        return decode(self.socket.recv(timeout=PATIENCE_SECONDS))

    def fault(self, device="gpu0", fault_class=FaultClass.GPU_ECC_UNCORRECTABLE, **changes):
        fault = Fault(
            fault_class=fault_class,
            severity=Severity.ERROR,
            node=self.node,
            device=device,
            observed_at=time.time(),
            boot_id="boot-1",
            simulated=True,
            evidence=(
                Evidence(source="test", text="uncorrectable errors rose", before="0", after="1"),
            ),
        )
        return replace(fault, **changes)

    def close(self):
        self._open.close()

    def launcher(self, job="llama", **changes):
        """An idle launcher of a job that wants one node, ready to start."""
        spec = JobSpec(name=job, nodes=1, ranks_per_node=1)
        idle = LauncherState(
            spec=spec,
            launcher=f"launcher-{self.node}",
            address="127.0.0.1",
            store_port=29500,
            standbys=1,
        )
        return replace(idle, **changes)


@pytest.fixture
def cleanup():
    """What a test opened, closed after it whatever happened."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make(tmp_path, cleanup):
    """Make a controller over a folder of this test; nothing runs yet."""

    def program(name="data", **options):
        made = Program(tmp_path / name, **options)
        cleanup.callback(lambda: made.process is None or made.stop())
        return made

    return program


@pytest.fixture
def controller(make):
    """A running controller."""
    return make().start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One for a whole module, for tests that leave each other alone."""
    program = Program(tmp_path_factory.mktemp("shared") / "data").start()
    yield program
    program.stop()


@pytest.fixture
def agent(cleanup):
    """Connect an agent to a controller."""

    def connected(program, node, **options):
        made = Agent(program, node, **options)
        cleanup.callback(made.close)
        return made.connect()

    return connected


@pytest.fixture
def patiently():
    return wait_for


@pytest.fixture
def policy(tmp_path):
    """Write a policy file."""

    def write(text):
        file = tmp_path / "policy.yaml"
        file.write_text(text)
        return file

    return write


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root: it mounts a small file system"))
