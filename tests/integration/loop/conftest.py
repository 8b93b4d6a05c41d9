"""One controller, three agents and a real job, as the demo starts them, for a whole test module."""

import os
import signal
import socket

import pytest

from aegis.cli.demo.fleet import NODES, Fleet, simulate
from aegis.cli.demo.network import SimulatedSysfs


@pytest.fixture(scope="module")
def fleet(request, tmp_path_factory):
    """A job training on two of three nodes, past its first checkpoints; everything ends with it.

    A module may say by CHECKPOINT_EVERY how many steps lie between two of them.
    """
    every = getattr(request.module, "CHECKPOINT_EVERY", 10)
    tmp_path = tmp_path_factory.mktemp("fleet")
    pytest.importorskip("torch", reason="needs torch: run `make setup`")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stage = Fleet(
        folder=tmp_path,
        network=SimulatedSysfs(tmp_path / "sys"),
        port=port,
        steps_max=100_000,
        checkpoint_every=every,
        step_seconds=0.05,
    )
    try:
        simulate("build", str(tmp_path / "rocm"))
        stage.start_controller()
        for node in NODES:
            stage.start_node(node)
        stage.wait(lambda: stage.step() >= 2.5 * every, 120, "the job to train")
        yield stage
    finally:
        stage.close()


@pytest.fixture
def kill(fleet):
    """End one of the fleet's programs with SIGKILL, as a crash would."""

    def end(name):
        process = fleet.processes.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    return end
