"""Where the kernel log is read, what is lost, and where reading goes on."""

import asyncio
import errno
import json
import os
import sys
import time
from pathlib import Path

import pytest

from aegis_agent.sources import kernel_log, kmsg
from aegis_agent.sources.kernel_log import KernelLog, Position

BOOT = "b1"
DEADLINE_SECONDS = 30.0


class Reader:
    """What a log gives."""

    def __init__(self, log):
        self.log = log
        self.batches = []

    @property
    def texts(self):
        return [line.text for batch in self.batches for line, _ in batch.lines]

    @property
    def position(self):
        return self.batches[-1].position

    def until(self, condition):
        """Watch until the condition holds."""

        async def watch():
            watching = asyncio.create_task(self.log.watch(self.batches.append))
            until = time.monotonic() + DEADLINE_SECONDS
            while not condition():
                assert time.monotonic() < until, (self.texts, self.log.source())
                await asyncio.sleep(0.005)
                if watching.done():
                    await watching
            watching.cancel()

        asyncio.run(watch())
        return self


def reader(path, position=None, boot_id=BOOT, **options):
    return Reader(KernelLog(path, boot_id, position, **options))


def record(sequence, text="x", uptime=1.0):
    return f"6,{sequence},{int(uptime * 1e6)},-;{text}\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kmsg"


def test_a_file_is_read_on_from_where_reading_stopped(file):
    """Whole lines only; continuation lines belong to the record before them."""
    file.write_text(record(1, "one") + " SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0\n" + "6,2,1,-;tw")
    first = reader(file)
    first.until(lambda: first.texts == ["one"])
    assert first.batches[0].lines[0][0].device == "0000:c1:00.0"
    with file.open("a") as log:
        log.write("o\n" + record(3, "three"))
    again = reader(file, first.position)
    again.until(lambda: again.texts == ["two", "three"])
    of_another_boot = reader(file, first.position, boot_id="b2")
    of_another_boot.until(lambda: len(of_another_boot.texts) == 3)


def test_a_file_that_is_begun_anew_is_read_from_its_start(file):
    """Somebody rotated it."""
    file.write_text(record(1, "a long first line"))
    first = reader(file)
    first.until(lambda: first.texts)
    file.write_text("new\n")
    again = reader(file, first.position)
    again.until(lambda: again.texts == ["new"])


def test_the_end_of_what_was_there_is_told(file):
    """Even when there was nothing."""
    file.touch()
    empty = reader(file)
    empty.until(lambda: empty.batches)
    assert (empty.texts, empty.batches[0].caught_up) == ([], True)


def test_lines_that_waited_have_their_own_times(file):
    """Lines that come while we look happened now, whatever their stamps say."""
    file.write_text(record(1, "old", uptime=time.monotonic() - 60))
    log = reader(file)
    log.until(lambda: log.texts)
    with file.open("a") as stream:
        stream.write(record(2, "new", uptime=1.0))
    log.log._position = log.position
    log.until(lambda: len(log.texts) == 2)
    (_, old), (_, new) = [pair for batch in log.batches for pair in batch.lines]
    assert 55 < time.monotonic() - old < 120
    assert time.monotonic() - new < DEADLINE_SECONDS


class Device:
    """The reads of a /dev/kmsg: records, or errors by number."""

    def __init__(self, *reads):
        self.reads = list(reads)

    def __call__(self, descriptor, size):
        if not self.reads:
            raise BlockingIOError
        first = self.reads.pop(0)
        if isinstance(first, int):
            raise OSError(first, os.strerror(first))
        return first.encode()


@pytest.fixture
def device(monkeypatch, file):
    """A stand-in that reads as the device does; such an overrun cannot be had to order."""

    def make(*reads):
        file.touch()
        opened = kmsg.Kmsg.__init__

        def as_device(self, path, offset=0):
            opened(self, path, offset)
            self.is_device = True

        monkeypatch.setattr(kmsg.Kmsg, "__init__", as_device)
        monkeypatch.setattr(kmsg.os, "read", Device(*reads))
        return file

    return make


