"""What each counter of an RDMA port means, and how much of it is too much.

    error       any growth is told as nic.rdma.error: a card, its bus or a queue pair failed
    rate        more than so many within so long is told as nic.rdma.degraded
    congestion  signals of a busy network: no fault; a storm of them is told as nic.rdma.degraded
    context     not judged: traffic, gauges, and what every ending job leaves behind

Which counters of ionic, bnxt_re and mlx5 count errors is from AMD's node-scraper, rdmadata.py; the
rates are NVSentinel's defaults for its NIC health monitor, and apply to whatever driver has the
same thing under another name. What retries and succeeds is judged by rate, though AMD lists it as
an error: retransmission is how RDMA survives. Flushed completions are context: whoever closes a
queue pair with work in it makes them. A name that nobody has listed is judged by its words, as
AMD's cluster validation suite does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Kind(StrEnum):
    """What a counter counts."""

    ERROR = "error"
    RATE = "rate"
    CONGESTION = "congestion"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Told when it grows by more than this within so long."""

    amount: float = 0.0
    seconds: float = 1.0
    error: bool = False  # as nic.rdma.error, else as nic.rdma.degraded


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """How one counter is judged."""

    kind: Kind
    limits: tuple[Limit, ...] = ()
    full: int | None = None  # it stays at this value once it is reached (InfiniBand's PMA)
    less: str = ""  # a counter whose growth may be part of this one's


_ANY = Counter(kind=Kind.ERROR, limits=(Limit(error=True),))
_CONTEXT = Counter(kind=Kind.CONTEXT)


def _rate(per_second: float) -> Counter:
    return Counter(kind=Kind.RATE, limits=(Limit(amount=per_second),))


def _storm(per_second: float) -> Counter:
    """Kept up for about a minute: a collective's burst is no storm."""
    return Counter(kind=Kind.CONGESTION, limits=(Limit(amount=60 * per_second, seconds=60.0),))


def _completions(side: str, error: str, flush: str) -> dict[str, Counter]:
    """Completions with an error, without those that were flushed, and these."""
    failed = Counter(kind=Kind.ERROR, limits=_ANY.limits, less=f"{side}_{flush}")
    return {f"{side}_{error}": failed, f"{side}_{flush}": _CONTEXT}


_TIMEOUT = _rate(1)  # NVSentinel: local_ack_timeout_err
_RESTART = _rate(10)  # NVSentinel: roce_slow_restart
_LOSS = _rate(10)  # NVSentinel: port_rcv_errors
_REORDER = _rate(100)  # NVSentinel: out_of_sequence, port_xmit_discards
_CNP = _storm(100_000)
_ECN = _storm(1_000_000)
_PAUSE = _storm(10_000)
# In ticks of some 4 ns: nothing could be sent for half of the time.
_WAIT = _storm(100_000_000)


def _each(counter: Counter, names: str) -> dict[str, Counter]:
    return dict.fromkeys(names.split(), counter)


_IONIC = (
    _each(
        _ANY,
        "req_rx_rnr_retry_err req_rx_rmt_acc_err req_rx_rmt_req_err req_rx_oper_err "
        "req_rx_inval_pkts req_tx_loc_acc_err req_tx_loc_oper_err req_tx_mem_mgmt_err "
        "req_tx_loc_sgl_inv_err resp_rx_loc_len_err resp_rx_inval_request "
        "resp_rx_loc_oper_err resp_rx_outof_atomic resp_tx_rmt_inval_req_err resp_tx_rmt_acc_err "
        "resp_tx_rmt_oper_err resp_tx_rnr_retry_err resp_tx_loc_sgl_inv_err resp_rx_s0_table_err",
    )
    | _each(_TIMEOUT, "req_tx_retry_excd_err tx_rdma_ack_timeout tx_rdma_ccl_cts_ack_timeout")
    | _each(_LOSS, "rx_rdma_mtu_discard_pkts")
    | _each(
        _REORDER,
        "req_rx_pkt_seq_err req_rx_impl_nak_seq_err req_rx_dup_response resp_rx_dup_request "
        "resp_rx_outof_buf resp_rx_outouf_seq resp_rx_ccl_cts_outouf_seq resp_tx_pkt_seq_err "
        "tx_rdma_retx_pkts tx_rdma_ccl_cts_retx_pkts",
    )
    | _each(_CNP, "tx_rdma_cnp_pkts rx_rdma_cnp_pkts")
    | _each(_ECN, "rx_rdma_ecn_pkts")
    | _each(_CONTEXT, "tx_rdma_retx_bytes tx_rdma_ccl_cts_retx_bytes")  # of the packets above
    | _completions("req_rx", "cqe_err", "cqe_flush")
    | _completions("resp_rx", "cqe_err", "cqe_flush")
)

