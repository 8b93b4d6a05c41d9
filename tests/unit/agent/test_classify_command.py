"""`aegis classify`, as a person or a pipe uses it."""

import gzip
import json
import os
import subprocess
import sys

import pytest

AEGIS = [sys.executable, "-m", "aegis.cli.main", "classify"]
FAULT = "amdgpu 0000:c1:00.0: amdgpu: ring sdma0 timeout, signaled seq=1, emitted seq=3"
LOG = f"[    1.000000] Linux version 6.8.0\n[  812.500000] {FAULT}\n"


def classify(*words, given="", **options):
    """Run it; `given` is standard input, as text or as bytes."""
    given = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        [*AEGIS, *words], input=given, capture_output=True, check=False, **options
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_every_line_gives_an_object(tmp_path):
    """With its class or null, and the time that it tells."""
    log = tmp_path / "kern.log"
    log.write_text(LOG, encoding="utf-8")
    code, out, err = classify(str(log))
    assert (code, err) == (0, "")
    plain, fault = (json.loads(line) for line in out.splitlines())
    assert plain == {
        "line": "[    1.000000] Linux version 6.8.0",
        "class": None,
        "severity": None,
        "device": None,
        "details": {},
        "uptime": 1.0,
    }
    assert fault == {
        "line": f"[  812.500000] {FAULT}",
        "class": "gpu.ring.timeout",
        "severity": "error",
        "device": "0000:c1:00.0",
        "details": {"ring": "sdma0", "signaled": "1", "emitted": "3"},
        "uptime": 812.5,
    }


def test_only_faults_where_only_they_are_wanted():
    """And the moment where the log tells it."""
    stamped = (
        f"2025-03-04T10:11:12+00:00 n1 kernel: {FAULT}\n2025-03-04T10:11:13+00:00 n1 cron: hi\n"
    )
    code, out, _ = classify("-", "--faults-only", given=stamped)
    (fault,) = (json.loads(line) for line in out.splitlines())
    assert (code, fault["class"], fault["at"]) == (0, "gpu.ring.timeout", 1741083072.0)


def test_a_table_for_people():
    """A line a fault, and nothing in it that a terminal would obey."""
    code, out, _ = classify(
        "-", "-o", "table", "--faults-only", given=LOG.replace("sdma0", "\x1b[31mx")
    )
    head, row = out.splitlines()
    assert code == 0
    assert head.split() == ["SEVERITY", "CLASS", "DEVICE", "MESSAGE"]
    assert row.split()[:3] == ["error", "gpu.ring.timeout", "0000:c1:00.0"]
    assert "\x1b" not in out


def test_it_answers_before_the_input_ends():
    """`tail -F kern.log | aegis classify -` tells of a fault when it happens."""
    with subprocess.Popen(
        [*AEGIS, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as running:
        for number in range(3):
            running.stdin.write(f"[{number:12.6f}] {FAULT}\n")
            running.stdin.flush()
            assert json.loads(running.stdout.readline())["uptime"] == number
        running.stdin.close()
        assert running.wait(30) == 0


def test_records_of_the_kernel_s_own_device_are_read_whole():
    """/dev/kmsg names the device in a field after the message."""
    given = "3,9,1500000,-;Out of order\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0\n3,10,1600000,-;"
    code, out, _ = classify("-", given=f"{given}{FAULT}\n")
    first, second = (json.loads(line) for line in out.splitlines())
    assert code == 0
    assert first["line"].splitlines()[1:] == [" SUBSYSTEM=pci", " DEVICE=+pci:0000:c1:00.0"]
    assert (second["class"], second["uptime"]) == ("gpu.ring.timeout", 1.6)


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"\n\n\n",
        b"\x00\xff\xfe\n" * 50,
        "каша\n".encode("koi8-r"),
        b"x" * 3_000_000,
        b"no end",
    ],
    ids=["nothing", "empty lines", "binary", "another encoding", "one endless line", "no last end"],
)
def test_garbage_is_read_and_is_no_fault(given):
    """Whatever is in a log, the rest of it is read."""
    code, out, err = classify("-", given=given + b"\n" + FAULT.encode() if given else given)
    classes = [json.loads(line)["class"] for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [name for name in classes if name] == (["gpu.ring.timeout"] if given else [])


def test_a_packed_log_is_refused_with_the_command_that_reads_it(tmp_path):
    """From a file and from a pipe."""
    packed = tmp_path / "kern.log.2.gz"
    packed.write_bytes(gzip.compress(LOG.encode()))
    code, out, err = classify(str(packed))
    assert (code, out) == (1, "")
    assert (
        err == f"aegis classify: {packed} is compressed by gzip: zcat {packed} | aegis classify -\n"
    )
    code, _, err = classify("-", given=packed.read_bytes())
    assert code == 1
    assert "standard input is compressed by gzip" in err


def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path):
    """With its own exit code, and without a traceback."""
    missing = tmp_path / "none.log"
    assert classify(str(missing)) == (3, "", f"aegis classify: there is no file {missing}\n")
    code, _, err = classify(str(tmp_path))
    assert (code, err) == (1, f"aegis classify: {tmp_path} is a directory; name a file in it\n")
    code, _, err = classify()
    assert code == 2
    assert "FILE" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_of_another_user_is_denied(tmp_path):
    """The hint is sudo."""
    log = tmp_path / "kern.log"
    log.touch(mode=0o000)
    code, _, err = classify(str(log))
    assert code == 4
    assert "sudo" in err


def test_a_reader_who_has_enough_is_no_error(tmp_path):
    """As `head` is."""
    log = tmp_path / "kern.log"
    log.write_text(LOG * 20_000, encoding="utf-8")
    command = f"{' '.join(AEGIS)} {log} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False
    )
    assert json.loads(done.stdout)["class"] is None
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_that_speaks_only_ascii_gets_the_table():
    """What it cannot show is replaced."""
    surroundings = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    given = FAULT.replace("sdma0", "sdmа0")
    code, out, err = classify("-", "-o", "table", given=given, env=surroundings)
    assert (code, err) == (0, "")
    assert "ring sdm?0 timeout" in out


def test_a_person_at_a_terminal_gets_the_sum():
    """On the error stream, so that a pipe behind it sees only objects."""
    ours, its = os.openpty()
    done = subprocess.run(
        [*AEGIS, "-"], input=LOG.encode(), stdout=subprocess.PIPE, stderr=its, check=False
    )
    told = os.read(ours, 4096).decode()
    os.close(its)
    os.close(ours)
    assert done.returncode == 0
    assert told.strip() == "2 lines, 1 with a fault: 1 × gpu.ring.timeout"


def test_help_tells_forms_fields_and_examples():
    """A person needs no manual."""
    code, out, _ = classify("--help")
    assert code == 0
    for word in ("journalctl", "--faults-only", "details", "examples:", "exit codes:", "tail -F"):
        assert word in out
