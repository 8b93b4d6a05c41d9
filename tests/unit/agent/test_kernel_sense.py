"""The kernel log as a sense: whose a line is, what others learn from it, what is remembered."""

import asyncio
import time
from dataclasses import replace

import pytest

from aegis.model.fault import FaultClass as F
from aegis.model.fault import Severity
from aegis.model.node import Device, Health
from aegis_agent.book import Book
from aegis_agent.senses.kernel import KernelSense
from aegis_agent.settings import read
from aegis_agent.spool import Spool

PATIENCE_SECONDS = 30.0
GPU, OTHER, CARD, PORT = "0000:c3:00.0", "0000:d1:00.0", "0000:61:00.0", "0000:c0:01.0"
TIMEOUT = f"amdgpu {GPU}: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=2"
BEGIN = f"amdgpu {GPU}: amdgpu: GPU reset begin!"
SUCCEEDED = f"amdgpu {GPU}: amdgpu: GPU reset(2) succeeded!"
AER = "PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)"


class Node:
    """A node with two GPUs, and a file in place of its kernel log."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "kmsg"
        self.log.touch()
        self.spool = Spool(None)
        self.start()

    def start(self, boot_id="boot-1"):
        """Another agent with the same spool."""
        self.book = Book(node="n1", boot_id=boot_id, spool=self.spool, urge=lambda: None)
        for number, address in enumerate((GPU, OTHER)):
            self.book.place(address, f"gpu{number}")
            self.book.put(Device(name=f"gpu{number}", kind="gpu", health=Health.HEALTHY))
        self.book.place("0000:43:00.0", "fab0")
        self.book.put(Device(name="fab0", kind="nic", health=Health.HEALTHY))
        flags = {"kernel_log": self.log, "sys_root": self.folder / "sys"}
        self.sense = KernelSense(read(None, flags, "n1"), self.book)

    def say(self, *texts, ago=0.0):
        uptime = int((time.monotonic() - ago) * 1e6)
        with self.log.open("a") as log:
            log.writelines(f"4,1,{uptime},-;{text}\n" for text in texts)

    def watch(self, condition, during=lambda: None):
        """Until the condition holds; `during` runs once reading has begun."""

        async def watch():
            watching = asyncio.create_task(self.sense.watch())
            until, begun = time.monotonic() + PATIENCE_SECONDS, False
            while not begun or not condition():
                assert time.monotonic() < until, self.told()
                await asyncio.sleep(0.01)
                if not begun and self.sense.source():
                    await asyncio.sleep(0.05)
                    during()
                    begun = True
            watching.cancel()

        asyncio.run(watch())

    def look(self):
        asyncio.run(self.sense.look())
        return self.told()

    def told(self):
        return [one.fault for one in self.spool.pending(1000)]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_line_is_a_fault_of_the_device_at_its_address(node):
    """The address stays as a detail; the port above one GPU is that GPU's."""
    path = node.folder / "sys/devices/pci0000:c0" / PORT / GPU
    path.mkdir(parents=True)
    for name, text in {"class": "0x120000", "vendor": "0x1002", "device": "0x74a1"}.items():
        (path / name).write_text(text + "\n")
    (node.folder / "sys/bus/pci/devices").mkdir(parents=True)
    (node.folder / "sys/bus/pci/devices" / GPU).symlink_to(path)
    node.watch(
        lambda: len(node.told()) >= 2, lambda: node.say(TIMEOUT, f"pcieport {PORT}: AER: {AER}")
    )
    timeout, error = node.told()
    assert (timeout.device, dict(timeout.details)["address"]) == ("gpu0", GPU)
    assert (error.fault_class, error.device) == (F.PCIE_AER_FATAL, "gpu0")
    assert error.severity is Severity.FATAL
    assert error.simulated


def test_what_nobody_knows_weighs_little_unless_it_is_a_gpu(node):
    """An NVMe behind a port, a management card; and a GPU that only the kernel still speaks of."""
    lost = TIMEOUT.replace(GPU, "0000:e1:00.0")
    lines = (f"nvme {CARD}: {AER}", f"mlx5_core {CARD} eth9: TX timeout detected", lost)
    node.watch(lambda: len(node.told()) >= 3, lambda: node.say(*lines))
    assert [(one.device, one.severity) for one in node.told()] == [
        (CARD, Severity.WARNING),
        ("eth9", Severity.WARNING),
        ("0000:e1:00.0", Severity.ERROR),
    ]


def test_a_card_is_found_by_its_address_where_its_name_is_new(node):
    """Interfaces are renamed after their driver has spoken of them."""
    line = "mlx5_core 0000:43:00.0 eth0: TX timeout detected"
    node.watch(node.told, lambda: node.say(line))
    assert [(one.device, one.severity) for one in node.told()] == [("fab0", Severity.ERROR)]


