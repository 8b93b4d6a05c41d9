"""Error records: what can be read is read, what cannot is said, and nothing raises."""

import struct
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aegis_agent.probes.afid import describe
from aegis_agent.probes.cper import CperRecord, decode
from aegis_agent.simulated import cper as building

AT = 1_764_666_000.0  # whole seconds: a record knows no others
UMC_FATAL = 1 << 63 | 1 << 61 | 1 << 57
KINDS = sorted(building.KINDS)


def build(kind="fatal", **changes):
    severity, sections = building.KINDS[kind]
    options = {"severity": severity, "at": AT, "record_id": "3:1"} | changes
    return building.record(sections, **options)


def only(data) -> CperRecord:
    (record,) = decode(data)
    return record


def patched(data, offset, raw):
    return data[:offset] + raw + data[offset + len(raw) :]


@pytest.mark.parametrize(
    ("kind", "afid", "severity", "notification"),
    [
        ("fatal", 30, "fatal", "MCE (machine check)"),
        ("xgmi", 18, "fatal", "MCE (machine check)"),
        ("uncorrected", 22, "uncorrected, non-fatal", "MCE (machine check)"),
        ("deferred", 28, "uncorrected, non-fatal", "MCE (machine check)"),
        ("corrected", 24, "corrected", "CMC (corrected)"),
        ("threshold", 19, "fatal", "MCE (machine check)"),
    ],
)
def test_each_kind_of_record_is_read(kind, afid, severity, notification):
    """Both layouts of registers, and all that the header says."""
    record = only(build(kind))
    assert record.afids == (afid,)
    assert (record.severity, record.notification) == (severity, notification)
    assert (record.record_id, record.at) == ("3:1", AT)
    assert (record.platform, record.creator) == ("0x1002:0x74A1", "amdgpu")
    assert (record.fru_id, record.fru_text) == ("8bf0c3a100000000", "OAM0")


def test_both_layouts_give_the_same_registers():
    """Four words in a crash dump, sixteen while the GPU goes on."""
    four = building.crash_dump(UMC_FATAL, building.UMC_IPID, address=0xABC, syndrome=0xDEF)
    sixteen = building.runtime(UMC_FATAL, building.UMC_IPID, severity=1)
    for section in (four, sixteen):
        (finding,) = only(building.record([section], severity=1, at=AT)).findings
        assert (finding.bank.status, finding.bank.ipid) == (UMC_FATAL, building.UMC_IPID)
        assert (finding.afid, finding.text) == (20, "UMC on-die ECC error, fatal")
    (finding,) = only(building.record([four], severity=1, at=AT)).findings
    assert (finding.address, finding.syndrome) == (0xABC, 0xDEF)


def test_a_record_may_hold_many_banks():
    """The driver puts all corrected errors of one look into one record."""
    sections = [building.runtime(1 << 63 | code << 16, building.UMC_IPID) for code in (9, 1, 2)]
    assert only(building.record(sections, severity=2, at=AT)).afids == (24, 24, 29)


def test_records_stand_back_to_back():
    """As in the ring; zeros after the last are no record."""
    data = build("fatal") + build("corrected") + bytes(512)
    assert [record.afids for record in decode(data)] == [(30,), (24,)]
    assert decode(b"") == decode(bytes(64)) == ()


def test_the_drivers_ring_begins_with_its_positions():
    """As its file in debugfs is read: three numbers, then the records."""
    ring = struct.pack("<3I", 0, 94, 94) + build("fatal") + build("corrected")
    assert [record.afids for record in decode(ring)] == [(30,), (24,)]


def test_the_section_of_an_mi450_has_mi450_numbers():
    """The revision of the section says which generation wrote it."""
    data = build("xgmi")
    revision = building.HEADER_BYTES + 9
    assert data[revision] == 0x22
    assert only(patched(data, revision, b"\x32")).afids == (43329 + 128 + 5,)


