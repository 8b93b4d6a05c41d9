"""A real agent process over simulated hardware, and a small controller that listens to it."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.asyncio.server import serve

from aegis.wire import Answer, Report, decode_as, encode
from aegis_agent.simulated import devices
from aegis_agent.simulated.library import build

GENEROUS_SECONDS = 30.0

# Agents whose children hang, crash and are waited for take minutes: `make test-integration` runs
# these, `make test` one story or more of each sense.
SLOW = {
    "test_bench",
    "test_cper",
    "test_gpu_events",
    "test_gpu_lies",
    "test_gpu_stalls",
    "test_gpu_survey",
    "test_gpu_versions",
    "test_helper",
    "test_kernel_log",
    "test_nvml",
    "test_ports",
    "test_validation",
}
STORIES = {  # of those, the ones that `make test` runs
    "test_a_card_that_falls_off_the_bus_is_lost_and_not_only_removed",
    "test_a_fatal_record_arrives_with_number_and_service_action",
    "test_a_line_is_a_fault_at_once_and_its_repetition_an_update",
    "test_a_lost_gpu_that_reads_again_is_healthy",
    "test_a_reset_hits_the_whole_hive_once",
    "test_a_healthy_node_is_tried_and_what_cannot_be_tried_is_said",
    "test_a_total_of_zero_is_no_reading",
    "test_an_agent_that_was_away_reads_on_where_it_stopped",
    "test_an_rdma_error_of_any_make_is_told_of_its_port",
    "test_an_uncorrectable_error_arrives_with_its_evidence",
    "test_one_hanging_gpu_is_unknown_and_the_others_stay_fresh",
}


def pytest_collection_modifyitems(items):
    """Mark what is slow."""
    for item in items:
        is_here = item.path.parent == Path(__file__).parent
        if is_here and item.path.stem in SLOW and item.originalname not in STORIES:
            item.add_marker(pytest.mark.slow)


class Controller:
    """Stores what agents report and says so, as the real one does."""

    def __init__(self, port=0, status=None):
        self.reports = []  # every Report, in order
        self.faults = {}  # number -> Fault, as stored
        self.assignments = ()
        self.orders = ()
        self.validations = ()
        self.status = status  # an HTTP status with which connections are refused
        self.headers = []
        self.storing = True
        self.ahead_seconds = 0.0  # of everybody else's clock
        self.port = port
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(GENEROUS_SECONDS)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self):
        return self.reports[-1].report

    def device(self, name):
        return next((device for device in self.last.devices if device.name == name), None)

    def source(self, name):
        """What the agent says of where it reads from; "" while it has not said so."""
        return dict(self.last.sources).get(name, "")

    def classes(self):
        return [fault.fault_class.value for _, fault in sorted(self.faults.items())]

    def wait(self, condition, what, seconds=GENEROUS_SECONDS):
        """Until the condition holds for what was reported."""
        until = time.monotonic() + seconds
        while not (self.reports and condition()):
            assert time.monotonic() < until, f"no sign of {what}; last: {self.reports[-1:]}"
            time.sleep(0.01)

    def wait_device(self, name, health):
        self.wait(lambda: self.device(name) and self.device(name).health == health,
                  f"{name} {health}")  # fmt: skip
        return self.device(name)

    def wait_surveyed(self, name):
        """What changes slowly on the GPU has been read."""
        self.wait(
            lambda: self.device(name) and "surveyed_at" in self.counters(name),
            f"a survey of {name}",
        )

    def wait_fresh(self, name):
        """The device is read anew."""
        before = self.device(name).read_at
        self.wait(lambda: self.device(name).read_at > before, f"{name} read anew")

    def gpu_conditions(self):
        """What lasts on the GPUs."""
        lasting = self.last.conditions
        return [one.fault_class.value for one in lasting if one.device.startswith("gpu")]

    def wait_gpu_conditions(self, *classes):
        """Exactly these last."""
        self.wait(lambda: self.gpu_conditions() == list(classes), f"conditions {classes}")

    def counters(self, name):
        """What was counted of the device."""
        return dict(self.device(name).counters)

    def wait_fault(self, name):
        """The first fault of this class."""
        self.wait(lambda: name in self.classes(), name)
        return next(f for _, f in sorted(self.faults.items()) if f.fault_class.value == name)

    def push(self, *assignments):
        """Tell connected agents what their launchers should be running."""
        self.assignments = assignments

    def stop(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(GENEROUS_SECONDS)

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serve(self._hear, "127.0.0.1", self.port, process_request=self._admit) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._stop.wait()

    def _admit(self, connection, request):
        self.headers.append((request.path, request.headers.get("Authorization")))
        return connection.respond(HTTPStatus(self.status), "no\n") if self.status else None

    async def _hear(self, connection):
        async for frame in connection:
            report = decode_as(Report, frame)
            self.reports.append(report)
            if self.storing:
                self.faults |= {spooled.number: spooled.fault for spooled in report.faults}
            answer = Answer(
                epoch=1,
                sent_at=time.time() + self.ahead_seconds,
                sequence=report.report.sequence,
                stored=max(self.faults, default=0),
                assignments=self.assignments,
                orders=self.orders,
                validations=self.validations,
            )
            await connection.send(encode(answer))


class AgentProcess:
    """`aegis agent`, started as the demo starts it."""

    def __init__(self, folder, controller_url, environment, *flags):
        self.socket = folder / "agent.sock"
        self.state_dir = folder / "agent"
        self.token_file = folder / "node.token"
        self.token_file.write_text("secret-of-n1\n")
        self._log_path = folder / "agent.log"
        self._log = self._log_path.open("a")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "aegis_agent.main", "--node", "n1"),
                *("--controller", controller_url, "--token-file", str(self.token_file)),
                *("--state-dir", str(self.state_dir), "--socket", str(self.socket)),
                *("--poll-seconds", "0.1", *flags),
            ],
            env=os.environ | environment,
            stderr=self._log,
        )

    @property
    def log(self):
        return self._log_path.read_text()

    def wait_log(self, text, seconds=GENEROUS_SECONDS):
        until = time.monotonic() + seconds
        while text not in self.log:
            assert time.monotonic() < until, f"{text!r} is not in the log:\n{self.log}"
            time.sleep(0.01)

    def children(self):
        """The prober and its children, as pids."""
        found, queue = [], [self.process.pid]
        while queue:
            for tasks in Path(f"/proc/{queue.pop()}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    pids = [int(pid) for pid in tasks.read_text().split()]
                    found += pids
                    queue += pids
        return found

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(GENEROUS_SECONDS)
        finally:
            self.process.kill()  # one that does not end when told fails its test and is not left
            self._log.close()


@pytest.fixture(scope="session")
def rocm(tmp_path_factory):
    """A folder for ROCM_PATH with the simulated library."""
    folder = tmp_path_factory.mktemp("rocm")
    build(folder)
    return folder


@pytest.fixture
def gpus(tmp_path):
    """Two simulated GPUs."""
    folder = tmp_path / "gpus"
    devices.init(folder, 2)
    return folder


@pytest.fixture
def environment(rocm, gpus):
    return {"ROCM_PATH": str(rocm), "ROCM_HOME": str(rocm), "AEGIS_SIM_AMDSMI": str(gpus)}


@pytest.fixture
def controllers():
    """Starts controllers, and ends them."""
    started = []

    def start(**options):
        started.append(Controller(**options))
        return started[-1]

    yield start
    for controller in started:
        controller.stop()


@pytest.fixture
def controller(controllers):
    return controllers()


@pytest.fixture
def start_agent(tmp_path, controller, environment):
    """Starts agents in one folder, and ends them."""
    started = []

    def start(*flags, url=controller.url, environment=environment):
        started.append(AgentProcess(tmp_path, url, environment, *flags))
        return started[-1]

    yield start
    for agent in started:
        agent.end()


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def seen(start_agent, controller):
    """An agent that has read both GPUs, what changes slowly too: whatever follows is a change."""
    agent = start_agent()
    for name in ("gpu0", "gpu1"):
        controller.wait_device(name, "healthy")
        controller.wait_surveyed(name)
    return agent
