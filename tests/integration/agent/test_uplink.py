"""The way to the controller: outages, refusals, and the command itself."""

import json
import os
import re
import socket
import subprocess
import sys
import time

import pytest

from aegis_agent.simulated import devices


def test_it_says_who_it_is(start_agent, controller):
    """Node, sender and token, as the controller's stream wants them."""
    start_agent("--label", "rack=r1", "--label", "switch=s3")
    controller.wait(lambda: True, "a report")
    path, authorization = controller.headers[0]
    boot = controller.last.boot_id
    assert path == f"/api/v1/agent/stream?node=n1&sender=agent&speaker={boot}"
    assert authorization == "Bearer secret-of-n1"
    assert (controller.last.node, controller.last.sender) == ("n1", "agent")
    assert controller.last.labels == (("rack", "r1"), ("switch", "s3"))
    assert boot


def test_an_outage_loses_nothing(start_agent, controllers, free_port, gpus):
    """No controller for a while: faults wait in the spool and arrive with the next one."""
    agent = start_agent(url=f"http://127.0.0.1:{free_port}")
    agent.wait_log("The controller cannot be reached; trying on.")
    agent.wait_log("GPUs are read.")
    first = controllers(port=free_port)
    first.wait_device("gpu1", "healthy")
    first.stop()
    devices.set_counts(gpus, 1, "umc", (0, 1, 0))
    agent.wait_log("class=gpu.ecc.uncorrectable")
    second = controllers(port=free_port)
    assert second.wait_fault("gpu.ecc.uncorrectable").device == "gpu1"
    second.wait(lambda: not second.reports[-1].faults, "the end of the repetition")
    sequences = [report.report.sequence for report in second.reports]
    assert sequences == sorted(set(sequences))


def test_what_is_not_stored_is_sent_again(start_agent, controller, gpus):
    """A controller that has not committed yet confirms nothing; nothing is forgotten."""
    controller.storing = False
    start_agent()
    controller.wait_device("gpu0", "healthy")
    devices.set_counts(gpus, 0, "umc", (0, 1, 0))
    repeated = 3
    controller.wait(
        lambda: sum(len(report.faults) for report in controller.reports) >= repeated,
        "the fault, again and again",
    )
    numbers = {spooled.number for report in controller.reports for spooled in report.faults}
    assert len(numbers) == 1
    controller.storing = True
    controller.wait(lambda: not controller.reports[-1].faults, "the end of the repetition")


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_one_clear_sentence(start_agent, controllers, status):
    """It names the token file and how to get another, once, and goes on trying."""
    refusing = controllers(status=status)
    agent = start_agent(url=refusing.url)
    agent.wait_log("The controller refuses this node's token")
    tries = len(refusing.headers)
    agent_log = agent.log
    while len(refusing.headers) < tries + 2:
        agent.wait_log("refuses")
    assert "`aegis nodes token n1` mints a new one." in agent_log
    assert f"token_file={agent.token_file}" in agent_log
    assert agent.log.count("refuses this node's token") == 1


def test_a_name_that_another_machine_has_is_one_clear_sentence(start_agent, controllers):
    """It says what to do, and goes on trying: the other may have been the wrong one."""
    refusing = controllers(status=409)
    agent = start_agent(url=refusing.url)
    agent.wait_log("Another machine speaks for n1; trying on. Give each its own --node.")
    tries = len(refusing.headers)
    while len(refusing.headers) < tries + 2:
        agent.wait_log("Another machine")
    assert agent.log.count("Another machine") == 1


@pytest.mark.parametrize("content", [b"\x99\xff\n", b"two\nlines\n", "tök".encode()])
def test_a_file_that_holds_no_token_is_said_and_survived(start_agent, free_port, content):
    """Someone named the wrong file: the agent says which, and tries again."""
    agent = start_agent(url=f"http://127.0.0.1:{free_port}")
    agent.token_file.write_bytes(content)
    agent.wait_log("holds no token")
    assert agent.process.poll() is None


