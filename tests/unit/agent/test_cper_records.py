"""Error records of a GPU become faults, each once, and old ones none."""

import json
import time

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes import cper
from aegis_agent.probes.cper_records import (
    Age,
    CperMemory,
    CperReading,
    age,
    fold,
    observe,
)
from aegis_agent.simulated import cper as building
from aegis_agent.sources.gpu_cper import CperRing, reading

NOW = 1_764_666_000.0
BOOTED_AT = NOW - 86_400
NEW = CperMemory()


def build(kind="fatal", age_seconds=5.0, record_id="3:1", at=NOW):
    severity, sections = building.KINDS[kind]
    return building.record(
        sections, severity=severity, at=at - age_seconds, record_id=record_id, fru_id="8bf0c3"
    )


def read(data, library=None, at=NOW, booted_at=BOOTED_AT):
    record = cper.decode_one(data)
    folded, note = fold(record, record.afids if library is None else library)
    return CperReading(at=at, booted_at=booted_at, record=folded, note=note)


def judge(subject, *readings, memory=NEW):
    """The faults of readings one after the other, and the last memory."""
    faults = []
    for one in readings:
        judgement = observe(subject, memory, one)
        assert judgement.device is None
        memory = judgement.memory
        faults += judgement.faults
    return faults, memory


def test_a_fatal_record_is_a_fault_with_all_that_it_says(subject):
    """What, where, by which registers, and what AMD would have done about it."""
    (fault,), _ = judge(subject, read(build("xgmi")))
    assert (fault.fault_class, fault.severity) == (FaultClass.GPU_XGMI_ERROR, Severity.FATAL)
    assert (fault.device, fault.observed_at, fault.count) == ("gpu3", NOW, 1)
    what, action = fault.evidence
    assert what.source == "amdsmi gpu_cper_entries"
    assert what.text == (
        "error record 3:1 (fatal), written 5 s before it was read: XGMI PCS CRCErr, fatal; "
        "AFID 18: the XGMI links between GPUs had an error that could not be corrected"
    )
    assert action.source == "AMD service action AMDGPUXgmi"
    assert "torque" in action.text
    details = dict(fault.details)
    assert details["afid"] == "18"
    assert details["block"] == "XGMI PCS"
    assert details["status"] == "0xb200000000050000"
    assert details["ipid"] == "0x0000005036430400"
    assert details["record"] == "3:1"
    assert details["part"] == "OAM0 8bf0c3"
    assert details["serial"] == "serial"
    assert details["physical_action_first"] == "yes"
    assert "decoders_differ" not in details


@pytest.mark.parametrize(
    ("kind", "fault_class", "severity"),
    [
        ("fatal", FaultClass.GPU_RAS_FATAL, Severity.FATAL),
        ("uncorrected", FaultClass.GPU_ECC_UNCORRECTABLE, Severity.ERROR),
        ("deferred", FaultClass.GPU_ECC_DEFERRED, Severity.ERROR),
        ("corrected", FaultClass.GPU_ECC_CORRECTABLE, Severity.INFO),
        ("threshold", FaultClass.GPU_MEMORY_BAD_PAGE_THRESHOLD, Severity.FATAL),
        ("boot", FaultClass.GPU_INIT_FAILED, Severity.FATAL),
    ],
)
def test_each_kind_of_record_has_its_class(subject, kind, fault_class, severity):
    """Rules know no numbers."""
    (fault,), _ = judge(subject, read(build(kind)))
    assert (fault.fault_class, fault.severity) == (fault_class, severity)


def test_old_records_are_no_faults(subject):
    """Records of last week flagged GPUs that were well."""
    old = read(build(age_seconds=3601))
    other_boot = read(build(age_seconds=600), booted_at=NOW - 500)
    assert judge(subject, old, other_boot) == ([], NEW)
    assert age(NOW - 3600, NOW, 0.0) is Age.FRESH
    assert age(NOW - 3601, NOW, 0.0) is Age.STALE
    assert age(NOW - 600, NOW, NOW - 500) is Age.ANOTHER_BOOT
    assert age(None, NOW, 0.0) is Age.UNDATED
    assert age(NOW + 59, NOW, 0.0) is Age.FRESH


