"""The metrics and their reference are one list."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from aegis.controller.metric_names import METRICS, Kind, reference
from aegis.controller.metrics import ClusterCollector
from aegis.controller.notify import Notifier
from aegis.controller.state import State
from aegis.controller.streams import Streams
from aegis.controller.tally import Tally
from aegis.core.cluster import Cluster
from aegis.core.step import step
from aegis.model.event import FaultObserved, NodeReported
from aegis.model.experience import Experience
from aegis.model.fault import Condition, Fault, FaultClass, Severity
from aegis.model.incident import Remedy
from aegis.model.job import JobSpec, LauncherState
from aegis.model.node import Device, Health, NodeReport, Sender, Suppressed
from aegis.rules import Rule, RuleSet

ROOT = Path(__file__).parents[3]


def collected():
    """The metrics of a small fleet with a job, a broken GPU and a link that is down."""
    spec = JobSpec(name="llama", nodes=1, ranks_per_node=1, owner="ann")
    launcher = LauncherState(spec=spec, launcher="l1", address="a", checkpoint_at=5.0)
    report = NodeReport(
        node="n1",
        sender=Sender.AGENT,
        session=1,
        sequence=1,
        devices=(
            Device(
                name="gpu0",
                kind="gpu",
                health=Health.UNHEALTHY,
                counters=(("ecc_uncorrectable", 3),),
            ),
            Device(
                name="fab0", kind="nic", health=Health.UNHEALTHY, counters=(("carrier_changes", 4),)
            ),
        ),
        conditions=(Condition(fault_class=FaultClass.NIC_LINK_DOWN, device="fab0", since=9.0),),
        launchers=(launcher,),
        suppressed=(Suppressed(fault_class=FaultClass.GPU_ECC_CORRECTABLE, merged=7),),
    )
    fault = Fault(
        fault_class=FaultClass.GPU_ECC_UNCORRECTABLE,
        severity=Severity.ERROR,
        node="n1",
        device="gpu0",
        observed_at=10.0,
    )
    rule = Rule(
        id="ecc",
        title="ECC",
        classes=(FaultClass.GPU_ECC_UNCORRECTABLE,),
        remedy=Remedy.DRAIN_NOW,
    )
    cluster, tally, rules = Cluster(), Tally(), RuleSet(rules=(rule,))
    for event in (
        NodeReported(at=10.0, report=report),
        FaultObserved(at=10.0, origin="s", number=1, fault=fault),
        FaultObserved(at=10.5, origin="s", number=2, fault=replace(fault, observed_at=10.5)),
    ):
        step(cluster, rules, event)
        tally.observe(cluster, cluster.touched)
        cluster.touched.clear()
    job = replace(cluster.jobs["llama"], loss=2.5, checkpoint_at=5.0, step_seconds=0.1)
    cluster.jobs["llama"] = job
    cluster.now, cluster.lemons = 20.0, frozenset({"n1"})
    cluster.experience = Experience(node_seconds=86400.0)
    services = SimpleNamespace(
        cluster=cluster,
        version="1",
        streams=Streams(),
        notifier=Notifier("", b"", "", "1"),
        event_clients=0,
        reloads=SimpleNamespace(error="", good_at=1.0),
        store=SimpleNamespace(last_number=3, bytes=9, oldest_at=1.0, snapshot_at=0.0),
        loop=SimpleNamespace(
            tally=tally,
            state=State(cluster=cluster),
            full="",
            held="",
            quarantined=0,
            beat_wall_at=1.0,
            now=lambda: 11.0,
        ),
    )
    return {family.name: family for family in ClusterCollector(services).collect()}


def test_every_metric_of_the_list_is_served_with_its_labels():
    """Dashboards and alerts are written against the list."""
    families = collected()
    for metric in METRICS.values():
        family = families[metric.name.removesuffix("_total")]
        assert family.type == metric.kind
        for sample in family.samples:
            labels = set(sample.labels) - {"le"}
            assert labels == set(metric.labels), sample
    empty = {
        name
        for name, family in families.items()
        if not family.samples and METRICS.get(name, METRICS.get(f"{name}_total"))
    }
    assert empty <= {
        "aegis_recovery_duration_seconds",
        "aegis_checkpoint_verify_failures",
    }


def test_the_values_are_those_of_the_fleet():
    """A few, read as a person would read them."""
    families = collected()

    def value(name, **labels):
        return next(
            sample.value
            for sample in families[name].samples
            if all(sample.labels[key] == wanted for key, wanted in labels.items())
        )

    assert value("aegis_gpu_health", gpu="gpu0", state="unhealthy") == 1
    assert value("aegis_gpu_ecc_errors", severity="uncorrectable") == 3
    assert value("aegis_nic_link_up", port="fab0") == 0
    assert value("aegis_signals", **{"class": "gpu.ecc.uncorrectable"}) == 2
    assert value("aegis_incidents", **{"class": "gpu.ecc.uncorrectable"}) == 1
    assert value("aegis_agent_up", node="n1") == 1
    assert value("aegis_job_loss", job="llama") == 2.5


def test_names_follow_the_conventions():
    """Prefix, base units, and _total for what only grows."""
    for metric in METRICS.values():
        assert metric.name.startswith("aegis_")
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert not any(unit in metric.name for unit in ("_ms", "_percent", "_mb"))


def test_the_reference_page_is_made_from_the_list():
    """`python -m aegis.controller.metric_names > docs/reference/metrics.md` renews it."""
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text() == reference()
