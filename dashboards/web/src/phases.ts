// Where a recovery's seconds went. The same arithmetic as aegis.core.story.seconds. Pure.

import type { Incident, Phases } from "./types";

export interface Phase {
  readonly key: "detect" | "decide" | "stop" | "provision" | "load" | "first_step";
  readonly label: string;
  readonly means: string;
  readonly end: keyof Phases;
}

export const PHASES: readonly Phase[] = [
  { key: "detect", label: "Detect", means: "first reading → controller knows", end: "opened_at" },
  { key: "decide", label: "Decide", means: "known → decided", end: "decided_at" },
  { key: "stop", label: "Stop", means: "decided → last old rank gone", end: "stopped_at" },
  { key: "provision", label: "Provision", means: "gone → every new rank alive", end: "started_at" },
  { key: "load", label: "Load", means: "alive → every rank has its state", end: "loaded_at" },
  {
    key: "first_step",
    label: "First step",
    means: "loaded → a step completed",
    end: "first_step_at",
  },
];

export interface Span {
  readonly phase: Phase;
  readonly seconds: number | null; // null: not reached
  readonly running: boolean; // it is what the recovery is in now; `seconds` so far
}

export interface Cost {
  readonly spans: readonly Span[];
  readonly total: number;
  readonly over: boolean; // nothing of it is still counting
}

export function costOf(incident: Incident, now: number): Cost {
  const live = incident.state === "recovering";
  let last = incident.phases.observed_at;
  let next = live;
  const spans = PHASES.map((phase): Span => {
    const end = incident.phases[phase.end];
    if (end !== null) {
      const seconds = Math.max(0, end - last);
      last = Math.max(last, end);
      return { phase, seconds, running: false };
    }
    const running = next;
    next = false;
    return { phase, seconds: running ? Math.max(0, now - last) : null, running };
  });
  return {
    spans,
    total: spans.reduce((sum, span) => sum + (span.seconds ?? 0), 0),
    over: !spans.some((span) => span.running),
  };
}