def test_a_record_without_a_credible_time_is_told_and_does_nothing(subject):
    """It may be a week old: it must not take a node away."""
    for one in (build(age_seconds=-7200), build()[:16] + bytes(4) + build()[20:]):
        (fault,), memory = judge(subject, read(one), read(one))
        assert (fault.fault_class, fault.severity) == (FaultClass.GPU_RAS_RECORD, Severity.WARNING)
        assert "whose time says nothing, so nothing is done about it" in fault.evidence[0].text
        assert dict(fault.details)["afid"] == "30"
        assert memory.undated


def test_a_record_is_told_once(subject):
    """Also when the ring is read from its start again."""
    first, second = read(build()), read(build(record_id="3:2"))
    faults, memory = judge(subject, first, second, first, second)
    assert len(faults) == 2
    assert judge(subject, first, second, memory=memory) == ([], memory)


def test_a_storm_is_remembered_without_end_and_in_little_room(subject):
    """What no longer fits into the memory is older than what does, and stays told."""
    readings = [read(build(age_seconds=3000 - n, record_id=f"3:{n:X}")) for n in range(300)]
    faults, memory = judge(subject, *readings)
    assert len(faults) == 300
    assert len(memory.told) == 64
    again, _ = judge(subject, *readings, memory=memory)
    assert len(again) <= 1  # of the one second at the border, rather told twice than never


def test_banks_that_are_alike_are_one_fault(subject):
    """The driver gathers all corrected errors of a look into one record."""
    status = building.KINDS["corrected"][1][0]
    other = building.runtime(1 << 63 | 1 << 16, building.UMC_IPID)
    data = building.record([status, other, status, status], severity=2, at=NOW)
    faults, _ = judge(subject, read(data))
    assert [(fault.count, dict(fault.details)["error"]) for fault in faults] == [
        (3, "UMC EcsErr"),
        (1, "UMC WriteDataPoisonErr"),
    ]


def test_the_worst_is_told_first(subject):
    """Corrected and deferred errors stand in one record."""
    sections = [*building.KINDS["corrected"][1], *building.KINDS["deferred"][1]]
    faults, _ = judge(subject, read(building.record(sections, severity=0, at=NOW)))
    assert [fault.severity for fault in faults] == [Severity.ERROR, Severity.INFO]


@pytest.mark.parametrize(
    ("library", "afid", "said"),
    [
        ([], 30, "as nothing"),
        ([2**64 - 1], 30, "as 18446744073709551615"),
        ([33], 30, "as 33"),
        ([30, 30], 30, "as 30, 30"),
        ([27], 27, "as 27"),
        ([41025], 41025, "as 41025"),
    ],
)
def test_the_library_may_say_nothing_nonsense_or_more_than_we_know(subject, library, afid, said):
    """Its number stands when it means something; that the two differ is always told."""
    (fault,), _ = judge(subject, read(build(), library))
    details = dict(fault.details)
    assert details["afid"] == str(afid)
    assert details["decoders_differ"].startswith(f"the library decodes it {said}, our own")
    assert details["decoders_differ"] in fault.evidence[0].text


def test_a_library_that_has_no_room_for_more_does_not_differ():
    """It gives twelve numbers of a record."""
    section = building.KINDS["corrected"][1][0]
    record = cper.decode_one(building.record([section] * 20, severity=2, at=NOW))
    folded, note = fold(record, [24] * 12)
    assert (note, [finding.count for finding in folded.findings]) == ("", [20])


def test_a_malformed_record_is_an_alarm_about_collection(subject):
    """It says nothing of the GPU."""
    data = build()
    (fault,), _ = judge(subject, read(data[:200] + b"\xff" * (len(data) - 200)))
    assert (fault.fault_class, fault.severity) == (FaultClass.GPU_RAS_RECORD, Severity.WARNING)


# ── the ring ──────────────────────────────────────────────────────────────────────────────────


class Ring:
    """The driver's ring as the library reads it: twenty records a page, signed bytes."""

    def __init__(self, *records):
        self.records = list(records)
        self.status = 0
        self.read = 0  # records handed out

    def entries(self, mask, buffer_bytes, cursor):
        assert mask == 7
        if self.status:
            return None
        wanted = self.records[cursor : cursor + 20]
        if wanted and len(wanted[0]) > buffer_bytes:
            self.too_small = True
            return None
        self.too_small = False
        self.read += len(wanted)
        page = [
            {"bytes": [byte - 256 if byte > 127 else byte for byte in raw], "size": len(raw)}
            for raw in wanted
        ]
        following = min(cursor + 20, max(cursor, len(self.records)))
        return {}, following, page, 39 if following < len(self.records) else 0

    def reader(self):
        return CperRing(
            self.entries,
            lambda raw: ([finding.afid for finding in cper.decode_one(raw).findings], 1),
            lambda: self.status or (15 if self.too_small else None),
        )


