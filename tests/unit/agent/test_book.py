"""What the book makes of samples: which of a node's devices are simulated, and where they sit."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis.model.node import Device, Health
from aegis_agent.book import Book
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import GpuReading
from aegis_agent.probes.nic import LinkSample
from aegis_agent.senses.gpu import GpuSense
from aegis_agent.senses.nic import NicSense
from aegis_agent.settings import read
from aegis_agent.sources.gpu_news import GpuLibrary, GpuRead, GpusListed
from aegis_agent.sources.nic import read_sysfs
from aegis_agent.spool import Spool

GPU = "0000:75:00.0 uuid serial"


@pytest.fixture
def node():
    book = Book(node="n1", boot_id="boot-1", spool=Spool(None), urge=lambda: None)
    settings = read(None, {"fabric": ["fab0"], "state_dir": Path("unused")}, "n1")
    return SimpleNamespace(book=book, gpus=GpuSense(settings, book), nics=NicSense(settings, book))


def break_a_gpu(node, *, simulated):
    node.gpus.take(GpuLibrary(text="amdsmi", simulated=simulated))
    node.gpus.take(GpusListed(at=1.0, identities=(GPU,)))
    for errors in (0, 1):
        counts = {"umc": EccCounts(uncorrectable=errors)}
        reading = GpuReading(at=1.0 + errors, ecc=counts, worked=frozenset({"ecc_count(umc)"}))
        node.gpus.take(GpuRead(identity=GPU, reading=reading))


def break_a_link(node, **sample):
    for up in (True, False):
        node.nics.take("fab0", LinkSample(at=1.0, source="netlink", up=up, **sample))


def simulated(node):
    """By the device of each fault."""
    return {one.fault.device: one.fault.simulated for one in node.book.spool.pending(10)}


def test_a_real_link_beside_simulated_gpus_is_real(node):
    """What the kernel says of a link is true whatever reads the GPUs."""
    break_a_gpu(node, simulated=True)
    break_a_link(node)
    assert simulated(node) == {"gpu0": True, "fab0": False}
    assert [condition.simulated for condition in node.book.conditions()] == [False]
    assert node.book.simulated


def test_a_simulated_link_beside_real_gpus_is_simulated(node):
    """The same the other way round, for the condition as for the fault."""
    break_a_gpu(node, simulated=False)
    assert not node.book.simulated
    break_a_link(node, simulated=True)
    assert simulated(node) == {"gpu0": False, "fab0": True}
    assert [condition.simulated for condition in node.book.conditions()] == [True]
    assert node.book.simulated


def test_another_root_alone_makes_no_link_simulated(tmp_path):
    """A container may see the node's own /sys under another name; the tree's mark decides."""
    (tmp_path / "class" / "net" / "fab0").mkdir(parents=True)
    assert not read_sysfs(tmp_path, "fab0").simulated
    (tmp_path / "aegis_simulated").touch()
    assert read_sysfs(tmp_path, "fab0").simulated
    assert read_sysfs(tmp_path, "fab9").simulated


def test_a_device_is_found_by_its_pci_address(node):
    """So a kernel line that names only the address is a fault of that GPU."""
    node.gpus.take(GpuLibrary(text="amdsmi", simulated=False))
    node.gpus.take(GpusListed(at=1.0, identities=(GPU,)))
    assert node.book.device_at("0000:75:00.0") == "gpu0"
    assert node.book.device_at("0000:76:00.0") is None


def test_senses_speak_of_one_device_without_silencing_each_other(node):
    """A condition that one of them lifts leaves the other's, and counts stand side by side."""
    break_a_gpu(node, simulated=False)
    subject = node.book.subject("gpu0")
    (narrow,) = subject.conditions((), {FaultClass.PCIE_LINK_DEGRADED: 2.0})
    (lost,) = subject.conditions((), {FaultClass.GPU_LOST: 3.0})
    node.book.set_conditions("pcie", "gpu0", (narrow,))
    node.book.set_conditions("gpu", "gpu0", (lost,))
    assert set(node.book.conditions()) == {narrow, lost}
    node.book.set_conditions("gpu", "gpu0", ())
    assert node.book.conditions() == (narrow,)
    node.book.set_counters("pcie", "gpu0", {"aer_corrected": 7})
    counters = dict(node.book.device("gpu0").counters)
    assert (counters["ecc_uncorrectable"], counters["aer_corrected"]) == (1, 7)


def test_nothing_of_a_port_that_training_does_not_use_is_worse_than_a_warning(node):
    """Its link may be down for ever: the node serves."""
    node.book.place("0000:01:00.0", "eno1", matters=False)
    subject = node.book.subject("eno1")
    node.book.append([subject.fault(FaultClass.NIC_REMOVED, Severity.FATAL, 2.0)])
    node.book.set_conditions("nic", "eno1", subject.conditions((), {FaultClass.NIC_REMOVED: 2.0}))
    node.book.put(Device(name="eno1", kind="nic", health=Health.UNHEALTHY))
    (told,) = node.book.spool.pending(10)
    assert told.fault.severity is Severity.WARNING
    assert [one.severity for one in node.book.conditions()] == [Severity.WARNING]
    assert not node.book.device("eno1").used
