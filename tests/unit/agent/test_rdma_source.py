"""RDMA ports as sysfs and `rdma` have them, also of real machines; reads that hang."""

import asyncio
import json
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from aegis_agent.probes import rdma, rdma_statistic
from aegis_agent.probes.rdma import RdmaMemory, RdmaSample
from aegis_agent.probes.roles import Role, assign
from aegis_agent.simulated import fabric
from aegis_agent.sources import ports
from aegis_agent.sources.patience import Patience, StuckError
from aegis_agent.sources.rdma import Reader

DATA = Path(__file__).parents[3].parent / "shared" / "data"


def shared(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


@pytest.fixture(params=["ionic", "bnxt_re", "mlx5", "infiniband"])
def make(request):
    return request.param


@pytest.fixture
def tree(tmp_path, make):
    fabric.init(tmp_path, make, 2)
    return tmp_path


def reader(tree, make, number=0):
    return Reader(tree, f"{fabric.CARDS[make].rdma}{number}", 1, f"fab{number}")


def test_the_counters_of_each_make_are_read(tree, make):
    """Also of the one without a counters/ folder."""
    reading = reader(tree, make).all()
    assert (reading.present, reading.state, reading.rate) == (True, "ACTIVE", 400_000)
    assert reading.unreadable == ()
    judged = [name for name in fabric.CARDS[make].hardware if rdma.judged(name)]
    assert set(judged) <= set(reading.counters)
    assert ("symbol_error" in reading.counters) == (make != "bnxt_re")


def test_what_cannot_be_read_is_named_and_hides_nothing(tree, make):
    """A folder where a file should be, garbage, a negative number, a number and a half."""
    device = f"{fabric.CARDS[make].rdma}0"
    names = [name for name in fabric.CARDS[make].hardware if rdma.judged(name)][:5]
    fabric.make_unreadable(tree, device, names[0])
    for name, text in zip(names[1:], ("N/A", "-1", "1.5", ""), strict=True):
        fabric.set_counter(tree, device, name, text)
    whole, torn = reader(tree, make, 1).all(), reader(tree, make).all()
    assert set(torn.unreadable) == set(names)
    assert set(torn.counters) == set(whole.counters) - set(names)


def test_a_device_that_is_gone_is_absent_and_not_empty(tree, make):
    """No counters is something else than no device."""
    one = reader(tree, make)
    assert one.all().present
    fabric.remove_rdma(tree, f"{fabric.CARDS[make].rdma}0")
    assert not one.all().present
    assert not one.state().present


def test_eight_h100_with_infiniband_are_read_and_are_well(tmp_path, subject):
    """A real machine: eight rails at 400 Gb/s, a bond for storage, counters that are full."""
    with tarfile.open(shared("sys_class_infiniband_8xH100.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "class").mkdir()
    (tmp_path / "sys-class-infiniband-h100.0").rename(tmp_path / "class" / "infiniband")
    found = ports.find(tmp_path, tmp_path / "proc")
    roles = {one.name: one.role for one in assign(found.ports, found.gpus, ())}
    assert list(roles.values()).count(Role.FABRIC) == 8
    assert roles["mlx5_bond_0"] is Role.STORAGE
    full = {}
    for port in found.ports:
        reading = Reader(tmp_path, port.rdma, port.rdma_port, "").all()
        assert (reading.state, reading.physical_state) == ("ACTIVE", "LinkUp")
        assert reading.rate == (200_000 if "bond" in port.rdma else 400_000)
        assert reading.unreadable == ()
        full[port.rdma] = rdma.full(reading.counters)
        memory = RdmaMemory()
        for seconds in range(0, 60, 10):
            sample = RdmaSample(
                at=1000.0 + seconds, source="sysfs", device=port.rdma, link_up=True,
                state=reading.state, counters=reading.counters,
            )  # fmt: skip
            judgement = rdma.observe(replace(subject, device=port.name), memory, sample)
            memory = judgement.memory
            assert (judgement.faults, judgement.conditions) == ((), ())
    assert sorted(full["mlx5_1"]) == ["excessive_buffer_overrun_errors", "link_downed"]


def test_pollara_counters_from_the_command_are_those_of_sysfs():
    """Eight cards with 54 counters each, and four of another make in the same answer."""
    found = rdma_statistic.parse(shared("pollara_rdma_statistic_example_data.json").read_text())
    assert len(found) == 12
    assert [len(counters) for counters in found.values()] == [54] * 8 + [29] * 4
    counters = found["ionic_0", 1]
    assert counters["req_rx_pkt_seq_err"] == 0
    judged = [name for name in counters if rdma.judged(name)]
    assert "tx_rdma_ack_timeout" in judged
    assert "tx_rdma_ucast_bytes" not in judged


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "error: no such device", '[{"port": 1}]', '[{"ifname": 3}]', "[[]]"],
)
def test_what_is_no_statistic_is_nothing(text):
    """The command of another version, or its complaint."""
    assert rdma_statistic.parse(text) == {}


def test_values_that_are_no_counts_are_left_out():
    """And hide no others."""
    row = {"ifname": "ionic_0", "port": 1, "a_err": 3, "b_err": "n/a", "c_err": -1, "d_err": True}
    assert rdma_statistic.parse(json.dumps([row])) == {("ionic_0", 1): {"a_err": 3}}


def test_a_read_that_hangs_costs_a_thread_and_is_not_repeated():
    """Others go on, and it is asked again once it has ended."""
    release = threading.Event()
    patience = Patience(0.05)

    async def story():
        for _ in range(3):
            with pytest.raises(StuckError):
                await patience.read("wedged", release.wait)
        assert await patience.read("well", lambda: 7) == 7
        hanging = [one for one in threading.enumerate() if one.name == "read wedged"]
        assert (len(hanging), hanging[0].daemon) == (1, True)
        release.set()
        hanging[0].join(30)
        assert await patience.read("wedged", release.wait) is True

    asyncio.run(story())


def test_a_read_that_fails_fails_where_it_is_awaited():
    """Not in a thread that nobody hears."""

    async def story():
        with pytest.raises(ZeroDivisionError):
            await Patience(30.0).read("bad", lambda: 1 // 0)

    asyncio.run(story())
