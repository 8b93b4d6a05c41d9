"""The agent and the real controller."""

import subprocess
import sys
import time

import httpx
import pytest

from aegis_agent.simulated import devices


class Program:
    """`aegis controller` over one folder, started as often as a test wants."""

    def __init__(self, folder, port):
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        self.log = (folder.parent / "controller.log").open("ab")

    def start(self):
        listen = self.url.removeprefix("http://")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "aegis.cli.main", "controller"),
                *("--data", str(self.folder), "--listen", listen),
            ],
            stdout=self.log,
            stderr=self.log,
        )
        self.wait(lambda: self.get("/readyz").status_code == 200)

    def get(self, path):
        try:
            return httpx.get(self.url + path, timeout=10)
        except httpx.TransportError:
            return httpx.Response(503)

    def items(self, path):
        answer = self.get(f"/api/v1{path}")
        return answer.json()["items"] if answer.status_code == 200 else []

    def mint(self, node):
        token = (self.folder / "admin.token").read_text().strip()
        answer = httpx.post(
            f"{self.url}/api/v1/tokens",
            json={"role": "node", "node": node},
            headers={"Authorization": f"Bearer {token}"},
        )
        return answer.raise_for_status().json()["token"]

    def wait(self, condition, seconds=60):
        until = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < until, (self.folder.parent / "controller.log").read_text()
            time.sleep(0.05)
        return result

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def program(tmp_path, free_port):
    program = Program(tmp_path / "controller", free_port)
    program.start()
    yield program
    program.kill()
    program.log.close()


def faults(program):
    incidents = program.items("/incidents?limit=500")
    return [fault["fault_class"] for incident in incidents for fault in incident["faults"]]


def test_a_fault_becomes_an_incident_also_when_the_controller_was_dead(program, start_agent, gpus):
    """From the register file to the REST API; what happens in an outage comes once, afterwards."""
    agent = start_agent(url=program.url)
    agent.wait_log("The controller refuses this node's token")
    agent.token_file.write_text(program.mint("n1"))
    agent.wait_log("Connected to the controller.")
    devices.set_counts(gpus, 0, "umc", (0, 1, 0))
    program.wait(lambda: faults(program) == ["gpu.ecc.uncorrectable"])
    program.kill()
    devices.set_counts(gpus, 1, "gfx", (0, 2, 0))
    agent.wait_log("device=gpu1")
    program.start()
    program.wait(lambda: faults(program) == ["gpu.ecc.uncorrectable"] * 2)
    (node,) = program.items("/nodes")
    health = {one["name"]: one["health"] for one in node["devices"] if one["kind"] == "gpu"}
    assert health == {
        "gpu0": "unhealthy",
        "gpu1": "unhealthy",
    }
    assert node["simulated"]
