"""GPUs as the book has them: resets, replacements, ages."""

from pathlib import Path

import pytest

from aegis.model.node import Health
from aegis_agent.book import Book
from aegis_agent.probes.ecc import EccCounts
from aegis_agent.probes.gpu import GpuReading, Silence
from aegis_agent.probes.gpu_survey import GpuSurvey
from aegis_agent.senses.gpu import GpuSense
from aegis_agent.settings import read
from aegis_agent.sources.gpu_news import (
    GpuIdentified,
    GpuLibrary,
    GpuRead,
    GpuSilent,
    GpusListed,
    GpuSurveyed,
)
from aegis_agent.spool import Spool

GPU, OTHER = "0000:75:00.0 8bff SIM0", "0000:85:00.0 8bfe SIM1"
CALLS = frozenset({"ecc_count(umc)"})


class Node:
    """A node with these GPUs, and a clock."""

    def __init__(self):
        self.book = Book(node="n1", boot_id="b1", spool=Spool(None), urge=lambda: None)
        self.sense = GpuSense(read(None, {"state_dir": Path("/nowhere")}, "n1"), self.book)
        self.at = 1000.0
        self.sense.take(GpuLibrary(text="amdsmi", simulated=True))
        self.list(GPU, OTHER)

    def list(self, *identities, hidden=0):
        self.sense.take(GpusListed(at=self.at, identities=identities, hidden=hidden))

    def read(self, identity=GPU, uncorrectable=0):
        self.at += 1.0
        counts = {"umc": EccCounts(uncorrectable=uncorrectable)}
        reading = GpuReading(at=self.at, ecc=counts, worked=CALLS)
        self.sense.take(GpuRead(identity=identity, reading=reading))

    def fail(self, identity=GPU):
        self.at += 1.0
        reading = GpuReading(at=self.at, failed={"ecc_count(umc)": 42})
        self.sense.take(GpuRead(identity=identity, reading=reading))

    def survey(self, identity=GPU, **fields):
        self.sense.take(GpuSurveyed(identity=identity, survey=GpuSurvey(at=self.at, **fields)))

    def health(self, name="gpu0"):
        return self.book.device(name).health

    @property
    def faults(self):
        return [one.fault.fault_class.value for one in self.book.spool.pending(100)]


@pytest.fixture
def node():
    node = Node()
    node.read(GPU)
    node.read(OTHER)
    return node


def test_a_gpu_that_is_reset_is_not_lost_and_its_old_errors_are_history(node):
    """The kernel's word comes through the book; a reset of a neighbour forgives nothing."""
    for identity in (GPU, OTHER):
        node.read(identity, uncorrectable=1)
    assert node.health() == Health.UNHEALTHY
    node.book.resetting |= {"gpu0": node.at, "gpu1": node.at}
    for _ in range(5):
        node.fail()
    assert node.health() == Health.UNKNOWN
    node.book.resetting.clear()
    node.book.reset_at["gpu0"] = node.at
    node.read(GPU, uncorrectable=1)
    node.read(OTHER, uncorrectable=1)
    assert node.health("gpu0") == Health.HEALTHY
    assert node.health("gpu1") == Health.UNHEALTHY
    assert set(node.faults) == {"gpu.ecc.uncorrectable"}


def test_a_gpu_that_was_lost_before_its_reset_is_healthy_after_it(node):
    """The condition ends with the first reading."""
    for _ in range(3):
        node.fail()
    assert [one.fault_class.value for one in node.book.conditions()] == ["gpu.lost"]
    node.book.resetting["gpu0"] = node.at
    node.fail()
    node.book.resetting.clear()
    node.book.reset_at["gpu0"] = node.at
    node.read()
    assert (node.health(), node.book.conditions()) == (Health.HEALTHY, ())


def test_a_gpu_that_hides_is_unknown_and_not_lost(node):
    """It is listed, and does not say which it is."""
    node.list(GPU, hidden=1)
    assert node.health("gpu1") == Health.UNKNOWN
    assert node.faults == ["gpu.probe.stalled"]
    node.list(GPU)
    assert node.faults == ["gpu.probe.stalled", "gpu.lost"]


def test_a_gpu_is_better_known_in_time(node):
    """First only its address answers, then all: the same GPU under the same name."""
    node.list(GPU, OTHER, "0000:95:00.0 - -")
    silence = Silence(at=node.at, reason="amdsmi device_uuid did not answer", stalled=True)
    node.sense.take(GpuSilent(identity="0000:95:00.0 - -", silence=silence))
    assert node.health("gpu2") == Health.UNKNOWN
    whole = "0000:95:00.0 8bfd SIM2"
    node.list(GPU, OTHER, whole)
    node.read(whole)
    assert node.book.device("gpu2").identity == whole
    assert node.health("gpu2") == Health.HEALTHY
    assert len(node.book.devices()) == 3


def test_a_serial_that_cannot_be_read_any_more_changes_nothing(node):
    """Address and UUID are the same."""
    poor = "0000:75:00.0 8bff -"
    node.list(poor, OTHER)
    node.read(poor, uncorrectable=2)
    assert node.book.device("gpu0").identity == GPU
    assert node.health() == Health.UNHEALTHY


def test_a_gpu_says_where_it_sits_and_what_it_is(node):
    """Other senses know it by its address; who holds it is told by name and pid."""
    assert node.book.device_at("0000:85:00.0") == "gpu1"
    node.sense.take(GpuIdentified(identity=GPU, facts=(("driver", "6.16.6"),)))
    node.survey(power_w=600, processes=1, holders=((4711, "python3"),))
    node.read()
    device = node.book.device("gpu0")
    assert device.facts == (("driver", "6.16.6"), ("held_by", "python3 (4711)"))
    assert dict(device.counters)["power_w"] == 600


def test_what_was_not_read_for_long_is_unknown(node):
    """A reading makes a healthy device for as long as it is fresh, a survey its counters."""
    node.survey(power_w=600, processes=1, holders=((4711, "python3"),))
    node.sense.tick(node.at + 60.0)
    assert node.health() == Health.UNKNOWN
    assert "power_w" not in dict(node.book.device("gpu0").counters)
    node.read()
    assert node.book.device("gpu0").facts == ()
