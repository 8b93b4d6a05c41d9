"""`aegis rules` without a controller: check, test, show, explain, schema, simulate."""

import json
from xml.etree import ElementTree as ET

import pytest

from aegis.cli import main as cli
from aegis.cli.rules import simulate
from aegis.cli.rules.replay import replay
from aegis.controller.configuration import load_rules, shipped_rules
from aegis.model import event as ev
from aegis.model.fault import Fault, FaultClass, Severity
from aegis.model.node import NodeReport, Sender
from aegis.model.policy import Mode, Policy
from aegis.rules import parse
from aegis.wire import encode

HEAD = "apiVersion: aegis/v1\nkind: RuleSet\nname: s\nrules:\n"
OWN = "  - {id: own, title: Own, class: gpu.coredump, remedy: notify}\n"
TESTS = """\
cases:
  - rule: own
    remedy: notify
    fires_on: [[gpu.coredump, info, gpu3, 1]]
    silent_on: [[gpu.lost, fatal, gpu3, 1]]
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "own.yaml").write_text(HEAD + OWN)
    (tmp_path / "own_test.yaml").write_text(TESTS)
    return tmp_path


@pytest.fixture
def aegis(capsys):
    """Run a command: its exit code, what it printed, what it complained of."""

    def run(*words):
        code = cli.main(["rules", *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_good_rules_are_good(aegis, site):
    """The site's over the shipped ones, with the version that decisions will show."""
    code, out, _ = aegis("check", site)
    assert code == 0
    assert f"and {site} are good; version " in out
    code, out, _ = aegis("check", site, "--no-shipped-rules", "-o", "json")
    assert (code, json.loads(out)["rules"]) == (0, 1)


def test_mistakes_are_listed_with_their_places(aegis, site):
    """All of them, for people and for programs."""
    (site / "own.yaml").write_text(HEAD + OWN.replace("remedy", "remdy").replace("gpu.c", "gpu.k"))
    code, _, err = aegis("check", site)
    assert code == 1
    assert (
        f"{site}/own.yaml:5:34: unknown class 'gpu.koredump': did you mean 'gpu.coredump'?" in err
    )
    assert "unknown key 'remdy': did you mean 'remedy'?" in err
    code, out, _ = aegis("check", site, "-o", "json")
    problems = json.loads(out)["problems"]
    assert (code, problems[0]["line"], problems[0]["file"]) == (1, 5, f"{site}/own.yaml")


def test_a_folder_that_is_not_there_is_said(aegis, tmp_path):
    """In one sentence."""
    code, _, err = aegis("check", tmp_path / "nowhere")
    assert code == 1
    assert "nowhere cannot be read" in err


def test_tests_pass_and_fail_aloud(aegis, site):
    """With JUnit's output, and the rules that no test covers."""
    junit = site / "junit.xml"
    code, out, _ = aegis("test", site, "--no-shipped-rules", "--junit", junit)
    assert (code, out.splitlines()[-1]) == (0, "2 of 2 tests passed; 1 rules")
    assert ET.parse(junit).getroot().attrib["failures"] == "0"
    (site / "own_test.yaml").write_text(
        "cases:\n  - {rule: own, remedy: count, fires_on: [[gpu.coredump, info, gpu3, 1]]}\n"
        "stories:\n  - name: nothing\n    moments:\n"
        "      - {at: 0, fault: [gpu.coredump], then: {remedy: restart}}\n"
    )
    code, out, err = aegis("test", site, "--no-shipped-rules", "--junit", junit)
    assert code == 1
    assert "its remedy is notify, not count" in err
    assert "nothing: at 0 s: remedy is notify, not restart" in err
    assert "untested: no test shows what rule own leaves alone" in out
    assert ET.parse(junit).getroot().attrib["failures"] == "2"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cases: [{rule: own}]", "cases.0.remedy: field required"),
        ("stories: [{name: a, moments: [{at: soon}]}]", "'soon' is no duration"),
        (
            "stories: [{name: a, policy: {mode: fast}, moments: []}]",
            "story 'a': policy: mode: input should be",
        ),
        ("cases: [", "is not YAML"),
    ],
)
def test_a_test_that_cannot_be_read_is_said(aegis, site, text, why):
    """The file, the place in it, and what is wrong."""
    (site / "own_test.yaml").write_text(text)
    code, _, err = aegis("test", site, "--no-shipped-rules")
    assert code == 1
    assert why in err


def test_one_rule_is_shown_whole(aegis, site):
    """With its ladder, its guard and where it comes from; one that is not there is not found."""
    code, out, _ = aegis("show", "gpu.hang", "--offline")
    assert code == 0
    assert "restart (×1 in 1d) → reset_domain (×1 in 1d)" in out
    assert "10-amd-gpu.yaml:" in out
    code, out, _ = aegis("show", "--rules", site)
    assert out.splitlines()[1].startswith("own ")
    assert aegis("show", "gpu.hang.not", "--offline")[0] == 3


