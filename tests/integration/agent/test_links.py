"""Network links: a simulated sysfs tree, and real ones in a network namespace."""

import json
import os
import subprocess
import sys
import time

import pytest

from aegis_agent.simulated import network


@pytest.fixture
def tree(tmp_path):
    """A simulated /sys with one fabric port, its link up."""
    network.init(tmp_path / "sys", "fab0")
    return tmp_path / "sys"


@pytest.fixture
def seen(start_agent, controller, tree):
    agent = start_agent("--fabric", "fab0", "--sys-root", str(tree))
    controller.wait_device("fab0", "healthy")
    return agent


def test_a_link_that_goes_down_and_up_is_two_edges_and_a_condition_between(seen, controller, tree):
    """The condition stands in every report for as long as the link is down."""
    network.down(tree, "fab0")
    fault = controller.wait_fault("nic.link.down")
    assert (fault.device, fault.severity, fault.simulated) == ("fab0", "error", True)
    controller.wait_device("fab0", "unhealthy")
    (condition,) = controller.last.conditions
    assert (condition.fault_class, condition.device) == ("nic.link.down", "fab0")
    assert condition.simulated
    assert controller.last.simulated
    network.up(tree, "fab0")
    controller.wait_fault("nic.link.up")
    controller.wait(lambda: not controller.last.conditions, "the end of the condition")
    assert controller.classes() == ["nic.link.down", "nic.link.up"]


def test_a_flap_between_two_polls_is_told(seen, controller, tree):
    """No reader saw the link down; the counter did."""
    network.flap(tree, "fab0")
    fault = controller.wait_fault("nic.link.flap")
    assert (fault.severity, fault.count) == ("warning", 1)
    assert (fault.evidence[0].before, fault.evidence[0].after) == ("0", "1")
    assert controller.classes() == ["nic.link.flap"]
    assert controller.last.conditions == ()


def test_a_port_that_vanishes_is_removed(seen, controller, tree):
    """Three polls without it."""
    network.remove(tree, "fab0")
    assert controller.wait_fault("nic.removed").severity == "fatal"
    controller.wait_device("fab0", "unhealthy")


def test_an_edge_while_the_agent_was_away_is_told(seen, start_agent, controller, tree):
    """The last state is remembered with the faults."""
    seen.end()
    network.down(tree, "fab0")
    start_agent("--fabric", "fab0", "--sys-root", str(tree))
    fault = controller.wait_fault("nic.link.down")
    assert (fault.evidence[0].before, fault.evidence[0].after) == ("up", "down")


WATCHER = """
import asyncio, json, sys, time
from pathlib import Path
from aegis_agent.sources import nic

def tell(name, sample):
    print(json.dumps([name, sample.present, sample.up, sample.carrier_downs, sample.source]),
          flush=True)

asyncio.run(nic.watch(Path("/sys"), ["fab0"], 3600.0, tell))
"""


@pytest.fixture
def namespace():
    """A network namespace with a cable: fab0 here, far0 at its other end."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace is made: needs root")
    name = f"aegis-test-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    except FileNotFoundError:
        pytest.skip("the `ip` command is missing (apt-get install iproute2)")
    if made.returncode:
        pytest.skip(f"no network namespace can be made here: {made.stderr.decode().strip()}")

    def ip(*words):
        subprocess.run(["ip", "-n", name, *words], check=True)

    ip("link", "add", "fab0", "type", "veth", "peer", "name", "far0")
    ip("link", "set", "fab0", "up")
    ip("link", "set", "far0", "up")
    yield name, ip
    subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def watcher(namespace):
    """Watches fab0 through netlink; it polls once an hour, so all it tells was pushed."""
    name, _ = namespace
    process = subprocess.Popen(
        ["ip", "netns", "exec", name, sys.executable, "-c", WATCHER],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.root
def test_netlink_pushes_what_happens_to_a_real_link(namespace, watcher):
    """Down, up and gone are told without a poll, with the kernel's own counters."""
    _, ip = namespace

    def read_until(condition):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            sample = json.loads(watcher.stdout.readline())
            if condition(sample):
                return sample
        raise AssertionError("it was not pushed")

    *_, downs, source = read_until(lambda sample: sample[2])
    assert source == "netlink"
    ip("link", "set", "far0", "down")
    read_until(lambda sample: not sample[2] and sample[3] == downs + 1)
    ip("link", "set", "far0", "up")
    read_until(lambda sample: sample[2] and sample[3] == downs + 1)


DROWNED = """
import asyncio, sys, time
from pathlib import Path
from aegis_agent.sources import netlink, nic

netlink._BUFFER_BYTES = 2048
told = []

def tell(name, sample):
    told.append(sample)
    if len(told) == 1:
        print("ready", flush=True)
        sys.stdin.readline()  # the loop stands still while hundreds of changes come in

async def main():
    watching = asyncio.create_task(nic.watch(Path("/sys"), ["fab0"], 3600.0, tell))
    while len(told) < 2 or told[-1].carrier_downs < told[0].carrier_downs + 200:
        await asyncio.sleep(0.01)
    print(told[-1].up, told[-1].carrier_downs - told[0].carrier_downs, flush=True)
    watching.cancel()

asyncio.run(main())
"""


@pytest.mark.root
def test_pushes_that_are_lost_are_made_up_for(namespace):
    """The socket's buffer overran: it is opened again, and the counters tell what was missed."""
    name, _ = namespace
    process = subprocess.Popen(
        ["ip", "netns", "exec", name, sys.executable, "-c", DROWNED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        batch = "link set far0 down\nlink set far0 up\n" * 200
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=batch, text=True, check=True)
        told, errors = process.communicate("\n", timeout=60)
        assert told == "True 200\n"
        assert "Netlink failed and is opened again." in errors
    finally:
        process.kill()


@pytest.mark.root
def test_links_that_come_go_and_change_names_are_heard_of(namespace):
    """Whoever watches them looks again at what there is."""
    name, ip = namespace
    script = (
        "import asyncio, contextlib\n"
        "from aegis_agent.sources.netlink import Netlink\n"
        "async def main():\n"
        "    with contextlib.closing(Netlink(pushes=True)) as pushes:\n"
        "        print('ready', flush=True)\n"
        "        while True:\n"
        "            for link in await pushes.changes():\n"
        "                print(link.name, link.there, flush=True)\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        ["ip", "netns", "exec", name, sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
    )

    def read_until(line):
        while (told := process.stdout.readline()) != line + "\n":
            assert told, f"it ended before {line!r}"

    try:
        read_until("ready")
        ip("link", "set", "fab0", "down")
        ip("link", "set", "fab0", "name", "rail0")
        read_until("rail0 True")
        ip("link", "delete", "rail0")
        read_until("rail0 False")
    finally:
        process.kill()
        process.wait()


@pytest.mark.root
def test_a_look_through_netlink_needs_no_sys_of_the_namespace(namespace):
    """/sys may show another namespace than the agent's; netlink never does."""
    name, _ = namespace
    told = subprocess.run(
        [
            *("nsenter", f"--net=/run/netns/{name}", sys.executable, "-m", "aegis_agent.main"),
            *("--once", "-o", "json", "--fabric", "fab0,fab9"),
        ],
        env=os.environ | {"ROCM_PATH": "/nowhere", "ROCM_HOME": "/nowhere"},
        check=True,
        capture_output=True,
        text=True,
    )
    devices = {device["name"]: device for device in json.loads(told.stdout)["report"]["devices"]}
    assert devices["fab0"]["health"] == "healthy"
    assert devices["fab9"]["detail"] == "there is no such interface"
