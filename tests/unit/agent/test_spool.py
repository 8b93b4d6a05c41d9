"""The spool: nothing important is lost, whatever happens to the process or the disk."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aegis.model.fault import Fault, FaultClass, Severity
from aegis_agent.spool import Spool, SpoolBusyError
from aegis_agent.spool import spool as module
from aegis_agent.spool.disk import Disk


def fault(kind=FaultClass.GPU_ECC_UNCORRECTABLE, severity=Severity.ERROR, device="gpu0"):
    return Fault(fault_class=kind, severity=severity, node="n1", device=device, observed_at=1.0)


def correctable(device="gpu0"):
    return fault(FaultClass.GPU_ECC_CORRECTABLE, Severity.INFO, device)


def devices(spool):
    return [spooled.fault.device for spooled in spool.pending(100)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spool.sqlite"


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of half a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("a small file system is mounted: needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk did not fill up")


def test_faults_and_memory_outlive_the_agent(path):
    """What was kept is there again, under the same origin, with growing numbers."""
    before = Spool(path)
    before.append([fault(device="gpu0")], {"gpu a": "1"})
    before.append([fault(device="gpu1")], {"gpu a": "2"})
    before.close()
    after = Spool(path)
    after.append([fault(device="gpu2")], {})
    assert devices(after) == ["gpu0", "gpu1", "gpu2"]
    assert after.recall() == {"gpu a": "2"}
    assert after.origin == before.origin
    numbers = [spooled.number for spooled in after.pending(100)]
    assert numbers == sorted(set(numbers))


def test_what_the_controller_stored_is_forgotten(path):
    """Up to the confirmed number and no further, also over a restart."""
    spool = Spool(path)
    spool.append([fault(device="gpu0"), fault(device="gpu1"), fault(device="gpu2")], {})
    assert spool.forget(spool.pending(2)[1].number) == 2
    spool.close()
    assert devices(Spool(path)) == ["gpu2"]


def test_a_number_is_never_used_twice(path, monkeypatch):
    """Neither when all was forgotten before a restart, nor when the clock went back."""
    spool = Spool(path)
    spool.append([fault()], {})
    (first,) = spool.pending(1)
    spool.forget(first.number)
    spool.close()
    again = Spool(path)
    again.append([fault()], {})
    (second,) = again.pending(1)
    monkeypatch.setattr(module.time, "time", lambda: 0.0)
    again.append([fault()], {})
    third = again.pending(2)[1]
    assert first.number < second.number < third.number


def test_a_full_spool_drops_the_least_important_and_counts_them(path):
    """Correctable counts go first, then the other infos and warnings; errors never."""
    spool = Spool(path, faults_max=3)
    warning = fault(FaultClass.GPU_MEMORY_BAD_PAGE, Severity.WARNING, "gpu1")
    spool.append([warning, correctable("gpu2"), correctable("gpu3")], {})
    spool.append([fault(device="gpu4"), fault(device="gpu5")], {})
    assert devices(spool) == ["gpu1", "gpu4", "gpu5"]
    spool.append([fault(device="gpu6"), fault(device="gpu7")], {})
    assert devices(spool) == ["gpu4", "gpu5", "gpu6", "gpu7"]
    assert spool.dropped == 3
    spool.close()
    assert devices(Spool(path)) == ["gpu4", "gpu5", "gpu6", "gpu7"]


def test_one_agent_per_spool(path):
    """Two agents would forget each other's faults."""
    first = Spool(path)
    with pytest.raises(SpoolBusyError, match="--state-dir"):
        Spool(path)
    first.close()
    Spool(path).close()


def test_a_damaged_spool_is_set_aside(path):
    """The agent starts anyway, with a new origin; the damaged file is kept for a look."""
    path.write_text("this is no database" * 100)
    spool = Spool(path)
    spool.append([fault()], {})
    assert spool.trouble == ""
    assert len(list(path.parent.glob("spool.sqlite.damaged-*"))) == 1
    spool.close()
    assert devices(Spool(path)) == ["gpu0"]


