// What an incident means for the reader: its impact, what happens next, what to type. Pure.

import { duration, listed, plural } from "./format";
import type { Decision, Incident, Node, Severity } from "./types";
import { sentence, type Tone } from "./words";

export const latest = (incident: Incident): Decision | undefined => incident.decisions.at(-1);

export const isOpen = (incident: Incident): boolean => incident.state !== "closed";

export interface Impact {
  readonly tone: Tone;
  readonly text: string;
}

export function impactOf(incident: Incident): Impact {
  const acted = incident.decisions.some((one) => one.result === "acted");
  if (incident.job && incident.generation_before > 0 && acted) {
    const end = incident.phases.first_step_at ?? incident.phases.loaded_at;
    if (end !== null) {
      return { tone: "mute", text: `job stopped ${duration(end - incident.phases.observed_at)}` };
    }
    return { tone: "error", text: "job stopped" };
  }
  if (incident.job && isOpen(incident)) return { tone: "warn", text: "job at risk" };
  if (acted) return { tone: "mute", text: "capacity lost" };
  return { tone: "mute", text: "no impact" };
}

/** "Uncorrectable memory error on node-2 gpu3" and what came of it. */
export function splitHeadline(headline: string): [string, string] {
  const place = headline.indexOf(": ");
  return place < 0 ? [headline, ""] : [headline.slice(0, place), headline.slice(place + 2)];
}

/** "BDF UUID serial" as its parts, with what each is. */
export function identityOf(identity: string): readonly [string, string][] {
  return identity
    .split(/\s+/)
    .filter(Boolean)
    .map((part): [string, string] => {
      if (/^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/i.test(part))
        return ["PCI address", part];
      if (/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i.test(part)) return ["MAC", part];
      if (/^(GPU-)?[0-9a-f]{8}-[0-9a-f-]{13,}$/i.test(part)) return ["UUID", part];
      return ["Serial", part];
    });
}

export interface Next {
  readonly text: string;
  readonly command?: string;
  readonly commandFor?: string;
  readonly caution?: string; // why the command would be refused now
}

const OUT = new Set(["cordoned", "draining", "quarantined", "repairing"]);

/** What happens with the job, and with the node: at most one command each. */
export function nextOf(incident: Incident, node: Node | undefined): readonly Next[] {
  const ahead = ofIncident(incident);
  const disposition = node && ofNode(node, incident.state === "closed");
  return [...(ahead ? [ahead] : []), ...(disposition ? [disposition] : [])];
}

function ofIncident(incident: Incident): Next | undefined {
  switch (incident.state) {
    case "closed":
      return undefined;
    case "watching":
      return {
        text: "Aegis acts only if it lasts longer than the hold-down. Nothing for you to do.",
      };
    case "recovering":
      return { text: "Aegis is at work and closes this once every new rank has completed a step." };
    case "open":
      return ofOpen(incident);
  }
}

function ofOpen(incident: Incident): Next {
  const decision = latest(incident);
  if (!decision) return { text: "Not yet decided." };
  if (decision.result === "needs_approval") {
    return {
      text: asked(incident),
      command: `aegis incidents approve ${incident.id} --reason "…"`,
      commandFor: `approve ${incident.id}`,
    };
  }
  const drains = decision.remedy === "drain_now" || decision.remedy === "drain_saving";
  const acts = decision.clears_when ? ` It acts once ${decision.clears_when}.` : "";
  if (!drains || !incident.node) {
    return { text: acts ? `Aegis waits.${acts}` : sentence(decision.reason) };
  }
  const command = {
    command: `aegis nodes drain ${incident.node} --reason "${incident.id}"`,
    commandFor: `drain ${incident.node}`,
  };
  return { text: `Aegis leaves the node alone.${acts} To take it out by hand:`, ...command };
}

function asked({ approval }: Incident): string {
  if (!approval) return "Aegis waits for a person to agree.";
  if (approval.expired) return "Nobody has agreed in time, so nothing is done. It may still be:";
  const { agreed } = approval;
  const rest = agreed.length < approval.needed ? "; one more must" : " to less than it is by now";
  const given = agreed.length ? `${listed(agreed)} agreed${rest}. ` : "";
  return `${given}Aegis waits for a person to agree:`;
}

function ofNode(node: Node, closed: boolean): Next | undefined {
  if (node.state === "unknown") {
    return {
      text: `${node.name} is silent. Start its agent to hear of it again:`,
      command: "systemctl start aegis-agent",
      commandFor: `start the agent of ${node.name}`,
    };
  }
  if (!OUT.has(node.state)) return inService(node, closed);
  const holder = node.held_by ? `, held by ${node.held_by}` : "";
  if (node.state === "draining") {
    return { text: `${node.name} is being drained${holder}; then it is quarantined.` };
  }
  const caution = stillBroken(node);
  return {
    text: `${node.name} is ${node.state}${holder}. It gets no ranks until someone returns it:`,
    command: `aegis nodes return ${node.name} --reason "…"`,
    commandFor: `return ${node.name}`,
    ...(caution && { caution }),
  };
}

function inService(node: Node, closed: boolean): Next | undefined {
  if (node.state === "suspect") {
    return { text: `${node.name} keeps its ranks and gets no new ones for now.` };
  }
  if (!closed) return undefined;
  const back =
    node.state === "probation" ? "back on probation, used as a spare first" : "in service";
  return { text: `${node.name} is ${back}. Nothing for you to do.` };
}

/** Why the node may not come back yet, as the controller would say. */
function stillBroken(node: Node): string {
  const live = node.conditions.map((one) => `${one.fault_class} on ${one.device}`);
  if (live.length) return `Refused for now: it still reports ${listed(live)}. Repair it first.`;
  const sick = node.devices.filter((one) => one.health === "unhealthy");
  if (!sick.length) return "";
  const names = listed(sick.map((one) => one.name));
  return `Refused for now: ${names} still ${sick.length === 1 ? "reads" : "read"} as unhealthy. Repair it first.`;
}

const ORDER: readonly Severity[] = ["fatal", "error", "warning", "info"];

/** Worst first, then newest. */
export function byUrgency(a: Incident, b: Incident): number {
  const severity = ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity);
  return severity || b.phases.opened_at - a.phases.opened_at;
}

/** As the API lists them: what went on last first, also when it began long ago. */
export const lastActiveFirst = (a: Incident, b: Incident): number =>
  b.active_at - a.active_at || (a.id < b.id ? 1 : -1);

export function stepsLost(incident: Incident): string {
  return incident.steps_lost === null ? "—" : plural(incident.steps_lost, "step");
}
