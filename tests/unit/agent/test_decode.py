"""`aegis afid` and `aegis cper`: what is asked for in words, and refusals that say what to do."""

import io
import json
import sys

import pytest

from aegis.cli.main import main
from aegis_agent.simulated import cper as building


@pytest.fixture
def aegis(capsys):
    """Runs a command: its exit code, what it printed, and what it said of trouble."""

    def run(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as error:
            code = error.code
        return code, *capsys.readouterr()

    return run


def build(kind):
    severity, sections = building.KINDS[kind]
    return building.record(sections, severity=severity, at=1_700_000_000, record_id="2:A")


@pytest.fixture
def record_file(tmp_path):
    """A fatal record, a corrected one, and bytes that are none."""
    path = tmp_path / "ring"
    path.write_bytes(build("xgmi") + build("corrected") + b"no record")
    return path


def test_a_bank_that_holds_no_error_says_so(aegis):
    """The table has a number for it all the same."""
    code, text, _ = aegis("afid", "0", "0")
    assert code == 0
    assert "no: bit 63 of STATUS is 0, so the bank tells no error" in text
    assert "bit 63" not in aegis("afid", "b000000000050000", "5036430400")[1]


def test_a_number_in_words(aegis):
    """What it means, what we call it, what to do, and that a reset is no answer."""
    code, text, _ = aegis("afid", "18")
    assert code == 0
    for words in ("XGMI", "gpu.xgmi.error, fatal", "torque", "never answered by a reset"):
        assert words in text


@pytest.mark.parametrize(
    "registers",
    [
        ("0xb000000000050000", "0x0000005036430400"),
        ("B000000000050000", "5036430400"),
        ("0XB000000000050000", "0x5036430400"),
    ],
)
def test_registers_in_hexadecimal_with_or_without_prefix(aegis, registers):
    """As they stand in a kernel log or a register dump."""
    code, text, _ = aegis("afid", *registers, "-o", "json")
    answer = json.loads(text)
    assert code == 0
    assert (answer["afid"], answer["class"], answer["error"]) == (
        18,
        "gpu.xgmi.error",
        "XGMI PCS CRCErr",
    )
    assert answer["physical_action_first"] is True
    assert answer["service_action"]


def test_the_generation_can_be_said(aegis):
    """The same registers have another number on an MI450."""
    _, text, _ = aegis("afid", "0", "5000000000", "--gpu", "mi450", "-o", "json")
    assert json.loads(text)["afid"] == 43329


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["35"], 3, "no field id is numbered 35; there are 1 to 34"),
        (["9" * 5000], 3, "no field id is numbered 9999"),
        (["0x12"], 2, "decimal number, not '0x12'; of registers it takes two"),
        (["eighteen"], 2, "a field id is a decimal number, not 'eighteen'"),
        (["١٨"], 2, "a field id is a decimal number"),
        (["1", "2", "3"], 2, "neither one NUMBER nor STATUS and IPID"),
        (["0xzz", "0x0"], 2, "STATUS is a register of up to 16 hexadecimal digits, not '0xzz'"),
        (["0x0", "0x12345678901234567"], 2, "IPID is a register"),
        ([], 2, "required"),
    ],
)
def test_what_is_no_number_is_refused(aegis, words, code, sentence):
    """One sentence that says what to do, and the exit code that all commands share."""
    answer = aegis("afid", *words)
    assert answer[0] == code
    assert answer[1] == ""
    assert sentence in answer[2]


def test_a_file_of_records_in_words(aegis, record_file):
    """Each record, what is in it, and that some bytes are none."""
    code, text, _ = aegis("cper", record_file)
    assert code == 0
    for words in ("record       2:A", "2023-11-14T22:13:20Z", "XGMI PCS CRCErr, fatal",
                  "gpu.ecc.correctable, info", "begin with no CPER signature"):  # fmt: skip
        assert words in text


def test_a_file_of_records_as_json(aegis, record_file):
    """For programs; digests as the agent keeps them."""
    _, text, _ = aegis("cper", record_file, "-o", "json")
    answer = json.loads(text)
    assert answer["afids"] == [18, 24, 31]
    first = answer["records"][0]
    assert (first["record_id"], first["severity"], first["at"]) == ("2:A", "fatal", 1_700_000_000)
    assert first["findings"][0]["class"] == "gpu.xgmi.error"
    assert answer["records"][2]["written_at"] is None


def test_records_from_standard_input(aegis, monkeypatch):
    """As from the driver's ring."""
    stream = io.TextIOWrapper(io.BytesIO(build("threshold")))
    monkeypatch.setattr(sys, "stdin", stream)
    code, text, _ = aegis("cper", "-", "-o", "json")
    assert (code, json.loads(text)["afids"]) == (0, [19])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (bytes(100), "holds no CPER record: it holds only zeros"),
        (b"\x7fELF something else", "holds no CPER record: 19 bytes begin with no CPER signature"),
        (b"CPER", "holds no CPER record: the record is cut off within its header"),
    ],
)
def test_a_file_that_holds_no_record_is_refused(aegis, tmp_path, content, sentence):
    """It is said what it holds instead."""
    path = tmp_path / "file"
    path.write_bytes(content)
    code, text, said = aegis("cper", path)
    assert (code, text) == (1, "")
    assert f"aegis cper: {path} {sentence}" in said


def test_missing_files_and_folders_are_refused(aegis, tmp_path):
    """Each with its own exit code."""
    assert aegis("cper", tmp_path / "none")[0] == 3
    code, _, said = aegis("cper", tmp_path)
    assert code == 2
    assert "is a folder; name a file of records in it" in said