def test_a_gpus_start_tells_which_module_failed_and_why():
    """0xBA is a start that succeeded, 0xA4 one that failed; all else is a module that is stuck."""
    record = only(build("boot", notify=building.NOTIFY_BOOT))
    assert record.notification == "BOOT"
    (finding,) = record.findings
    assert finding.afid == 10
    assert finding.text.startswith("module (OAM) 1 did not start")

    def afids(*messages):
        section = building.boot(messages)
        return only(building.record([section], severity=1, at=AT)).afids

    assert afids(0x01A4, 0x21A4) == (4, 4)  # training, in both format versions
    assert afids(0x0BA4, 0x2BA4) == (12, 6)
    assert afids(0x0DA4, 0x2DA4) == (6, 11)
    assert afids(0xBA, 0xBA, 0x77) == (5,)
    assert afids(0) == (32,)
    assert afids(0xBA) == ()  # all well


def test_counts_of_the_whole_record_in_each_section_are_forgiven():
    """Some writers put them there, or none at all; the registers are where they are."""
    for counts in (0, 0x3F << 2 | 0x3F << 8, 1 << 2 | 5 << 8):
        body = build("corrected")
        place = building.HEADER_BYTES + building.DESCRIPTOR_BYTES
        assert 24 in only(patched(body, place, struct.pack("<Q", counts))).afids


def test_pcie_and_unknown_sections():
    """Corrected or not is known of PCIe; of a section of unknown kind nothing is."""
    pcie = building.guid("d995e954-bbc1-430f-ad91-b44dcb3c6f35")
    section = building.Section(kind=pcie, body=bytes(208), severity=2)
    assert only(building.record([section], severity=2, at=AT)).afids == (13,)
    assert only(building.record([replace(section, severity=1)], severity=1, at=AT)).afids == (14,)
    strange = replace(section, kind=bytes(range(16)))
    (finding,) = only(building.record([strange], severity=1, at=AT)).findings
    assert finding.afid == 34
    assert "03020100-0504-0706-0809-0a0b0c0d0e0f" in finding.text


