// Written from the API's dataclasses by `python tests/browser/model_types.py`; do not edit.

export interface Alternative {
  readonly remedy: Remedy;
  readonly reason: string;
}

export interface Approval {
  readonly remedy: Remedy;
  readonly asked_at: number;
  readonly expires_at: number;
  readonly agreed: readonly string[];
  readonly denied_by: string;
  readonly reason: string;
  readonly expired: boolean;
  readonly consented: boolean;
  readonly needed: number;
  readonly covers: readonly string[];
}

export interface Attempt {
  readonly generation: number;
  readonly nodes: readonly string[];
  readonly started_at: number;
  readonly resumed_step: number | null;
  readonly resumed_from: readonly Tier[];
  readonly ended_at: number | null;
  readonly last_step: number;
  readonly reason: string;
  readonly incident: string | null;
  readonly stop_at: number;
  readonly first_step_at: number;
}

export interface Checkpoint {
  readonly step: number;
  readonly path: string;
  readonly state: string;
  readonly reason: string;
  readonly bytes: number;
  readonly files: number;
  readonly at: number;
  readonly taken_at: number;
  readonly stall_seconds: number;
  readonly generation: number;
  readonly world_size: number;
}

export interface CheckpointPage {
  readonly job: string;
  readonly folder: string;
  readonly interval: Interval;
  readonly items: readonly Checkpoint[];
}

export interface Condition {
  readonly fault_class: FaultClass;
  readonly device: string;
  readonly since: number;
  readonly severity: Severity;
  readonly simulated: boolean;
  readonly evidence: readonly Evidence[];
}

export interface Contact {
  readonly job: string;
  readonly launcher: string;
  readonly seen_at: number;
  readonly by: Sender | null;
  readonly session: number;
  readonly sequence: number;
  readonly superseded: readonly string[];
}

export interface Decision {
  readonly at: number;
  readonly rule: string;
  readonly rules_digest: string;
  readonly remedy: Remedy;
  readonly mode: Mode;
  readonly result: DecisionResult;
  readonly reason: string;
  readonly verdicts: readonly Verdict[];
  readonly alternatives: readonly Alternative[];
  readonly clears_when: string;
  readonly told: string;
  readonly verify: string;
  readonly plan: readonly string[];
}

export type DecisionResult =
  | "acted"
  | "would_act"
  | "needs_approval"
  | "blocked"
  | "nothing";

export type Depth =
  | "none"
  | "light"
  | "full";

export interface Device {
  readonly name: string;
  readonly kind: string;
  readonly health: Health;
  readonly detail: string;
  readonly identity: string;
  readonly read_at: number;
  readonly counters: readonly (readonly [string, number])[];
  readonly facts: readonly (readonly [string, string])[];
  readonly used: boolean;
}

export interface Entry {
  readonly at: number;
  readonly kind: EntryKind;
  readonly text: string;
}

export type EntryKind =
  | "signal"
  | "decision"
  | "action"
  | "progress"
  | "outcome"
  | "human";

export interface Evidence {
  readonly source: string;
  readonly text: string;
  readonly before: string | null;
  readonly after: string | null;
}

export interface Fault {
  readonly fault_class: FaultClass;
  readonly severity: Severity;
  readonly node: string;
  readonly device: string;
  readonly observed_at: number;
  readonly boot_id: string;
  readonly count: number;
  readonly simulated: boolean;
  readonly evidence: readonly Evidence[];
  readonly job: string | null;
  readonly identity: string;
  readonly details: readonly (readonly [string, string])[];
}

