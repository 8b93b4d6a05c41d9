"""Real launchers that speak to the controller themselves, two of one job on one node."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: run `make setup`")

SCRIPT = """
import time
from aegis.worker import step

for number in range(1, 100_000):
    step(number)
    time.sleep(0.05)
"""


@pytest.fixture
def launch(controller, tmp_path, cleanup):
    """Start `aegis run` as node n1, without an agent."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "token").write_text(controller.mint("n1"))

    def start(name):
        command = [
            *(sys.executable, "-m", "aegis.cli.main", "run", "--job", "llama", "--node", "n1"),
            *("--controller", controller.url, "--token-file", str(tmp_path / "token")),
            *("--nnodes", "1", "--nproc-per-node", "1", "--log-dir", str(tmp_path / name)),
            *("--address", "127.0.0.1", str(tmp_path / "script.py")),
        ]
        with (tmp_path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
        cleanup.callback(process.wait)
        cleanup.callback(process.kill)
        return process

    return start


def test_a_second_run_on_the_node_is_turned_away_and_the_first_trains_on(
    controller, launch, tmp_path, patiently
):
    """It takes nobody's place: no incident, no restart, and the first obeys as before."""

    def step():
        return next((one["step"] for one in controller.json("/jobs")["items"]), 0)

    first = launch("first")
    patiently(lambda: step() > 5, "the first to train")
    before = controller.json("/jobs/llama")
    assert launch("second").wait(60) == 6
    said = (tmp_path / "second.log").read_text()
    assert "another launcher of job llama speaks for node n1: stop it first" in said
    assert "training goes on" not in said
    reached = step()
    patiently(lambda: step() > reached + 5, "the first to train on")
    after = controller.json("/jobs/llama")
    assert [after["generation"], after["restarts"]] == [before["generation"], 0]
    assert controller.json("/incidents")["items"] == []
    assert controller.post("/jobs/llama:stop", {"reason": "enough"}).status_code == 200
    assert first.wait(60) is not None