def test_records_that_were_overwritten_are_counted(device):
    """EPIPE: the next record's number tells how many are gone. EINVAL: one was too large."""
    path = device(record(7, "a"), errno.EPIPE, record(20, "b"), errno.EINVAL, record(22, "c"))
    log = reader(path)
    log.until(lambda: log.texts == ["a", "b", "c"])
    assert log.log.lost == 13
    assert "13 records were overwritten" in log.log.source()


def test_records_that_were_read_before_are_not_read_again(device):
    """A restart finds the ring from its oldest record on; a gap since then was lost."""
    path = device(record(5, "a"), record(6, "b"), record(7, "c"))
    log = reader(path, Position(boot_id=BOOT, sequence=6))
    log.until(lambda: log.texts == ["c"])
    assert log.log.lost == 0
    path = device(record(9, "d"))
    log = reader(path, Position(boot_id=BOOT, sequence=6))
    log.until(lambda: log.texts == ["d"])
    assert log.log.lost == 2


def test_after_a_reboot_all_of_the_new_boot_is_read(device):
    """Sequence numbers begin anew; what was overwritten before we started is lost."""
    path = device(record(0, "a"), record(1, "b"))
    log = reader(path, Position(boot_id="b0", sequence=900))
    log.until(lambda: log.texts == ["a", "b"])
    assert log.log.lost == 0
    path = device(record(4, "e"))
    log = reader(path, Position(boot_id="b0", sequence=900))
    log.until(lambda: log.texts == ["e"])
    assert log.log.lost == 4


def test_a_ring_that_is_overwritten_all_the_time_does_not_hold_the_reader(device):
    """A kernel that writes faster than anybody reads."""
    path = device(*[errno.EPIPE] * 1000, record(1000, "a"))
    log = reader(path)
    log.until(lambda: log.texts == ["a"])


def test_a_device_that_fails_is_opened_again(device, monkeypatch):
    """Whatever the kernel answers."""
    monkeypatch.setattr(kernel_log, "_RETRY_SECONDS", 0.01)
    path = device(record(1, "a"), errno.EIO, record(1, "a"), record(2, "b"))
    log = reader(path)
    log.until(lambda: log.texts == ["a", "b"])


def test_a_storm_leaves_others_their_turn(file):
    """Fifty thousand lines wait; a task beside gets its turn between any two hundred."""
    file.write_text(record(1) * 50_000)
    turns = 0

    async def watch():
        nonlocal turns
        log, taken = KernelLog(file, BOOT, None), 0

        def take(batch):
            nonlocal taken
            assert len(batch.lines) <= 200
            taken += len(batch.lines)

        watching = asyncio.create_task(log.watch(take))
        while taken < 50_000:
            turns += 1
            await asyncio.sleep(0)
        watching.cancel()

    asyncio.run(watch())
    assert turns >= 250


# ── the journal ───────────────────────────────────────────────────────────────────────────────

JOURNALCTL = """#!{python}
import json, pathlib, sys, time
folder = pathlib.Path(__file__).parent
words = sys.argv[1:]
with (folder / "asked").open("a") as asked:
    asked.write(json.dumps(words) + "\\n")
entries = (folder / "entries").read_text().splitlines()
after = [word.split("=", 1)[1] for word in words if word.startswith("--after-cursor=")]
shown = 0
for number, entry in enumerate(entries):
    if not after or f"c{{number}}" > after[0]:
        print(entry, flush=True)
        shown += 1
if "--follow" in words:
    while True:
        time.sleep(0.01)
        now = (folder / "entries").read_text().splitlines()
        for entry in now[len(entries):]:
            print(entry, flush=True)
        entries = now
elif not shown:
    print("No journal files were opened due to insufficient permissions.", file=sys.stderr)
    sys.exit(1)
"""


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """A journalctl over a list of entries, and a kmsg that may not be opened."""

    def refused(self, path, offset=0):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(kmsg.Kmsg, "__init__", refused)
    monkeypatch.setattr(kernel_log, "_RETRY_SECONDS", 0.05)
    program = tmp_path / "journalctl"
    program.write_text(JOURNALCTL.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "entries").touch()
    return program


