"""Site checks: entries, what a run says, and real programs that end in every way."""

import asyncio
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from aegis.model.fault import FaultClass, Severity
from aegis.model.node import Health
from aegis_agent.book import Book
from aegis_agent.probes import check_entry, checks
from aegis_agent.probes.check_entry import Check
from aegis_agent.probes.checks import CheckMemory, Outcome
from aegis_agent.senses.checks import CheckSense
from aegis_agent.settings import SettingsError, read
from aegis_agent.sources.checks import Interrupted, Runner, read_file
from aegis_agent.spool import Spool

CHECK = Check(name="links", command=("true",), device="fab0", failures=1)


# ── entries ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def config(tmp_path):
    def write(text, **dropped):
        (tmp_path / "agent.yaml").write_text(text)
        (tmp_path / "checks.d").mkdir(exist_ok=True)
        for name, drop in dropped.items():
            (tmp_path / "checks.d" / f"{name}.yaml").write_text(drop)
        return tmp_path / "agent.yaml"

    return write


def test_an_entry_has_everything_and_needs_little(config):
    """A name and a command; the rest has defaults."""
    path = config(
        """
checks:
  - name: quick
    command: [/opt/site/check.sh, --level, 2]
  - name: rvs
    command: [/opt/rocm/bin/rvs]
    interval_seconds: 86400
    deadline_seconds: 600
    class: gpu.ecc.uncorrectable
    severity: error
    device: gpu0
    when: idle
    user: nobody
    failures: 3
    successes: 2
"""
    )
    quick, rvs = read(path, {}, "n1").checks
    assert (quick.command, quick.failures) == (("/opt/site/check.sh", "--level", "2"), 2)
    assert (quick.fault_class, quick.severity) == (
        *(FaultClass.HOST_CHECK_FAILED, Severity.WARNING),
    )
    assert (rvs.idle, rvs.fault_class, rvs.device) == (True, "gpu.ecc.uncorrectable", "gpu0")


def test_checks_may_be_dropped_beside_the_settings(config):
    """A package of the site's brings its own file: one check, or a list."""
    path = config(
        "node: n1\nchecks: [{name: a, command: [x]}]\n",
        b="name: b\ncommand: [y]\n",
        c="- {name: c, command: [z]}\n- {name: d, file: /run/d.json}\n",
    )
    assert [check.name for check in read(path, {}, "n1").checks] == ["a", "b", "c", "d"]
    path = config("node: n1\n", b="name: c\ncommand: [y]\n")
    with pytest.raises(SettingsError, match="two checks are named 'c': rename one"):
        read(path, {}, "n1")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("command: [x]", r"checks\[0\] has no name: give it one, such as `name: rvs`"),
        ("name: a b", r"checks\[0\]\.name must be a name of letters, .*, not 'a b'"),
        ("name: a", r"checks\[0\] \(a\) needs either a command to run or a file to read"),
        ("{name: a, command: check.sh}", r"command must be a list of words such as \[/opt/site"),
        ("{name: a, command: []}", r"command must be a list of words"),
        ("{name: a, comand: [x]}", r"unknown key 'comand'; the keys are name, command, file,"),
        ("{name: a, command: [x], class: gpu.ecc.uncorected}", r"did you mean gpu.ecc.uncorrecta"),
        ("{name: a, command: [x], class: node.lost}", r"class must be a class of gpu, nic, pcie"),
        ("{name: a, command: [x], severity: bad}", r"must be info, warning, error or fatal, not"),
        ("{name: a, command: [x], interval_seconds: 1m}", r"between 0.1 and 604800 .*, not '1m'"),
        ("{name: a, command: [x], when: sometimes}", r"when must be always or idle"),
        ("{name: a, command: [x], failures: 0}", r"failures must be a number of runs between 1"),
        ("{name: a, command: [x], interval_seconds: 5}", r"a run must end before the next begins"),
        ("{name: a, file: /x, when: idle}", r"whoever writes it decides"),
        ("{name: a, file: x}", r"file must be an absolute path, not 'x'"),
        ("rvs", r"checks\[0\] must have keys such as name and command, not 'rvs'"),
    ],
)
def test_a_wrong_entry_is_refused_with_the_key_and_the_mend(config, entry, sentence):
    """The agent does not start with a check that would never run."""
    path = config(f"checks:\n  - {entry}\n")
    with pytest.raises(SettingsError, match=rf"agent\.yaml: .*{sentence}"):
        read(path, {}, "n1")
    drop = config("node: n1\n", bad="what\n")
    with pytest.raises(SettingsError, match=r"bad\.yaml: the check must have keys"):
        read(drop, {}, "n1")


