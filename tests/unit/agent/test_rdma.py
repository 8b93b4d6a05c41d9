"""RDMA counters by class and rate, and the state of the port."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes import rdma
from aegis_agent.probes.rdma import RdmaMemory, RdmaSample
from aegis_agent.probes.rdma_table import TABLE, Kind, counter

DATA = Path(__file__).parents[3].parent / "shared" / "data"
SAMPLE = RdmaSample(at=1000.0, source="sysfs", device="ionic_0", link_up=True, state="ACTIVE")


@pytest.fixture
def port(subject):
    return replace(subject, device="fab0", identity="")


def classes(judgement):
    return [fault.fault_class for fault in judgement.faults]


def lived(port, *readings):
    """What a port tells over readings (seconds, counters)."""
    memory, told = RdmaMemory(), []
    for seconds, counters in readings:
        sample = replace(SAMPLE, at=SAMPLE.at + seconds, counters=counters)
        judgement = rdma.observe(port, memory, sample)
        memory = judgement.memory
        told += [(seconds, fault) for fault in judgement.faults]
    return told


@pytest.mark.parametrize(
    "name",
    [
        "req_tx_loc_oper_err",  # ionic
        "unrecoverable_err",  # bnxt_re
        "req_remote_access_errors",  # mlx5 and bnxt_re
        "local_link_integrity_errors",  # InfiniBand
        "resp_rx_cqe_err",
    ],
)
def test_one_error_is_told_with_the_counter_before_and_after(port, name):
    """All drivers alike."""
    ((_, fault),) = lived(port, (0, {name: 3}), (10, {name: 4}))
    assert (fault.fault_class, fault.severity) == (FaultClass.NIC_RDMA_ERROR, Severity.ERROR)
    assert (fault.evidence[0].before, fault.evidence[0].after) == ("3", "4")
    assert dict(fault.details) == {"rdma_device": "ionic_0", "counters": name}


def test_what_stands_there_at_the_first_look_is_history(port):
    """Counters live as long as the driver; nobody knows when these errors were."""
    assert lived(port, (0, {"req_tx_loc_oper_err": 500, "symbol_error": 65535})) == []


@pytest.mark.parametrize(
    ("name", "per_second", "too_many"),
    [
        ("local_ack_timeout_err", 1, 2),
        ("tx_rdma_ack_timeout", 1, 2),
        ("out_of_sequence", 100, 130),
        ("tx_rdma_retx_pkts", 100, 130),
        ("port_rcv_errors", 10, 15),
        ("roce_slow_restart", 10, 15),
    ],
)
def test_retries_are_told_by_their_rate(port, name, per_second, too_many):
    """Retransmission is how RDMA survives; too much of it is a bad cable."""
    calm = [(at, {name: at * per_second}) for at in range(0, 300, 10)]
    assert lived(port, *calm) == []
    busy = [(at, {name: at * too_many}) for at in range(0, 61, 10)]
    (_, fault), *_ = lived(port, *busy)
    assert (fault.fault_class, fault.severity) == (FaultClass.NIC_RDMA_DEGRADED, Severity.WARNING)


def test_a_bit_error_rate_above_the_standard_is_an_error_within_the_hour(port):
    """120 symbol errors an hour are allowed; slowly or at once does not matter."""
    allowed = [(at, {"symbol_error": at // 30}) for at in range(0, 7200, 10)]
    assert lived(port, *allowed) == []
    twice = [(at, {"symbol_error": at // 15}) for at in range(0, 7200, 10)]
    (first, fault), *_ = lived(port, *twice)
    assert (fault.fault_class, 3000 < first < 4000) == (FaultClass.NIC_RDMA_ERROR, True)
    at_once = lived(port, (0, {"symbol_error": 0}), (10, {"symbol_error": 130}))
    assert FaultClass.NIC_RDMA_ERROR in [fault.fault_class for _, fault in at_once]


def test_how_often_one_looks_does_not_matter(port):
    """Once a second or once a minute: the same rate comes to the same verdict."""
    for pause in (1, 10, 60):
        calm = [(at, {"out_of_sequence": at * 90}) for at in range(0, 601, pause)]
        busy = [(at, {"out_of_sequence": at * 150}) for at in range(0, 601, pause)]
        assert (lived(port, *calm), bool(lived(port, *busy))) == ([], True)


def test_congestion_is_no_fault_and_a_storm_of_it_is_told_as_such(port):
    """CNPs are what keeps a busy network from losing packets."""
    name = "rx_rdma_cnp_pkts"
    busy = [(at, {name: at * 50_000}) for at in range(0, 600, 10)]
    assert lived(port, *busy) == []
    burst = [(0, {name: 0}), (10, {name: 5_000_000}), (20, {name: 5_000_000})]
    assert lived(port, *burst) == []
    storm = [(at, {name: at * 300_000}) for at in range(0, 121, 10)]
    (_, fault), *_ = lived(port, *storm)
    assert fault.fault_class is FaultClass.NIC_RDMA_DEGRADED
    assert "the network is congested, the port is well" in fault.evidence[0].text


def test_what_goes_on_is_told_once_a_minute_with_all_that_was_counted(port):
    """Sixty errors in ten minutes are some ten faults, and none is lost."""
    readings = [(at, {"req_rx_oper_err": at // 10}) for at in range(0, 601, 10)]
    told = lived(port, *readings)
    assert 10 <= len(told) <= 11
    assert 55 <= sum(fault.count for _, fault in told) <= 60


def test_a_closing_job_makes_no_fault(port):
    """Work that was posted is flushed, and each flushed completion is one with an error."""
    before = {"req_cqe_error": 10, "req_cqe_flush_error": 10, "req_rx_cqe_err": 0}
    after = {"req_cqe_error": 500, "req_cqe_flush_error": 500, "req_rx_cqe_err": 0}
    assert lived(port, (0, before), (10, after)) == []
    assert len(lived(port, (0, before), (10, after | {"req_cqe_error": 501}))) == 1


def test_a_counter_of_32_bits_that_wraps_has_grown(port):
    """Not every driver counts in 64."""
    name = "req_rx_oper_err"
    ((_, fault),) = lived(port, (0, {name: 2**32 - 2}), (10, {name: 1}))
    assert (fault.fault_class, fault.count) == (FaultClass.NIC_RDMA_ERROR, 3)


def test_counters_that_fall_mean_the_driver_was_reset(port):
    """Nobody can clear them but the driver; then counting starts there."""
    name = "req_rx_oper_err"
    (_, reset), (_, fault) = lived(port, (0, {name: 900}), (10, {name: 2}), (20, {name: 3}))
    assert (reset.fault_class, reset.severity) == (FaultClass.NIC_FIRMWARE_RESET, Severity.WARNING)
    assert (fault.fault_class, fault.count) == (FaultClass.NIC_RDMA_ERROR, 1)


def test_performance_counters_may_be_cleared_by_a_person(port):
    """`perfquery -R` does; and full ones count no more, which is said elsewhere."""
    assert lived(port, (0, {"symbol_error": 900}), (10, {"symbol_error": 0})) == []
    assert rdma.full({"link_downed": 255, "symbol_error": 255, "out_of_buffer": 15}) == [
        "link_downed"
    ]


def test_a_counter_that_is_unreadable_for_a_while_loses_nothing(port):
    """Nor does it hide the others."""
    readings = [(0, {"req_rx_oper_err": 1, "resp_tx_rmt_acc_err": 1}),
                (10, {"resp_tx_rmt_acc_err": 2}),
                (100, {"req_rx_oper_err": 5, "resp_tx_rmt_acc_err": 2})]  # fmt: skip
    told = lived(port, *readings)
    assert [(seconds, fault.count) for seconds, fault in told] == [(10, 1), (100, 4)]


def test_a_port_that_is_not_active_though_its_link_is_up_is_an_error(port):
    """Three readings in a row: state and link are read at different moments."""
    inactive = replace(SAMPLE, state="INIT")
    memory, told = rdma.observe(port, RdmaMemory(), SAMPLE).memory, []
    for _ in range(4):
        judgement = rdma.observe(port, memory, inactive)
        memory, told = judgement.memory, [*told, classes(judgement)]
    assert told == [[], [], [FaultClass.NIC_RDMA_ERROR], []]
    assert [one.fault_class for one in judgement.conditions] == [FaultClass.NIC_RDMA_ERROR]
    assert rdma.observe(port, memory, SAMPLE).conditions == ()
    down = replace(inactive, state="DOWN", link_up=False)
    assert rdma.observe(port, memory, down).conditions == ()


def test_an_rdma_device_that_is_gone_for_three_readings_is_removed(port):
    """Its interface is still there; gone together is told of the interface."""
    memory, told = rdma.observe(port, RdmaMemory(), SAMPLE).memory, []
    for _ in range(4):
        judgement = rdma.observe(port, memory, replace(SAMPLE, present=False))
        memory, told = judgement.memory, [*told, classes(judgement)]
    assert told == [[], [], [FaultClass.NIC_REMOVED], []]
    both = replace(SAMPLE, present=False, interface_present=False)
    known = rdma.observe(port, RdmaMemory(), SAMPLE).memory
    assert [classes(rdma.observe(port, known, both)) for _ in range(3)] == [[]] * 3
    assert rdma.observe(port, memory, SAMPLE).conditions == ()


def test_only_errors_are_worth_a_write(port):
    """Retransmissions and pauses grow all day."""
    counters = {"out_of_sequence": 1, "rx_rdma_cnp_pkts": 1, "req_rx_oper_err": 1}
    memory = rdma.observe(port, RdmaMemory(), replace(SAMPLE, counters=counters)).memory
    later = replace(SAMPLE, at=1010.0, counters=counters | {"rx_rdma_cnp_pkts": 7})
    assert rdma.observe(port, memory, later).memory == memory
    later = replace(later, counters=counters | {"req_rx_oper_err": 2})
    assert rdma.observe(port, memory, later).memory != memory


def test_a_reboot_is_a_new_first_look(port):
    """Counters of another boot are not compared."""
    before = replace(SAMPLE, counters={"req_rx_oper_err": 5})
    memory = rdma.observe(port, RdmaMemory(), before).memory
    after = replace(SAMPLE, counters={"req_rx_oper_err": 9})
    assert rdma.observe(replace(port, boot_id="boot-2"), memory, after).faults == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rx_prio3_pause", Kind.CONGESTION),
        ("tx_cnp", Kind.CONGESTION),
        ("rx_fatal_mem_err", Kind.ERROR),
        ("tx_retry_timeout", Kind.RATE),
        ("rx_fcs_drops", Kind.RATE),
        ("active_qps", Kind.CONTEXT),
        ("rx_good_bytes", Kind.CONTEXT),
    ],
)
def test_a_name_that_nobody_listed_is_judged_by_its_words(name, kind):
    """The next driver has other names for the same things."""
    assert counter(name).kind is kind


def test_every_field_that_others_count_as_an_error_is_judged():
    """All but what every ending job leaves behind."""
    path = DATA / "rdma_error_fields.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    for row in csv.DictReader(path.open()):
        found = TABLE[row["driver"]][row["field"]]
        left_out = "flush" in row["field"] or row["field"].endswith("_bytes")
        assert (found.kind is Kind.CONTEXT) == left_out, row
        if row["class"] == "critical":
            assert found.kind is Kind.ERROR
