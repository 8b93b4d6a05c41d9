"""The real root helper over the simulated library, on a real Unix socket."""

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aegis.model.fault import FaultClass
from aegis.model.order import Order, Verb
from aegis_agent.helper.message import write_order
from aegis_agent.simulated import devices

GENEROUS_SECONDS = 30.0
GPUS = (
    "0000:05:00.0 8bff74a1-0000-1000-80f0-c3a100000000 SIM00000000",
    "0000:15:00.0 8bff74a1-0000-1000-80f0-c3a100000001 SIM00000001",
)
ME = pwd.getpwuid(os.getuid()).pw_name


def boot_id():
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def order(**changes):
    """A good order to reset the hive of gpu1."""
    plain = {
        "id": f"inc-000001/1@{time.time():.6f}",
        "verb": Verb.RESET_DOMAIN,
        "node": "n1",
        "boot_id": boot_id(),
        "epoch": 3,
        "incident": "inc-000001",
        "expires_at": time.time() + 60,
        "reason": "gpu.ecc.uncorrectable on gpu1",
        "fault_class": FaultClass.GPU_ECC_UNCORRECTABLE,
        "device": "gpu1",
        "identity": GPUS[1],
        "devices": GPUS,
    }
    return Order(**(plain | changes))


class Helper:
    """Does for the helper what systemd does with `Accept=yes` and `StandardInput=socket`."""

    def __init__(self, folder, environment, *flags):
        self.path = folder / "helper.sock"
        self.state = folder / "helper"
        self.state.mkdir(exist_ok=True)
        self.started = []
        self._environment = os.environ | environment
        self._flags = ("--user", ME, "--node", "n1", "--state-dir", str(self.state), *flags)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self.path.chmod(0o666)
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.started.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "aegis_agent.helper", *self._flags],
                        stdin=connection,
                        stderr=subprocess.PIPE,
                        env=self._environment,
                    )
                )

    def give(self, message):
        """Speak to it, and read to the end of its answer."""
        line = message if isinstance(message, bytes) else write_order(message)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(self.path))
            client.sendall(line)
            return client.makefile("rb").read()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        for one in self.started:
            one.kill()
            one.wait()
            one.stderr.close()


@pytest.fixture
def start_helper(tmp_path, environment):
    started = []

    def start(*flags):
        started.append(Helper(tmp_path, environment, *flags))
        return started[-1]

    yield start
    for helper in started:
        helper.close()


@pytest.fixture
def sick(gpus):
    """gpu1 has shown an uncorrectable error."""
    devices.set_counts(gpus, 1, "umc", (0, 2, 0))
    return gpus


@pytest.fixture
def holder(gpus):
    """A process that holds gpu0."""
    process = subprocess.Popen(["sleep", "600"])
    devices.set_process(gpus, 0, process.pid, "sleep")
    yield process
    process.kill()
    process.wait()


def answer(helper, message):
    return json.loads(helper.give(message))


def resets(gpus, gpu):
    path = gpus / f"gpu{gpu}" / "resets"
    return int(path.read_text()) if path.exists() else 0


def wait(condition, what):
    until = time.monotonic() + GENEROUS_SECONDS
    while not condition():
        assert time.monotonic() < until, f"no sign of {what}"
        time.sleep(0.01)


def test_a_reset_hits_the_whole_hive_once(start_helper, sick, holder):
    """All its GPUs, and the process that was named; asked again, it tells what was done."""
    devices.set_counts(sick, 0, "xgmi_wafl", (5, 0, 0))
    helper, told = start_helper(), order(processes=(holder.pid,))
    first = answer(helper, told)
    assert (first["state"], first["killed"]) == ("done", [f"{holder.pid} sleep"])
    assert first["text"] == "2 GPUs were reset; link errors are as before"
    assert holder.wait(GENEROUS_SECONDS) == -signal.SIGKILL
    assert (sick / "gpu1/ras/umc").read_text().strip() == "0 0 0"
    assert answer(helper, told) == first
    assert (resets(sick, 0), resets(sick, 1)) == (1, 1)
    told_of = [json.loads(line) for line in (helper.state / "audit.jsonl").open()]
    assert [one["by_uid"] for one in told_of if "by_uid" in one] == [os.getuid()] * 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"node": "n2"}, "it is meant for n2 and this is n1"),
        ({"boot_id": "another"}, "n1 has started anew since it was given"),
        ({"expires_at": 5.0}, "it expired"),
        ({"expires_at": 1e10}, "good for longer than 600 s"),
        ({"device": "gpu0", "identity": GPUS[0]}, "gpu0 shows no gpu.ecc.uncorrectable now"),
        ({"identity": GPUS[0]}, "the order was given for another device"),
        (
            {"devices": GPUS[1:]},
            "the reset would hit 0000:05:00.0 as well: a reset acts on a whole",
        ),
    ],
    ids=["node", "boot", "expired", "endless", "well", "other", "part"],
)
def test_what_does_not_fit_is_refused(start_helper, sick, changes, why):
    """Each with a sentence that says why, and nothing is touched."""
    told = answer(start_helper(), order(**changes))
    assert told["state"] == "refused"
    assert why in told["text"]
    assert (resets(sick, 0), resets(sick, 1)) == (0, 0)