KILLED = """
import os, signal, sys
from pathlib import Path
from aegis.model.fault import Fault, FaultClass, Severity
from aegis_agent.spool import Spool
spool = Spool(Path(sys.argv[1]))
for number in range(50):
    fault = Fault(fault_class=FaultClass.GPU_LOST, severity=Severity.FATAL, node="n1",
                  device=f"gpu{number}", observed_at=1.0)
    spool.append([fault], {"count": str(number + 1)})
    print(number + 1, flush=True)
    if number == 29:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_minus_nine_loses_nothing_that_was_appended(path):
    """Fault and counter are one transaction: after the kill they agree."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, path], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    spool = Spool(path)
    assert len(spool) == 30
    assert spool.recall() == {"count": "30"}


def test_a_full_disk_stops_nothing_and_all_comes_back(tiny_disk, monkeypatch):
    """Faults wait in memory, the trouble is told, and with room again all is on disk."""
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.0)
    path = tiny_disk / "spool.sqlite"
    spool = Spool(path)
    spool.append([fault(device="gpu0")], {"gpu a": "1"})
    ballast = fill(tiny_disk)
    for number in range(1, 40):
        spool.append([fault(device=f"gpu{number}")], {"gpu a": str(number)})
    assert "cannot be written" in spool.trouble
    assert not spool.retry()
    assert len(spool) == 40
    ballast.unlink()
    assert spool.retry()
    assert spool.trouble == ""
    spool.close()
    again = Spool(path)
    assert len(again) == 40
    assert again.recall() == {"gpu a": "39"}
    again.close()


def test_a_spool_that_cannot_be_opened_works_in_memory(tiny_disk, monkeypatch):
    """The disk is full when the agent starts; what waits on it is sent once there is room."""
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.0)
    path = tiny_disk / "spool.sqlite"
    before = Spool(path)
    before.append([fault(device="gpu0")], {"gpu a": "1"})
    before.close()
    ballast = fill(tiny_disk)
    spool = Spool(path)
    spool.append([fault(device="gpu1")], {"gpu b": "1"})
    ballast.unlink()
    assert spool.retry()
    assert devices(spool) == ["gpu0", "gpu1"]
    assert spool.origin == before.origin
    spool.close()
    again = Spool(path)
    assert devices(again) == ["gpu0", "gpu1"]
    assert again.recall() == {"gpu a": "1", "gpu b": "1"}
    again.close()


def test_a_folder_without_rights_is_trouble_and_no_end(tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "state").write_text("")
    spool = Spool(tmp_path / "state" / "spool.sqlite")
    spool.append([fault()], {})
    assert "cannot be written" in spool.trouble
    assert devices(spool) == ["gpu0"]


def test_the_spool_can_be_read_by_hand(path):
    """The file is plain SQLite: three tables, JSON in the rows."""
    spool = Spool(path)
    spool.append([fault()], {"gpu a": "{}"})
    spool.close()
    database = sqlite3.connect(path)
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert {name for (name,) in tables} == {"spool", "fault", "memory"}
    database.close()


# with the thread that writes


class Hanging:
    """A disk whose writes hang until they are let go."""

    def __init__(self, monkeypatch):
        self.asked = threading.Event()
        self._go = threading.Event()
        write = Disk.write

        def hang(disk, change):
            self.asked.set()
            assert self._go.wait(60)
            return write(disk, change)

        monkeypatch.setattr(Disk, "write", hang)

    def let_go(self):
        self._go.set()


def test_what_is_settled_is_on_disk(path):
    """A report that waited for it tells nothing that a crash could make it tell twice."""

    async def story():
        spool = Spool(path)
        spool.start()
        for number in range(100):
            spool.append([fault(device=f"gpu{number}")], {"count": str(number)})
        await spool.settled(60)
        on_disk = sqlite3.connect(path).execute("SELECT count(*) FROM fault").fetchone()
        spool.close()
        return on_disk

    assert asyncio.run(story()) == (100,)


