"""The host: memory, machine checks, disks, clock; over files, and real children."""

import asyncio
import os
import stat
import subprocess
from dataclasses import replace

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis.model.node import Health
from aegis_agent.book import Book
from aegis_agent.probes import clock, disk, host
from aegis_agent.probes.clock import ClockMemory, ClockSample, ControllerTime
from aegis_agent.probes.disk import DiskSample
from aegis_agent.probes.host import HostMemory, HostSample, Interrupts, Limits, Memory
from aegis_agent.senses.host import HostSense
from aegis_agent.settings import read
from aegis_agent.sources import clock as clock_source
from aegis_agent.sources import proc
from aegis_agent.sources.disk import Disks
from aegis_agent.spool import Spool

LIMITS = Limits(disk_full_percent=95.0, clock_skew_seconds=1.0)
CLOCK = ClockSample(at=10_000.0, boottime=1_000.0)
SAMPLE = HostSample(
    at=10_000.0,
    clock=CLOCK,
    memory=Memory(total_mb=2048, available_mb=1024),
    oom_kills=0,
    interrupts=Interrupts(machine_checks=0, deferred=0),
)
MEMINFO = "MemTotal:       131072000 kB\nMemFree:  1 kB\nMemAvailable:   65536000 kB\n"
INTERRUPTS = """\
            CPU0       CPU1
   0:         36          0  IR-IO-APIC    2-edge      timer
 MCE:          1          2   Machine check exceptions
 MCP:        400        401   Machine check polls
 DFR:          0          3   Deferred Error APIC interrupts
"""


@pytest.fixture
def node(subject):
    return replace(subject, device="host", identity="")


def judged(node, *samples):
    """The last judgement of several samples, and all faults."""
    memory, faults = HostMemory(), []
    for sample in samples:
        judgement = host.observe(node, memory, sample, LIMITS)
        memory, faults = judgement.memory, [*faults, *judgement.faults]
    return judgement, faults


# ── memory and processors ─────────────────────────────────────────────────────────────────────


def test_proc_is_read_as_the_kernel_writes_it(tmp_path):
    """Every root is a parameter; what is missing is not known."""
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "vmstat").write_text("nr_free_pages 10\noom_kill 3\n")
    (tmp_path / "interrupts").write_text(INTERRUPTS)
    assert proc.read_memory(tmp_path) == Memory(total_mb=128000, available_mb=64000)
    assert proc.read_oom_kills(tmp_path) == 3
    assert proc.read_interrupts(tmp_path) == Interrupts(machine_checks=3, deferred=3)
    nothing = tmp_path / "nothing"
    assert (proc.read_memory(nothing), proc.read_oom_kills(nothing)) == (None, None)
    assert proc.read_interrupts(nothing) == Interrupts()
    (tmp_path / "meminfo").write_text("garbage\n\n: :\nMemTotal:\n")
    assert proc.read_memory(tmp_path) is None


def test_processes_killed_for_want_of_memory_are_counted(node):
    """Those of before the first look are not new."""
    first = replace(SAMPLE, oom_kills=7)
    judgement, faults = judged(node, first, first, replace(first, oom_kills=9))
    assert [(fault.fault_class, fault.severity, fault.count) for fault in faults] == [
        (FaultClass.HOST_MEMORY_OOM, Severity.WARNING, 2)
    ]
    assert faults[0].evidence[0].text == "the kernel killed 2 processes for want of memory"
    assert dict(judgement.device.counters)["oom_kills"] == 9


def test_what_the_kernel_log_has_told_is_not_told_again(node):
    """It names the victim; the counter knows of those that the log lost."""
    _, faults = judged(node, SAMPLE, replace(SAMPLE, oom_kills=3, oom_logged=2))
    assert [fault.count for fault in faults] == [1]
    assert judged(node, SAMPLE, replace(SAMPLE, oom_kills=1, oom_logged=3))[1] == []


