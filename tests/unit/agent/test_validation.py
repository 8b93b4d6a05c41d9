"""Steps of a validation from what senses and programs say, and the settings for it."""

import asyncio
from dataclasses import replace

import pytest

from aegis.model.fault import Condition, FaultClass, Severity
from aegis.model.node import Device, Health
from aegis.model.validation import Step, StepState, ValidationState, outcome
from aegis_agent import settings as reading
from aegis_agent.probes import check_entry
from aegis_agent.probes import validation as judging
from aegis_agent.probes.check_verdicts import Outcome
from aegis_agent.settings import SettingsError
from aegis_agent.sources import loopback

GPU = Device(
    name="gpu0",
    kind="gpu",
    health=Health.HEALTHY,
    counters=(("ecc_correctable", 3), ("ecc_uncorrectable", 0), ("processes", 0), ("power_w", 140)),
)
PERFTEST = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1122334          0.00               391.42            0.746574
---------------------------------------------------------------------------------------
"""


def counted(**values):
    return replace(GPU, counters=tuple((dict(GPU.counters) | values).items()))


def test_counters_must_stand_still_while_the_node_is_tried():
    """An uncorrectable error fails; a correctable one is a warning; work done is neither."""
    assert judging.quiet((GPU,), (GPU,)).state == "pass"
    assert judging.quiet((GPU,), (counted(processes=2, power_w=700),)).state == "pass"
    grown = judging.quiet((GPU,), (counted(ecc_uncorrectable=1),))
    assert (grown.state, grown.text) == ("fail", "gpu0 ecc_uncorrectable 0 -> 1")
    assert judging.quiet((GPU,), (counted(ecc_correctable=9),)).state == "warning"
    assert judging.quiet((), ()).state == "unknown"


def test_what_lasts_at_error_fails():
    """A condition below error is a warning."""
    wrong = Condition(fault_class=FaultClass.NIC_LINK_DOWN, device="fab0", since=1.0)
    assert judging.live((wrong,)).state == "fail"
    assert judging.live((replace(wrong, severity=Severity.WARNING),)).state == "warning"
    assert judging.live(()).state == "pass"


def test_what_a_child_did_not_tell_is_no_pass():
    """It died, or there is no such interpreter: each step that is missing could not be told."""
    memory = Step(name="host memory", state=StepState.PASS, text="")
    died = Outcome(at=1.0, reason="it was ended by SIGKILL")
    (missing,) = judging.unsaid((memory,), died, gpus=0)
    assert (missing.name, missing.state) == ("all-reduce", "unknown")
    assert missing.text == "it was ended by SIGKILL"
    absent = judging.unsaid((), Outcome(at=1.0, reason="/x/python is not there"), gpus=8)
    assert [one.name for one in absent] == ["host memory", "all-reduce", "gpu memory"]


def test_one_failure_fails_the_whole_and_what_is_unknown_is_said():
    """The reason names what was measured against its gate."""
    good = Step(name="devices", state=StepState.PASS, text="all is here")
    slow = Step(name="all-reduce", state=StepState.FAIL, text="too slow", value="287 GB/s",
                gate=">= 310 GB/s")  # fmt: skip
    unknown = Step(name="gpu memory", state=StepState.UNKNOWN, text="torch sees no GPU")
    warned = Step(name="configuration", state=StepState.WARNING, text="another driver")
    assert outcome((good, slow, unknown)) == (
        ValidationState.FAILED,
        "all-reduce: too slow (287 GB/s, wanted >= 310 GB/s)",
    )
    state, text = outcome((good, unknown))
    assert state is ValidationState.UNKNOWN
    assert text == "1 of 2 steps passed; gpu memory could not be told (torch sees no GPU)"
    assert outcome((good, warned)) == (
        ValidationState.PASSED,
        "2 of 2 steps passed; take note of configuration: another driver",
    )
    assert outcome(())[0] is ValidationState.UNKNOWN


@pytest.mark.parametrize(
    ("code", "output", "state"),
    [(0, "", "pass"), (1, "busbw 180 GB/s, 310 wanted", "fail"), (2, "no GPU", "unknown")],
)
def test_a_site_check_is_a_step(code, output, state):
    """Any fault that it finds keeps the node out, whatever its severity."""
    check = check_entry.parse({"name": "rccl", "command": ["rccl"], "when": "return"}, "check")
    step = judging.checked(check, Outcome(at=1.0, code=code, output=output), 3.0)
    assert (step.name, step.state, step.seconds) == ("check rccl", state, 3.0)
    assert output in step.text


def test_a_check_for_returns_may_run_longer_than_an_interval():
    """It has none."""
    entry = {"name": "rvs", "command": ["rvs"], "when": "return", "deadline_seconds": 500}
    check = check_entry.parse(entry, "check")
    assert (check.on_return, check.idle) == (True, False)
    with pytest.raises(check_entry.CheckEntryError, match="always, idle"):
        check_entry.parse(entry | {"when": "never"}, "check")


def test_loopback_is_judged_by_its_slowest_port():
    """Without perftest it could not be told."""
    assert judging.bandwidth(PERFTEST) == 391.42
    assert judging.bandwidth("Couldn't connect") is None
    assert judging.looped({"fab0": 391.4, "fab1": 391.0}, 350, 2.0).state == "pass"
    slow = judging.looped({"fab0": 391.4, "fab1": 190.2}, 350, 2.0)
    assert (slow.state, slow.text, slow.value) == ("fail", "too slow: fab1", "190 Gb/s")
    missing = judging.looped(dict.fromkeys(("fab0", "fab1"), "not installed"), None, 0.0)
    assert (missing.state, missing.text) == ("unknown", "fab0, fab1: not installed")


def test_a_program_that_speaks_as_perftest_does_is_run_twice(tmp_path, monkeypatch):
    """Once to listen, once to send to it."""
    program = tmp_path / "ib_write_bw"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncat <<END\n{PERFTEST}END\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert asyncio.run(loopback.measure({"fab0": "mlx5_0"})) == {"fab0": 391.42}
    server, client = (tmp_path / "calls").read_text().splitlines()
    assert client == f"{server} 127.0.0.1"
    monkeypatch.setenv("PATH", "/nowhere")
    (why,) = asyncio.run(loopback.measure({"fab0": "mlx5_0"})).values()
    assert "not installed" in why


def test_gates_and_interpreter_come_from_agent_yaml(tmp_path):
    """A wrong one is refused with what would be right."""
    path = tmp_path / "agent.yaml"
    path.write_text(
        "validation: {python: /opt/venv/bin/python, user: train, gates: {allreduce_gbps: 310}}"
    )
    found = reading.read(path, {}, "n1")
    assert (found.validation_python, found.validation_user) == ("/opt/venv/bin/python", "train")
    assert found.gates == (("allreduce_gbps", 310.0),)
    path.write_text("validation: {gates: {busbw: 310}}")
    with pytest.raises(SettingsError, match="validation must be gates of loopback_gbps"):
        reading.read(path, {}, "n1")