def test_an_event_is_explained(aegis, tmp_path):
    """Every rule that speaks of its class, every part with its value."""
    event = tmp_path / "event.yaml"
    event.write_text("{class: gpu.firmware.smu, device: gpu3, earlier: [{ago: 1h}, {ago: 2h}]}\n")
    code, out, _ = aegis("explain", "--event", event)
    assert code == 0
    assert "▶ gpu.firmware.smu.persists" in out
    assert "✓ count: 3; wanted at least 3 of the device within 1d" in out
    assert "? details: xid=missing; wanted xid=*" in out
    assert aegis("explain")[0] == 2
    event.write_text("{class: gpu.firmware.smu, colour: red}\n")
    assert "colour: extra inputs are not permitted" in aegis("explain", "--event", event)[2]


def test_the_schema_is_printed(aegis):
    """For an editor."""
    code, out, _ = aegis("schema")
    assert code == 0
    assert json.loads(out)["title"] == "Aegis rule file"


# Replays


def logged(*events) -> list[bytes]:
    head = b'{"aegis_events": 1, "since": 0.0, "first_number": 1}\n'
    lines = [
        b'{"number":%d,' % number + encode(event).encode()[1:] + b"\n"
        for number, event in enumerate(events, 1)
    ]
    return [head, *lines]


def story(rules, *faults, mode=Mode.ENFORCE):
    """A log of two idle nodes on which these faults came, and of an hour after."""
    reports = [
        NodeReport(node=name, sender=Sender.AGENT, session=1, sequence=1, boot_id="b")
        for name in ("n1", "n2")
    ]
    return logged(
        ev.ControllerStarted(at=0.0, epoch=1, version="1"),
        ev.RulesLoaded(at=0.0, digest=rules.digest, text=rules.text),
        ev.PolicyChanged(at=0.0, policy=Policy(mode=mode), actor="t"),
        *(ev.NodeReported(at=1.0, report=one) for one in reports),
        *(
            ev.FaultObserved(at=one.observed_at, origin=one.node, number=number, fault=one)
            for number, one in enumerate(faults, 1)
        ),
        *(ev.Tick(at=20.0 + n, agents_seen=("n1", "n2")) for n in range(5)),
    )


def lost(node="n1", at=10.0, fault_class=FaultClass.GPU_LOST, **more) -> Fault:
    return Fault(
        fault_class=fault_class,
        severity=Severity.FATAL,
        node=node,
        device="gpu0",
        observed_at=at,
        boot_id="b",
        **more,
    )


def changed(text: str):
    shipped = {file.name: file.read_text() for file in shipped_rules().glob("*.yaml")}
    return parse(shipped, {"site.yaml": HEAD + text})


def test_a_log_that_does_not_reach_back_so_far_says_so():
    """Who asks for thirty days and gets one is told."""
    rules = load_rules(shipped_rules())
    for since, told in ((0.5, True), (15.0, False)):
        replayed = dict(simulate._summary(replay(story(rules, lost()), rules, since=since)))
        assert str(replayed["replayed"]).endswith("reaches back no further") == told


def test_the_same_rules_answer_the_same():
    """What is replayed is what was."""
    rules = load_rules(shipped_rules())
    found = replay(story(rules, lost(), lost("n2", 11.0)), rules)
    assert (found.unreadable, found.is_whole, len(found.incidents)) == (0, True, 2)
    assert not any(one.differs for one in found.incidents.values())
    assert [one.old.result for one in found.incidents.values()] == ["acted", "blocked"]


def test_a_node_is_left_alone_by_the_changed_rules():
    """And the other way round: what was only counted would have taken a node."""
    rules = load_rules(shipped_rules())
    softer = changed(
        "  - {id: own, title: O, class: gpu.lost, remedy: notify}\n"
        "  - {id: own.dump, title: O, class: gpu.coredump, remedy: drain_now}\n"
    )
    log = story(rules, lost(), lost("n2", 11.0, FaultClass.GPU_COREDUMP))
    first, second = replay(log, softer).incidents.values()
    assert (first.old.takes_node, first.new.takes_node, first.new.remedy) == (True, False, "notify")
    assert (second.old.remedy, second.new.remedy) == ("count", "drain_now")
    assert second.new.result == "blocked"  # the budget had really been used up


def test_an_observed_past_is_asked_as_if_enforced():
    """On a copy of each moment: the fleet itself stays as it was."""
    rules = load_rules(shipped_rules())
    log = story(rules, lost(), mode=Mode.OBSERVE)
    softer = changed("  - {id: gpu.lost, override: append, mode: observe}\n")
    (plain,) = replay(log, softer).incidents.values()
    assert (plain.old.result, plain.new.result) == ("would_act", "would_act")
    (asked,) = replay(log, softer, mode=Mode.ENFORCE).incidents.values()
    assert (asked.old.result, asked.new.result) == ("acted", "would_act")


def test_only_what_came_since_is_compared_and_the_unreadable_is_counted():
    """A line of another version, or half of one, stops nothing."""
    rules = load_rules(shipped_rules())
    log = story(rules, lost(), lost("n2", 11.0))
    found = replay([*log, b'{"number":99,"v":9,"type":"Tick"}\n', b"{half\n"], rules, since=10.5)
    assert (len(found.incidents), found.unreadable) == (1, 2)
