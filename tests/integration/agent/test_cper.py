"""Error records through the unmodified amdsmi package over the simulated library."""

import json
import os
import subprocess
import sys

import pytest

from aegis_agent.simulated import cper, devices

READER = """
import json
import sys

import amdsmi
from amdsmi import amdsmi_interface

from aegis_agent.sources.gpu_cper import CperRing, reading

amdsmi.amdsmi_init()
handle = amdsmi.amdsmi_get_processor_handles()[1]
failed = {}


def attempt(name, *arguments):
    failed.pop(name, None)
    try:
        return getattr(amdsmi_interface, name)(*arguments)
    except amdsmi.AmdSmiLibraryException as error:
        failed[name] = error.get_error_code()


ENTRIES = "amdsmi_get_gpu_cper_entries"
ring = CperRing(
    lambda *arguments: attempt(ENTRIES, handle, *arguments),
    lambda raw: attempt("amdsmi_get_afids_from_cper", raw),
    lambda: failed.get(ENTRIES),
)
for _ in sys.stdin:
    found, lines = ring.look()
    records = [reading(json.loads(json.dumps(line))) for line in lines]
    told = [[one.record.record_id, list(one.record.afids), one.note] for one in records]
    print(json.dumps({"found": found, "told": told, "status": failed.get(ENTRIES)}), flush=True)
"""


class Looking:
    """A process that looks at the ring of gpu1 when told to."""

    def __init__(self, environment):
        self._process = subprocess.Popen(
            [sys.executable, "-c", READER],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def look(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture
def looking(environment):
    process = Looking(environment)
    yield process
    process.end()


def test_records_are_paged_through_and_read_once(looking, gpus):
    """Twenty a page; status 39 says that more are to come."""
    assert looking.look() == {"found": {}, "told": [], "status": None}
    for _ in range(50):
        cper.inject(gpus, 1, "corrected")
    cper.inject(gpus, 1, "xgmi")
    answer = looking.look()
    assert answer["found"] == {"fresh": 51}
    assert [afids for _, afids, _ in answer["told"]] == [[24]] * 50 + [[18]]
    assert {note for _, _, note in answer["told"]} == {""}
    assert looking.look()["told"] == []
    cper.inject(gpus, 1, "fatal")
    assert looking.look()["told"] == [["1:34", [30], ""]]


def test_the_librarys_lies_are_seen_through(looking, gpus):
    """Empty lists, all ones, old records, and bytes that are none."""
    cper.inject(gpus, 1, "fatal", afids=[])
    cper.inject(gpus, 1, "fatal", afids=[2**64 - 1])
    cper.inject(gpus, 1, "fatal", age_seconds=4000)
    cper.inject(gpus, 1, cper.GARBAGE)
    answer = looking.look()
    assert sum(answer["found"].values()) == 4
    assert [(number, afids) for number, afids, _ in answer["told"]] == [
        ("1:1", [30]),
        ("1:2", [30]),
        ("1:4", [31]),
    ]
    assert [note.partition(",")[0] for *_, note in answer["told"]] == [
        "the library decodes it as nothing",
        "the library decodes it as 18446744073709551615",
        "",
    ]


def test_a_decoder_that_fails_is_stood_in_for(looking, gpus):
    """The record is there, so it is told."""
    devices.add_fault(gpus, "amdsmi_get_afids_from_cper", "*", "status=43")
    cper.inject(gpus, 1, "threshold")
    ((_, afids, note),) = looking.look()["told"]
    assert afids == [19]
    assert note.startswith("the library decodes it as nothing")


def test_without_permission_nothing_is_read_and_nothing_lost(looking, gpus):
    """The ring is in debugfs, for root alone."""
    devices.add_fault(gpus, "amdsmi_get_gpu_cper_entries", "1", "status=10")
    cper.inject(gpus, 1, "fatal")
    assert looking.look() == {"found": {}, "told": [], "status": 10}
    devices.clear_faults(gpus)
    assert looking.look()["told"] == [["1:1", [30], ""]]
