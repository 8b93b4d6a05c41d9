"""The same again and again, and what its neighbours add."""

from pydantic import TypeAdapter

from aegis.model.fault import FaultClass as F
from aegis.model.fault import Severity
from aegis_agent.probes.kernel import burst, follow
from aegis_agent.probes.kernel.classify import classify
from aegis_agent.probes.kernel.follow import Follow, FollowMemory
from aegis_agent.probes.kernel.line import Line

GPU = "amdgpu 0000:c1:00.0: amdgpu:"
TIMEOUT = f"{GPU} ring comp_1.0.1 timeout, signaled seq=12049, emitted seq=12050"
AER = (
    "pcieport 0000:40:01.1: AER: Correctable error message received from 0000:40:01.1",
    "pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver)",
    "pcieport 0000:40:01.1:   device [1022:14a5] error status/mask=00000040/00006000",
    "pcieport 0000:40:01.1:    [ 6] BadTLP",
)


def test_the_first_line_is_told_at_once_and_the_rest_as_one_number(log):
    """412 times within a moment: a fault, and a second later 411 more."""
    (first,) = log.say(TIMEOUT)
    assert (first.fault_class, first.count, first.evidence) == (F.GPU_RING_TIMEOUT, 1, (TIMEOUT,))
    assert log.say(*[TIMEOUT.replace("12049", str(n)) for n in range(411)], after=0.001) == []
    (update,) = log.wait(5.0)
    assert (update.fault_class, update.device, update.count) == (
        F.GPU_RING_TIMEOUT,
        "0000:c1:00.0",
        411,
    )
    assert update.evidence[0].startswith("×412 within 0.4 s, most recently: amdgpu")
    assert log.wait(1000.0) == []


def test_what_goes_on_is_told_ever_more_seldom_and_counted_whole(log):
    """Ten lines a second for ten minutes."""
    log.say(*[TIMEOUT] * 6000, after=0.1)
    log.wait(100.0)
    assert sum(signal.count for signal in log.signals) == 6000
    assert 10 < len(log.signals) < 20


def test_slow_repetition_of_what_is_only_counted_is_folded_too(log):
    """A corrected error every three seconds for an hour is not told a thousand times."""
    log.say(*[AER[1]] * 1200, after=3.0)
    log.wait(100.0)
    assert sum(signal.count for signal in log.signals) == 1200
    assert len(log.signals) < 80


def test_after_a_pause_it_is_a_new_fault(log):
    """What an act may follow is told at once when it comes again after the act."""
    log.say(TIMEOUT)
    log.wait(burst.FORGET_SECONDS)
    assert [signal.count for signal in log.say(TIMEOUT)] == [1]


def test_many_devices_at_once_stay_apart(log):
    """One event of a switch is many faults: the controller puts them together, not the agent."""
    texts = [TIMEOUT.replace("c1", f"{number:02x}") for number in range(8)]
    assert len({signal.device for signal in log.say(*texts, *texts)}) == 8
    assert [signal.count for signal in log.wait(2.0)] == [1] * 8


def test_blocks_of_one_gpu_stay_apart_and_a_worse_error_is_told_at_once(log):
    """Errors in two blocks are two faults."""
    text = f"{GPU} socket: 0, die: 1, 2 uncorrectable hardware errors detected in total in % block"
    told = log.say(text.replace("%", "umc"), text.replace("%", "gfx"), text.replace("%", "umc"))
    assert [signal.details["block"] for signal in told] == ["umc", "gfx"]


def test_a_total_that_is_said_again_is_no_new_error(log):
    """The driver may print its count at any time; a node that was returned is not taken for it."""
    log.follow = Follow(classify)
    text = (
        f"{GPU} socket: 0, die: 1, % uncorrectable hardware errors detected in total in umc block"
    )
    assert [signal.count for signal in log.say(text.replace("%", "2"))] == [1]
    log.wait(100.0)
    assert log.say(*[text.replace("%", "2")] * 50, after=3.0) == []
    assert [signal.count for signal in log.say(text.replace("%", "3"))] == [1]
    log.wait(100.0)
    assert len(log.say(text.replace("%", "3").replace("die: 1", "die: 2"))) == 1


