"""Every metric of the controller: name, type, labels and what it says. The reference is this list.

Dashboards and alerts are tested against it, and docs/reference/metrics.md is made from it by
`python -m aegis.controller.metric_names`.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """A Prometheus metric type."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


def _gauge(name: str, labels: str, text: str) -> Metric:
    return Metric(name, Kind.GAUGE, tuple(labels.split()), text)


def _counter(name: str, labels: str, text: str) -> Metric:
    return Metric(name, Kind.COUNTER, tuple(labels.split()), text)


_ALL = (
    # The controller itself.
    _gauge("aegis_build_info", "version python", "Always 1; the version in its labels."),
    _gauge("aegis_controller_epoch", "", "Grows by one with each start of a controller."),
    _gauge(
        "aegis_controller_last_turn_timestamp_seconds",
        "",
        "When the loop last went round; it does so at least once a second.",
    ),
    _gauge("aegis_automation_mode", "scope mode", "1 for the mode in force: scope node or job."),
    _gauge("aegis_automation_held", "", "1 while Aegis acts on nothing after a broken promise."),
    _gauge("aegis_automation_paused", "", "1 while a person has stopped all automation."),
    _gauge("aegis_approvals_waiting", "", "Incidents that wait for a person to agree."),
    _gauge("aegis_fleet_silent", "", "1 while so much of the fleet is silent that it is held."),
    _gauge("aegis_rules_info", "digest", "Always 1; the digest of the rules in force."),
    _gauge("aegis_config_last_reload_successful", "", "0 when a reload was refused; 1 otherwise."),
    _gauge("aegis_config_last_reload_success_timestamp_seconds", "", "The last good reload."),
    # Event log.
    _counter("aegis_event_log_events_total", "", "Events written to the log since it was begun."),
    _gauge("aegis_event_log_bytes", "", "Size of the kept events."),
    _gauge("aegis_event_log_oldest_timestamp_seconds", "", "The oldest kept event."),
    _gauge("aegis_event_log_full", "", "1 while nothing can be written: no decision is made."),
    _gauge("aegis_event_log_quarantined", "", "Events set aside because they broke a promise."),
    _gauge("aegis_snapshot_last_success_timestamp_seconds", "", "The newest snapshot."),
    # Nodes and their devices.
    _gauge("aegis_agent_up", "node", "1 when the node's agent has spoken lately."),
    _gauge("aegis_agent_last_report_timestamp_seconds", "node", "When it last spoke."),
    _gauge("aegis_agent_info", "node version simulated", "Always 1; what runs on the node."),
    _counter("aegis_agent_events_dropped_total", "node", "Events that its full spool dropped."),
    _counter(
        "aegis_agent_faults_suppressed_total",
        "node class how",
        "Faults merged into the count of one like them, or dropped by a full spool.",
    ),
    _gauge("aegis_node_state", "node state", "1 for the state that the node is in."),
    _gauge("aegis_gpu_health", "node gpu state", "1 for the health of the GPU: no data: unknown."),
    _counter("aegis_gpu_ecc_errors_total", "node gpu severity", "Memory errors as counted there."),
    _gauge("aegis_nic_health", "node port state", "1 for the health of the network port."),
    _gauge("aegis_nic_link_up", "node port", "1 when the link is up; absent without a reading."),
    _counter("aegis_nic_carrier_changes_total", "node port", "How often the carrier changed."),
    _gauge("aegis_spares_needed", "", "Enough in 99 of 100 cases, by the measured failure rate."),
    _gauge("aegis_node_lemon", "node", "1 for a node that fails far more often than the rest."),
    # Signals, incidents, decisions, recoveries.
    _counter("aegis_signals_total", "class", "Faults that arrived, further ones included."),
    _counter("aegis_incidents_total", "class severity", "Incidents opened."),
    _gauge("aegis_incidents_open", "class severity", "Incidents that are not closed."),
    _counter("aegis_decisions_total", "rule mode result", "Decisions made, by what came of them."),
    Metric(
        "aegis_recovery_duration_seconds",
        Kind.HISTOGRAM,
        ("phase",),
        "How long each phase of a finished recovery took; phase total is all of it.",
    ),
    _gauge("aegis_recovery_age_seconds", "", "The oldest recovery under way; 0: none."),
    # Jobs.
    _gauge("aegis_job_info", "job owner", "Always 1; who started the job."),
    _gauge("aegis_job_state", "job state", "1 for the state that the job is in."),
    _gauge("aegis_job_generation", "job", "The generation of its ranks."),
    _counter("aegis_job_restarts_total", "job", "Restarts of its ranks since it was submitted."),
    _gauge("aegis_job_restarts_without_progress", "job", "Restarts since its last new checkpoint."),
    _gauge("aegis_job_spares", "job", "Nodes that could take ranks of the job and hold none."),
    _gauge("aegis_job_step", "job", "The newest step that every rank has completed."),
    _gauge(
        "aegis_job_effective_training_ratio",
        "job",
        "The part of the last hour in which the job trained steps that count.",
    ),
    _gauge("aegis_job_loss", "job", "The newest loss."),
    _gauge("aegis_job_last_progress_timestamp_seconds", "job", "When a step was last completed."),
    _gauge("aegis_checkpoint_step", "job", "The newest committed and verified checkpoint."),
    _gauge("aegis_checkpoint_last_success_timestamp_seconds", "job", "When it was committed."),
    _counter("aegis_checkpoint_verify_failures_total", "job", "Checkpoints that failed to verify."),
    # Whom it talks to.
    _gauge("aegis_agent_connections", "sender", "Open streams of agents and launchers."),
    _gauge("aegis_event_stream_clients", "", "Open event streams of dashboards and scripts."),
    _counter("aegis_notifications_total", "channel result", "Messages delivered, failed, dropped."),
    _gauge("aegis_notifications_pending", "channel", "Messages that wait for delivery."),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}

PHASE_BUCKETS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


def reference() -> str:
    """The reference page."""
    lines = [
        "# Metrics of the controller",
        "",
        "For those who write dashboards and alerts. The controller serves these at `/metrics`;",
        "states are one series for each state with the value 0 or 1, and nothing carries an",
        "incident, a step or a process as a label. Counters of incidents, decisions and",
        "notifications start at 0 with each start of the controller, as Prometheus expects.",
        "",
        "<!-- made by `python -m aegis.controller.metric_names`; a test compares -->",
        "",
        "| metric | type | labels | what it says |",
        "|---|---|---|---|",
    ]
    for metric in _ALL:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201  this is its output
