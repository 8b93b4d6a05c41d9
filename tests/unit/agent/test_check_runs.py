"""Real programs as site checks: how they are run, and what they leave; the examples."""

import asyncio
import json
import os
import re
import time
from pathlib import Path

import pytest
import yaml

from aegis_agent.probes import check_entry, check_verdicts
from aegis_agent.probes.check_entry import Check
from aegis_agent.sources.checks import Interrupted, Runner, read_file

CHECK = Check(name="c", command=("true",), device="fab0")


def said(outcome):
    found = check_verdicts.verdicts(CHECK, outcome, ())
    return {device: (verdict.status.value, verdict.message) for device, verdict in found.items()}


def ran(command, *, may_run=lambda: True, **entry):
    entry = {"deadline_seconds": 20.0, "interval_seconds": 60.0} | entry
    check = Check(name="c", command=(command,) if isinstance(command, str) else command, **entry)
    return asyncio.run(Runner(node="n1").run(check, may_run))


def test_a_program_is_run_as_it_is(script):
    """Its output, its exit, the node's name, and none of the agent's secrets."""
    os.environ["AEGIS_TOKEN_FILE"], os.environ["WATCHDOG_USEC"] = "/secret", "1"
    try:
        outcome = ran(
            script('echo "$AEGIS_NODE $AEGIS_CHECK $PWD [$AEGIS_TOKEN_FILE$WATCHDOG_USEC]"; exit 1')
        )
    finally:
        del os.environ["AEGIS_TOKEN_FILE"], os.environ["WATCHDOG_USEC"]
    assert (outcome.code, outcome.reason, outcome.output) == (1, "", "n1 c / []\n")


