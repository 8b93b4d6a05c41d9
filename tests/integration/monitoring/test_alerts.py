"""The alerts: each fires, keeps quiet, resolves, and has a page that says what to do."""

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS = ROOT / "dashboards" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "What Aegis did already"]

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed"
)


def alerts():
    groups = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@functools.cache
def cases():
    """Each alert's tests: (name, severity) to what is expected, in the order of time."""
    found = {}
    files = sorted(PROMETHEUS.glob("tests/alerts*_test.yaml"))
    for test in [test for file in files for test in yaml.safe_load(file.read_text())["tests"]]:
        expected = [case["exp_alerts"] for case in test["alert_rule_test"]]
        (name,) = {case["alertname"] for case in test["alert_rule_test"]}
        (severity,) = {alert["exp_labels"]["severity"] for case in expected for alert in case}
        found[name, severity] = expected
    return found


def promtool(*arguments):
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@needs_promtool
@pytest.mark.parametrize(
    "file", sorted(PROMETHEUS.glob("tests/*_test.yaml")), ids=lambda file: file.stem
)
def test_promtool_agrees_with_what_the_rules_should_do(file):
    """The rules' own tests, as `promtool test rules` runs them."""
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_takes_the_example_as_its_configuration(tmp_path):
    """It is a piece of prometheus.yml."""
    (tmp_path / "prometheus.yml").write_text((PROMETHEUS / "scrape.example.yaml").read_text())
    done = promtool("check", "config", "--syntax-only", str(tmp_path / "prometheus.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", alerts(), ids=lambda r: f"{r['alert']}-{r['labels']['severity']}")
def test_every_alert_is_tested_firing_quiet_and_resolved(rule):
    """An alert that never resolves is soon ignored; only the watchdog never does."""
    expected = cases()[rule["alert"], rule["labels"]["severity"]]
    if rule["alert"] == "AegisWatchdog":
        assert all(expected)
        return
    assert [bool(alerts) for alerts in expected] == [False, True, False]


@pytest.mark.parametrize("rule", alerts(), ids=lambda r: f"{r['alert']}-{r['labels']['severity']}")
def test_every_alert_says_what_it_must(rule):
    """Severity routes it, the summary groups (so no labels in it), the runbook helps at night."""
    assert rule["labels"]["severity"] in ("critical", "warning", "info", "none")
    assert rule["labels"]["component"] == "aegis"
    assert "{{" not in rule["annotations"]["summary"]
    assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{rule['alert']}.md")


def test_every_alert_has_a_page_and_every_page_an_alert():
    """What pages someone explains itself."""
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {rule["alert"] for rule in alerts()}


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("Aegis*.md")), ids=lambda page: page.stem)
def test_every_page_has_its_five_parts(page):
    """In the order in which one reads at night."""
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
