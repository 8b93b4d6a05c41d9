"""A full disk: nothing is decided and nothing is lost until there is space again."""

import contextlib
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path, cleanup):
    """A file system of its own, of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    cleanup.callback(lambda: subprocess.run(["umount", str(folder)], check=True))
    return folder


@pytest.mark.root
def test_a_full_disk_stops_decisions_and_loses_nothing(small_disk, agent, patiently, cleanup, make):
    """Reads go on, changes get a 503, faults stay in the spool, and it recovers by itself."""
    program = make("disk/data").start()
    speaker = agent(program, "n1")
    assert speaker.send((1, speaker.fault("gpu0"))).stored == 1
    fill(small_disk / "filler")
    patiently(lambda: program.get("/readyz").status_code == 503, "the disk to be found full")
    assert "free some space" in program.get("/readyz?verbose").text
    assert program.metric("aegis_event_log_full")[""] == 1
    assert speaker.send((2, speaker.fault("gpu1"))).stored == 1
    refused = program.post("/nodes/n1:cordon", {"reason": "x"})
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert "free some space" in refused.json()["detail"]
    assert program.json("/nodes/n1")["state"] != "cordoned"
    assert program.json("/summary")["level"] == "critical"
    (small_disk / "filler").unlink()
    patiently(lambda: program.get("/readyz").status_code == 200, "it to recover")
    assert speaker.send((2, speaker.fault("gpu1"))).stored == 2
    assert program.post("/nodes/n1:cordon", {"reason": "x"}).status_code == 200
    before = len(program.json("/incidents")["items"])
    program.kill()
    program.start()
    assert len(program.json("/incidents")["items"]) == before == 2
    program.stop()


def fill(file):
    """Take all the space there is."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as filler:
        while filler.write(b"0" * 4096):
            pass