export type FaultClass =
  | "gpu.ecc.correctable"
  | "gpu.ecc.deferred"
  | "gpu.ecc.uncorrectable"
  | "gpu.ecc.poison_created"
  | "gpu.ecc.poison_consumed"
  | "gpu.ras.fatal"
  | "gpu.ras.record"
  | "gpu.memory.bad_page"
  | "gpu.memory.bad_page_threshold"
  | "gpu.memory.vram_lost"
  | "gpu.ring.timeout"
  | "gpu.scheduler.hang"
  | "gpu.queue.reset"
  | "gpu.queue.reset_failed"
  | "gpu.reset.begin"
  | "gpu.reset.progress"
  | "gpu.reset.succeeded"
  | "gpu.reset.failed"
  | "gpu.firmware.smu"
  | "gpu.init.failed"
  | "gpu.lost"
  | "gpu.thermal.throttle"
  | "gpu.xgmi.error"
  | "gpu.vm.fault"
  | "gpu.shader.illegal_opcode"
  | "gpu.ipc.failed"
  | "gpu.coredump"
  | "gpu.probe.stalled"
  | "nic.link.down"
  | "nic.link.up"
  | "nic.link.flap"
  | "nic.firmware.fatal"
  | "nic.firmware.stalled"
  | "nic.firmware.recovered"
  | "nic.firmware.reset"
  | "nic.tx.timeout"
  | "nic.queue.error"
  | "nic.rdma.error"
  | "nic.rdma.degraded"
  | "nic.pcie.lost"
  | "nic.removed"
  | "nic.module.unplugged"
  | "nic.module.temperature"
  | "nic.power.insufficient"
  | "pcie.aer.corrected"
  | "pcie.aer.nonfatal"
  | "pcie.aer.fatal"
  | "pcie.dpc"
  | "pcie.link.down"
  | "pcie.link.reset"
  | "pcie.link.degraded"
  | "host.apei.corrected"
  | "host.apei.recoverable"
  | "host.apei.fatal"
  | "host.mce.corrected"
  | "host.mce.uncorrected"
  | "host.edac.corrected"
  | "host.edac.uncorrected"
  | "host.memory.failure"
  | "host.memory.oom"
  | "host.task.hung"
  | "host.cpu.soft_lockup"
  | "host.disk.full"
  | "host.clock.skew"
  | "host.check.failed"
  | "node.lost"
  | "node.rebooted"
  | "job.worker.exited"
  | "job.worker.oom_killed"
  | "job.hang"
  | "job.straggler"
  | "job.loss.spike"
  | "job.loss.nan"
  | "job.checkpoint.corrupt"
  | "job.checkpoint.stale";

export type Feedback =
  | "right"
  | "wrong"
  | "wrong_node";

export interface Hang {
  readonly generation: number;
  readonly cause: HangCause;
  readonly at: number;
  readonly limit_seconds: number;
  readonly step_seconds: number;
  readonly observed: boolean;
  readonly ranks: readonly RankView[];
  readonly folder: string;
}

export type HangCause =
  | "stopped"
  | "uninterruptible"
  | "silent";

export type Health =
  | "healthy"
  | "unhealthy"
  | "unknown";

export interface History {
  readonly laps: readonly Lap[];
  readonly steps_lost: number;
  readonly downtime_seconds: number;
}

export interface Incident {
  readonly id: string;
  readonly state: IncidentState;
  readonly fault_class: FaultClass;
  readonly severity: Severity;
  readonly node: string | null;
  readonly device: string;
  readonly headline: string;
  readonly phases: Phases;
  readonly job: string | null;
  readonly simulated: boolean;
  readonly faults: readonly Fault[];
  readonly suppressed: number;
  readonly signal_at: number;
  readonly active_at: number;
  readonly times: number;
  readonly decisions: readonly Decision[];
  readonly entries: readonly Entry[];
  readonly outcome: string;
  readonly closed_at: number | null;
  readonly nodes_before: readonly string[];
  readonly nodes_after: readonly string[];
  readonly generation_before: number;
  readonly generation_after: number;
  readonly last_step_before: number;
  readonly resumed_step: number | null;
  readonly steps_lost: number | null;
  readonly follows: string;
  readonly acknowledged_by: string;
  readonly approval: Approval | null;
  readonly feedback: Feedback | null;
  readonly feedback_by: string;
  readonly rejected_checkpoints: readonly string[];
}

export type IncidentState =
  | "watching"
  | "open"
  | "recovering"
  | "closed";

export interface IncidentView {
  readonly id: string;
  readonly state: IncidentState;
  readonly fault_class: FaultClass;
  readonly severity: Severity;
  readonly node: string | null;
  readonly device: string;
  readonly headline: string;
  readonly phases: Phases;
  readonly job: string | null;
  readonly simulated: boolean;
  readonly faults: readonly Fault[];
  readonly suppressed: number;
  readonly signal_at: number;
  readonly active_at: number;
  readonly times: number;
  readonly decisions: readonly Decision[];
  readonly entries: readonly Entry[];
  readonly outcome: string;
  readonly closed_at: number | null;
  readonly nodes_before: readonly string[];
  readonly nodes_after: readonly string[];
  readonly generation_before: number;
  readonly generation_after: number;
  readonly last_step_before: number;
  readonly resumed_step: number | null;
  readonly steps_lost: number | null;
  readonly follows: string;
  readonly acknowledged_by: string;
  readonly approval: Approval | null;
  readonly feedback: Feedback | null;
  readonly feedback_by: string;
  readonly rejected_checkpoints: readonly string[];
  readonly seconds: Readonly<Record<string, number | null>>;
  readonly story: readonly string[];
  readonly means: string;
  readonly check: readonly string[];
}

