"""The metrics of `metric_names`, read from the state at each scrape."""

import platform
from collections.abc import Iterable, Iterator
from enum import StrEnum

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from aegis.controller.metric_names import METRICS, Kind
from aegis.controller.services import Services
from aegis.core.approval import waiting_for_people
from aegis.core.forecast import ettr, spares
from aegis.model.fault import FaultClass
from aegis.model.incident import IncidentState
from aegis.model.job import Job, JobState
from aegis.model.node import Device, Health, Node, NodeState
from aegis.model.policy import Mode

_ECC = ("correctable", "uncorrectable", "deferred")


class _Families:
    """The families of one scrape, in the order of the list of names."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}
        for metric in METRICS.values():
            name = metric.name.removesuffix("_total")
            made: Metric
            match metric.kind:
                case Kind.GAUGE:
                    made = GaugeMetricFamily(name, metric.help, labels=metric.labels)
                case Kind.COUNTER:
                    made = CounterMetricFamily(name, metric.help, labels=metric.labels)
                case Kind.HISTOGRAM:
                    made = HistogramMetricFamily(name, metric.help, labels=metric.labels)
            self._families[metric.name] = made

    def put(self, name: str, value: float, *labels: str) -> None:
        """One sample."""
        family = self._families[name]
        assert isinstance(family, GaugeMetricFamily | CounterMetricFamily)  # noqa: S101
        family.add_metric(labels, value)

    def put_state(self, name: str, now: StrEnum, *labels: str) -> None:
        """One sample for each state there is: 1 for the one that holds."""
        for state in type(now):
            self.put(name, state is now, *labels, state.value)

    def put_histogram(
        self, name: str, buckets: list[tuple[str, float]], total: float, *labels: str
    ) -> None:
        """All buckets of one histogram."""
        family = self._families[name]
        assert isinstance(family, HistogramMetricFamily)  # noqa: S101
        family.add_metric(labels, buckets, total)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())


class ClusterCollector(Collector):
    """Reads everything at the moment of the scrape; keeps nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        """All families."""
        found = _Families()
        self._controller(found)
        self._event_log(found)
        self._forecast(found)
        for node in self._services.cluster.nodes.values():
            self._node(found, node)
        self._incidents(found)
        for job in self._services.cluster.jobs.values():
            self._job(found, job)
        self._talks(found)
        return found

    def _controller(self, found: _Families) -> None:
        services, cluster = self._services, self._services.cluster
        found.put("aegis_build_info", 1, services.version, platform.python_version())
        found.put("aegis_controller_epoch", cluster.epoch)
        found.put("aegis_controller_last_turn_timestamp_seconds", services.loop.beat_wall_at)
        for scope, mode in (("node", cluster.policy.mode), ("job", cluster.policy.job_mode)):
            found.put_state("aegis_automation_mode", Mode(mode), scope)
        found.put("aegis_automation_held", bool(services.loop.held))
        found.put("aegis_automation_paused", cluster.paused is not None)
        found.put("aegis_approvals_waiting", len(waiting_for_people(cluster)))
        found.put("aegis_fleet_silent", cluster.silent_since is not None)
        found.put("aegis_rules_info", 1, services.loop.state.rules.digest)
        found.put("aegis_config_last_reload_successful", not services.reloads.error)
        found.put("aegis_config_last_reload_success_timestamp_seconds", services.reloads.good_at)

    def _forecast(self, found: _Families) -> None:
        cluster = self._services.cluster
        if (needed := spares(cluster).needed) is not None:
            found.put("aegis_spares_needed", needed)
        for name in sorted(cluster.lemons):
            found.put("aegis_node_lemon", 1, name)

    def _event_log(self, found: _Families) -> None:
        store = self._services.store
        found.put("aegis_event_log_events_total", store.last_number)
        found.put("aegis_event_log_bytes", store.bytes)
        found.put("aegis_event_log_oldest_timestamp_seconds", store.oldest_at)
        found.put("aegis_event_log_full", bool(self._services.loop.full))
        found.put("aegis_event_log_quarantined", self._services.loop.quarantined)
        found.put("aegis_snapshot_last_success_timestamp_seconds", store.snapshot_at)

    def _node(self, found: _Families, node: Node) -> None:
        silent_seconds = self._services.loop.now() - node.agent_seen_at
        fresh = silent_seconds <= self._services.cluster.policy.fresh_seconds
        found.put("aegis_agent_up", fresh, node.name)
        found.put("aegis_agent_last_report_timestamp_seconds", node.agent_seen_at, node.name)
        simulated = str(node.simulated).lower()
        found.put("aegis_agent_info", 1, node.name, node.version, simulated)
        found.put("aegis_agent_events_dropped_total", node.events_dropped, node.name)
        for one in node.suppressed:
            for how, count in (("merged", one.merged), ("dropped", one.dropped)):
                found.put(
                    "aegis_agent_faults_suppressed_total", count, node.name, one.fault_class, how
                )
        found.put_state("aegis_node_state", NodeState(node.state), node.name)
        for device in node.devices:
            if device.kind == "gpu":
                _gpu(found, node, device)
            elif device.kind == "nic":
                _nic(found, node, device)

    def _incidents(self, found: _Families) -> None:
        tally, cluster = self._services.loop.tally, self._services.cluster
        for name, count in tally.signals.items():
            found.put("aegis_signals_total", count, name)
        for labels, count in tally.incidents.items():
            found.put("aegis_incidents_total", count, *labels)
        for decision, count in tally.decisions.items():
            found.put("aegis_decisions_total", count, *decision)
        for phase, histogram in tally.recoveries.items():
            name = "aegis_recovery_duration_seconds"
            found.put_histogram(name, histogram.cumulative(), histogram.total, phase)
        open_now: dict[tuple[str, str], int] = dict.fromkeys(tally.incidents, 0)
        oldest = 0.0
        for incident in cluster.unresolved():
            key = (incident.fault_class.value, incident.severity.value)
            open_now[key] = open_now.get(key, 0) + 1
            if incident.state is IncidentState.RECOVERING:
                oldest = max(oldest, self._services.loop.now() - incident.phases.opened_at)
        for key, count in open_now.items():
            found.put("aegis_incidents_open", count, *key)
        found.put("aegis_recovery_age_seconds", oldest)

    def _job(self, found: _Families, job: Job) -> None:
        name, cluster = job.spec.name, self._services.cluster
        found.put("aegis_job_info", 1, name, job.spec.owner)
        found.put_state("aegis_job_state", JobState(job.state), name)
        found.put("aegis_job_generation", job.generation, name)
        found.put("aegis_job_restarts_total", job.restarts, name)
        found.put("aegis_job_restarts_without_progress", job.restarts_without_progress, name)
        found.put("aegis_job_spares", len(cluster.spares(job)), name)
        found.put("aegis_job_step", job.step, name)
        if (ratio := ettr(cluster, job).measured) is not None:
            found.put("aegis_job_effective_training_ratio", ratio, name)
        if job.loss is not None or job.loss_not_finite:
            found.put("aegis_job_loss", float(job.loss_not_finite or job.loss or 0.0), name)
        found.put("aegis_job_last_progress_timestamp_seconds", job.progress_at, name)
        if job.checkpoint_at:
            found.put("aegis_checkpoint_step", job.checkpoint_step, name)
            found.put("aegis_checkpoint_last_success_timestamp_seconds", job.checkpoint_at, name)
        failures = self._services.loop.tally.verify_failures[name]
        found.put("aegis_checkpoint_verify_failures_total", failures, name)

    def _talks(self, found: _Families) -> None:
        for sender, count in self._services.streams.counts().items():
            found.put("aegis_agent_connections", count, sender.value)
        found.put("aegis_event_stream_clients", self._services.event_clients)
        notifier = self._services.notifier
        for result, count in notifier.results.items():
            found.put("aegis_notifications_total", count, notifier.channel, result)
        found.put("aegis_notifications_pending", notifier.pending, notifier.channel)


def _gpu(found: _Families, node: Node, device: Device) -> None:
    found.put_state("aegis_gpu_health", Health(device.health), node.name, device.name)
    counters = dict(device.counters)
    for severity in _ECC:
        if (count := counters.get(f"ecc_{severity}")) is not None:
            found.put("aegis_gpu_ecc_errors_total", count, node.name, device.name, severity)


def _nic(found: _Families, node: Node, device: Device) -> None:
    found.put_state("aegis_nic_health", Health(device.health), node.name, device.name)
    down = any(
        one.device == device.name and one.fault_class is FaultClass.NIC_LINK_DOWN
        for one in node.conditions
    )
    if device.health is not Health.UNKNOWN:
        found.put("aegis_nic_link_up", not down, node.name, device.name)
    if (count := dict(device.counters).get("carrier_changes")) is not None:
        found.put("aegis_nic_carrier_changes_total", count, node.name, device.name)


class Exposition:
    """The registry and its text."""

    def __init__(self, services: Services) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(ClusterCollector(services))
        ProcessCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the format that the scraper asks for, and its content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type
