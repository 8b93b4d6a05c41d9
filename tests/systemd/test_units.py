"""Aegis as systemd runs it: ready when it says so, restarted without harm, shut in."""

import time

import pytest

CONTROLLER, AGENT = "aegis-controller.service", "aegis-agent.service"

pytestmark = pytest.mark.root


def restarts(machine, unit):
    return int(machine.show(unit, "NRestarts"))


def test_both_say_that_they_are_ready(machine):
    """With Type=notify, `systemctl start` comes back only after READY=1."""
    for unit in (CONTROLLER, AGENT):
        assert machine.show(unit, "ActiveState") == "active"
        assert restarts(machine, unit) == 0
    assert "devices healthy" in machine.wait(
        lambda: machine.show(AGENT, "StatusText"), "the agent's status line"
    )


def healthy_gpus(machine):
    devices = (machine.node() or {"devices": []})["devices"]
    return [one["name"] for one in devices if (one["kind"], one["health"]) == ("gpu", "healthy")]


def test_the_shut_in_agent_still_reads_gpus_through_ctypes(machine):
    """No new executable memory, no privilege: the amdsmi package must live with it."""
    machine.wait(lambda: len(healthy_gpus(machine)) == 8, "eight GPUs to have been read")
    assert machine.node()["simulated"]


def device(machine, name):
    return next(
        (one for one in (machine.node() or {"devices": []})["devices"] if one["name"] == name), None
    )


def test_the_shut_in_agent_looks_at_the_host_and_runs_the_sites_checks(machine):
    """A file dropped beside the settings; the program runs as the agent, without its privileges."""
    machine.sh("mkdir -p /etc/aegis/checks.d")
    machine.sh(
        "printf '%s' \"$1\" > /etc/aegis/checks.d/here.yaml",
        'name: here\ncommand: [/bin/sh, -c, "echo as $(id -un); exit 1"]\nfailures: 1\n'
        "interval_seconds: 5\ndeadline_seconds: 5\n",
    )
    try:
        machine.run("systemctl", "restart", AGENT)
        check = machine.wait(lambda: device(machine, "check:here"), "a run of the check")
        assert (check["health"], check["detail"]) == ("unhealthy", "host: as aegis-agent")
        host = machine.wait(lambda: device(machine, "host"), "the host")
        assert (host["health"], host["detail"]) == ("healthy", "")
    finally:
        machine.sh(f"rm -r /etc/aegis/checks.d; systemctl restart {AGENT}")


def test_an_ecc_error_becomes_an_incident_that_takes_nothing_away(machine):
    """A fresh install observes: it says what it would have done."""
    machine.wait(lambda: "gpu3" in healthy_gpus(machine), "a first reading to compare with")
    machine.run(
        "/opt/aegis/bin/python", "-m", "aegis_agent.simulated", "ecc", "/srv/gpus", "3", "umc",
        "0", "1", "0",
    )  # fmt: skip
    incident = machine.wait(
        lambda: next((one for one in machine.aegis("incidents") if one["device"] == "gpu3"), None),
        "an incident of GPU 3",
    )
    assert (incident["device"], incident["fault_class"]) == ("gpu3", "gpu.ecc.uncorrectable")
    assert incident["decisions"][-1]["result"] != "acted"
    assert machine.node()["state"] in ("ready", "suspect")


@pytest.mark.parametrize("unit", [AGENT, CONTROLLER])
def test_a_restart_leaves_the_other_alone_and_they_find_each_other_again(machine, unit):
    """An upgrade restarts one after the other, in any order."""
    other = CONTROLLER if unit == AGENT else AGENT
    before = {name: machine.show(name, "MainPID") for name in (unit, other)}
    machine.run("systemctl", "restart", unit)
    assert machine.show(unit, "MainPID") != before[unit]
    assert machine.show(other, "MainPID") == before[other]
    now = time.time()
    machine.wait(lambda: machine.is_fresh_since(now), "the agent to speak to the controller")


@pytest.mark.parametrize("unit", [AGENT, CONTROLLER])
def test_one_that_hangs_is_killed_by_the_watchdog_and_started_again(machine, unit):
    """A loop that stands still sends no WATCHDOG=1."""
    folder = f"/run/systemd/system/{unit}.d"
    machine.sh(f"mkdir -p {folder}; printf '[Service]\\nWatchdogSec=3\\n' > {folder}/quick.conf")
    machine.sh(f"systemctl daemon-reload; systemctl restart {unit}")
    pid, count = machine.show(unit, "MainPID"), restarts(machine, unit)
    machine.sh("kill -STOP $1", pid)
    machine.wait(lambda: restarts(machine, unit) > count, "the watchdog")
    machine.wait(lambda: machine.show(unit, "ActiveState") == "active", "its next start")
    assert machine.show(unit, "MainPID") != pid
    assert "Watchdog timeout" in machine.journal(unit)
    now = time.time()
    machine.wait(lambda: machine.is_fresh_since(now), "the agent to speak to the controller")


def test_a_reload_brings_a_new_policy_without_a_restart(machine):
    """`systemctl reload` is how an operator goes from observing to acting."""
    pid = machine.show(CONTROLLER, "MainPID")
    machine.sh("sed -i 's/^mode: observe/mode: notify/' /etc/aegis/policy.yaml")
    machine.run("systemctl", "reload", CONTROLLER)
    machine.wait(lambda: machine.aegis("status")["policy"]["mode"] == "notify", "the new policy")
    assert machine.show(CONTROLLER, "MainPID") == pid


def test_a_mistake_in_the_settings_is_said_and_not_tried_again_for_ever(machine):
    """Exit code 2 means that a person has to mend the file."""
    machine.sh("cp /etc/aegis/agent.yaml /tmp/kept; echo 'controler: x' >> /etc/aegis/agent.yaml")
    try:
        machine.run("systemctl", "restart", AGENT, check=False)
        machine.wait(lambda: machine.show(AGENT, "ActiveState") == "failed", "the agent to give up")
        assert "unknown key 'controler'" in machine.journal(AGENT)
    finally:
        machine.sh(f"cp /tmp/kept /etc/aegis/agent.yaml; systemctl restart {AGENT}")


def test_secrets_are_for_their_owners_alone(machine):
    """Neither another user of the node nor the process list shows a token."""
    for path in ("/etc/aegis/node.token", "/var/lib/aegis/admin.token", "/var/lib/aegis-agent/."):
        done = machine.run("setpriv", "--reuid=65534", "--clear-groups", "ls", path, check=False)
        read = machine.run("setpriv", "--reuid=65534", "--clear-groups", "cat", path, check=False)
        assert read.returncode != 0, path
        assert "node.token" in path or done.returncode != 0, path
    token = machine.sh("cat /etc/aegis/node.token").strip()
    assert len(token) > 20
    assert token not in machine.sh("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' ' '")


def test_users_of_the_node_reach_the_agents_socket(machine):
    """Launchers run as whoever started them."""
    machine.run(
        "setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c",
        "import socket; socket.socket(socket.AF_UNIX).connect('/run/aegis/agent.sock')",
    )  # fmt: skip


def test_the_services_hold_no_privilege(machine):
    """What systemd promises, seen from the kernel."""
    for unit in (CONTROLLER, AGENT):
        status = machine.sh("cat /proc/$1/status", machine.show(unit, "MainPID"))
        fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split()[0] != "0"
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2"