def test_lines_of_one_event_count_once_and_explain_it(log):
    """Four lines of one PCIe error: told with the first, explained by the others."""
    (first,) = log.say(*AER)
    assert (first.fault_class, first.evidence) == (F.PCIE_AER_CORRECTED, (AER[0],))
    (update,) = log.wait(2.0)
    assert (update.count, update.evidence) == (0, AER[2:])
    assert update.details == {"status_mask": "00000040/00006000", "errors": "BadTLP"}


def test_many_such_events_are_counted_by_events_not_by_lines(log):
    """A hundred PCIe errors of four lines each."""
    log.say(*AER * 100, after=0.001)
    log.wait(3.0)
    assert sum(signal.count for signal in log.signals) == 100


def test_lines_of_another_device_explain_nothing(log):
    """Lines of two devices run into each other."""
    log.say(AER[0], AER[3].replace("40:01.1", "41:00.0"))
    assert log.wait(2.0) == []


def test_a_page_fault_says_whose_it_was(log):
    """The process stands in a line of its own."""
    log.say(
        f"{GPU} [mmhub0] no-retry page fault (src_id:0 ring:0 vmid:8 pasid:32771)",
        f"{GPU}  Process python3 pid 4242 thread python3 pid 4243",
        f"{GPU}   in page starting at address 0x00007f9510f62000 from client 10",
        f"{GPU} VM_L2_PROTECTION_FAULT_STATUS:0x00841051",
    )
    (update,) = log.wait(2.0)
    assert update.count == 0
    assert update.details == {"process": "python3 pid 4242", "fault_status": "0x00841051"}


def test_a_firmware_record_of_the_host_is_one_event(log):
    """APEI: severity, section, and the device that it is about."""
    head = "{359}[Hardware Error]:"
    told = log.say(
        f"{head} Hardware error from APEI Generic Hardware Error Source: 512",
        f"{head} event severity: corrected",
        f"{head}  Error 0, type: corrected",
        f"{head}  fru_text: PcieError",
        f"{head}   section_type: PCIe error",
        f"{head}   port_type: 4, root port",
        f"{head}   device_id: 0000:40:01.1",
        "{360}[Hardware Error]:   section_type: memory error",
    )
    assert [signal.fault_class for signal in told] == [F.HOST_APEI_CORRECTED]
    (update,) = log.wait(2.0)
    assert update.count == 0
    assert update.details == {
        "part": "PcieError",
        "section": "PCIe error",
        "port": "4, root port",
        "pci": "0000:40:01.1",
    }


def test_a_machine_check_is_one_event(log):
    """MCE lines carry no number: their neighbourhood joins them."""
    log.say(
        "mce: [Hardware Error]: Machine check events logged",
        "[Hardware Error]: CPU:0 (17:31:0) MC15_STATUS[Over|CE|MiscV|-|AddrV]: 0xdc2040000000011b",
        "[Hardware Error]: Error Addr: 0x0000000003c8ad80",
        "[Hardware Error]: IPID: 0x0000009600150f00, Syndrome: 0x000001000a800100",
        "[Hardware Error]: Unified Memory Controller Ext. Error Code: 0, DRAM ECC error.",
    )
    (update,) = log.wait(2.0)
    assert update.details == {
        "bank": "MC15",
        "status": "dc2040000000011b",
        "address": "0x0000000003c8ad80",
        "ipid": "0x0000009600150f00",
        "syndrome": "0x000001000a800100",
        "error": "DRAM ECC error.",
    }


def test_registers_become_one_record_with_its_field_id(log):
    """ACA: two banks of one record; the second in the older spelling."""
    head = "amdgpu 0000:48:00.0: {7}[Hardware Error]:"
    (first,) = log.say(
        f"{head} Accelerator Check Architecture events logged",
        f"{head} ACA[01/02].STATUS=0x9c2040000000011b",
        f"{head} ACA[01/02].ADDR=0x0000000000001000",
        f"{head} ACA[01/02].IPID=0x0000009600150f00",
        f"{head} ACA[01/02].SYND=0x0000000000000000",
        f"{head} aca entry[02].STATUS=0xbe00000000020000",
        f"{head} aca entry[02].IPID=0x0000005000000000",
    )
    assert (first.fault_class, first.device, first.count) == (F.GPU_RAS_RECORD, "0000:48:00.0", 1)
    (update,) = log.wait(2.0)
    assert (update.fault_class, update.severity) == (F.GPU_RAS_RECORD, Severity.INFO)
    assert (update.count, update.details["afid"], update.details["record"]) == (0, "24, 18", "7")
    assert update.evidence[:2] == (
        (
            "hardware error record 7, bank 01: UMC on-die ECC error, corrected (AFID 24); "
            "STATUS=0x9c2040000000011b IPID=0x0000009600150f00 ADDR=0x0000000000001000"
        ),
        (
            "hardware error record 7, bank 02: XGMI PCS FlowCtrlAckErr, fatal (AFID 18); "
            "STATUS=0xbe00000000020000 IPID=0x0000005000000000"
        ),
    )


