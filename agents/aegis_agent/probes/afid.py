"""From a bank's registers to AMD's field id (AFID), and from the number to words.

    STATUS   poison 43 · deferred 44 · TCC 55 · PCC 57 · UC 61 · extended code 21:16
    IPID     hardware id 43:32 · type of the bank 63:48

The rules for MI300 are those of AMD's decoder. MI450 numbers differ: each kind of bank has a base,
to which severity (0, 64, 128) and extended code are added. `afid_table` says what a number means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes import afid_table
from aegis_agent.probes.afid_table import AFIDS, UNCLASSIFIED, Afid

INVALID = 33


class AcaSeverity(StrEnum):
    """How bad a bank's error is, as its STATUS says."""

    CORRECTED = "corrected"
    NONFATAL = "uncorrected, non-fatal"
    FATAL = "fatal"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """What STATUS and IPID say, taken apart."""

    status: int
    ipid: int

    @property
    def hardware_id(self) -> int:
        """Which kind of block: 0x96 is a memory controller."""
        return self.ipid >> 32 & 0xFFF

    @property
    def mca_type(self) -> int:
        """Which kind of bank of that block."""
        return self.ipid >> 48 & 0xFFFF

    @property
    def code(self) -> int:
        """The extended error code: which error of the bank."""
        return self.status >> 16 & 0x3F

    @property
    def is_valid(self) -> bool:
        """Whether the bank holds an error at all."""
        return bool(self.status >> 63 & 1)

    @property
    def is_poison(self) -> bool:
        """Poisoned data was consumed."""
        return bool(self.status >> 43 & 1)

    @property
    def is_deferred(self) -> bool:
        """The data is lost, and nobody has used it yet."""
        return bool(self.status >> 44 & 1)

    @property
    def severity(self) -> AcaSeverity:
        """In the order in which AMD's decoder asks."""
        uncorrected, task_corrupt = self.status >> 61 & 1, self.status >> 55 & 1
        processor_corrupt = self.status >> 57 & 1
        if self.is_poison:
            return AcaSeverity.NONFATAL
        if processor_corrupt or (uncorrected and task_corrupt):
            return AcaSeverity.FATAL
        if uncorrected or self.is_deferred:
            return AcaSeverity.NONFATAL
        return AcaSeverity.INVALID if task_corrupt else AcaSeverity.CORRECTED

    @property
    def name(self) -> str:
        """The bank in words: "UMC" or, of one without a name, its numbers."""
        name = _BANKS.get((self.hardware_id, self.mca_type))
        return name or f"bank {self.hardware_id:#x}/{self.mca_type:#x}"

    @property
    def error(self) -> str:
        """The error in words: "XGMI PCS DataLossErr", "UMC error 0x2"."""
        names = _CODES.get((self.hardware_id, self.mca_type), {})
        code = names.get(self.code)
        return f"{self.name} {code}" if code else f"{self.name} error {self.code:#x}"


