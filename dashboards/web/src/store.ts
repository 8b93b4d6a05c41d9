// What is known, kept up to date by one event stream.
//
// Objects are levels: an event brings a whole one, and the newest wins. What an event brought while
// a list was on its way is newer than the list. When the stream is lost the page says so, keeps
// what it has, and fetches it anew every few seconds until the stream is back.

import * as api from "./api";
import { now, setServerTime } from "./clock";
import { Listeners } from "./heard";
import type { Incident, Job, Node, Summary } from "./types";

export type Connection = "connecting" | "live" | "lost";

export interface LossPoint {
  readonly step: number;
  readonly loss: number;
  readonly generation: number;
}

export interface State {
  readonly connection: Connection;
  readonly error: api.ApiError | null; // of the newest fetch
  readonly loaded: boolean;
  readonly asOf: number; // when anything of this was last heard, controller's clock
  readonly summary: Summary | null;
  readonly nodes: ReadonlyMap<string, Node>;
  readonly jobs: ReadonlyMap<string, Job>;
  readonly incidents: ReadonlyMap<string, Incident>;
  readonly olderIncidents: string | null; // the cursor of those not fetched; null: all are here
  readonly announcement: string; // for those who listen to the page
}

const REFETCH_MILLISECONDS = 10_000;
const RECONNECT_MILLISECONDS = 2_000;
const QUIET_MILLISECONDS = 30_000; // longer without an event: ask whether anybody is there
const BIG_FLEET = 200; // nodes; drawn less often
const LOSSES_KEPT = 5_000;

const nodes = new Map<string, Node>();
const jobs = new Map<string, Job>();
const incidents = new Map<string, Incident>();
const losses = new Map<string, readonly LossPoint[]>();
const heardSince = new Set<string>(); // what events brought since the running fetch began

let state: State = {
  connection: "connecting",
  error: null,
  loaded: false,
  asOf: 0,
  summary: null,
  nodes,
  jobs,
  incidents,
  olderIncidents: null,
  announcement: "",
};
let source: EventSource | null = null;
let drawing = false;
let fetching: Promise<void> | null = null;
let lastEventMilliseconds = Date.now();
let summaryDue = false;
const listeners = new Listeners();

function change(changes: Partial<State>): void {
  state = { ...state, ...changes };
  if (drawing) return;
  drawing = true;
  // A timer and not a frame: a page in the background keeps up too.
  setTimeout(
    () => {
      drawing = false;
      listeners.tell();
    },
    nodes.size > BIG_FLEET ? 500 : 50,
  );
}

export function useStore(): State {
  return listeners.use(() => state);
}

export function start(): void {
  connect();
  setInterval(beat, 1000);
  addEventListener("pagehide", remember);
}

/** Say something to those who listen to the page. */
export function announce(text: string): void {
  change({ announcement: text });
}

// The stream

function connect(): void {
  source?.close();
  source = new EventSource(`${api.ROOT}/events`);
  source.addEventListener("hello", () => {
    heard();
    change({ connection: "live" });
    void refetch();
  });
  source.addEventListener("resync", () => {
    heard();
    void refetch();
  });
  source.addEventListener("node.updated", (event) => take<Node>(event, putNode));
  source.addEventListener("job.updated", (event) => take<Job>(event, putJob));
  source.addEventListener("incident.updated", (event) => take<Incident>(event, putIncident));
  source.addEventListener("error", lost);
}

function take<T>(event: Event, put: (value: T) => void): void {
  heard();
  put(JSON.parse((event as MessageEvent<string>).data) as T);
  change({ connection: "live" });
}

function heard(): void {
  lastEventMilliseconds = Date.now();
  if (state.connection === "live" || !state.asOf) change({ asOf: now() });
}

function lost(): void {
  const wasLive = state.connection !== "lost";
  change({ connection: "lost" });
  if (source?.readyState === EventSource.CLOSED) setTimeout(connect, RECONNECT_MILLISECONDS);
  if (wasLive) void refetch();
}

/** Once a second: fetch anew while the stream is lost, and notice when it is lost in silence. */
function beat(): void {
  const quiet = Date.now() - lastEventMilliseconds;
  const late = state.connection === "live" ? QUIET_MILLISECONDS : REFETCH_MILLISECONDS;
  if (quiet > late && !fetching) {
    lastEventMilliseconds = Date.now();
    void refetch();
  }
  if (summaryDue && state.connection === "live") {
    summaryDue = false;
    void refetchSummary();
  }
}

// Fetching