def test_a_counter_that_could_not_be_read_is_compared_when_it_can(node):
    """One reading without it changes nothing."""
    _, faults = judged(node, SAMPLE, replace(SAMPLE, oom_kills=None), replace(SAMPLE, oom_kills=1))
    assert [fault.count for fault in faults] == [1]


def test_machine_checks_and_deferred_errors_make_the_host_unhealthy(node):
    """Until the next boot. One exception may be counted by every processor."""
    risen = replace(SAMPLE, interrupts=Interrupts(machine_checks=128, deferred=1))
    judgement, faults = judged(node, SAMPLE, risen, risen)
    assert [(fault.fault_class, fault.count) for fault in faults] == [
        (FaultClass.HOST_MCE_UNCORRECTED, 1)
    ] * 2
    assert faults[0].evidence[0].after == "128"
    assert judgement.device.health == Health.UNHEALTHY
    assert judgement.device.detail == "2 uncorrected processor errors in this boot"
    rebooted = host.observe(replace(node, boot_id="boot-2"), judgement.memory, SAMPLE, LIMITS)
    assert (rebooted.faults, rebooted.device.health) == ((), Health.HEALTHY)


def test_what_changes_all_the_time_is_told_in_steps(node):
    """Each new number is an event in the controller's log."""
    memory, told = HostMemory(), []
    for available in (1024, 1100, 950, 900, 970):
        sample = replace(SAMPLE, memory=Memory(total_mb=2048, available_mb=available))
        judgement = host.observe(node, memory, sample, LIMITS)
        memory = judgement.memory
        told.append(dict(judgement.device.counters)["memory_available_percent"])
    assert told == [50, 50, 50, 43, 43]


def test_a_host_that_cannot_be_read_is_unknown(node):
    """No data is no health."""
    judgement, faults = judged(node, replace(SAMPLE, memory=None, oom_kills=None))
    assert (judgement.device.health, faults) == (Health.UNKNOWN, [])


# ── disks ─────────────────────────────────────────────────────────────────────────────────────


def space(used, path="/data", **more):
    return DiskSample(at=10_000.0, path=path, used=used << 20, free=(100 - used) << 20, **more)


def test_a_full_disk_lasts_until_there_is_room_again(node):
    """Two points below the limit, so that it does not come and go."""
    memory, told = {}, []
    for used in (94, 95, 96, 94, 92, 95):
        memory, faults, conditions = disk.observe(node, memory, [space(used)], 95.0)
        told.append((len(faults), len(conditions)))
    assert told == [(0, 0), (1, 1), (0, 1), (0, 1), (0, 0), (1, 1)]
    assert faults[0].evidence[0].text == (
        "the file system of /data is full: 95 % used, 5 MB are left; 95 % are allowed"
    )
    assert conditions[0].severity == Severity.WARNING


def test_a_disk_without_inodes_is_full(node):
    """A million small files, and gigabytes free."""
    _, faults, _ = disk.observe(node, {}, [space(10, inodes=1000, inodes_free=3)], 95.0)
    assert "100 % of its inodes used, 3 are left" in faults[0].evidence[0].text


def test_one_condition_tells_of_every_full_disk(node):
    """They are one device, and each is a fault of its own."""
    _, faults, conditions = disk.observe(node, {}, [space(99), space(97, path="/other")], 95.0)
    assert [fault.details for fault in faults] == [(("path", "/data"),), (("path", "/other"),)]
    assert (len(conditions), len(conditions[0].evidence)) == (1, 2)


def test_a_disk_that_does_not_answer_is_neither_full_nor_well(node):
    """The host is unknown, with the reason; what was full stays full."""
    silent = DiskSample(at=10_010.0, path="/data", trouble="/data does not answer within 5 s")
    judgement, faults = judged(
        node, replace(SAMPLE, disks=[space(99)]), replace(SAMPLE, disks=[silent])
    )
    assert (len(faults), len(judgement.conditions)) == (1, 1)
    assert judgement.device.health == Health.UNKNOWN
    assert judgement.device.detail == "/data does not answer within 5 s; /data is full"