export interface Interval {
  readonly advised_seconds: number | null;
  readonly advised_steps: number | null;
  readonly reason: string;
  readonly stall_seconds: number | null;
  readonly durable_seconds: number | null;
  readonly failure_seconds: number | null;
  readonly is_bound: boolean;
  readonly now_seconds: number | null;
}

export interface Job {
  readonly spec: JobSpec;
  readonly state: JobState;
  readonly since: number;
  readonly submitted_at: number;
  readonly reason: string;
  readonly generation: number;
  readonly sequence: number;
  readonly members: readonly Member[];
  readonly master_port: number;
  readonly awaiting: readonly string[];
  readonly stop: StopKind;
  readonly excluded: readonly string[];
  readonly suspect_since: number;
  readonly suspect_generation: number;
  readonly stop_requested: boolean;
  readonly giving_up: boolean;
  readonly incident: string | null;
  readonly step: number;
  readonly loss: number | null;
  readonly loss_not_finite: string;
  readonly progress_at: number;
  readonly step_at: number;
  readonly step_seconds: number;
  readonly trained_at: number;
  readonly checkpoint_step: number;
  readonly checkpoint_at: number;
  readonly checkpoint_seconds: number;
  readonly checkpoint_stall_seconds: number;
  readonly checkpoint_durable_seconds: number;
  readonly best_step: number;
  readonly restarts_without_progress: number;
  readonly restarts: number;
  readonly exit_code: number;
  readonly ended_launchers: readonly string[];
  readonly ended_exit_code: number;
  readonly hang_since: number;
  readonly signalled: readonly string[];
  readonly slow: readonly (readonly [number, number])[];
  readonly attempts: readonly Attempt[];
}

export interface JobPlan {
  readonly refused: string;
  readonly hits: readonly string[];
}

export interface JobSpec {
  readonly name: string;
  readonly nodes: number;
  readonly ranks_per_node: number;
  readonly spares: number;
  readonly restarts_max: number;
  readonly owner: string;
  readonly command: string;
  readonly checkpoint_folder: string;
  readonly log_pattern: string;
}

export type JobState =
  | "waiting"
  | "starting"
  | "running"
  | "stopping"
  | "done"
  | "failed";

export type JobVerb =
  | "stop"
  | "restart"
  | "exclude-node"
  | "include-node";

export interface Lap {
  readonly generation: number;
  readonly nodes: readonly string[];
  readonly started_at: number;
  readonly ended_at: number | null;
  readonly resumed_step: number | null;
  readonly resumed_from: readonly Tier[];
  readonly last_step: number;
  readonly steps_lost: number | null;
  readonly reason: string;
  readonly incident: string | null;
  readonly cause: string;
  readonly victims: readonly string[];
  readonly downtime: Readonly<Record<string, number | null>>;
  readonly downtime_seconds: number | null;
}

export type LauncherPhase =
  | "idle"
  | "starting"
  | "running"
  | "stopping"
  | "failed"
  | "done";

export interface LauncherState {
  readonly spec: JobSpec;
  readonly launcher: string;
  readonly address: string;
  readonly store_port: number;
  readonly phase: LauncherPhase;
  readonly generation: number;
  readonly epoch: number;
  readonly standbys: number;
  readonly ranks: readonly RankState[];
  readonly stopped_at: number;
  readonly failure: RankFailure | null;
  readonly resumed_step: number | null;
  readonly resumed_from: readonly Tier[];
  readonly checkpoint_step: number;
  readonly checkpoint_at: number;
  readonly checkpoint_stall_seconds: number;
  readonly checkpoint_durable_seconds: number;
  readonly rejected: readonly RejectedCheckpoint[];
  readonly hang: Hang | null;
  readonly signals: readonly RankSignal[];
}