def test_an_older_controller_is_refused_for_ever(start_helper, sick):
    """The highest epoch is on disk: another process refuses what is below it."""
    helper = start_helper("--reboot-command", "true")
    assert answer(helper, order(epoch=7))["state"] == "done"
    devices.set_counts(sick, 1, "umc", (0, 1, 0))
    told = answer(helper, order(epoch=6))
    assert told["state"] == "refused"
    assert "a controller of epoch 6, and epoch 7 was seen" in told["text"]
    assert resets(sick, 1) == 1


@pytest.mark.parametrize("verb", Verb)
def test_a_process_that_nobody_named_stops_it(start_helper, sick, holder, verb):
    """It may be anybody's work: it goes on."""
    told = answer(start_helper("--reboot-command", "false"), order(verb=verb))
    assert told["state"] == "refused"
    assert f"{holder.pid} sleep holds a GPU" in told["text"]
    assert "and would be killed" in told["text"]
    assert holder.poll() is None


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("hang", "the reset hung for 1 s and was killed"),
        ("status=2", "amdsmi_reset_gpu answered 2"),
    ],
)
def test_a_reset_that_fails_is_not_tried_again(start_helper, sick, fault, why):
    """It was begun: whatever came of it, the same order does nothing more."""
    devices.add_fault(sick, "amdsmi_reset_gpu", "*", fault)
    helper, told = start_helper("--reset-seconds", "1"), order()
    first = answer(helper, told)
    assert (first["state"], first["text"]) == ("failed", why)
    devices.clear_faults(sick)
    assert answer(helper, told) == first
    assert resets(sick, 1) == 0


def test_a_helper_that_is_killed_in_the_act_does_not_act_twice(start_helper, sick):
    """Meanwhile others are told to wait; afterwards nobody knows, and that is what is said."""
    (sick / "reset_ms").write_text("60000\n")
    helper, told = start_helper(), order()
    asking = threading.Thread(target=helper.give, args=(told,))
    asking.start()
    wait(lambda: "begun" in _ledger(helper), "the reset")
    assert answer(helper, order())["state"] == "working"
    helper.started[0].kill()
    asking.join(GENEROUS_SECONDS)
    after = answer(helper, told)
    assert after["state"] == "failed"
    assert "nobody has seen how it ended" in after["text"]


def _has_ended(controller):
    told = controller.last.order_results
    return bool(told) and told[0].state not in ("working", "accepted")


def _ledger(helper):
    path = helper.state / "ledger.json"
    return path.read_text() if path.exists() else ""


def test_a_reboot_is_answered_before_it_happens(start_helper, sick, tmp_path):
    """The answer is out while the node still stands; then the command runs, once."""
    witness = tmp_path / "rebooted"
    helper = start_helper(
        "--reboot-command", f"sh -c 'echo now >> {witness}'", "--reboot-delay-seconds", "1"
    )
    told = order(verb=Verb.REBOOT)
    assert answer(helper, told)["state"] == "accepted"
    wait(witness.exists, "the reboot")
    helper.started[0].wait(GENEROUS_SECONDS)
    assert answer(helper, told)["state"] == "accepted"
    helper.started[1].wait(GENEROUS_SECONDS)
    assert witness.read_text() == "now\n"


