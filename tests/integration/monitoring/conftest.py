"""A real controller with something to show, scraped by a real Prometheus as the example says."""

import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from websockets.sync.client import connect

from aegis.model.fault import Condition, Fault, FaultClass, Severity
from aegis.model.job import JobSpec, LauncherState
from aegis.model.node import Device, Health, NodeReport, Sender
from aegis.wire import Answer, Report, SpooledFault, decode_as, encode

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS = ROOT / "dashboards" / "prometheus"
PATIENCE_SECONDS = 60


def wait_for(ready, what):
    """The first true answer of `ready`, within a generous limit."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (result := ready()):
        assert time.monotonic() < until, f"waited {PATIENCE_SECONDS} s for {what}"
        time.sleep(0.1)
    return result


class Controller:
    """One controller process."""

    def __init__(self, folder):
        self.data = folder / "controller"
        with (folder / "controller.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "aegis.cli.main", "controller",
                    "--data", self.data, "--listen", "127.0.0.1:0",
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, (folder / "controller.log").read_text()
        self.address = line.split(" at http://")[1].split("/ ")[0]
        self.url = f"http://{self.address}"

    def mint(self, node):
        """A token for a node's agent."""
        token = (self.data / "admin.token").read_text().strip()
        answer = httpx.post(
            f"{self.url}/api/v1/tokens",
            json={"role": "node", "node": node},
            headers={"Authorization": f"Bearer {token}"},
        )
        return answer.raise_for_status().json()["token"]

    def metrics(self):
        """The text that Prometheus reads."""
        return httpx.get(f"{self.url}/metrics").raise_for_status().text

    def close(self):
        end(self.process)
        self.process.stdout.close()


def end(process):
    """End a program that this test started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def launcher_of(node):
    """A launcher of a job that waits for a second node."""
    spec = JobSpec(name="llama", nodes=2, ranks_per_node=8, owner="ml")
    return LauncherState(spec=spec, launcher=f"{node}-1", address="127.0.0.1", store_port=1)


def report_of(node):
    """A node with a healthy GPU, a broken one, a silent one and a link that is down."""
    at = time.time()
    ecc = (("ecc_correctable", 5), ("ecc_uncorrectable", 1), ("ecc_deferred", 0))
    devices = (
        Device(name="gpu0", kind="gpu", health=Health.HEALTHY, read_at=at, counters=ecc),
        Device(name="gpu1", kind="gpu", health=Health.UNHEALTHY, read_at=at, counters=ecc),
        Device(name="gpu2", kind="gpu", health=Health.UNKNOWN),
        Device(
            name="fab0", kind="nic", health=Health.UNHEALTHY, read_at=at,
            counters=(("carrier_changes", 4),),
        ),
    )  # fmt: skip
    return NodeReport(
        node=node,
        sender=Sender.AGENT,
        session=0,
        sequence=1,
        version="0.1.0",
        simulated=True,
        devices=devices,
        conditions=(Condition(fault_class=FaultClass.NIC_LINK_DOWN, device="fab0", since=at),),
        launchers=(launcher_of(node),),
    )


def fault_of(node):
    """What the broken GPU's probe saw."""
    return Fault(
        fault_class=FaultClass.GPU_ECC_UNCORRECTABLE,
        severity=Severity.ERROR,
        node=node,
        device="gpu1",
        observed_at=time.time(),
        simulated=True,
    )


@pytest.fixture(scope="session")
def controller(tmp_path_factory):
    """A controller that knows a broken node, a job that waits, and an open incident."""
    started = Controller(tmp_path_factory.mktemp("controller"))
    with ExitStack() as stack:
        stack.callback(started.close)
        for node in ("n1", "n2"):
            stream = stack.enter_context(
                connect(
                    f"ws://{started.address}/api/v1/agent/stream?node={node}&sender=agent",
                    additional_headers={"Authorization": f"Bearer {started.mint(node)}"},
                )
            )
            report = Report(
                sent_at=time.time(),
                report=report_of(node),
                origin=f"spool-{node}",
                faults=(SpooledFault(number=1, fault=fault_of(node)),) if node == "n1" else (),
            )
            stream.send(encode(report))
            decode_as(Answer, stream.recv(timeout=PATIENCE_SECONDS))
        wait_for(lambda: "aegis_job_info{" in started.metrics(), "the job to be known")
        yield started


class Prometheus:
    """One Prometheus process over the shipped rules."""

    def __init__(self, folder, controller):
        config = yaml.safe_load((PROMETHEUS / "scrape.example.yaml").read_text())
        config["global"] = {"evaluation_interval": "1s"}
        config["rule_files"] = [str(PROMETHEUS / Path(name).name) for name in config["rule_files"]]
        (scrape,) = config["scrape_configs"]
        scrape |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
        scrape["static_configs"] = [{"targets": [controller.address]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'tsdb'}", "--web.listen-address=127.0.0.1:0",
                    "--log.level=info",
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self.url = wait_for(self._address, "Prometheus to listen")
        wait_for(lambda: httpx.get(f"{self.url}/-/ready").is_success, "Prometheus to be ready")

    def _address(self):
        assert self.process.poll() is None, self._log.read_text()
        for line in self._log.read_text().splitlines():
            if 'msg="Listening on"' in line and "127.0.0.1" in line:
                return "http://" + line.split("address=")[1].split()[0]
        return None

    def query(self, expression):
        """The result of an instant query; a mistake in it is an error."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=30)
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        return answer.json()["data"]["result"]


@pytest.fixture(scope="session")
def prometheus(controller, tmp_path_factory):
    """A Prometheus that has scraped the controller and evaluated all rules."""
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not installed")
    started = Prometheus(tmp_path_factory.mktemp("prometheus"), controller)
    try:
        recorded = "instance:aegis_agent_silent:ratio"
        wait_for(lambda: started.query(recorded), "the recording rules")
        wait_for(lambda: started.query("rate(aegis_event_log_events_total[1m])"), "two scrapes")
        yield started
    finally:
        end(started.process)
