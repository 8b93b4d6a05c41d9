"""AMD's field ids: from registers to the number, and from the number to words and a class."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes.afid import (
    AcaSeverity,
    Bank,
    afid_of_aca,
    afid_of_mi450_aca,
    describe,
    meaning_of,
)

VECTORS = Path("../shared/data/aca_to_afid.csv")
TABLE = Path("../shared/data/afid_mi300.csv")
MI450 = Path("../shared/data/afid_mi450_bank_base.csv")
SERVICE_ACTIONS = Path("../shared/data/amd_sag_default_conditions.csv")
XGMI_CODES = Path("../shared/data/xgmi_pcs_error_codes.csv")

UC, PCC, TCC, DEFERRED, POISON = 1 << 61, 1 << 57, 1 << 55, 1 << 44, 1 << 43
REGISTERS = st.integers(0, 2**64 - 1)


def rows(path):
    """The lines of one of the shared tables."""
    if not path.exists():
        pytest.skip(f"{path} is not here: the shared data stands beside the repository")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def ipid(hardware_id, mca_type=0):
    return mca_type << 48 | hardware_id << 32 | 0x36430400


def test_every_shared_vector_gets_its_number():
    """AMD's own tests, a user's log, and one line per rule."""
    vectors = rows(VECTORS)
    assert len(vectors) > 80
    wrong = [
        row
        for row in vectors
        if afid_of_aca(int(row["STATUS"], 16), int(row["IPID"], 16)) != int(row["afid_expected"])
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("status", "severity"),
    [
        (0, AcaSeverity.CORRECTED),
        (UC, AcaSeverity.NONFATAL),
        (UC | TCC, AcaSeverity.FATAL),
        (PCC, AcaSeverity.FATAL),
        (PCC | POISON, AcaSeverity.NONFATAL),  # poison is asked first
        (PCC | DEFERRED, AcaSeverity.FATAL),
        (DEFERRED, AcaSeverity.NONFATAL),
        (DEFERRED | TCC, AcaSeverity.NONFATAL),
        (TCC, AcaSeverity.INVALID),
    ],
)
def test_severity_is_asked_in_amds_order(status, severity):
    """Several bits may be set; the first question that is answered decides."""
    assert Bank(status=status, ipid=0).severity is severity


@pytest.mark.parametrize(
    ("status", "bank", "number"),
    [
        (0, ipid(0x50), 17),
        (DEFERRED, ipid(0x50), 18),
        (0x7 << 16, ipid(0x259), 15),
        (UC, ipid(0x267), 16),
        (0x3F << 16, ipid(0xFF, 1), 15),
        (0x3E << 16, ipid(0xFF, 1), 29),
        (UC | PCC, ipid(0x96), 20),
        (UC, ipid(0x96), 22),
        (0xF << 16 | UC, ipid(0x96), 23),
        (0xB << 16 | PCC, ipid(0x96), 21),
        (0x2 << 16 | PCC, ipid(0x96), 30),  # a memory controller's error outside the memory
        (0x5 << 16, ipid(0x96), 24),
        (PCC, ipid(0xB0, 5), 27),
        (0x5 << 16 | PCC, ipid(0x2E, 1), 27),
        (0x5 << 16 | UC, ipid(0x2E, 1), 28),
        (PCC, ipid(0x2E, 1), 26),
        (0x16 << 16 | PCC, ipid(0xB0, 0x10), 26),
        (TCC, ipid(0x96), 33),
        (TCC, ipid(0x50), 33),
        (0, 0, 29),
    ],
)
def test_banks_have_their_numbers(status, bank, number):
    """The examples that this project carries itself."""
    assert afid_of_aca(status, bank) == number


def test_mi450_numbers_are_base_and_severity_and_code():
    """Every kind of bank has its own 192 numbers; what has none is unclassified."""
    assert afid_of_mi450_aca(0x2 << 16, ipid(0x96)) == 40771
    assert afid_of_mi450_aca(0x2 << 16 | UC, ipid(0x96)) == 40835
    assert afid_of_mi450_aca(0x2 << 16 | PCC, ipid(0x96)) == 40899
    assert afid_of_mi450_aca(0, ipid(0x96, 7)) == 16999
    assert afid_of_mi450_aca(TCC, ipid(0x96)) == 16999


def test_mi450_bases_are_those_of_the_shared_table():
    """Twenty-eight kinds of bank."""
    for row in rows(MI450):
        bank = ipid(int(row["hw_id"], 16), int(row["mca_type"], 16))
        assert afid_of_mi450_aca(0, bank) == int(row["base_afid"])


@given(REGISTERS, REGISTERS)
def test_any_registers_have_a_number_with_a_meaning(status, bank):
    """Registers may hold anything; the answer is always one that can be explained."""
    for number in (afid_of_aca(status, bank), afid_of_mi450_aca(status, bank)):
        assert describe(number) is not None


@given(REGISTERS, REGISTERS)
def test_an_mi450_number_says_the_same_of_class_and_severity_as_the_mi300_rules(status, bank):
    """Two generations, one vocabulary."""
    number = afid_of_mi450_aca(status, bank)
    if number == 16999:
        return
    old, new = describe(afid_of_aca(status, bank)), describe(number)
    assert (new.fault_class, new.severity) == (old.fault_class, old.severity)
    assert new.physical_action_first == old.physical_action_first


def test_the_table_agrees_with_the_shared_one():
    """Conditions and which of them need hands first."""
    for row in rows(TABLE):
        meant = describe(int(row["afid"]))
        assert meant.condition == row["sag_condition(inferred by name)"], row
        assert meant.physical_action_first == (row["physical_action_first"] == "yes"), row


def test_conditions_are_those_of_amds_service_actions():
    """And what AMD says of physical work is what the table says."""
    physical = {
        row["nodeCondition"]: row["physicalActionNeeded"] == "True" for row in rows(SERVICE_ACTIONS)
    }
    for number in range(1, 35):
        meant = describe(number)
        if meant.condition:
            assert meant.physical_action_first == physical[meant.condition], number


def test_xgmi_codes_have_their_names():
    """The name of the error is what an operator can search for."""
    for row in rows(XGMI_CODES):
        code = int(row["error_code_ext"], 16)
        assert Bank(status=code << 16, ipid=ipid(0x50)).error == row["name"]


@pytest.mark.parametrize(
    ("numbers", "fault_class", "severity"),
    [
        (range(1, 13), FaultClass.GPU_INIT_FAILED, Severity.FATAL),
        ([13], FaultClass.PCIE_AER_CORRECTED, Severity.WARNING),
        ([14], FaultClass.PCIE_AER_FATAL, Severity.FATAL),
        ([15, 17], FaultClass.GPU_XGMI_ERROR, Severity.WARNING),
        ([16, 18], FaultClass.GPU_XGMI_ERROR, Severity.FATAL),
        ([19], FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD, Severity.FATAL),
        ([20, 21, 25], FaultClass.GPU_ECC_UNCORRECTABLE, Severity.FATAL),
        ([22, 23, 28], FaultClass.GPU_ECC_UNCORRECTABLE, Severity.ERROR),
        ([24, 29], FaultClass.GPU_ECC_CORRECTABLE, Severity.INFO),
        ([26, 27, 30], FaultClass.GPU_RAS_FATAL, Severity.FATAL),
        ([31, 32, 33, 34, 10000, 10999, 16999], FaultClass.GPU_RAS_RECORD, Severity.WARNING),
    ],
)
def test_numbers_have_their_class(numbers, fault_class, severity):
    """Rules know classes, not numbers."""
    for number in numbers:
        meant = describe(number)
        assert (meant.number, meant.fault_class, meant.severity) == (number, fault_class, severity)


def test_numbers_without_a_meaning_have_none():
    """Nobody guesses."""
    for number in (-1, 0, 35, 9999, 11000, 16998, 40000, 46849, 2**64 - 1):
        assert describe(number) is None


def test_the_registers_tell_deferred_and_poison_apart():
    """28 says only "not corrected"; what nobody has used yet may still be saved around."""
    inside = ipid(0x01, 1)
    assert meaning_of(28) == (FaultClass.GPU_ECC_UNCORRECTABLE, Severity.ERROR)
    assert meaning_of(28, Bank(status=DEFERRED, ipid=inside)) == (
        FaultClass.GPU_ECC_DEFERRED,
        Severity.ERROR,
    )
    assert meaning_of(28, Bank(status=POISON, ipid=inside)) == (
        FaultClass.GPU_ECC_POISON_CONSUMED,
        Severity.FATAL,
    )
    assert meaning_of(22, Bank(status=UC, ipid=ipid(0x96)))[0] is FaultClass.GPU_ECC_UNCORRECTABLE
    assert meaning_of(18, Bank(status=DEFERRED, ipid=ipid(0x50)))[0] is FaultClass.GPU_XGMI_ERROR
    assert meaning_of(2**64 - 1) == (FaultClass.GPU_RAS_RECORD, Severity.WARNING)
