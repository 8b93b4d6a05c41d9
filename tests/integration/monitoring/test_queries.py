"""Every query of dashboard and rules, asked of a real Prometheus that scrapes a real controller."""

import json
import re
from pathlib import Path

import pytest
import yaml

from aegis.controller.metric_names import METRICS

ROOT = Path(__file__).resolve().parents[3]
RULES = [ROOT / "dashboards/prometheus" / name for name in ("recording.yaml", "alerts.yaml")]
GRAFANA = ROOT / "dashboards/grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards/aegis-overview.json").read_text())
NAME = re.compile(r"[a-zA-Z_][\w:]*")
# Of the process itself, by prometheus_client's ProcessCollector.
PROCESS = {"process_cpu_seconds_total"}
# What a fleet without a finished recovery, a running job or a change within seconds cannot show.
QUIET = {
    "Loss", "Since the last step, since the newest checkpoint", "Memory errors",
    "Correctable memory errors per hour", "Link changes", "Recoveries", "Recoveries, median",
    "Recoveries, one in ten", "Where the seconds of a recovery go",
}  # fmt: skip


def targets():
    """(panel's title, query) of everything that the dashboard asks."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]


def rules():
    """(rule's name, query) of all recording rules and alerts."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                yield rule.get("alert") or rule["record"], rule["expr"]


def names_in(query):
    """The names of metrics in a query: what begins as one, outside of strings and label lists."""
    plain = re.sub(r'"[^"]*"', "", query)
    plain = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", plain)
    plain = re.sub(r"\{[^}]*\}", "", plain)
    return {name for name in NAME.findall(plain) if "aegis_" in name or name in PROCESS}


def family(name):
    """A histogram's series belong to its family."""
    return re.sub(r"_(bucket|count|sum)$", "", name)


def filled_in(query, controller):
    """The query as Grafana would send it."""
    for macro, value in (
        ("$__rate_interval", "1m"),
        ("$__range", "1h"),
        ("$instance", controller.address),
        ("$job", ".*"),
    ):
        query = query.replace(macro, value)
    assert "$" not in query, query
    return query


@pytest.mark.parametrize(("name", "query"), [*targets(), *rules()])
def test_every_metric_that_is_asked_for_exists(name, query):
    """A dashboard of metrics that nobody emits is worse than none."""
    recorded = {name for name, _ in rules() if ":" in name}
    known = set(METRICS) | recorded | PROCESS
    unknown = {name for name in names_in(query) if family(name) not in known and name not in known}
    assert not unknown, name


def test_the_controller_serves_every_metric_of_its_list(controller):
    """The list is what the test above trusts."""
    served = set(re.findall(r"^# TYPE (\S+)", controller.metrics(), re.MULTILINE))
    assert set(METRICS) | PROCESS <= served | {f"{name}_total" for name in served}


def test_prometheus_answers_every_query_of_the_dashboard(controller, prometheus):
    """And with data wherever this small fleet has some to show."""
    empty = {
        title: query
        for title, query in targets()
        if not prometheus.query(filled_in(query, controller))
        and not (title in QUIET or title.startswith("annotation"))
    }
    assert empty == {}


def test_a_job_keeps_its_name_through_the_scrape(prometheus):
    """Without honor_labels the label would be exported_job, and no alert would name the job."""
    (series,) = prometheus.query("aegis_job_info")
    assert series["metric"]["job"] == "llama"


def test_the_rules_find_what_is_broken_here(prometheus):
    """An ECC error, a silent GPU, a link that is down: the alerts are pending or firing."""
    alerts = prometheus.query('ALERTS{alertname!="AegisWatchdog"}')
    names = {alert["metric"]["alertname"] for alert in alerts}
    wanted = {"AegisGPUHealthUnknown", "AegisNICLinkDown", "AegisIncidentWaiting"}
    assert wanted | {"AegisJobWaiting"} <= names


def test_the_dashboard_can_be_provisioned_anywhere():
    """No import wizard, a stable uid, the data source chosen by a variable."""
    text = json.dumps(DASHBOARD)
    assert "__inputs" not in DASHBOARD
    assert "$__interval" not in text
    assert DASHBOARD["uid"] == "aegis-overview"
    assert "id" not in DASHBOARD
    kinds = {one["name"]: one["type"] for one in DASHBOARD["templating"]["list"]}
    assert kinds["datasource"] == "datasource"
    uids = set(re.findall(r'"type": "prometheus", "uid": "([^"]+)"', text))
    assert uids == {"${datasource}"}
    identities = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(identities) == len(set(identities))
    assert all(panel.get("description") for panel in DASHBOARD["panels"] if panel["type"] != "row")


def test_panels_do_not_overlap():
    """A grid of 24 columns."""
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_provisioning_files_name_what_is_there():
    """The provider's folder is where install.md puts the dashboards."""
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/aegis.yaml").read_text())
    assert source["datasources"][0]["uid"] == "aegis-prometheus"
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/aegis.yaml").read_text())
    assert provider["providers"][0]["allowUiUpdates"] is False