def test_times_of_the_driver_and_of_the_specification():
    """The driver writes plain numbers, the specification two decimal digits a byte."""
    data = build()
    assert only(data).at == AT
    decimal = bytes((value // 10) << 4 | value % 10 for value in data[24:32])
    foreign = patched(patched(data, 24, decimal), 64, b"firmware")
    assert only(foreign).at == AT
    assert only(patched(data, 31, b"\0")).at == AT  # without a century
    for offset, raw in ((29, b"\0"), (29, b"\x0d"), (28, b"\x20"), (26, b"\x18"), (28, b"\0")):
        assert only(patched(data, offset, raw)).at is None
    assert only(patched(data, 16, bytes(4))).at is None  # the time is not flagged as valid


@given(st.integers(0, 253402300799))
def test_every_second_until_the_year_9999_is_read_as_it_was_written(at):
    """Leap days and centuries too."""
    severity, sections = building.KINDS["corrected"]
    assert only(building.record(sections, severity=severity, at=at)).at == at


def test_days_that_are_none_are_no_time():
    """The thirtieth of February, and the leap day of 2100."""
    data = build()
    for year, month, day in ((0x19, 2, 29), (0, 2, 30), (25, 4, 31), (25, 13, 1)):
        assert only(patched(data, 28, bytes([day, month, year, 20]))).at is None
    assert only(patched(data, 28, bytes([29, 2, 0, 21]))).at is None
    assert only(patched(data, 28, bytes([29, 2, 24, 20]))).at is not None


@pytest.mark.parametrize(
    ("offset", "raw", "afids", "words"),
    [
        (0, b"XPER", {31}, "no CPER signature"),
        (6, b"\0\0\0\0", {31, 30}, "signature's end"),
        (20, struct.pack("<I", 0), {31, 30}, "says that it has 0 bytes"),
        (20, struct.pack("<I", 1 << 30), {31, 30}, "1073741824 bytes, and 376 are there"),
        (20, struct.pack("<I", 127), {31, 30}, "says that it has 127 bytes"),
        (10, struct.pack("<H", 0), {32}, "has no section"),
        (10, struct.pack("<H", 65535), {31}, "announces 65535 sections, and descriptors of 3"),
        (128, struct.pack("<I", 0), {31}, "section 0 begins at byte 0"),
        (128, struct.pack("<I", 5000), {31}, "section 0 reaches to byte"),
        (132, struct.pack("<I", 0), {31}, "section 0 is empty"),
        (132, struct.pack("<I", 100), {32}, "holds no registers"),
        (132, struct.pack("<I", 60), {32}, "holds no registers"),
        (132, struct.pack("<I", 150), {32}, "the last 26 bytes of the registers are missing"),
        (328, struct.pack("<H", 7), {32}, "holds no registers"),
        (330, struct.pack("<H", 24), {32}, "24 bytes of registers are neither"),
        (330, struct.pack("<H", 31), {32}, "31 bytes of registers are neither"),
        (330, struct.pack("<H", 0), {32}, "holds no registers"),
        (344, bytes(8), {33}, "STATUS is zero"),
        (344, b"\xff" * 8, {33}, "STATUS is all ones"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(offset, raw, afids, words):
    """An alarm about collection, beside whatever can still be read."""
    data = build("fatal")
    assert len(data) == 376
    record = only(patched(data, offset, raw))
    assert set(record.afids) == afids
    assert any(words in finding.text for finding in record.findings)


def test_sections_that_overlap_are_read_once():
    """The second description of the same bytes is not another error."""
    section = building.KINDS["fatal"][1][0]
    data = building.record([section, section], severity=1, at=AT)
    first = struct.unpack_from("<I", data, 128)[0]
    record = only(patched(data, 200, struct.pack("<I", first + 8)))
    assert record.afids == (30, 31)
    assert f"section 1 begins at byte {first + 8}" in record.findings[1].text


def test_a_broken_length_costs_no_other_record():
    """The next header is looked for; bytes between records are one finding."""
    broken = patched(build("fatal"), 20, struct.pack("<I", 1 << 31))
    data = broken + build("corrected") + b"garbage" + build("xgmi") + b"tail"
    assert [set(record.afids) for record in decode(data)] == [{31, 30}, {24}, {31}, {18}, {31}]


def test_a_record_cut_off_anywhere_is_malformed():
    """A ring that was overwritten, a file that was not written to its end."""
    data = build("fatal")
    for length in range(1, len(data)):
        records = decode(data[:length])
        assert len(records) == 1
        assert records[0].afids[0] == 31


@st.composite
def spoiled_rings(draw):
    """Good records with bytes changed, cut out and put in."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    data = bytearray(b"".join(build(kind) for kind in kinds))
    for _ in range(draw(st.integers(0, 12))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(("change", "cut", "put", "count"))):
            case "change":
                data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del data[place : place + draw(st.integers(1, 200))]
            case "put":
                data[place:place] = draw(st.binary(max_size=40))
            case _:  # where counts, offsets and lengths stand
                field = draw(st.sampled_from((10, 20, 128, 132, 144, 200, 328, 330)))
                data[field : field + 4] = struct.pack("<I", draw(st.integers(0, 2**32 - 1)))
    return bytes(data)


@given(spoiled_rings())
@example(b"CPER")
@example(b"CPER" * 40)
def test_spoiled_records_never_raise(data):
    """Each answer is a number with a meaning, and no byte is read twice."""
    records = decode(data)
    assert sum(record.length for record in records) <= len(data)
    for record in records:
        assert all(describe(finding.afid) is not None for finding in record.findings)


@given(st.binary(max_size=2000))
def test_any_bytes_are_decoded(data):
    """Bytes that are no record are malformed ones."""
    assert all(record.afids for record in decode(data))


def test_the_same_bytes_have_the_same_digest():
    """By it a record is known again."""
    assert only(build()).digest == only(build()).digest != only(build(at=AT + 1)).digest


def test_a_record_that_is_cut_off_is_one_finding():
    """That its section is cut off too is the same news."""
    (record,) = decode(build("fatal")[:300])
    assert record.afids == (31,)
    assert record.findings[0].text == "the record says that it has 376 bytes, and 300 are there"
