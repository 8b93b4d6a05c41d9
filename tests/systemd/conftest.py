"""A machine with a real systemd, with Aegis installed the way docs/how-to/install.md says.

It is a container of systemd-nspawn over a small Debian, thrown away afterwards. It has no network
but its own loopback, and eight simulated GPUs.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATIENCE_SECONDS = 90
NODE = "gpu-0001"


def wait_for(ready, what, seconds=PATIENCE_SECONDS):
    """The first true answer of `ready`, within a generous limit."""
    until = time.monotonic() + seconds
    while not (result := ready()):
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.2)
    return result


class Machine:
    """One booted container."""

    wait = staticmethod(wait_for)

    def __init__(self, root, folder):
        self.folder = folder
        self._log = (folder / "console.log").open("wb")
        self._nspawn = subprocess.Popen(
            [
                "systemd-nspawn", "--quiet", "--directory", root, "--volatile=overlay", "--boot",
                "--register=no", "--keep-unit", "--private-network", "--console=pipe",
                f"--machine=aegis-test-{os.getpid()}", f"--hostname={NODE}", "--link-journal=no",
                f"--bind-ro={ROOT / 'packaging'}:/packaging",
                f"--bind-ro={folder / 'wheels'}:/wheels",
                f"--bind-ro={folder / 'rocm'}:/opt/rocm",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._init = wait_for(self._find_init, "the container's first process")
        wait_for(self._is_up, "systemd in the container")

    def _find_init(self):
        assert self._nspawn.poll() is None, (self.folder / "console.log").read_text()
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text()
        return children.split()[0] if children.split() else None

    def _is_up(self):
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def run(self, *command, check=True):
        """Run a command in the machine as root."""
        done = subprocess.run(
            ["nsenter", "--target", self._init, "--all", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def sh(self, script, *arguments):
        """Run a shell script in the machine; gives what it printed."""
        return self.run("/bin/sh", "-euc", script, "sh", *arguments).stdout

    def show(self, unit, key):
        """One property of a unit."""
        return self.run("systemctl", "show", "--value", "--property", key, unit).stdout.strip()

    def journal(self, unit):
        """What a unit has logged."""
        return self.run("journalctl", "--no-pager", "--unit", unit, "--output", "cat").stdout

    def aegis(self, *words):
        """Ask the controller; `aegis status` exits with the state of things, not only with 0."""
        done = self.run("/opt/aegis/bin/aegis", *words, "-o", "json", check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def node(self):
        """The machine's own node, or None while the controller does not answer or know it."""
        done = self.run("/opt/aegis/bin/aegis", "nodes", "-o", "json", check=False)
        nodes = json.loads(done.stdout) if done.returncode == 0 else []
        return next((node for node in nodes if node["name"] == NODE), None)

    def is_fresh_since(self, at):
        """Whether the agent has spoken to the controller after that time of the machine's clock."""
        node = self.node()
        return node is not None and node["agent_seen_at"] > at

    def has_ended(self):
        """With what the container ended, once it has: 133 is a call to start anew."""
        return self._nspawn.poll()

    def close(self):
        """Power it off; it leaves nothing."""
        if self.has_ended() is None:
            self.run("systemctl", "poweroff", "--force", "--force", check=False)
        try:
            self._nspawn.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait()
        self._log.close()


def missing():
    """Why no machine can be booted here, or nothing."""
    if os.geteuid() != 0:
        return "booting a machine needs root"
    tools = ("systemd-nspawn", "debootstrap", "nsenter", "cc")
    absent = [tool for tool in tools if not shutil.which(tool)]
    return f"not installed: {', '.join(absent)}" if absent else ""


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """The machine, with controller and agent running as their units."""
    if reason := missing():
        pytest.skip(reason)
    made = subprocess.run([HERE / "rootfs.sh"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no Debian could be made: {made.stderr.strip()}")
    folder = tmp_path_factory.mktemp("machine")
    # pytest's folders are for their owner alone; what the machine's services read is for all.
    folder.chmod(0o755)
    subprocess.run(
        [ROOT / "tests/images/wheelhouse.sh", sys.executable, "3.11", folder / "wheels"], check=True
    )
    subprocess.run(
        [sys.executable, "-m", "aegis_agent.simulated", "build", folder / "rocm"], check=True
    )
    booted = Machine(made.stdout.strip(), folder)
    try:
        install(booted)
        yield booted
    finally:
        booted.close()


def install(machine):
    """What docs/how-to/install.md says, in its order."""
    machine.sh(
        "python3 -m venv /opt/aegis\n"
        "/opt/aegis/bin/pip install --quiet --disable-pip-version-check --no-index"
        " --find-links /wheels 'aegis-supervisor[controller,agent]'\n"
        "/packaging/install.sh\n"
        "systemctl enable --now aegis-controller.service"
    )
    machine.sh(
        "umask 077\n"
        "/opt/aegis/bin/aegis nodes token $1 --token-file /var/lib/aegis/admin.token"
        " > /etc/aegis/node.token",
        NODE,
    )
    machine.sh(
        "/opt/aegis/bin/python -m aegis_agent.simulated init /srv/gpus 8\n"
        "chmod -R a+rX /srv/gpus\n"
        "echo AEGIS_SIM_AMDSMI=/srv/gpus >> /etc/default/aegis-agent\n"
        "systemctl enable --now aegis-agent.service"
    )
