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


# ── through the agent ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def seen(start_agent, controller):
    """An agent that has read both GPUs."""
    agent = start_agent()
    for name in ("gpu0", "gpu1"):
        controller.wait_device(name, "healthy")
    return agent


def counters(controller, name):
    return dict(controller.device(name).counters)


def test_a_fatal_record_arrives_with_number_and_service_action(seen, controller, gpus):
    """From the driver's ring through amdsmi and the spool to the controller."""
    cper.inject(gpus, 1, "xgmi")
    fault = controller.wait_fault("gpu.xgmi.error")
    assert (fault.device, fault.severity, fault.simulated) == ("gpu1", "fatal", True)
    details = dict(fault.details)
    assert (details["afid"], details["error"], details["serial"]) == (
        "18",
        "XGMI PCS CRCErr",
        "SIM00000001",
    )
    assert "AFID 18" in fault.evidence[0].text
    assert fault.evidence[1].source == "AMD service action AMDGPUXgmi"
    controller.wait(lambda: counters(controller, "gpu1").get("error_records") == 1, "its counter")
    assert controller.device("gpu1").health == "healthy"  # the counters tell of that


def test_records_are_told_once_over_restarts(seen, start_agent, controller, gpus):
    """The ring outlives the agent; what was told of it is in the spool."""
    cper.inject(gpus, 0, "fatal")
    controller.wait_fault("gpu.ras.fatal")
    seen.end()
    cper.inject(gpus, 0, "threshold")
    start_agent()
    controller.wait_fault("gpu.memory.bad_page_threshold")
    assert controller.classes() == ["gpu.ras.fatal", "gpu.memory.bad_page_threshold"]


def test_old_records_flag_nobody(start_agent, controller, gpus):
    """They are counted, and the GPU is well."""
    for _ in range(30):
        cper.inject(gpus, 0, "fatal", age_seconds=4000)
    start_agent()
    controller.wait_device("gpu0", "healthy")
    controller.wait(
        lambda: counters(controller, "gpu0").get("error_records_old") == 30, "old records counted"
    )
    assert controller.classes() == []


def test_without_root_it_is_said_and_nobody_is_blamed(start_agent, controller, gpus):
    """Records may be there that nobody sees: neither healthy nor unhealthy for that."""
    devices.add_fault(gpus, "amdsmi_get_gpu_cper_entries", "*", "status=10")
    start_agent()
    controller.wait_device("gpu1", "healthy")
    said = "error records (CPER) are for root alone to read"
    controller.wait(lambda: said in controller.source("gpu"), "why none are read")
    assert controller.source("gpu").count("CPER") == 1
    devices.clear_faults(gpus)
    controller.wait(lambda: "CPER" not in controller.source("gpu"), "records read")
    assert controller.classes() == []


def test_a_decoder_that_crashes_takes_no_record_with_it(seen, controller, gpus):
    """Its process dies once; the next one does without it."""
    devices.add_fault(gpus, "amdsmi_get_afids_from_cper", "*", "crash")
    cper.inject(gpus, 1, "fatal")
    fault = controller.wait_fault("gpu.ras.fatal")
    assert "the library decodes it as nothing" in dict(fault.details)["decoders_differ"]
    controller.wait_device("gpu1", "healthy")
    assert seen.process.poll() is None


def test_a_process_that_reads_the_ring_again_counts_each_record_once(seen, controller, gpus):
    """What crashes is not the ring: two processes in turn see the same two records."""
    cper.inject(gpus, 1, "corrected")
    cper.inject(gpus, 1, "corrected")
    controller.wait(lambda: counters(controller, "gpu1").get("error_records") == 2, "two records")
    devices.add_fault(gpus, "amdsmi_get_temp_metric", "1", "crash")
    said = "not read for now: temp_metric"
    controller.wait(lambda: said in controller.device("gpu1").detail, "what is left out")
    cper.inject(gpus, 1, "corrected")
    controller.wait(lambda: counters(controller, "gpu1").get("error_records", 0) > 2, "a third")
    assert counters(controller, "gpu1")["error_records"] == 3


def test_a_ring_that_cannot_be_read_hides_nothing_else(seen, controller, gpus):
    """Its call hangs: the process is ended, and the next one leaves it out for a while."""
    devices.add_fault(gpus, "amdsmi_get_gpu_cper_entries", "0", "hang")
    controller.wait_fault("gpu.probe.stalled")
    devices.set_counts(gpus, 0, "umc", (0, 1, 0))
    assert controller.wait_fault("gpu.ecc.uncorrectable").device == "gpu0"
    assert controller.device("gpu1").health == "healthy"