# ── what a run says ───────────────────────────────────────────────────────────────────────────


def said(outcome, check=CHECK, known=()):
    found = checks.verdicts(check, outcome, known)
    return {device: (verdict.status.value, verdict.message) for device, verdict in found.items()}


def lines(*objects):
    return "\n".join(json.dumps(one) for one in objects)


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(at=1.0, code=0, output="all\nwell\n"), ("ok", "well")),
        (Outcome(at=1.0, code=1, output="port 3 is slow\n"), ("fault", "port 3 is slow")),
        (Outcome(at=1.0, code=1, errors="no cable\n"), ("fault", "no cable")),
        (Outcome(at=1.0, code=1), ("fault", "it said nothing, and exited with 1")),
        (Outcome(at=1.0, code=2, errors="no tool\n"), ("unknown", "it could not tell: no tool")),
        (Outcome(at=1.0, code=127, errors="x: not found"), ("unknown", "it exited with 127: x:")),
        (Outcome(at=1.0, reason="it was ended by SIGSEGV"), ("unknown", "it was ended by SIGSEGV")),
    ],
)
def test_the_exit_decides(outcome, verdict):
    """0, 1, 2, and nothing else is healthy."""
    status, message = said(outcome)["fab0"]
    assert status == verdict[0]
    assert message.startswith(verdict[1])


def test_lines_speak_of_single_devices():
    """Class, severity and details as the line has them, or as the entry."""
    output = "starting\n" + lines(
        {"status": "ok", "device": "gpu0"},
        {
            "status": "fault",
            "device": "gpu1",
            "class": "gpu.xgmi.error",
            "severity": "error",
            "message": "bus bandwidth 180 GB/s",
            "details": {"busbw": 180.5, "limit": 310, "ranks": [0, 1]},
        },
        {"status": "unknown", "device": "gpu2", "message": "busy"},
    )
    found = checks.verdicts(CHECK, Outcome(at=1.0, code=1, output=output), ())
    assert {device: verdict.status.value for device, verdict in found.items()} == {
        "gpu0": "ok",
        "gpu1": "fault",
        "gpu2": "unknown",
    }
    fault = found["gpu1"]
    assert (fault.fault_class, fault.severity) == (FaultClass.GPU_XGMI_ERROR, Severity.ERROR)
    assert fault.details == (("busbw", "180.5"), ("limit", "310"), ("ranks", "[0, 1]"))


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        '{"status": "well"}',
        '{"message": "no status"}',
        '{"status": "fault", "class": "gpu.broken"}',
        '{"status": "fault", "severity": 5}',
        '{"status": "ok", "details": [1]}',
    ],
)
def test_a_line_that_cannot_be_understood_is_never_healthy(line):
    """Nor a fault that nobody can name."""
    status, message = said(Outcome(at=1.0, code=0, output=line))["fab0"]
    assert status == "unknown"
    assert message.startswith("a line cannot be understood (")


def test_a_run_that_did_not_end_well_is_believed_only_where_it_said_fault():
    """It may have died before it came to the rest."""
    output = lines({"status": "ok", "device": "gpu0"}, {"status": "fault", "device": "gpu1"})
    late = Outcome(at=1.0, reason="it did not end within 5 s", output=output)
    assert said(late, known=("gpu7",)) == {
        "gpu0": ("unknown", "it did not end within 5 s"),
        "gpu1": ("fault", "fault"),
        "gpu7": ("unknown", "it did not end within 5 s"),
    }


def test_an_exit_of_one_is_a_fault_whatever_the_lines_say():
    """And of the entry's device, where no line names another."""
    output = lines({"status": "ok", "device": "gpu0"})
    assert said(Outcome(at=1.0, code=1, output=output)) == {
        "gpu0": ("ok", ""),
        "fab0": ("fault", "it said nothing, and exited with 1"),
    }


def test_a_device_that_is_no_longer_named_is_well_only_if_all_is():
    """A script that lists what is broken, and one that lost a GPU from its list."""
    output = lines({"status": "fault", "device": "gpu5"})
    assert said(Outcome(at=1.0, code=1, output=output), known=("gpu3",))["gpu3"] == (
        *("unknown", "the last run did not speak of it"),
    )
    assert said(Outcome(at=1.0, code=0, output=""), known=("gpu3",))["gpu3"][0] == "ok"


