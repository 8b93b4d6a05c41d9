"""From an error in a register to a GPU that was reset: controller, agent and helper, all real."""

import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from aegis_agent.simulated import devices
from aegis_agent.simulated.library import build

GENEROUS_SECONDS = 90.0
ME = pwd.getpwuid(os.getuid()).pw_name
RULES = """\
apiVersion: aegis/v1
kind: RuleSet
name: test
rules:
  - id: ecc
    title: Uncorrectable memory error
    class: gpu.ecc.uncorrectable
    remedy: drain_now
    attempts: 1
    if_fails: [{remedy: reset_domain, attempts: 1}, {remedy: reboot, attempts: 1}]
"""


class Node:
    """A controller, and a node with its agent, its helper and two simulated GPUs."""

    def __init__(self, folder):
        self.folder, self.gpus = folder, folder / "gpus"
        self._programs, self._threads = [], []
        rocm = build(folder / "rocm").parents[1]
        devices.init(self.gpus, 2)
        self._environment = os.environ | {
            "ROCM_PATH": str(rocm),
            "ROCM_HOME": str(rocm),
            "AEGIS_SIM_AMDSMI": str(self.gpus),
        }
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        (folder / "policy.yaml").write_text("mode: enforce\n")
        (folder / "rules").mkdir()
        (folder / "rules" / "test.yaml").write_text(RULES)
        self._run(
            *("aegis.cli.main", "controller", "--data", folder / "data"),
            *("--listen", self.url.removeprefix("http://"), "--rules", folder / "rules"),
            *("--policy", folder / "policy.yaml"),
        )
        self.wait(lambda: self.get("/api/v1/meta"), "the controller")
        token = subprocess.run(
            [
                *(sys.executable, "-m", "aegis.cli.main", "nodes", "token", "n1"),
                *("--controller", self.url, "--token-file", folder / "data" / "admin.token"),
            ],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        (folder / "node.token").write_text(token.stdout)
        self._listen(folder / "helper.sock")
        self._run(
            *("aegis_agent.main", "--node", "n1", "--controller", self.url),
            *("--token-file", folder / "node.token", "--state-dir", folder / "agent"),
            *("--socket", folder / "agent.sock", "--helper-socket", folder / "helper.sock"),
            *("--poll-seconds", "0.2", "--fabric", "none"),
        )

    def _run(self, *words, stdin=None):
        program = subprocess.Popen(
            [sys.executable, "-m", *map(str, words)], env=self._environment, stdin=stdin
        )
        self._programs.append(program)

    def _listen(self, path):
        """As systemd does it: a process for each connection."""
        (self.folder / "helper").mkdir()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

        def accept():
            while True:
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return
                with connection:
                    self._run(
                        *("aegis_agent.helper", "--user", ME, "--node", "n1"),
                        *("--state-dir", self.folder / "helper"),
                        *("--reboot-command", "false", "--reboot-delay-seconds", "0"),
                        stdin=connection,
                    )

        self._thread = threading.Thread(target=accept, daemon=True)
        self._thread.start()

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def node(self):
        return self.get("/api/v1/nodes/n1") or {"state": "", "devices": [], "repairs": []}

    def wait(self, condition, what):
        until = time.monotonic() + GENEROUS_SECONDS
        while not (found := condition()):
            assert time.monotonic() < until, f"no sign of {what}: {self.node()}"
            time.sleep(0.1)
        return found

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        for program in reversed(self._programs):
            program.terminate()
        for program in self._programs:
            try:
                program.wait(30)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


@pytest.fixture
def node(tmp_path):
    started = Node(tmp_path)
    yield started
    started.close()


def test_an_error_ends_with_a_hive_that_was_reset(node):
    """Drained, reset with its whole hive, read again, and back; the incident tells all of it."""
    node.wait(
        lambda: (
            [one["name"] for one in node.node()["devices"] if one["kind"] == "gpu"]
            == ["gpu0", "gpu1"]
        ),
        "two GPUs",
    )
    node.wait(
        lambda: all(one["health"] == "healthy" for one in node.node()["devices"]), "healthy GPUs"
    )
    devices.set_counts(node.gpus, 1, "umc", (0, 2, 0))
    back = node.wait(
        lambda: (
            (found := node.node())["state"] in ("ready", "probation") and found["repairs"] and found
        ),
        "a node that is back",
    )
    (repair,) = back["repairs"]
    assert (repair["order"]["verb"], repair["state"], repair["helped"]) == (
        "reset-domain", "done", True,
    )  # fmt: skip
    assert [(node.gpus / f"gpu{gpu}/resets").read_text().strip() for gpu in (0, 1)] == ["1", "1"]
    incidents = node.get("/api/v1/incidents")["items"]
    (told,) = [one for one in incidents if one["fault_class"] == "gpu.ecc.uncorrectable"]
    assert told["outcome"].startswith("n1 is back: its GPUs were reset")
    story = "\n".join(node.get(f"/api/v1/incidents/{told['id']}")["story"])
    assert "Hits      2 GPUs of n1: gpu0 and gpu1" in story