export type Level =
  | "ok"
  | "degraded"
  | "critical";

export interface Member {
  readonly node: string;
  readonly launcher: string;
  readonly address: string;
}

export type Mode =
  | "observe"
  | "notify"
  | "approve"
  | "enforce";

export interface Node {
  readonly name: string;
  readonly state: NodeState;
  readonly state_before_unknown: NodeState;
  readonly since: number;
  readonly reason: string;
  readonly held_by: string;
  readonly incident: string | null;
  readonly seen_at: number;
  readonly agent_seen_at: number;
  readonly hung_up_at: number;
  readonly agent_session: number;
  readonly agent_sequence: number;
  readonly boot_session: number;
  readonly launcher_session: number;
  readonly launcher_sequence: number;
  readonly boot_id: string;
  readonly version: string;
  readonly simulated: boolean;
  readonly labels: readonly (readonly [string, string])[];
  readonly devices: readonly Device[];
  readonly good_readings: readonly (readonly [string, number, number])[];
  readonly conditions: readonly Condition[];
  readonly launchers: readonly LauncherState[];
  readonly contacts: readonly Contact[];
  readonly events_dropped: number;
  readonly suppressed: readonly Suppressed[];
  readonly sources: readonly (readonly [string, string])[];
  readonly taken_at: readonly number[];
  readonly taken_for: string;
  readonly repairs: readonly Repair[];
  readonly has_helper: boolean;
  readonly order_results: readonly OrderResult[];
  readonly validates: boolean;
  readonly validations: readonly Validation[];
  readonly validation_results: readonly ValidationResult[];
}

export type NodeState =
  | "ready"
  | "suspect"
  | "cordoned"
  | "draining"
  | "quarantined"
  | "repairing"
  | "probation"
  | "unknown";

export interface Order {
  readonly id: string;
  readonly verb: Verb;
  readonly node: string;
  readonly boot_id: string;
  readonly epoch: number;
  readonly incident: string;
  readonly expires_at: number;
  readonly reason: string;
  readonly fault_class: FaultClass;
  readonly device: string;
  readonly identity: string;
  readonly devices: readonly string[];
  readonly processes: readonly number[];
}

export interface OrderResult {
  readonly id: string;
  readonly verb: Verb;
  readonly state: OrderState;
  readonly text: string;
  readonly at: number;
  readonly killed: readonly string[];
}

export type OrderState =
  | "working"
  | "accepted"
  | "done"
  | "failed"
  | "refused";

export interface Pause {
  readonly at: number;
  readonly actor: string;
  readonly reason: string;
}

export interface Phases {
  readonly observed_at: number;
  readonly opened_at: number;
  readonly decided_at: number | null;
  readonly stopped_at: number | null;
  readonly started_at: number | null;
  readonly loaded_at: number | null;
  readonly first_step_at: number | null;
}

export interface Policy {
  readonly mode: Mode;
  readonly job_mode: Mode;
  readonly mode_max: Mode;
  readonly nodes_out_max: number;
  readonly nodes_out_fraction: number;
  readonly nodes_out_window_seconds: number;
  readonly nodes_out_per_domain_max: number;
  readonly breaker_nodes_min: number;
  readonly breaker_fraction: number;
  readonly upstream_nodes_min: number;
  readonly upstream_seconds: number;
  readonly spare_floor: number;
  readonly cooldown_seconds: number;
  readonly lemon_times: number;
  readonly lemon_window_seconds: number;
  readonly probation_seconds: number;
  readonly hold_down_seconds: number;
  readonly silence_seconds: number;
  readonly hung_up_seconds: number;
  readonly silent_fraction_max: number;
  readonly gather_seconds: number;
  readonly start_seconds: number;
  readonly stop_seconds: number;
  readonly stop_grace_seconds: number;
  readonly settle_seconds: number;
  readonly fresh_seconds: number;
  readonly event_ttl_seconds: number;
  readonly order_seconds: number;
  readonly reset_seconds: number;
  readonly reboot_seconds: number;
  readonly validate_on_return: Depth;
  readonly validate_light_seconds: number;
  readonly validate_full_seconds: number;
  readonly repairs_max: number;
  readonly approvals_needed: number;
  readonly approval_seconds: number;
  readonly approval_unanswered: Unanswered;
}