# The names are those of Linux' scalable MCA tables.
_BANKS: Mapping[tuple[int, int], str] = {
    (0x01, 0): "SMU", (0x01, 1): "SMU", (0x01, 2): "MP5", (0x05, 0): "PB", (0x18, 0): "NBIO",
    (0x2E, 0): "CS", (0x2E, 1): "PIE", (0x2E, 2): "CS", (0x46, 0): "PCIE", (0x46, 1): "PCIE",
    (0x50, 0): "XGMI PCS", (0x6C, 0): "NBIF", (0x80, 0): "SHUB", (0x96, 0): "UMC",
    (0xB0, 0): "LS", (0xB0, 1): "IF", (0xB0, 2): "L2", (0xB0, 3): "DE", (0xB0, 5): "EX",
    (0xB0, 6): "FP", (0xB0, 7): "L3", (0xB0, 0x10): "LS", (0xFF, 0): "PSP", (0xFF, 1): "PSP",
    (0x259, 0): "XGMI PHY", (0x267, 0): "WAFL PHY",
}  # fmt: skip
_XGMI_CODES = (
    "DataLossErr", "TrainingErr", "FlowCtrlAckErr", "RxFifoUnderflowErr", "RxFifoOverflowErr",
    "CRCErr", "BERExceededErr", "TxMetaDataErr", "ReplayBufParityErr", "DataParityErr",
    "ReplayFifoOverflowErr", "ReplayFifoUnderflowErr", "ElasticFifoOverflowErr", "DeskewErr",
    "FlowCtrlCRCErr", "DataStartupLimitErr", "FCInitTimeoutErr", "RecoveryTimeoutErr",
    "ReadySerialTimeoutErr", "ReadySerialAttemptErr", "RecoveryAttemptErr",
    "RecoveryRelockAttemptErr", "ReplayAttemptErr", "SyncHdrErr", "TxReplayTimeoutErr",
    "RxReplayTimeoutErr", "LinkSubTxTimeoutErr", "LinkSubRxTimeoutErr", "RxCMDPktErr",
)  # fmt: skip
_UMC, _XGMI, _PSP = (0x96, 0), (0x50, 0), (0xFF, 1)
_CODES: Mapping[tuple[int, int], Mapping[int, str]] = {
    _XGMI: dict(enumerate(_XGMI_CODES)),
    _UMC: {
        0x0: "on-die ECC error", 0x1: "WriteDataPoisonErr", 0x2: "SdpParityErr",
        0x4: "AddressCommandParityErr", 0x5: "WriteDataCrcErr", 0x6: "SramEccErr",
        0x9: "EcsErr", 0xB: "RdCrcErr", 0xF: "end-to-end CRC error",
    },
}  # fmt: skip
_WAFL_BANKS = ((0x259, 0), (0x267, 0))
_WAFL_CODE_OF_PSP = 0x3F
_HBM_CODES = frozenset({0x0, 0x1, 0x4, 0x5, 0x9, 0xB, 0xF})
_CRC_CODES = frozenset({0xB, 0xF})
_WATCHDOGS = frozenset({(0xB0, 5, 0x0), (0x2E, 1, 0x5)})
_ASSERTIONS = frozenset({
    (0x2E, 2, 0x11), (0xB0, 3, 0x9), (0xB0, 5, 0xB), (0xB0, 6, 0x6), (0xB0, 1, 0xE),
    (0xB0, 2, 0x3), (0xB0, 7, 0x7), (0xB0, 0x10, 0x16), (0x2E, 1, 0x0),
})  # fmt: skip
_INSIDE: Mapping[AcaSeverity, int] = {
    AcaSeverity.CORRECTED: 29,
    AcaSeverity.NONFATAL: 28,
    AcaSeverity.FATAL: 30,
}
# MI450: (hardware id, type of the bank) -> number of its first corrected error.
_MI450_BASES: Mapping[tuple[int, int], int] = {
    (0x2E, 1): 40257, (0x2E, 2): 40001, (0x01, 1): 41025, (0x01, 2): 46081, (0xFF, 2): 41793,
    (0x77, 5): 40513, (0x96, 0): 40769, (0xFD, 0): 41281, (0x12, 0): 41537, (0x1FD, 0): 42049,
    (0x18, 0): 42305, (0x117, 0): 42561, (0x46, 1): 42817, (0x259, 0): 43073, (0x50, 0): 43329,
    (0x5C, 0): 46273, (0x6C, 0): 43585, (0x80, 0): 43842, (0xDD, 0): 46465, (0x70, 0): 44097,
    (0x73, 0): 44353, (0x27, 0): 44613, (0x1E1, 0): 44865, (0x40, 0): 45121, (0x346, 0): 45377,
    (0x164, 0): 45633, (0x160, 0): 45889, (0x16C, 0): 46657,
}  # fmt: skip
_MI450_OFFSETS: Mapping[AcaSeverity, int] = {
    AcaSeverity.CORRECTED: 0,
    AcaSeverity.NONFATAL: 64,
    AcaSeverity.FATAL: 128,
}


