"""Site checks: entries, what a run says, and real programs that end in every way."""

import json
from dataclasses import replace

import pytest

from aegis.model.fault import FaultClass, Severity
from aegis_agent.probes import check_verdicts, checks
from aegis_agent.probes.check_entry import Check, parse
from aegis_agent.probes.check_verdicts import Outcome
from aegis_agent.probes.checks import CheckMemory
from aegis_agent.settings import SettingsError, read

CHECK = Check(name="links", command=("true",), device="fab0", failures=1)


# ── entries ───────────────────────────────────────────────────────────────────────────────────


def test_an_entry_has_everything_and_needs_little(agent_yaml):
    """A name and a command; the rest has defaults."""
    path = agent_yaml(
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


def test_checks_may_be_dropped_beside_the_settings(agent_yaml):
    """A package of the site's brings its own file: one check, or a list."""
    path = agent_yaml(
        "node: n1\nchecks: [{name: a, command: [x]}]\n",
        b="name: b\ncommand: [y]\n",
        c="- {name: c, command: [z]}\n- {name: d, file: /run/d.json}\n",
    )
    assert [check.name for check in read(path, {}, "n1").checks] == ["a", "b", "c", "d"]
    path = agent_yaml("node: n1\n", b="name: c\ncommand: [y]\n")
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
        ("{name: a, command: [x], when: sometimes}", r"when must be always, idle \(only"),
        ("{name: a, command: [x], failures: 0}", r"failures must be a number of runs between 1"),
        (
            "{name: a, command: [x], interval_seconds: 5, deadline_seconds: 6}",
            r"a run must end before the next begins",
        ),
        ("{name: a, file: /x, when: idle}", r"whoever writes it decides"),
        ("{name: a, file: x}", r"file must be an absolute path, not 'x'"),
        ("rvs", r"checks\[0\] must have keys such as name and command, not 'rvs'"),
    ],
)
def test_a_wrong_entry_is_refused_with_the_key_and_the_mend(agent_yaml, entry, sentence):
    """The agent does not start with a check that would never run."""
    path = agent_yaml(f"checks:\n  - {entry}\n")
    with pytest.raises(SettingsError, match=rf"agent\.yaml: .*{sentence}"):
        read(path, {}, "n1")
    drop = agent_yaml("node: n1\n", bad="what\n")
    with pytest.raises(SettingsError, match=r"bad\.yaml: the check must have keys"):
        read(drop, {}, "n1")


# ── what a run says ───────────────────────────────────────────────────────────────────────────


def said(outcome, check=CHECK, known=()):
    found = check_verdicts.verdicts(check, outcome, known)
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
    found = check_verdicts.verdicts(CHECK, Outcome(at=1.0, code=1, output=output), ())
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


@pytest.mark.parametrize(("interval", "deadline"), [(10, 10.0), (60, 30.0)])
def test_a_run_ends_before_the_next_begins_without_being_told(interval, deadline):
    """Who only wants it often need not name a deadline."""
    entry = {"name": "a", "command": ["/bin/true"], "interval_seconds": interval}
    assert parse(entry, "checks[0]").deadline_seconds == deadline
