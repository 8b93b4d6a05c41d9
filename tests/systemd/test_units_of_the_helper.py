"""The root helper as systemd starts it: shut in, for one order, and a reboot that really happens.

These come after the other tests of the machine: a reboot takes what was installed in it away.
"""

import json

import pytest

pytestmark = pytest.mark.root

STARTS_ANEW = 133  # how systemd-nspawn ends then

ASK = """
import json, socket, sys
from aegis_agent.simulated import devices
client = socket.socket(socket.AF_UNIX)
client.connect("/run/aegis-helper.sock")
client.sendall(sys.argv[1].encode() + b"\\n")
print(client.makefile().read())
"""
GPUS = [
    f"000{number // 8}:{bus}:00.0 8bff74a1-0000-1000-80f0-c3a10000000{number} SIM0000000{number}"
    for number, bus in enumerate(("05", "15", "65", "75", "85", "95", "e5", "f5"))
]


@pytest.fixture
def helper(machine):
    """Its socket, and the simulated GPUs where it may write to them.

    ProtectControlGroups= mounts /proc anew, and the container's own boot_id lies over the old one.
    """
    machine.sh(
        "mkdir -p /etc/systemd/system/aegis-helper@.service.d\n"
        "printf '[Service]\\nReadWritePaths=/srv/gpus\\nProtectControlGroups=no\\n'"
        " > /etc/systemd/system/aegis-helper@.service.d/simulated.conf\n"
        "echo AEGIS_SIM_AMDSMI=/srv/gpus > /etc/default/aegis-helper\n"
        "systemctl daemon-reload\n"
        "systemctl start aegis-helper.socket\n"
        "/opt/aegis/bin/python -m aegis_agent.simulated ecc /srv/gpus 1 umc 0 2 0\n"
        "chmod -R a+rX /srv/gpus"
    )
    return machine


def boot_id(machine):
    return machine.sh("cat /proc/sys/kernel/random/boot_id").strip()


def ask(machine, verb, user="aegis-agent", **changes):
    now = float(machine.sh("date +%s.%N"))
    order = {
        "v": 1, "id": f"inc-000001/1@{now}", "verb": verb, "node": "gpu-0001",
        "boot_id": boot_id(machine), "epoch": 1, "incident": "inc-000001",
        "expires_at": now + 60, "reason": "test", "fault_class": "gpu.ecc.uncorrectable",
        "device": "gpu1", "identity": GPUS[1], "devices": GPUS, "processes": [],
    } | changes  # fmt: skip
    return machine.run(
        *("setpriv", "--reuid", user, "--clear-groups", "/opt/aegis/bin/python", "-c", ASK),
        json.dumps(order), check=False,
    )  # fmt: skip


def journal(machine):
    return machine.run("journalctl", "--no-pager", "--unit", "aegis-helper@*", "-o", "cat").stdout


def test_nobody_but_the_agent_may_connect(helper):
    """The socket's rights, before the helper asks the kernel."""
    assert "PermissionError" in ask(helper, "reset-domain", user="nobody").stderr


def test_the_shut_in_helper_resets_a_hive(helper):
    """Two capabilities, no network, a read-only system: looking and resetting still work."""
    done = ask(helper, "reset-domain")
    told = json.loads(done.stdout or "{}")
    assert told.get("state") == "done", f"{done.stdout}{done.stderr}{journal(helper)}"
    assert told["text"] == "8 GPUs were reset; link errors are as before"
    assert helper.sh("cat /srv/gpus/gpu7/resets").strip() == "1"
    assert "reset-domain for inc-000001: done" in journal(helper)
    assert helper.sh("stat -c %a /var/lib/aegis-helper/audit.jsonl").strip() == "600"


def test_the_shut_in_helper_reboots_the_node(helper):
    """Answered first; then systemd stops everything and asks the kernel to start anew."""
    done = ask(helper, "reboot")
    told = json.loads(done.stdout or "{}")
    assert told.get("state") == "accepted", f"{done.stdout}{done.stderr}{journal(helper)}"
    assert helper.wait(helper.has_ended, "the machine to go down") == STARTS_ANEW