def test_a_token_that_comes_later_is_used(start_agent, controller):
    """The node was started before its token was put there."""
    agent = start_agent()
    controller.wait(lambda: True, "a report")
    agent.end()
    controller.reports.clear()
    again = start_agent()
    again.token_file.unlink()
    again.wait_log("The token file cannot be used")
    again.token_file.write_text("another\n")
    controller.wait(lambda: controller.headers[-1][1] == "Bearer another", "the new token")


def once(*flags, **environment):
    return subprocess.run(
        [sys.executable, "-m", "aegis_agent.main", "--node", "n1", *flags],
        env=os.environ | environment, check=False, capture_output=True, text=True,
    )  # fmt: skip


def test_one_look_prints_the_report(environment, tmp_path):
    """`--once -o json` is what would be sent; nothing is written and nobody is asked."""
    told = once("--once", "-o", "json", "--state-dir", str(tmp_path / "state"), **environment)
    report = json.loads(told.stdout)
    devices = report["report"]["devices"]
    assert [one["name"] for one in devices if one["kind"] == "gpu"] == ["gpu0", "gpu1"]
    assert report["report"]["simulated"]
    assert not (tmp_path / "state").exists()


def test_one_look_as_a_table(environment):
    """For people."""
    told = once("--once", **environment)
    assert "simulated hardware" in told.stdout
    assert "gpu1    gpu   healthy" in told.stdout


def test_a_second_agent_is_refused(start_agent, controller, tmp_path):
    """The spool and the socket belong to the one that runs."""
    agent = start_agent()
    controller.wait(lambda: True, "a report")
    twice = once("--state-dir", str(agent.state_dir), "--socket", str(tmp_path / "other.sock"))
    assert (twice.returncode, twice.stdout) == (1, "")
    assert f"another agent is using {agent.state_dir}" in twice.stderr
    twice = once("--state-dir", str(tmp_path / "other"), "--socket", str(agent.socket))
    assert twice.returncode == 1
    assert f"another agent listens on {agent.socket}" in twice.stderr


def test_wrong_settings_are_refused(tmp_path):
    """One sentence, exit code 2."""
    config = tmp_path / "agent.yaml"
    config.write_text("fabrik: [fab0]\n")
    told = once("--config", str(config))
    assert told.returncode == 2
    assert "unknown key 'fabrik'; the keys are node, controller," in told.stderr
    told = once("--poll-seconds", "soon")
    assert told.returncode == 2
    assert "must be between 0.05 and 3600 seconds, not 'soon'" in told.stderr


def test_systemd_is_told(start_agent, controller, environment, tmp_path):
    """Ready, status, a sign of life from the loop itself, and the end."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(30)
        agent = start_agent(environment=environment | {"NOTIFY_SOCKET": path})
        assert listener.recv(4096) == b"READY=1"
        until, status = time.monotonic() + 60, ""
        while not re.search(r"[2-9]\d* of \d+ devices healthy, 0 launchers, connected to", status):
            assert time.monotonic() < until, status
            status = message = listener.recv(4096).decode()
            assert message.startswith("WATCHDOG=1")
        agent.process.terminate()
        while message != "STOPPING=1":
            message = listener.recv(4096).decode()
    assert agent.process.wait(30) == 0
    assert not agent.socket.exists()


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("a small file system is mounted: needs root")
    folder = tmp_path / "agent"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False
    ).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.root
def test_a_full_disk_is_told_and_stops_nothing(tiny_disk, start_agent, controller, gpus):
    """Faults go on from memory; with room again the condition ends."""
    start_agent()
    controller.wait_device("gpu0", "healthy")
    ballast = tiny_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    count = 0

    def is_told():
        nonlocal count
        count += 1
        devices.set_counts(gpus, 0, "umc", (count, 0, 0))
        return any(c.fault_class == "host.disk.full" for c in controller.last.conditions)

    controller.wait(is_told, "the full disk")
    devices.set_counts(gpus, 1, "umc", (0, 1, 0))
    controller.wait_fault("gpu.ecc.uncorrectable")
    controller.wait_fault("host.disk.full")
    ballast.unlink()
    controller.wait(lambda: not controller.last.conditions, "the end of the condition")
