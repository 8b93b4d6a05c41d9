// The words of the model in plain English: what each state, rail and phase means.

import type {
  DecisionResult,
  EntryKind,
  IncidentState,
  JobState,
  Mode,
  NodeState,
  Remedy,
  Severity,
  Tier,
} from "./types";

export type Tone = "ok" | "info" | "warn" | "error" | "fatal" | "mute";

export const NODE_STATES: Record<NodeState, { tone: Tone; means: string }> = {
  ready: { tone: "ok", means: "may hold ranks" },
  suspect: { tone: "warn", means: "keeps its ranks, gets no new ones" },
  cordoned: { tone: "mute", means: "gets no new ranks; the ones it has go on" },
  draining: { tone: "info", means: "its ranks are being stopped" },
  quarantined: { tone: "mute", means: "holds no ranks until someone returns it" },
  repairing: { tone: "mute", means: "is being reset, rebooted or validated" },
  probation: { tone: "info", means: "back, used as a spare first" },
  unknown: { tone: "warn", means: "neither agent nor launcher has spoken" },
};

export const JOB_STATES: Record<JobState, { tone: Tone; means: string }> = {
  waiting: { tone: "warn", means: "too few nodes" },
  starting: { tone: "info", means: "ranks are being started" },
  running: { tone: "ok", means: "every rank is alive" },
  stopping: { tone: "info", means: "ranks are being stopped" },
  done: { tone: "mute", means: "every rank ended well" },
  failed: { tone: "error", means: "given up" },
};

// Where ranks found what they went on from; `aegis job` says the same.
export const TIERS: Record<Tier, string> = {
  memory: "memory",
  peer: "a peer’s memory",
  disk: "local disk",
  folder: "checkpoint folder",
};

export const CHECKPOINT_STATES: Readonly<Record<string, { tone: Tone; means: string }>> = {
  complete: { tone: "ok", means: "its description holds; its bytes were not read now" },
  verified: { tone: "ok", means: "every byte was read and is what was written" },
  bad: { tone: "error", means: "it does not hold, and is passed over" },
  suspect: { tone: "warn", means: "taken since a device was last read as good: passed over" },
  unfinished: { tone: "mute", means: "still being written, or left by a rank that ended" },
};

export const INCIDENT_STATES: Record<IncidentState, { tone: Tone; means: string }> = {
  watching: { tone: "warn", means: "within its hold-down: only what lasts is acted on" },
  open: { tone: "error", means: "decided, and nothing under way" },
  recovering: { tone: "info", means: "Aegis is acting" },
  closed: { tone: "ok", means: "verified, or nothing left to do" },
};

export const SEVERITIES: Record<Severity, { tone: Tone; means: string }> = {
  info: { tone: "mute", means: "for the record" },
  warning: { tone: "warn", means: "worth a look" },
  error: { tone: "error", means: "work on the device is lost or at risk" },
  fatal: { tone: "fatal", means: "the device is lost until reset, reboot or repair" },
};

export const REMEDIES: Record<Remedy, string> = {
  count: "Count it",
  notify: "Tell people",
  restart: "Restart the ranks in place",
  drain_saving: "Save, then move off the node",
  drain_now: "Move off the node without saving",
  reset_domain: "Move off the node and reset its GPUs",
  reboot: "Move off the node and reboot it",
};

export const RESULTS: Record<DecisionResult, { tone: Tone; label: string; means: string }> = {
  acted: { tone: "ok", label: "Acted", means: "every rail let it" },
  would_act: { tone: "info", label: "Would act", means: "the mode only lets Aegis say so" },
  needs_approval: { tone: "warn", label: "Needs approval", means: "waits for a person" },
  blocked: { tone: "error", label: "Held", means: "a rail said no" },
  nothing: { tone: "mute", label: "No act", means: "the rule calls for none" },
};

export const MODES: Record<Mode, string> = {
  observe: "Aegis only watches: it will touch no node.",
  notify: "Aegis watches and tells people: it will touch no node.",
  approve: "Aegis asks first: it takes no node out until a person agrees.",
  enforce: "Aegis acts on its own, within its rails.",
};

const RAILS: Readonly<Record<string, string>> = {
  mode: "Mode",
  pause: "Not paused",
  window: "No maintenance",
  fleet: "Fleet is heard",
  silence: "Node is silent",
  ttl: "Fault is still true",
  upstream: "Not the network",
  hold: "No other holder",
  cooldown: "Cooldown",
  budget: "Node budget",
  domain: "Rack and switch",
  breaker: "Breaker",
  spare: "Spare stands by",
  spare_floor: "Spare floor",
  restarts: "Restart limit",
  live: "Device still sick",
  helper: "Root helper",
  drained: "No ranks left",
  hands: "Needs no hands",
  processes: "Kills no process",
  repairs: "Repairs at once",
};

export const railName = (rail: string): string => RAILS[rail] ?? rail;

export const ENTRY_KINDS: Record<EntryKind, string> = {
  signal: "Signal",
  decision: "Decision",
  action: "Action",
  progress: "Progress",
  outcome: "Outcome",
  human: "Person",
};

export const sentence = (text: string): string => {
  const trimmed = text.trim();
  if (!trimmed) return "";
  // A name such as "inc-000001" or "gpu5" keeps its small letter.
  const isWord = /^[a-z]+(?=[\s,.;:!?]|$)/.test(trimmed);
  const first = isWord ? trimmed.charAt(0).toUpperCase() + trimmed.slice(1) : trimmed;
  return /[.!?…]$/.test(first) ? first : `${first}.`;
};