export interface RankFailure {
  readonly generation: number;
  readonly rank: number;
  readonly at: number;
  readonly exit_code: number | null;
  readonly signal: number | null;
  readonly oom_killed: boolean;
  readonly last_step: number;
  readonly text: string;
  readonly error: string;
  readonly victim: boolean;
  readonly victims: readonly number[];
}

export type RankPhase =
  | "starting"
  | "loading"
  | "training"
  | "saving"
  | "evaluating"
  | "ending"
  | "exited";

export interface RankSignal {
  readonly kind: SignalKind;
  readonly rank: number;
  readonly step: number;
  readonly at: number;
  readonly text: string;
  readonly before: string;
  readonly after: string;
}

export interface RankState {
  readonly rank: number;
  readonly local_rank: number;
  readonly pid: number;
  readonly phase: RankPhase;
  readonly step: number;
  readonly loss: number | null;
  readonly started_at: number;
  readonly loaded_at: number;
  readonly first_step_at: number;
  readonly last_step_at: number;
  readonly exit_code: number | null;
  readonly signal: number | null;
  readonly loss_not_finite: string;
  readonly own_seconds: number;
}

export interface RankView {
  readonly rank: number;
  readonly phase: RankPhase;
  readonly step: number;
  readonly state: string;
  readonly silent_seconds: number;
  readonly kernel: string;
  readonly stack: readonly string[];
  readonly moves: boolean;
  readonly text: string;
}

export interface RejectedCheckpoint {
  readonly step: number;
  readonly path: string;
  readonly reason: string;
}

export type Remedy =
  | "count"
  | "notify"
  | "restart"
  | "drain_saving"
  | "drain_now"
  | "reset_domain"
  | "reboot";

export interface Repair {
  readonly order: Order;
  readonly given_at: number;
  readonly done_at: number | null;
  readonly ended_at: number | null;
  readonly state: OrderState | null;
  readonly text: string;
  readonly helped: boolean;
}

export type Sender =
  | "agent"
  | "launcher";

export type Severity =
  | "info"
  | "warning"
  | "error"
  | "fatal";

export type SignalKind =
  | "loss_nan"
  | "loss_spike";

export interface Step {
  readonly name: string;
  readonly state: StepState;
  readonly text: string;
  readonly value: string;
  readonly gate: string;
  readonly seconds: number;
}

export type StepState =
  | "pass"
  | "warning"
  | "fail"
  | "unknown";

export type StopKind =
  | "saving"
  | "now";

export interface Summary {
  readonly verdict: string;
  readonly level: Level;
  readonly nodes: Readonly<Partial<Record<NodeState, number>>>;
  readonly spares: number;
  readonly jobs: Readonly<Partial<Record<JobState, number>>>;
  readonly open_incidents: number;
  readonly policy: Policy;
  readonly held: string;
  readonly paused: Pause | null;
  readonly approvals_waiting: number;
  readonly event_log_full: string;
  readonly silent_since: number | null;
  readonly simulated: boolean;
  readonly rules_digest: string;
  readonly epoch: number;
  readonly version: string;
  readonly as_of: number;
  readonly reload_error: string;
}

export interface Suppressed {
  readonly fault_class: FaultClass;
  readonly merged: number;
  readonly dropped: number;
}

export type Tier =
  | "memory"
  | "peer"
  | "disk"
  | "folder";

export type Unanswered =
  | "hold"
  | "act";

export interface Validation {
  readonly order: ValidationOrder;
  readonly given_at: number;
  readonly actor: string;
  readonly reason: string;
  readonly repair: string;
  readonly ended_at: number | null;
  readonly state: ValidationState | null;
  readonly text: string;
  readonly steps: readonly Step[];
}

export interface ValidationOrder {
  readonly id: string;
  readonly node: string;
  readonly boot_id: string;
  readonly epoch: number;
  readonly depth: Depth;
  readonly expires_at: number;
  readonly reason: string;
}

export interface ValidationResult {
  readonly id: string;
  readonly depth: Depth;
  readonly state: ValidationState;
  readonly text: string;
  readonly at: number;
  readonly steps: readonly Step[];
}

export type ValidationState =
  | "working"
  | "passed"
  | "failed"
  | "unknown"
  | "aborted";

export type Verb =
  | "reset-domain"
  | "reboot";

export interface Verdict {
  readonly rail: string;
  readonly passed: boolean;
  readonly text: string;
}