def afid_of_aca(status: int, ipid: int) -> int:
    """The number that AMD's decoder for MI300 gives a bank's error; 33 where STATUS is absurd."""
    bank = Bank(status=status, ipid=ipid)
    severity = bank.severity
    if severity is AcaSeverity.INVALID:
        return INVALID
    corrected = severity is AcaSeverity.CORRECTED
    kind = (bank.hardware_id, bank.mca_type)
    if kind == _XGMI:
        return 17 if corrected else 18
    if kind in _WAFL_BANKS or (kind == _PSP and bank.code == _WAFL_CODE_OF_PSP):
        return 15 if corrected else 16
    if kind == _UMC and bank.code in _HBM_CODES:
        return _afid_of_memory(bank.code, severity)
    return _afid_inside((*kind, bank.code), severity)


def _afid_of_memory(code: int, severity: AcaSeverity) -> int:
    if severity is AcaSeverity.CORRECTED:
        return 24
    if code in _CRC_CODES:
        return 21 if severity is AcaSeverity.FATAL else 23
    if code == 0:
        return 20 if severity is AcaSeverity.FATAL else 22
    return 25


def _afid_inside(error: tuple[int, int, int], severity: AcaSeverity) -> int:
    if severity is AcaSeverity.FATAL and error in _WATCHDOGS:
        return 27
    if severity is AcaSeverity.FATAL and error in _ASSERTIONS:
        return 26
    return _INSIDE[severity]


def afid_of_mi450_aca(status: int, ipid: int) -> int:
    """The same for MI450; 16999 for what has no number."""
    bank = Bank(status=status, ipid=ipid)
    base = _MI450_BASES.get((bank.hardware_id, bank.mca_type))
    offset = _MI450_OFFSETS.get(bank.severity)
    if base is None or offset is None:
        return UNCLASSIFIED
    return base + offset + bank.code


def describe(number: int) -> Afid | None:
    """What a field id means; None for a number that nobody has given a meaning."""
    if number == UNCLASSIFIED:
        return afid_table.unclassified()
    if 10000 <= number <= 10999:
        return afid_table.of_the_bmc(number)
    return AFIDS.get(number) or _describe_mi450(number)


def _describe_mi450(number: int) -> Afid | None:
    for kind, base in _MI450_BASES.items():
        if base <= number < base + 192:
            severity = list(_MI450_OFFSETS)[(number - base) // 64]
            return _like_mi300(number, kind, severity, (number - base) % 64)
    return None


def _like_mi300(number: int, kind: tuple[int, int], severity: AcaSeverity, code: int) -> Afid:
    """MI450 has no public table of meanings: the same bank of an MI300 tells class and action."""
    status = (
        code << 16
        | {
            AcaSeverity.CORRECTED: 0,
            AcaSeverity.NONFATAL: 1 << 61,
            AcaSeverity.FATAL: 1 << 61 | 1 << 57,
            AcaSeverity.INVALID: 0,
        }[severity]
    )
    bank = Bank(status=status, ipid=kind[1] << 48 | kind[0] << 32)
    like = AFIDS[afid_of_aca(bank.status, bank.ipid)]
    return replace(
        like,
        number=number,
        category=f"{like.category} (MI450)",
        kind=bank.error,
        afid_severity=severity.value,
        meaning=f"{bank.error}, {severity.value}; {like.meaning}",
        action=f"as for AFID {like.number} of MI300, by analogy: {like.action}",
    )


def meaning_of(number: int, bank: Bank | None = None) -> tuple[FaultClass, Severity]:
    """Our name for an error, as far as number and registers tell."""
    row = describe(number) or AFIDS[34]
    uncorrectable = row.fault_class is FaultClass.GPU_ECC_UNCORRECTABLE
    if bank is None or not uncorrectable or row.severity is not Severity.ERROR:
        return row.fault_class, row.severity
    if bank.is_poison:  # consumed: a reset is coming
        return FaultClass.GPU_ECC_POISON_CONSUMED, Severity.FATAL
    if bank.is_deferred:
        return FaultClass.GPU_ECC_DEFERRED, Severity.ERROR
    return row.fault_class, row.severity