def test_real_file_systems_are_asked(tmp_path):
    """Two paths of one file system are told once; a path that is not there says so."""
    samples = asyncio.run(Disks(paths=[str(tmp_path), str(tmp_path), "/not/there"]).read())
    assert [sample.path for sample in samples] == [str(tmp_path), "/not/there"]
    there, gone = samples
    expected = os.statvfs(tmp_path)
    assert there.used + there.free > 0
    assert there.inodes == expected.f_files
    assert abs(there.free - expected.f_bavail * expected.f_frsize) < 1 << 30
    assert (gone.missing, gone.trouble) == (
        *(True, "/not/there cannot be read: No such file or directory"),
    )


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_real_disk_fills_up(node, small_disk):
    """Until there is room again."""
    told, memory = [], {}
    for step in ("empty", "full", "freed"):
        if step == "full":
            (small_disk / "log").write_bytes(bytes(1 << 20))
        elif step == "freed":
            (small_disk / "log").unlink()
        samples = asyncio.run(Disks(paths=[str(small_disk)]).read())
        memory, faults, conditions = disk.observe(node, memory, samples, 95.0)
        told.append((len(faults), len(conditions)))
    assert told == [(0, 0), (1, 1), (0, 0)]


def test_a_hung_file_system_holds_nobody_up(tmp_path):
    """Its child is killed at the deadline; the others were answered long before."""
    ask = tmp_path / "ask"
    ask.write_text('#!/bin/sh\ncase "$1" in /hung) exec sleep 600;; esac\necho 4096 9 5 4 7 6 ab\n')
    ask.chmod(ask.stat().st_mode | stat.S_IXUSR)
    disks = Disks(paths=["/hung", "/well"], deadline_seconds=0.3, ask=[str(ask)])
    hung, well = asyncio.run(disks.read())
    assert hung.trouble == "/hung does not answer within 0.3 s"
    assert (well.used, well.free, well.trouble) == (4 * 4096, 4 * 4096, "")


def test_a_file_system_that_cannot_be_asked_says_why():
    """No `stat` on this machine."""
    (sample,) = asyncio.run(Disks(paths=["/"], ask=["/no/such/stat"]).read())
    assert sample.trouble == "/ cannot be asked: /no/such/stat: No such file or directory"


# ── the clock ─────────────────────────────────────────────────────────────────────────────────


def clocked(node, *samples):
    memory, told = ClockMemory(), []
    for sample in samples:
        memory, faults, conditions = clock.observe(node, memory, sample, 1.0)
        told += [(fault.severity.value, fault.evidence[0].text) for fault in faults]
    return memory, told, conditions


def later(seconds, *, jump=0.0, **more):
    return replace(CLOCK, at=CLOCK.at + seconds + jump, boottime=CLOCK.boottime + seconds, **more)


def test_a_clock_that_was_set_is_told_once(node):
    """Against the clock that never jumps; slewing is no jump, however long it goes on."""
    _, told, _ = clocked(
        node,
        replace(CLOCK, synchronised=True),
        later(10, jump=0.09),
        later(20, jump=0.18),
        later(30, jump=-3.5),
        later(40, jump=-3.5),
    )
    assert told == [("warning", "the clock was set back by 3.7 s")]


def test_the_first_synchronisation_sets_the_clock(node):
    """A minute after the boot, say."""
    _, told, _ = clocked(node, replace(CLOCK, synchronised=False), later(10, jump=60))
    assert told == [("info", "the clock was set forward by 60.0 s")]