def test_each_record_is_a_record(log):
    """Two sequence numbers within a moment; a third without an IPID cannot be read."""
    for number in (1, 2, 3):
        head = f"amdgpu 0000:48:00.0: {{{number}}}[Hardware Error]:"
        log.say(f"{head} ACA[01/01].STATUS=0x9c2040000000011b")
        if number < 3:
            log.say(f"{head} ACA[01/01].IPID=0x0000009600150f00")
    updates = log.wait(2.0)
    assert [signal.details["record"] for signal in updates] == ["1", "2"]
    assert sum(signal.count for signal in log.signals) == 3


def test_a_record_without_an_error_has_no_field_id(log):
    """STATUS 0 is not valid."""
    head = "amdgpu 0000:48:00.0: {1}[Hardware Error]:"
    log.say(f"{head} ACA[01/01].STATUS=0x0000000000000000", f"{head} ACA[01/01].IPID=0x0")
    (update,) = log.wait(2.0)
    assert "afid" not in update.details
    assert "no error" in update.details["error"]


def test_a_record_of_several_lines_is_several_lines(log):
    """The kernel may print them at once."""
    told = log.say(f"{GPU} GPU reset begin!\n{TIMEOUT}\nmore")
    assert [signal.fault_class for signal in told] == [F.GPU_RESET_BEGIN, F.GPU_RING_TIMEOUT]


def test_what_a_program_writes_is_no_word_of_the_kernel(log):
    """A journal may carry both."""
    line = Line(text=f"rig[42]: {TIMEOUT}", program="rig")
    assert log.follow.feed(line, happened=1.0, now=1.0) == []


def test_memory_is_bounded_and_nothing_is_lost(log):
    """A log that names ten thousand devices, each twice."""
    for number in range(10_000):
        text = TIMEOUT.replace("0000:c1", f"{number:04x}:c1").replace("comp", "x" * 5000)
        log.say(text, text)
        memory = log.follow.memory
        assert len(memory.bursts) <= follow.BURSTS_MAX
        assert len(memory.threads) <= follow.THREADS_MAX
    log.signals += log.follow.finish()
    assert sum(signal.count for signal in log.signals) == 20_000
    assert log.follow.due() is None


def test_a_flood_of_wordings_and_records_is_bounded(log):
    """Neither records, banks nor wordings grow without end."""
    head = "amdgpu 0000:48:00.0:"
    for number in range(3000):
        log.say(f"{head} {{{number}}}[Hardware Error]: ACA[{number}/1].X{number}=0x1")
        log.say(f"{head} ring {'a' * (number % 500)} timeout")
        log.say(f"{head} [ {number}] Bad{'x' * (number % 90)}")
        log.say(f"{{{number}}}[Hardware Error]: event severity: corrected")
    body = TypeAdapter(FollowMemory).dump_json(log.follow.memory)
    assert len(body) < 200_000


def test_what_is_remembered_outlives_the_agent(log):
    """Killed in the middle of a burst, the next agent counts on."""
    log.say(*[TIMEOUT] * 5, f"{GPU} GPU reset begin!")
    adapter = TypeAdapter(FollowMemory)
    memory = adapter.validate_json(adapter.dump_json(log.follow.memory))
    log.follow = Follow(log.follow._classify, memory)
    assert "0000:c1:00.0" in log.follow.resetting()
    assert log.say(*[TIMEOUT] * 5) == []
    assert [signal.count for signal in log.wait(2.0)] == [9]
