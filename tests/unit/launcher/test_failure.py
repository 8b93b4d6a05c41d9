"""Why a rank ended, in words."""

import json
from dataclasses import replace

from aegis_agent.launcher.failure import (
    describe,
    first_of,
    leave_error,
    oom_kills,
    raised,
    read_error,
    told,
)


def failure(status, error="", *, oom_killed=False):
    return describe(
        generation=2,
        rank=3,
        at=1.0,
        status=status,
        last_step=40,
        oom_killed=oom_killed,
        error=error,
    )


def test_a_signal_is_named() -> None:
    """Negative statuses are signals, as subprocess has them."""
    assert failure(-11).text.startswith("rank 3 was killed by SIGSEGV (native code touched")
    assert (failure(-11).signal, failure(-11).exit_code) == (11, None)


def test_the_traceback_is_told_however_soon_it_is_found() -> None:
    """The launcher may see it while the rank is still on its way out, without an exit code yet."""
    error = "Traceback (most recent call last):\nValueError: no such corpus"
    soon = raised(generation=2, rank=3, at=1.0, last_step=0, error=error)
    assert told(soon) == ["generation 2: rank 3 failed: ValueError: no such corpus", error]
    assert told(failure(1, error))[1:] == [error]
    [sentence] = told(failure(-9, error))
    assert sentence.startswith("generation 2: rank 3 was killed by SIGKILL (sent by somebody;")
    assert sentence.endswith(" at step 40")


def test_memory_that_ran_out_is_said_so() -> None:
    """SIGKILL alone would tell nobody what to change."""
    assert failure(-9, oom_killed=True).text == "rank 3 was killed because memory ran out"


def test_exit_codes_in_words() -> None:
    """What shells and programs mean by theirs."""
    assert failure(127).text == "rank 3 exited with code 127 (the program was not found)"
    assert failure(137).text.endswith("(a program it ran ended by SIGKILL)")


def test_a_crash_is_told_with_the_call_it_happened_in(tmp_path) -> None:
    """Faulthandler's stack goes before its list of modules, which says nothing."""
    stderr = tmp_path / "stderr.log"
    stderr.write_text(
        "some line before\n"
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f0000000000 (most recent call first):\n"
        '  File "/a/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/a/train.py", line 7 in step\n\n'
        "Extension modules: numpy, torch (total: 2)\n"
    )
    error = read_error(tmp_path / "none", stderr)
    assert error.startswith("Fatal Python error: Segmentation fault")
    assert "Extension modules" not in error
    assert "SIGSEGV at __init__.py:519 string_at" in failure(-11, error).text


LOST = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
)


def test_who_lost_a_peer_is_a_victim() -> None:
    """Whoever says so, through gloo or NCCL; a data set's connection is another matter."""
    assert failure(1, LOST).victim
    assert failure(1, "torch.distributed.DistBackendError: NCCL communicator was aborted").victim
    assert not failure(1, "ConnectionResetError: [Errno 104] Connection reset by peer").victim
    assert not failure(1, "ValueError: x").victim


def test_a_victim_was_never_first() -> None:
    """Whatever the clocks say; between others the clock decides."""
    victim, cause = failure(1, LOST), replace(failure(1, "ValueError: x"), rank=5, at=2.0)
    first = first_of(victim, cause)
    assert (first.rank, first.victims) == (5, (3,))
    earlier = replace(cause, rank=6, at=1.5)
    assert first_of(first, earlier).rank == 6
    assert first_of(first, earlier).victims == (3,)


def test_every_rank_gets_an_error_file(tmp_path) -> None:
    """In torch's format; what the rank wrote itself stays."""
    file = tmp_path / "error.json"
    leave_error(file, "rank 3 was killed by SIGSEGV", "Fatal Python error: …")
    leave_error(file, "later", "")
    message = json.loads(file.read_text())["message"]
    assert message["message"] == "rank 3 was killed by SIGSEGV"
    assert read_error(file, tmp_path / "none") == "Fatal Python error: …"


def test_an_exit_code_comes_with_the_last_line_of_the_error() -> None:
    """The line that people look for."""
    error = "Traceback (most recent call last):\n  …\nValueError: no such file: x\n"
    assert failure(1, error).text == "rank 3 exited with code 1: ValueError: no such file: x"


def test_the_error_file_goes_before_stderr(tmp_path) -> None:
    """Torch's format, a script's own text, or the end of stderr."""
    file, stderr = tmp_path / "error.json", tmp_path / "stderr.log"
    stderr.write_text("".join(f"line {number}\n" for number in range(100)))
    assert read_error(file, stderr).splitlines() == [f"line {number}" for number in range(80, 100)]
    file.write_text("plain words")
    assert read_error(file, stderr) == "plain words"
    extra = {"py_callstack": "Traceback: here", "timestamp": "1"}
    file.write_text(json.dumps({"message": {"message": "m", "extraInfo": extra}}))
    assert read_error(file, stderr) == "Traceback: here"
    assert read_error(tmp_path / "none", tmp_path / "neither") == ""


def test_torchs_own_warnings_are_no_cause(tmp_path) -> None:
    """They come last and explain nothing."""
    stderr = tmp_path / "stderr.log"
    stderr.write_text("ValueError: x\n[W1202 06:18:04.800 socket.cpp:207] [c10d] retrying\n")
    assert read_error(tmp_path / "none", stderr) == "ValueError: x"


def test_the_kernels_count_of_kills(tmp_path) -> None:
    """In cgroups of version 2 and 1, of the group this process is in."""
    (tmp_path / "proc/self").mkdir(parents=True)
    groups = tmp_path / "proc/self/cgroup"
    two = tmp_path / "sys/fs/cgroup/job.slice/memory.events"
    two.parent.mkdir(parents=True)
    two.write_text("low 0\noom 1\noom_kill 2\n")
    groups.write_text("0::/job.slice\n")
    assert oom_kills(tmp_path) == 2
    one = tmp_path / "sys/fs/cgroup/memory/job/memory.oom_control"
    one.parent.mkdir(parents=True)
    one.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    groups.write_text("4:memory:/job\n0::/\n")
    assert oom_kills(tmp_path) == 5
    assert oom_kills(tmp_path / "nowhere") == 0