function refetch(): Promise<void> {
  fetching ??= fetchAll().finally(() => {
    fetching = null;
  });
  return fetching;
}

async function fetchAll(): Promise<void> {
  heardSince.clear();
  try {
    const [summary, nodeList, jobList, open, page] = await Promise.all([
      api.fetchSummary(),
      api.fetchNodes(),
      api.fetchJobs(),
      api.fetchOpenIncidents(),
      api.fetchIncidents(""),
    ]);
    setServerTime(summary.as_of);
    replaceAll("node/", nodes, nodeList, (one) => one.name);
    replaceAll("job/", jobs, jobList, (one) => one.spec.name);
    // Others stay: an event or a page may have brought them, and what changed since is in these.
    for (const one of [...page.items, ...open]) {
      if (!heardSince.has(`incident/${one.id}`)) incidents.set(one.id, one);
    }
    for (const job of jobList) noteLoss(job);
    const olderIncidents = state.loaded ? state.olderIncidents : page.next;
    change({ summary, asOf: summary.as_of, loaded: true, error: null, olderIncidents });
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    change({ error, connection: error.status === 0 ? "lost" : state.connection });
  }
}

async function refetchSummary(): Promise<void> {
  try {
    const summary = await api.fetchSummary();
    setServerTime(summary.as_of);
    change({ summary, asOf: summary.as_of });
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error; // the stream tells of its loss itself
  }
}

export async function fetchOlderIncidents(): Promise<void> {
  if (state.olderIncidents === null) return;
  const page = await api.fetchIncidents(state.olderIncidents);
  for (const one of page.items) {
    const known = incidents.get(one.id);
    if (!known || known.active_at < one.active_at) incidents.set(one.id, one);
  }
  change({ olderIncidents: page.next });
}

export async function fetchIncident(id: string, signal: AbortSignal): Promise<void> {
  const found = await api.fetchIncident(id, signal);
  incidents.set(found.id, found);
  change({});
}

function replaceAll<T>(
  kind: "node/" | "job/",
  into: Map<string, T>,
  list: readonly T[],
  nameOf: (one: T) => string,
): void {
  const names = new Set(list.map(nameOf));
  for (const name of into.keys()) {
    if (!names.has(name) && !heardSince.has(kind + name)) into.delete(name);
  }
  for (const one of list) {
    if (!heardSince.has(kind + nameOf(one))) into.set(nameOf(one), one);
  }
}

// One object

function putNode(node: Node): void {
  if (!node.name) return;
  const before = nodes.get(node.name);
  nodes.set(node.name, node);
  heardSince.add(`node/${node.name}`);
  if (before?.state !== node.state) summaryDue = true;
}

function putJob(job: Job): void {
  if (!job.spec) return;
  const before = jobs.get(job.spec.name);
  jobs.set(job.spec.name, job);
  heardSince.add(`job/${job.spec.name}`);
  noteLoss(job);
  if (before?.state !== job.state) summaryDue = true;
}

function putIncident(incident: Incident): void {
  if (!incident.state) return; // it was forgotten meanwhile
  const before = incidents.get(incident.id);
  incidents.set(incident.id, incident);
  heardSince.add(`incident/${incident.id}`);
  if (before?.state === incident.state) return;
  summaryDue = true;
  if (!before) change({ announcement: `New incident: ${incident.headline}` });
  else if (incident.state === "closed") {
    change({ announcement: `Incident closed: ${incident.headline}` });
  }
}

// Losses: the API tells only the newest one, so the curve begins when this page did.

const lossKey = (job: Job): string => `aegis.losses.${job.spec.name}@${job.submitted_at}`;

export const lossesOf = (job: Job): readonly LossPoint[] => losses.get(lossKey(job)) ?? [];

function noteLoss(job: Job): void {
  if (job.loss === null || job.step <= 0) return;
  const key = lossKey(job);
  const known = losses.get(key) ?? recall(key);
  const last = known.at(-1);
  if (last?.step === job.step && last.generation === job.generation) return;
  const point = { step: job.step, loss: job.loss, generation: job.generation };
  losses.set(key, [...known, point].slice(-LOSSES_KEPT));
}

function recall(key: string): readonly LossPoint[] {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "[]") as LossPoint[];
  } catch {
    return []; // storage is blocked
  }
}

/** Keep the curves for when this tab is loaded anew. */
function remember(): void {
  try {
    for (const [key, points] of losses) sessionStorage.setItem(key, JSON.stringify(points));
  } catch {
    // blocked or full: the curves last until the page is closed
  }
}