def entry(number, text, at):
    return json.dumps(
        {
            "__CURSOR": f"c{number}",
            "__REALTIME_TIMESTAMP": str(int(at * 1e6)),
            "MESSAGE": text,
            "SYSLOG_IDENTIFIER": "kernel",
        }
    )


def test_where_kmsg_may_not_be_read_the_journal_is(journal):
    """Followed, with its own times, from the cursor on after a restart."""
    entries = journal.parent / "entries"
    entries.write_text(entry(0, "zero", time.time() - 60) + "\n")
    log = reader(Path("/dev/kmsg"), journalctl=str(journal))
    log.until(lambda: log.texts == ["zero"])
    assert log.log.readable
    assert "because /dev/kmsg cannot be read (Operation not permitted)" in log.log.source()
    assert 55 < time.monotonic() - log.batches[0].lines[0][1] < 120
    assert log.position.cursor == "c0"
    with entries.open("a") as stream:
        stream.write(entry(1, "one", time.time()) + "\n")
    again = reader(Path("/dev/kmsg"), log.position, journalctl=str(journal))
    again.until(lambda: again.texts == ["one"])
    asked = [json.loads(line) for line in (journal.parent / "asked").read_text().splitlines()]
    assert "--after-cursor=c0" in asked[-1]


def test_what_comes_while_the_journal_is_followed_is_news(journal):
    """The end of what was there is known by the clock."""
    entries = journal.parent / "entries"
    entries.write_text(entry(0, "zero", time.time() - 60) + "\n")
    log = reader(Path("/dev/kmsg"), journalctl=str(journal))

    def say_one():
        if log.texts == ["zero"] and "one" not in entries.read_text():
            with entries.open("a") as stream:
                stream.write(entry(1, "one", time.time()) + "\n")
        return log.texts == ["zero", "one"]

    log.until(say_one)
    assert [batch.caught_up for batch in log.batches] == [False, True]


def test_where_nothing_may_be_read_it_is_said_what_to_do(journal):
    """No data is not a healthy log."""
    log = reader(Path("/dev/kmsg"), journalctl=str(journal))
    log.until(lambda: log.log.readable is False)
    for words in ("Operation not permitted", "insufficient permissions", "CAP_SYSLOG"):
        assert words in log.log.source()
    without = reader(Path("/dev/kmsg"), journalctl="/nowhere/journalctl")
    without.until(lambda: without.log.readable is False)
    assert "cannot be run" in without.log.source()


def test_a_look_reads_all_of_this_boot(journal, file):
    """For a scan."""
    (journal.parent / "entries").write_text(entry(0, "zero", time.time() - 60) + "\n")
    log = KernelLog(Path("/dev/kmsg"), BOOT, None, journalctl=str(journal))
    assert [line.text for line, _ in asyncio.run(log.look()).lines] == ["zero"]


def test_nothing_is_read_where_there_is_no_path():
    """A simulated node."""
    log = KernelLog(None, BOOT, None)
    assert asyncio.run(log.look()).lines == ()
    asyncio.run(log.watch(lambda batch: None))
    assert (log.readable, log.source()) == (None, "not read: this node is simulated")


def test_what_a_container_has_in_its_place_is_not_the_kernels_log(file, monkeypatch):
    """A FIFO or /dev/null under that name would be silent for ever."""
    file.write_text(record(1, "nobody's"))
    monkeypatch.setattr(kernel_log, "KMSG", file)
    log = reader(file, journalctl="/nowhere/journalctl")
    log.until(lambda: log.log.readable is False)
    assert "it is not the kernel's log" in log.log.source()
    assert log.texts == []