def test_the_worst_line_of_a_device_counts():
    """Two lines of one GPU."""
    output = lines(
        {"status": "fault", "device": "gpu0", "severity": "warning", "message": "warm"},
        {"status": "fault", "device": "gpu0", "severity": "error", "message": "broken"},
        {"status": "ok", "device": "gpu0"},
    )
    assert said(Outcome(at=1.0, code=1, output=output)) == {"gpu0": ("fault", "broken")}


class Judge:
    """Runs of one check, judged in turn."""

    def __init__(self, subject, **entry):
        self.check = Check(name="links", command=("x",), device="fab0", **entry)
        self.memory, self.subject, self.at = CheckMemory(), subject, 100.0

    def run(self, code, output=""):
        self.at += 60
        outcome = Outcome(at=self.at, code=code, output=output)
        self.judgement = checks.observe(self._subject, self.check, self.memory, outcome)
        self.memory = self.judgement.memory
        lasting = [
            one.fault_class.value for all_ in self.judgement.conditions.values() for one in all_
        ]
        return len(self.judgement.faults), len(lasting), self.judgement.device.health.value

    def _subject(self, device):
        return replace(self.subject, device=device)


def test_a_fault_is_believed_after_so_many_in_a_row(subject):
    """Once as a fault, then as a condition, until it is healthy so often in a row."""
    judge = Judge(subject, failures=2, successes=2)
    assert judge.run(0) == (0, 0, "healthy")
    assert judge.run(1) == (0, 0, "healthy")
    assert judge.judgement.unsettled
    assert "fab0: failed 1 of 2 times" in judge.judgement.device.detail
    assert judge.run(0) == (0, 0, "healthy")
    assert judge.run(1) == (0, 0, "healthy")
    assert judge.run(1, "slow") == (1, 1, "unhealthy")
    assert judge.judgement.faults[0].details == (("check", "links"),)
    assert judge.run(1) == (0, 1, "unhealthy")
    assert judge.run(0) == (0, 1, "unhealthy")
    assert judge.run(0) == (0, 0, "healthy")


def test_what_could_not_be_told_changes_nothing_and_is_shown(subject):
    """Neither a fault nor its end."""
    judge = Judge(subject, failures=2)
    assert judge.run(1) == (0, 0, "healthy")
    assert judge.run(2) == (0, 0, "unknown")
    assert judge.run(1) == (1, 1, "unhealthy")
    assert judge.run(2) == (0, 1, "unhealthy")
    assert "it could not tell" in judge.judgement.device.detail
    assert judge.run(0) == (0, 0, "healthy")


def test_another_class_is_another_fault(subject):
    """The condition goes on under its new name."""
    judge = Judge(subject, failures=1)
    judge.run(1, lines({"status": "fault", "class": "nic.rdma.degraded"}))
    faults, lasting, _ = judge.run(1, lines({"status": "fault", "class": "nic.rdma.error"}))
    assert (faults, lasting) == (1, 1)