def test_a_reboot_that_does_not_come_is_told_when_asked_again(start_helper, sick):
    """Whoever asks again hears why."""
    helper = start_helper("--reboot-command", "false", "--reboot-delay-seconds", "0")
    told = order(verb=Verb.REBOOT)
    assert answer(helper, told)["state"] == "accepted"
    helper.started[0].wait(GENEROUS_SECONDS)
    after = answer(helper, told)
    assert (after["state"], after["text"]) == ("failed", "`false` exited with 1: ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"reset everything\n", "it is not JSON"),
        (b'{"v": 2}\n', "update agent and helper together"),
        (write_order(order()).replace(b'"reset-domain"', b'"format-disk"'), "unknown verb"),
        (write_order(order()).replace(b'"reason"', b'"season"'), "unknown or missing fields"),
        (b"[" * 70000, "too long"),
    ],
    ids=["text", "version", "verb", "field", "endless"],
)
def test_what_is_no_order_is_refused(start_helper, sick, line, why):
    """Nothing of it is believed."""
    told = answer(start_helper(), line)
    assert told["state"] == "refused"
    assert why in told["text"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="to be somebody else takes root")
def test_only_the_agents_user_is_heard(start_helper, sick):
    """By the kernel's word on who is at the other end, not by anything that is said."""
    helper = start_helper()
    stranger = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
        "client = socket.socket(socket.AF_UNIX); client.connect(sys.argv[1])\n"
        "client.sendall(sys.stdin.buffer.read()); print(client.recv(100))"
    )
    helper.path.parent.chmod(0o755)  # it goes there by itself: the folders above are ours alone
    done = subprocess.run(
        [sys.executable, "-c", stranger, helper.path.name],
        cwd=helper.path.parent,
        input=write_order(order()), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    wait(lambda: helper.started, "the helper")
    assert helper.started[0].wait(GENEROUS_SECONDS) == 4
    assert done.stdout.strip() in (b"b''", b"")
    assert b"only" in helper.started[0].stderr.read()
    assert resets(sick, 1) == 0


def test_the_helper_itself_loads_nothing_big():
    """What runs as root in the first place is the standard library and a few small modules."""
    loaded = "import sys, aegis_agent.helper.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True
    )
    modules = done.stdout.split()
    big = ("amdsmi", "pydantic", "yaml", "websockets", "psutil", "asyncio", "aegis.wire")
    assert [name for name in modules if name.startswith(big)] == []


def test_the_agent_hands_an_order_on_and_tells_what_came_of_it(
    start_helper, start_agent, controller, sick
):
    """A level both ways: told as long as the order stands, then forgotten."""
    helper = start_helper()
    controller.orders = (order(),)
    start_agent("--helper-socket", str(helper.path))
    controller.wait(lambda: _has_ended(controller), "a result")
    result = controller.last.order_results[0]
    assert (result.state, result.text) == ("done", "2 GPUs were reset; link errors are as before")
    before = len(controller.reports)
    controller.wait(lambda: len(controller.reports) > before + 1, "another report")
    assert controller.last.order_results == (result,)
    controller.orders = ()
    controller.wait(lambda: not controller.last.order_results, "the result's end")
    assert (len(helper.started), resets(sick, 1)) == (1, 1)


def test_an_agent_that_died_meanwhile_asks_again_and_nothing_is_done_twice(
    start_helper, start_agent, controller, sick
):
    """The next one hears from the helper what was done."""
    helper = start_helper()
    first = start_agent("--helper-socket", str(helper.path))
    controller.orders = (order(),)
    wait(lambda: helper.started, "the helper")
    first.end(signal.SIGKILL)
    helper.started[0].wait(GENEROUS_SECONDS)
    start_agent("--helper-socket", str(helper.path))
    controller.wait(lambda: _has_ended(controller), "a result")
    assert controller.last.order_results[0].state == "done"
    assert resets(sick, 1) == 1


def test_without_a_helper_the_answer_says_so(start_agent, controller, tmp_path):
    """Whoever leaves it out has left it out."""
    controller.orders = (order(fault_class=FaultClass.GPU_RAS_FATAL),)
    start_agent("--helper-socket", str(tmp_path / "none.sock"))
    controller.wait(lambda: _has_ended(controller), "a result")
    result = controller.last.order_results[0]
    assert result.state == "refused"
    assert result.text.startswith("no helper is installed: enable aegis-helper.socket on n1")
