"""What the ledger makes of samples: which of a node's devices are simulated."""

import pytest

from aegis_agent.ledger import Ledger
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import GpuReading
from aegis_agent.probes.nic import LinkSample
from aegis_agent.sources.nic import read_sysfs
from aegis_agent.sources.prober import GpuLibrary, GpuRead, GpusListed
from aegis_agent.spool import Spool

GPU = "0000:75:00.0 uuid serial"


@pytest.fixture
def ledger():
    return Ledger(
        node="n1", boot_id="boot-1", spool=Spool(None), stale_seconds=9.0, urge=lambda: None
    )


def break_a_gpu(ledger, *, simulated):
    ledger.gpu_news(GpuLibrary(text="amdsmi", simulated=simulated))
    ledger.gpu_news(GpusListed(at=1.0, identities=(GPU,)))
    for errors in (0, 1):
        counts = {"umc": EccCounts(uncorrectable=errors)}
        reading = GpuReading(at=1.0 + errors, ecc=counts, worked=frozenset({"ecc_count(umc)"}))
        ledger.gpu_news(GpuRead(identity=GPU, reading=reading))


def break_a_link(ledger, **sample):
    for up in (True, False):
        ledger.link_sample("fab0", LinkSample(at=1.0, source="netlink", up=up, **sample))


def simulated(ledger):
    """By the device of each fault."""
    return {one.fault.device: one.fault.simulated for one in ledger.spool.pending(10)}


def test_a_real_link_beside_simulated_gpus_is_real(ledger):
    """What the kernel says of a link is true whatever reads the GPUs."""
    break_a_gpu(ledger, simulated=True)
    break_a_link(ledger)
    assert simulated(ledger) == {"gpu0": True, "fab0": False}
    assert [condition.simulated for condition in ledger.conditions()] == [False]
    assert ledger.simulated


def test_a_simulated_link_beside_real_gpus_is_simulated(ledger):
    """The same the other way round, for the condition as for the fault."""
    break_a_gpu(ledger, simulated=False)
    assert not ledger.simulated
    break_a_link(ledger, simulated=True)
    assert simulated(ledger) == {"gpu0": False, "fab0": True}
    assert [condition.simulated for condition in ledger.conditions()] == [True]
    assert ledger.simulated


def test_another_root_alone_makes_no_link_simulated(tmp_path):
    """A container may see the node's own /sys under another name; the tree's mark decides."""
    (tmp_path / "class" / "net" / "fab0").mkdir(parents=True)
    assert not read_sysfs(tmp_path, "fab0").simulated
    (tmp_path / "aegis_simulated").touch()
    assert read_sysfs(tmp_path, "fab0").simulated
    assert read_sysfs(tmp_path, "fab9").simulated