def test_many_changes_are_one_write(path, monkeypatch):
    """While the disk is busy, changes gather; what came and went meanwhile is never written."""
    hanging = Hanging(monkeypatch)

    async def story():
        spool = Spool(path)
        spool.start()
        spool.append([fault(device="first")], {})
        assert hanging.asked.wait(60)
        changes = []
        write = Disk.write
        monkeypatch.setattr(
            Disk, "write", lambda disk, one: changes.append(one) or write(disk, one)
        )
        for number in range(50):
            spool.append([fault(device=f"gpu{number}")], {"count": str(number)})
        spool.forget(spool.pending(10)[-1].number)
        hanging.let_go()
        await spool.settled(60)
        spool.close()
        return changes

    (change,) = asyncio.run(story())
    assert len(change.faults) == 41
    assert change.memory == {"count": "49"}


def test_a_disk_that_hangs_keeps_no_fault_from_being_told(path, monkeypatch):
    """The report waits a moment and goes; the loop is never held; nothing is lost by it."""
    hanging = Hanging(monkeypatch)

    async def story():
        spool = Spool(path)
        spool.start()
        for number in range(30_000):
            spool.append([correctable(f"gpu{number % 8}")], {"count": str(number)})
            if number % 1000 == 0:
                spool.forget(spool.pending(200)[-1].number)
        await spool.settled(0.01)
        assert hanging.asked.wait(60)
        waiting = spool.pending(200)
        assert 0 < len(waiting) <= 16
        hanging.let_go()
        await spool.settled(60)
        spool.close()
        return [one.number for one in waiting]

    told = asyncio.run(story())
    again = Spool(path)
    assert [one.number for one in again.pending(200)] == told
    assert again.recall() == {"count": "29999"}
    again.close()


def test_a_full_disk_stops_nothing_in_the_thread_either(tiny_disk, monkeypatch):
    """Trouble is told from the thread, and with room again all is on disk."""
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.0)
    path = tiny_disk / "spool.sqlite"

    async def until(spool, done):
        async with asyncio.timeout(60):
            while not done():
                spool.retry()
                await asyncio.sleep(0.01)

    async def story():
        spool = Spool(path)
        spool.start()
        spool.append([fault(device="gpu0")], {"gpu a": "1"})
        await spool.settled(60)
        ballast = fill(tiny_disk)
        for number in range(1, 40):
            spool.append([fault(device=f"gpu{number}")], {"gpu a": str(number)})
        await until(spool, lambda: spool.trouble)
        assert len(spool) == 40
        ballast.unlink()
        await until(spool, lambda: not spool.trouble)
        spool.close()

    asyncio.run(story())
    again = Spool(path)
    assert (len(again), again.recall()) == (40, {"gpu a": "39"})
    again.close()


def test_closing_writes_what_is_left(path):
    """Also what was appended after the loop has ended."""

    async def story():
        spool = Spool(path)
        spool.start()
        spool.append([fault(device="gpu0")], {"count": "1"})
        return spool

    spool = asyncio.run(story())
    spool.append([fault(device="gpu1")], {"count": "2"})
    spool.close()
    again = Spool(path)
    assert devices(again) == ["gpu0", "gpu1"]
    assert again.recall() == {"count": "2"}
    again.close()


KILLED_IN_A_STORM = """
import asyncio, os, signal, sys
from pathlib import Path
from aegis.model.fault import Fault, FaultClass, Severity
from aegis_agent.spool import Spool

async def storm():
    spool = Spool(Path(sys.argv[1]))
    spool.start()
    for number in range(100_000):
        fault = Fault(fault_class=FaultClass.GPU_ECC_CORRECTABLE, severity=Severity.INFO,
                      node="n1", device="gpu0", observed_at=1.0)
        spool.append([fault], {"count": str(number + 1)})
        if number % 100 == 0:
            await asyncio.sleep(0)
        if number == 50_000:
            await spool.settled(60)
        if number == 70_000:
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(storm())
"""


def test_fault_and_counter_agree_after_a_kill_in_a_storm(path):
    """They are one transaction, whatever was merged and whenever it was written."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_A_STORM, path], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    spool = Spool(path)
    counted = sum(one.fault.count for one in spool.pending(100))
    assert counted >= 50_000
    assert spool.recall() == {"count": str(counted)}
    spool.close()