def test_a_clock_that_lost_its_service_is_adrift_after_five_minutes(node):
    """A time service that restarts is no fault; one that is never there is not our business."""
    memory, told, conditions = clocked(
        node,
        later(0, synchronised=True),
        later(10, synchronised=False),
        later(20, synchronised=True),
        later(30, synchronised=False),
        later(320, synchronised=False),
    )
    assert (told, conditions) == ([], ())
    memory, faults, conditions = clock.observe(node, memory, later(331, synchronised=False), 1.0)
    assert [fault.observed_at for fault in faults] == [CLOCK.at + 30]
    assert [one.severity for one in conditions] == [Severity.WARNING]
    _, _, conditions = clock.observe(node, memory, later(340, synchronised=True), 1.0)
    assert conditions == ()
    assert clocked(node, *(later(at, synchronised=False) for at in (0, 400, 800)))[1] == []


def answered(at, ahead, seconds=0.1):
    """An answer of a controller whose clock this node's is ahead of."""
    return ControllerTime(
        asked_at=CLOCK.at + at, heard_at=CLOCK.at + at + seconds,
        sent_at=CLOCK.at + at + seconds / 2 - ahead,
    )  # fmt: skip


def test_a_clock_that_differs_from_the_controllers_is_told(node):
    """In three answers; each bounds the difference by how long it took."""
    samples = [later(at, controller=answered(at, 2.5)) for at in (0, 10, 20)]
    memory, told, conditions = clocked(node, *samples)
    assert told == [
        (
            "warning",
            "the clock is 2.5 s ahead of the controller's (give or take 0.05 s); 1 s are allowed",
        )
    ]
    assert len(conditions) == 1
    memory, faults, conditions = clock.observe(
        node, memory, later(30, controller=answered(30, 1.01)), 1.0
    )
    assert (faults, len(conditions)) == ((), 1), "an answer that could mean either changes nothing"
    _, _, conditions = clock.observe(node, memory, later(40, controller=answered(40, 0.2)), 1.0)
    assert conditions == ()


def test_a_slow_answer_proves_nothing(node):
    """A controller that took ten seconds may have any clock within them."""
    samples = [later(at, controller=answered(at, 2.5, seconds=10.0)) for at in range(0, 90, 20)]
    assert clocked(node, *samples)[1] == []


def test_one_answer_is_judged_once(node):
    """Without a controller the last answer stays what it was."""
    answer = answered(0, 9.0)
    assert clocked(node, *(later(at, controller=answer) for at in range(0, 90, 10)))[1] == []


def test_the_kernel_is_asked_for_the_clock(tmp_path):
    """It knows, or timesyncd's mark does, or nobody."""
    assert clock_source.is_synchronised(tmp_path) in (True, False, None)
    sample = clock_source.read(None)
    assert sample.at > sample.boottime > 0


# ── the sense ─────────────────────────────────────────────────────────────────────────────────


def test_the_sense_tells_of_the_host_and_remembers(tmp_path, capsys):
    """An agent that starts again tells what happened while it was away."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(MEMINFO)
    (tmp_path / "proc/vmstat").write_text("oom_kill 3\n")
    config = tmp_path / "agent.yaml"
    config.write_text(f"proc_root: {tmp_path}/proc\ndisk_paths: [{tmp_path}]\n")
    flags = {"sys_root": tmp_path / "sys", "state_dir": tmp_path / "not/yet"}
    settings, spool = read(config, flags, "n1"), Spool(None)

    def look(boot_id="boot-1"):
        book = Book(node="n1", boot_id=boot_id, spool=spool, urge=lambda: None)
        book.checkpoint_folders = ("/not/there/yet",)
        sense = HostSense(settings, book)
        asyncio.run(sense.look())
        return book.device("host"), sense.source()

    device, source = look()
    assert (device.health, device.kind) == (Health.HEALTHY, "host")
    assert dict(device.counters)["memory_gb"] == 125
    assert "no driver counts memory errors; no machine checks counted" in source
    assert source.endswith(f"disks {tmp_path}")
    (tmp_path / "proc/vmstat").write_text("oom_kill 5\n")
    look()
    assert [one.fault.count for one in spool.pending(10)] == [2]
    (tmp_path / "proc/vmstat").write_text("oom_kill 1\n")
    look("boot-2")
    assert len(spool) == 1
