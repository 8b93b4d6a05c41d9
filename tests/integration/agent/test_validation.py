"""A real agent that is told to look closely at its node: simulated GPUs, real ranks over gloo."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aegis.model.validation import Depth, ValidationOrder
from aegis_agent.simulated import devices

VALIDATION_SECONDS = 120.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def order(**changes):
    """A good order to validate."""
    plain = {
        "id": f"validate/n1@{time.time():.6f}",
        "node": "n1",
        "boot_id": BOOT_ID,
        "epoch": 1,
        "depth": Depth.LIGHT,
        "expires_at": time.time() + VALIDATION_SECONDS,
        "reason": "module exchanged",
    }
    return ValidationOrder(**(plain | changes))


def is_learned(spool):
    """Whether the agent remembers what is here."""
    with contextlib.closing(sqlite3.connect(f"file:{spool}?mode=ro", uri=True)) as database:
        return database.execute("SELECT 1 FROM memory WHERE device = 'baseline'").fetchone()


def result(controller):
    """The last word on the order that stands."""
    return next(iter(controller.last.validation_results), None)


def ended(controller):
    controller.wait(
        lambda: result(controller) and result(controller).state != "working",
        "the end of the validation",
        VALIDATION_SECONDS,
    )
    return result(controller), {one.name: one for one in result(controller).steps}


@pytest.fixture
def here(start_agent, controller):
    """An agent that has seen its GPUs, and remembers them."""
    agent = start_agent("--fabric", "none")
    controller.wait_device("gpu1", "healthy")
    deadline = time.monotonic() + 60
    while not is_learned(agent.state_dir / "spool.sqlite"):
        assert time.monotonic() < deadline, "nothing was learned"
        time.sleep(0.1)
    return agent


def test_a_healthy_node_is_tried_and_what_cannot_be_tried_is_said(here, controller):
    """Ranks meet for real; the GPUs are simulated, so that their memory could not be told."""
    assert controller.last.validates
    controller.validations = (order(),)
    told, steps = ended(controller)
    assert told.state == "unknown", told
    assert "gpu memory could not be told" in told.text
    assert {name for name, one in steps.items() if one.state == "pass"} == {
        "devices",
        "configuration",
        "conditions",
        "host memory",
        "all-reduce",
        "counters",
    }
    assert (steps["devices"].value, steps["devices"].gate) == ("2 gpu", "2 gpu")
    controller.validations = ()
    controller.wait(lambda: not controller.last.validation_results, "nothing is told any more")


def test_a_partition_mode_that_fell_back_and_a_lost_gpu_fail(here, controller, gpus):
    """The result names what was there before, and what is there now."""
    devices.set_lost(gpus, 1, lost=True)
    controller.wait_device("gpu1", "unhealthy")
    controller.validations = (order(),)
    told, steps = ended(controller)
    assert told.state == "failed", told
    assert steps["devices"].state == "fail"
    assert steps["devices"].text.startswith("gpu1 is unhealthy")
    assert (steps["devices"].value, steps["devices"].gate) == ("1 gpu", "2 gpu")
    assert steps["conditions"].text == "these last: gpu.lost on gpu1"


def test_an_agent_that_dies_in_the_middle_begins_anew(here, start_agent, controller):
    """Its child dies with it; the next agent takes the order as if it were the first."""
    controller.validations = (order(),)
    controller.wait(lambda: result(controller), "the beginning of the validation")
    here.end(signal.SIGKILL)
    start_agent("--fabric", "none")
    told, steps = ended(controller)
    assert told.state == "unknown", told
    assert steps["all-reduce"].state == "pass"
    assert steps["devices"].state == "pass"


def test_an_order_of_another_boot_or_too_old_is_not_begun(here, controller):
    """The answer says why, and nothing was tried."""
    controller.validations = (order(boot_id="another"),)
    told, steps = ended(controller)
    assert (told.state, steps) == ("aborted", {})
    assert "has started anew" in told.text
    late = order(expires_at=time.time() - 5)
    controller.validations = (late,)
    controller.wait(lambda: result(controller) and result(controller).id == late.id, "the answer")
    told, steps = ended(controller)
    assert (told.state, steps) == ("aborted", {})
    assert "expired" in told.text


def test_a_full_validation_runs_the_checks_for_it(tmp_path, start_agent, controller):
    """A site check that is run only then fails the node; it never runs otherwise."""
    config = tmp_path / "agent.yaml"
    config.write_text(
        "fabric: none\nchecks:\n"
        f"  - {{name: rccl, when: return, command: [sh, -c, 'echo ran >> {tmp_path}/ran; "
        "echo busbw 180 GB/s where 310 are wanted; exit 1']}\n"
    )
    start_agent("--config", str(config))
    controller.wait_device("gpu1", "healthy")
    assert not (tmp_path / "ran").exists()
    controller.validations = (order(depth=Depth.FULL),)
    told, steps = ended(controller)
    assert told.state == "failed"
    assert steps["check rccl"].text == "host: busbw 180 GB/s where 310 are wanted"
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_by_hand_it_tells_each_step_beside_the_agent(here, tmp_path, environment):
    """`aegis validate` reads what the agent remembers, disturbs it not, and says by its exit."""
    words = ("validate", "--node", "n1", "--fabric", "none", "-o", "json")
    done = subprocess.run(
        [sys.executable, "-m", "aegis.cli.main", *words, "--state-dir", str(here.state_dir)],
        capture_output=True,
        text=True,
        timeout=VALIDATION_SECONDS,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 2, done.stderr
    told = json.loads(done.stdout)
    states = {one["name"]: one["state"] for one in told["steps"]}
    assert (told["depth"], told["state"]) == ("light", "unknown")
    assert (states["devices"], states["all-reduce"], states["gpu memory"]) == (
        "pass",
        "pass",
        "unknown",
    )
    assert here.process.poll() is None