def test_a_program_gives_way_to_the_training(script):
    """In processor and in memory."""
    outcome = ran(script("sleep 0.3; nice; cat /proc/self/oom_score_adj"))
    assert outcome.output.split() == ["15", "500"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/no/such/program", "/no/such/program is not there"),
        ("no-such-program", "no-such-program is not there"),
        ("/proc/self/status", "/proc/self/status may not be run: Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started_says_why(command, reason):
    """A typing error, or a file that was not made executable."""
    outcome = ran(command)
    assert (outcome.code, outcome.reason) == (None, reason)


def test_a_program_without_a_form_the_kernel_knows(tmp_path):
    """No `#!`, no machine code."""
    (tmp_path / "x").write_text("hello\n")
    (tmp_path / "x").chmod(0o755)
    assert "cannot be run: " in ran(str(tmp_path / "x")).reason


def test_a_user_that_is_not_there_says_so():
    """A name that this node does not know."""
    assert ran("true", user="nobody-of-that-name").reason == (
        "no user is called nobody-of-that-name"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run programs as somebody else")
def test_a_program_runs_as_another_user():
    """Without the groups of root."""
    outcome = ran(("sh", "-c", "id -un; id -G"), user="nobody")
    name, groups = outcome.output.split("\n", 1)
    assert name == "nobody"
    assert "0" not in groups.split()


def test_a_program_past_its_deadline_ends_with_all_its_children(script, tmp_path):
    """Even those that do not listen."""
    pids = tmp_path / "pids"
    body = f'trap "" TERM; sleep 600 & echo $! >{pids}; echo $$ >>{pids}; echo so far; wait; wait'
    outcome = ran(script(body), deadline_seconds=0.5)
    assert (outcome.code, outcome.reason) == (None, "it did not end within 0.5 s")
    assert outcome.output == "so far\n"
    wait_gone(pids)


def wait_gone(pids):
    until = time.monotonic() + 20
    for pid in map(int, pids.read_text().split()):
        while alive(pid):
            assert time.monotonic() < until, f"{pid} lives on"
            time.sleep(0.02)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_program_leaves_behind_ends_and_holds_nobody_up(script, tmp_path):
    """It ended well; its child keeps the pipes."""
    pids = tmp_path / "pids"
    outcome = ran(script(f"sleep 600 & echo $! >{pids}; echo done; exit 0"))
    assert (outcome.code, outcome.output) == (0, "done\n")
    wait_gone(pids)


def test_a_signal_is_no_verdict(script):
    """A crash of the check says nothing of the device."""
    assert ran(script("kill -SEGV $$")).reason == "it was ended by SIGSEGV"


def test_a_flood_of_output_is_bounded(script):
    """The beginning is kept, and the program is not held up."""
    outcome = ran(script('yes "$(seq 1 100 | tr -d "\\n")" | head -c 5000000; exit 0'))
    assert (outcome.code, len(outcome.output)) == (0, 1 << 16)


def test_runs_leave_no_descriptors(script):
    """Ten thousand runs a day."""
    path = script("sleep 600 & exit 0")
    ran(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        ran(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_check_for_idle_nodes_gives_way(script):
    """Ranks have come: it ends at once, and says nothing."""
    answers = iter([True])
    with pytest.raises(Interrupted):
        ran(script("sleep 600"), may_run=lambda: next(answers, False))


# ── files that another program leaves ─────────────────────────────────────────────────────────


def left(tmp_path, text, *, age=0.0):
    path = tmp_path / "result"
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)
    return read_file(Check(name="c", file=str(path), interval_seconds=10.0, max_age_seconds=100.0))


def test_a_file_holds_lines_and_perhaps_an_exit(tmp_path):
    """Written by a unit of its own, which may use the GPU as the agent may not."""
    outcome = left(tmp_path, "busbw 180\nexit 1\n")
    assert (outcome.code, outcome.output) == (1, "busbw 180\n")
    outcome = left(tmp_path, json.dumps({"status": "ok"}))
    assert said(outcome) == {"fab0": ("ok", "")}


@pytest.mark.parametrize(
    ("text", "age", "reason"),
    [
        ("exit 0\n", 500, "is 500 s old; results older than 100 s say nothing"),
        ("", 0, "holds neither a line of JSON nor a last line `exit N`"),
        ("all is well\n", 0, "holds neither"),
    ],
)
def test_an_old_or_half_written_file_is_never_healthy(tmp_path, text, age, reason):
    """Its writer may be gone for weeks."""
    outcome = left(tmp_path, text, age=age)
    assert (outcome.code, reason in outcome.reason) == (None, True)
    missing = read_file(Check(name="c", file="/no/such/result"))
    assert missing.reason == "/no/such/result cannot be read: No such file or directory"


# ── the examples ──────────────────────────────────────────────────────────────────────────────

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "checks"


def example(tmp_path, monkeypatch, tool, prints, *command, code=0):
    """Run an example beside a program that prints what the real one is known to print."""
    fake = tmp_path / "bin" / tool
    fake.parent.mkdir(exist_ok=True)
    fake.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {code}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    return ran((str(EXAMPLES / command[0]), *command[1:]))


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [
        (("312.4", "0 OK", 0), ("ok", "all-reduce at 312.4 GB/s of bus bandwidth; 310 are wanted")),
        (
            ("180.1", "0 OK", 0),
            ("fault", "all-reduce at 180.1 GB/s of bus bandwidth; 310 are wanted"),
        ),
        (("312.4", "3 FAILED", 0), ("fault", "3 values of the all-reduce are wrong")),
        (("312.4", "0 OK", 1), ("unknown", "all_reduce_perf exited with 1: #")),
    ],
)
def test_the_example_of_rccl(tmp_path, monkeypatch, ended, verdict):
    """A bandwidth, wrong values, and a run that failed."""
    busbw, bounds, code = ended
    prints = f"# Out of bounds values : {bounds}\n# Avg bus bandwidth    : {busbw} \n#"
    command = ("rccl.py", "--limit", "310", "--", "all_reduce_perf", "-b", "8G")
    outcome = example(tmp_path, monkeypatch, "all_reduce_perf", prints, *command, code=code)
    assert said(outcome)["fab0"] == verdict
    assert outcome.code == {"ok": 0, "fault": 1, "unknown": 2}[verdict[0]]


@pytest.mark.parametrize(
    ("prints", "code", "verdict"),
    [
        ("[RESULT] [1.2] [action_1] gst 33367 Gflops 9500 met: TRUE", 0, "ok"),
        ("[RESULT] [1.2] action_1 iet 33367 pass: TRUE\n[RESULT] a iet 1 pass: FALSE", 0, "fault"),
        ("[ERROR] no module", 255, "unknown"),
    ],
)
def test_the_example_of_rvs(tmp_path, monkeypatch, prints, code, verdict):
    """Good results, a bad one, and none at all."""
    config = tmp_path / "gst.conf"
    config.write_text("actions:\n")
    outcome = example(tmp_path, monkeypatch, "rvs", prints, "rvs.sh", str(config), code=code)
    assert said(outcome)["fab0"][0] == verdict


def test_the_example_of_a_scratch_disk(tmp_path):
    """On a real disk, with a limit that it keeps and one that it cannot."""
    program = str(EXAMPLES / "scratch.sh")
    assert said(ran((program, str(tmp_path), "1")))["fab0"][0] == "ok"
    assert said(ran((program, str(tmp_path), "99999999")))["fab0"][0] == "fault"
    assert said(ran((program, "/no/such/scratch")))["fab0"][0] == "fault"
    assert list(tmp_path.iterdir()) == []


def test_the_entries_of_the_page_are_read():
    """What people copy must work."""
    page = (EXAMPLES.parents[1] / "docs" / "how-to" / "site-checks.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    first, *drops = blocks
    names = [check_entry.parse(drop, "the check").name for drop in drops]
    assert names == ["scratch", "rvs", "rccl"]
    assert len(check_entry.parse_all(first["checks"], "checks")) == 1
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert documented == set(check_entry._KEYS)