def test_an_error_that_a_port_reports_is_that_of_the_device_behind(node):
    """The line names both; and a record of the host's firmware names the device as a detail."""
    line = f"pcieport 0000:00:03.0: AER: Uncorrectable (Fatal) error message received from {GPU}"
    record = (
        "{9}[Hardware Error]: event severity: recoverable",
        f"{{9}}[Hardware Error]:   device_id: {OTHER}",
    )
    node.watch(lambda: len(node.told()) >= 3, lambda: node.say(line, *record))
    assert [one.device for one in node.told()] == ["gpu0", "host", "host"]
    assert {"pci": OTHER, "device": "gpu1"}.items() <= dict(node.told()[-1].details).items()


def test_while_a_reset_is_under_way_others_know(node):
    """A hive is reset as a whole, and the log says late who belongs to it."""
    node.watch(lambda: node.book.resetting, lambda: node.say(BEGIN))
    assert {"gpu0", "gpu1", GPU} == set(node.book.resetting)
    assert abs(time.time() - node.book.resetting["gpu1"]) < PATIENCE_SECONDS
    node.start()
    node.watch(lambda: not node.book.resetting, lambda: node.say(SUCCEEDED))
    assert [one.fault_class for one in node.told()] == [F.GPU_RESET_BEGIN, F.GPU_RESET_SUCCEEDED]


def test_a_reset_that_the_log_does_not_end_has_failed_unless_the_gpu_answers(node):
    """Silence is no data, a good reading is: then people are told and nothing is done."""
    node.watch(node.spool.recall)
    node.say(BEGIN, BEGIN.replace(GPU, OTHER), ago=100.0)
    node.start()
    node.book.put(replace(node.book.device("gpu1"), read_at=time.time()))
    node.watch(lambda: len(node.told()) >= 4)
    failed = [one for one in node.told() if one.fault_class is F.GPU_RESET_FAILED]
    assert [(one.device, one.severity) for one in failed] == [
        ("gpu0", Severity.FATAL),
        ("gpu1", Severity.WARNING),
    ]
    assert "healthy" in failed[1].evidence[-1].text


def test_what_was_logged_before_the_first_start_is_no_news(node):
    """But a reset that is still under way is followed, and one that never ended is not told."""
    node.say(BEGIN.replace(GPU, OTHER), ago=600.0)
    node.say(TIMEOUT, BEGIN, ago=5.0)
    node.watch(lambda: node.book.resetting)
    assert node.told() == []
    node.watch(node.told, lambda: node.say(SUCCEEDED))
    (ended,) = node.told()
    assert float(dict(ended.details)["seconds"]) >= 5.0


def test_after_a_reboot_everything_is_news(node):
    """The agent was here before: what the new boot has logged before its start is told."""
    node.watch(node.spool.recall)
    node.say(TIMEOUT, ago=20.0)
    node.start(boot_id="boot-2")
    node.watch(node.told)
    (fault,) = node.told()
    assert (fault.boot_id, fault.device) == ("boot-2", "gpu0")
    assert 15.0 < time.time() - fault.observed_at < 15.0 + PATIENCE_SECONDS


def test_what_another_version_remembered_is_no_obstacle(node):
    """It starts anew, as for the first time."""
    node.spool.remember({"kernel log": '{"place": 7}'})
    node.say(TIMEOUT)
    node.start()
    node.watch(lambda: '"position"' in node.spool.recall()["kernel log"])
    assert node.told() == []


def test_old_lines_wait_until_the_devices_are_found(node):
    """At the start the GPUs are not known yet; their lines must not be told of nobody."""
    node.watch(node.spool.recall)
    node.say(TIMEOUT, ago=20.0)
    node.start()
    for name in ("gpu0", "gpu1"):
        node.book.remove(name)
    node.book._places.clear()

    def find():
        node.book.place(GPU, "gpu7")
        node.book.put(Device(name="gpu7", kind="gpu", health=Health.HEALTHY))

    node.watch(node.told, find)
    assert [one.device for one in node.told()] == ["gpu7"]


def test_a_look_tells_each_fault_once(node):
    """All of this boot, for a scan: bursts as one fault, with its context."""
    node.say(*[TIMEOUT] * 412, BEGIN, SUCCEEDED, "all is well")
    faults = node.look()
    assert [(one.fault_class, one.count) for one in faults] == [
        (F.GPU_RING_TIMEOUT, 412),
        (F.GPU_RESET_BEGIN, 1),
        (F.GPU_RESET_SUCCEEDED, 1),
    ]
    assert faults[0].evidence[0].text == TIMEOUT
    assert faults[0].evidence[1].text.startswith("×412")


def test_a_look_is_bounded(node):
    """A log that is full of faults of ever other devices."""
    node.say(*[TIMEOUT.replace("0000:", f"{number:04x}:") for number in range(2000)])
    assert len(node.look()) == 200


def test_a_log_that_cannot_be_read_is_unknown_and_not_healthy(node):
    """For a look as for a watch."""
    node.log.unlink()
    node.look()
    device = node.book.device("kernel-log")
    assert (device.health, device.kind) == (Health.UNKNOWN, "log")
    assert "not read" in device.detail
    node.log.touch()
    node.look()
    assert node.book.device("kernel-log") is None