# ── real programs ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def script(tmp_path):
    def write(body, name="check.sh"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


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
    outcome = left(tmp_path, lines({"status": "ok"}))
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


def test_a_result_that_was_left_is_counted_once(subject):
    """It is read every few seconds, and written once a day."""
    judge = Judge(subject, failures=2)
    outcome = Outcome(at=100.0, code=1, left_at=50.0)
    for left_at, faults in ((50.0, 0), (50.0, 0), (60.0, 1)):
        judged = checks.observe(
            judge._subject, judge.check, judge.memory, replace(outcome, left_at=left_at)
        )
        judge.memory = judged.memory
        assert len(judged.faults) == faults


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


# ── the sense ─────────────────────────────────────────────────────────────────────────────────


class Node:
    """A check sense with a book."""

    def __init__(self, config, spool=None):
        self.spool = Spool(None) if spool is None else spool
        self.book = Book(node="n1", boot_id="boot-1", spool=self.spool, urge=lambda: None)
        self.book.place("0000:c1:00.0", "gpu3")
        self.sense = CheckSense(read(config, {"poll_seconds": 0.05}, "n1"), self.book)

    def run(self, until, seconds=30.0):
        """Watch until something holds."""
        asyncio.run(self._run(until, seconds))

    async def _run(self, until, seconds):
        watching = asyncio.create_task(self.sense.watch())
        try:
            async with asyncio.timeout(seconds):
                while not until():
                    assert not watching.done(), watching.result()
                    await asyncio.sleep(0.02)
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    def told(self):
        return [(one.fault.fault_class.value, one.fault.device) for one in self.spool.pending(99)]


def test_a_check_becomes_a_device_a_fault_and_a_condition(config, script, tmp_path):
    """Named by an address, told of the GPU there; well again once the check says so."""
    state = tmp_path / "state"
    state.write_text("fault")
    path = script(
        f'echo "{{\\"status\\": \\"$(cat {state})\\", \\"device\\": \\"0000:c1:00.0\\"}}"'
    )
    times = "interval_seconds: 1, deadline_seconds: 1"
    entry = f"{{name: bw, command: [{path}], class: gpu.xgmi.error, {times}}}"
    node = Node(config(f"checks: [{entry}]"))
    assert node.sense.source() == "1 site check: bw"
    node.run(node.book.conditions)
    assert node.told() == [("gpu.xgmi.error", "gpu3")]
    assert node.book.device("check:bw").health == Health.UNHEALTHY
    assert not node.book.device("check:bw").used, "a warning keeps no node out"
    again = Node(config("checks: []"), spool=node.spool)
    assert again.sense._memories == {}
    state.write_text("ok")
    node.run(lambda: not node.book.conditions())
    assert node.book.device("check:bw").health == Health.HEALTHY
    assert len(node.told()) == 1


def test_no_more_than_two_run_at_once(config, script, tmp_path):
    """Ten checks are no load test."""
    log = tmp_path / "log"
    path = script(f"echo begin >>{log}; sleep 0.1; echo end >>{log}")
    entries = "".join(f"  - {{name: c{i}, command: [{path}]}}\n" for i in range(6))
    node = Node(config(f"checks:\n{entries}"))
    node.run(lambda: log.exists() and log.read_text().count("end") == 6)
    running = most = 0
    for line in log.read_text().split():
        running += 1 if line == "begin" else -1
        most = max(most, running)
    assert most <= 2


def test_a_check_for_idle_nodes_waits(config, script, tmp_path):
    """Also while nobody knows whether ranks are here."""
    mark = tmp_path / "ran"
    path = script(f"touch {mark}")
    node = Node(config(f"checks: [{{name: rvs, command: [{path}], when: idle}}]"))
    node.run(lambda: "until no ranks are here these wait: rvs" in node.sense.source())
    node.book.training = True
    assert not mark.exists()
    node.book.training = False
    node.run(lambda: node.book.device("check:rvs") is not None)
    assert mark.exists()


def test_an_old_result_is_none(config, script):
    """The check hangs, say, or the agent was stopped for a while."""
    node = Node(config(f"checks: [{{name: a, command: [{script('exit 0')}]}}]"))
    node.run(lambda: node.book.device("check:a"))
    assert node.book.device("check:a").health == Health.HEALTHY
    node.sense.tick(time.time() + 100)
    assert node.book.device("check:a").health == Health.HEALTHY
    node.sense.tick(time.time() + 1000)
    device = node.book.device("check:a")
    assert (device.health, device.detail) == (Health.UNKNOWN, "no result for more than 210 s")


def test_a_check_that_runs_seldom_does_not_run_again_with_each_agent(config, script, tmp_path):
    """When it last ran is remembered."""
    mark = tmp_path / "ran"
    path = script(f"echo x >>{mark}")
    settings = config(f"checks: [{{name: day, command: [{path}], interval_seconds: 86400}}]")
    node = Node(settings)
    node.run(lambda: node.book.device("check:day"))
    again = Node(settings, spool=node.spool)
    assert again.sense._first_pause(again.sense._checks[0]) > 86000


def test_one_look_believes_at_once_and_leaves_out_what_takes_long(config, script):
    """`aegis scan` has no second run."""
    bad = script("echo bad; exit 1")
    node = Node(
        config(
            f"checks:\n  - {{name: a, command: [{bad}]}}\n"
            f"  - {{name: rvs, command: [{bad}], interval_seconds: 900, deadline_seconds: 600}}\n"
        )
    )
    asyncio.run(node.sense.look())
    assert node.told() == [("host.check.failed", "host")]
    assert node.sense.source().endswith("too long for one look: rvs")