def ids(looked):
    """Record ids of the lines, which must be short enough for the agent's pipe."""
    _, lines = looked
    assert all(len(json.dumps(line)) < 3000 for line in lines)
    return [reading(json.loads(json.dumps(line))).record.record_id for line in lines]


def many(first, last):
    return [build(record_id=f"0:{n:X}", at=time.time()) for n in range(first, last)]


def test_each_look_reads_what_is_new():
    """Page by page, with the last known record read again."""
    ring = Ring(*many(0, 50))
    reader = ring.reader()
    assert len(ids(reader.look())) == 50
    assert ids(reader.look()) == []
    ring.records += many(50, 52)
    assert ids(reader.look()) == ["0:32", "0:33"]
    assert ring.read == 50 + 1 + 3


def test_a_ring_that_is_full_shifts_all_numbers():
    """The cursor alone would never see anything again."""
    ring = Ring(*many(0, 300))
    reader = ring.reader()
    reader.look()
    for first, last in ((5, 305), (45, 345), (360, 660)):
        before = reader
        ring.records = many(first, last)
        found = ids(before.look())
        assert found[-1] == f"0:{last - 1:X}"
    assert ids(reader.look()) == []


def test_a_driver_that_is_loaded_anew_starts_its_ring_anew():
    """Numbers start at zero, and so do we."""
    ring = Ring(*many(0, 30))
    reader = ring.reader()
    reader.look()
    ring.records = []
    assert ids(reader.look()) == []
    ring.records = many(100, 102)
    assert ids(reader.look()) == ["0:64", "0:65"]


def test_a_call_that_fails_loses_no_record():
    """No permission, or a driver that is busy with a reset."""
    ring = Ring(*many(0, 3))
    reader = ring.reader()
    reader.look()
    ring.records += many(3, 4)
    ring.status = 10
    assert reader.look() == ({}, [])
    ring.status = 0
    assert ids(reader.look()) == ["0:3"]


def test_a_record_too_long_for_the_buffer_is_asked_for_again():
    """Hundreds of banks in one record."""
    section = building.KINDS["corrected"][1][0]
    long = building.record([section] * 1000, severity=2, at=time.time(), record_id="0:1")
    assert len(long) > 256 << 10
    ring = Ring(long)
    _, (line,) = ring.reader().look()
    assert reading(line).record.findings[0].count == 1000


def test_old_records_are_counted_and_no_lines():
    """A ring may hold ten thousand of them."""
    ring = Ring(*(build(record_id=f"0:{n}") for n in range(5)))
    found, lines = ring.reader().look()
    assert lines == []
    assert sum(found.values()) == 5
    assert set(found) <= {"stale", "of another boot"}


def test_records_of_no_length_and_of_garbage_pass():
    """The library hands out whatever has a header."""
    ring = Ring(b"", build(at=time.time())[:200], b"CPER", *many(1, 2))
    _, lines = ring.reader().look()
    assert [reading(line).record.findings[0].afid for line in lines] == [31, 31, 31, 30]


def test_a_record_with_many_kinds_of_errors_is_told_in_parts(subject):
    """None is lost, and all of it is told once."""
    banks = [building.runtime(1 << 63 | code << 16, building.XGMI_IPID) for code in range(20)]
    banks += building.KINDS["deferred"][1]
    record = building.record(banks, severity=0, at=time.time(), record_id="0:1")
    reader = Ring(record).reader()
    found, lines = reader.look()
    assert found == {"fresh": 1}
    readings = [reading(json.loads(json.dumps(line))) for line in lines]
    assert all(len(json.dumps(line)) < 3500 for line in lines)
    faults, memory = judge(subject, *readings)
    assert len(faults) == 21
    assert FaultClass.GPU_ECC_DEFERRED in {fault.fault_class for fault in faults}
    assert judge(subject, *readings, memory=memory)[0] == []