_BNXT = (
    _each(
        _ANY,
        "unrecoverable_err res_tx_pci_err res_rx_pci_err res_mem_err "  # critical
        "tx_roce_errors rx_roce_errors rnr_nak_retry_err bad_resp_err local_qp_op_err "
        "local_protection_err mem_mgmt_op_err req_remote_invalid_request req_remote_access_errors "
        "remote_op_err res_exceed_max resp_local_length_error res_exceeds_wqe res_opcode_err "
        "res_rx_invalid_rkey res_rx_domain_err res_rx_no_perm res_rx_range_err "
        "res_tx_invalid_rkey res_tx_domain_err res_tx_no_perm res_tx_range_err res_irrq_oflow "
        "res_unsup_opcode res_unaligned_atomic res_rem_inv_err res_srq_err res_cmp_err "
        "res_invalid_dup_rkey res_wqe_format_err res_cq_load_err res_srq_load_err "
        "resp_remote_access_errors rx_icrc_encapsulated",
    )
    | _each(_TIMEOUT, "local_ack_timeout_err max_retry_exceeded recoverable_errors")
    | _each(_RESTART, "roce_adp_retrans roce_adp_retrans_to")
    | _each(_LOSS, "tx_roce_discards rx_roce_discards")
    | _each(
        _REORDER,
        "packet_seq_err implied_nak_seq_err duplicate_request out_of_buffer out_of_sequence",
    )
    | _each(_CNP, "rp_cnp_ignored tx_cnp_pkts rx_cnp_pkts")
    | _each(_ECN, "rx_ecn_marked_pkts")
    | _completions("req", "cqe_error", "cqe_flush_error")
    | _completions("resp", "cqe_error", "cqe_flush_error")
)

_MLX5 = (
    _each(
        _ANY,
        "rnr_nak_retry_err resp_local_length_error  "
        "req_remote_invalid_request req_remote_access_errors resp_remote_access_errors "
        "rx_icrc_encapsulated",
    )
    | _each(_TIMEOUT, "local_ack_timeout_err")
    | _each(
        _RESTART, "roce_slow_restart roce_slow_restart_trans roce_adp_retrans roce_adp_retrans_to"
    )
    | _each(
        _REORDER,
        "out_of_buffer out_of_sequence duplicate_request packet_seq_err implied_nak_seq_err",
    )
    | _each(_CNP, "rp_cnp_ignored rp_cnp_handled np_cnp_sent roce_slow_restart_cnps")
    | _each(_ECN, "np_ecn_marked_roce_packets")
    | _each(_CONTEXT, "lifespan")
    | _completions("req", "cqe_error", "cqe_flush_error")
    | _completions("resp", "cqe_error", "cqe_flush_error")
)

# Of every port's counters/ folder: the performance counters of InfiniBand, which stop when full.
PERFORMANCE: Mapping[str, Counter] = {
    "excessive_buffer_overrun_errors": Counter(
        kind=Kind.ERROR, limits=(Limit(error=True),), full=15
    ),
    "local_link_integrity_errors": Counter(kind=Kind.ERROR, limits=(Limit(error=True),), full=15),
    "symbol_error": Counter(
        kind=Kind.RATE,
        # 120 an hour is the bit error rate of 1e-12 that the standard allows.
        limits=(Limit(amount=120, seconds=3600.0, error=True), Limit(amount=10)),
        full=0xFFFF,
    ),
    "link_error_recovery": Counter(
        kind=Kind.RATE, limits=(Limit(amount=5, seconds=60.0),), full=0xFF
    ),
    "port_rcv_errors": Counter(kind=Kind.RATE, limits=_LOSS.limits, full=0xFFFF),
    "port_rcv_remote_physical_errors": Counter(kind=Kind.RATE, limits=_LOSS.limits, full=0xFFFF),
    "port_xmit_discards": Counter(kind=Kind.RATE, limits=_REORDER.limits, full=0xFFFF),
    "VL15_dropped": Counter(kind=Kind.RATE, limits=_REORDER.limits, full=0xFFFF),
    "port_xmit_wait": _WAIT,
    # A lost link: told by its edges, and where those were missed from this counter, as a flap.
    "link_downed": Counter(kind=Kind.CONTEXT, full=0xFF),
    # Partition keys and routes, set by whoever configures the fabric.
    "port_rcv_switch_relay_errors": _CONTEXT,
    "port_rcv_constraint_errors": _CONTEXT,
    "port_xmit_constraint_errors": _CONTEXT,
}

TABLE: Mapping[str, Mapping[str, Counter]] = {"ionic": _IONIC, "bnxt_re": _BNXT, "mlx5": _MLX5}

_WORDS = (
    (re.compile(r"flush|lifespan|watermark|active|_bytes$"), _CONTEXT),
    (re.compile(r"cnp"), _CNP),
    (re.compile(r"ecn"), _ECN),
    (re.compile(r"pause|pfc"), _PAUSE),
    (re.compile(r"xmit_wait"), _WAIT),
    (re.compile(r"unrecover|uncorrect|fatal|pci_err"), _ANY),
    (re.compile(r"timeout|retry|exceeded"), _TIMEOUT),
    (re.compile(r"ooo|retrans|retx|out_?of|dup|seq"), _REORDER),
    (re.compile(r"err|drop|discard|overflow|fcs|nak|loss"), _LOSS),
)


@cache
def counter(name: str) -> Counter:
    """How this counter is judged, whichever driver it is from."""
    for listed in (PERFORMANCE, *TABLE.values()):
        if (found := listed.get(name)) is not None:
            return found
    for words, judged in _WORDS:
        if words.search(name.lower()):
            return judged
    return _CONTEXT
