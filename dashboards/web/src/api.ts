// What the controller answers under /api/v1: the model's objects, and what it adds to them.

import type {
  CheckpointPage,
  History,
  Incident,
  IncidentView,
  Job,
  JobPlan,
  JobVerb,
  Node,
  Summary,
} from "./types";

export const ROOT = "/api/v1";

export interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | null;
}

/** An answer that is no answer: a sentence, and what to do next. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly hint: string,
  ) {
    super(detail);
  }
}

/** What to show of an error; nothing where nobody waits for the answer any more. */
export function problemIn(error: unknown, signal: AbortSignal): ApiError | null {
  if (signal.aborted) return null;
  if (error instanceof ApiError) return error;
  throw error;
}

const get = <T>(path: string, signal?: AbortSignal): Promise<T> =>
  ask(path, { headers: { accept: "application/json" }, ...(signal && { signal }) });

async function ask<T>(path: string, request: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(ROOT + path, request);
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new ApiError(
      0,
      "The controller cannot be reached.",
      "Is it running? `systemctl status aegis-controller`",
    );
  }
  if (!response.ok) throw await problemOf(response);
  return (await response.json()) as T;
}

async function problemOf(response: Response): Promise<ApiError> {
  const fallback = `The controller answered ${response.status} ${response.statusText}.`;
  try {
    const problem = (await response.json()) as { detail?: string; hint?: string };
    return new ApiError(response.status, problem.detail ?? fallback, problem.hint ?? "");
  } catch {
    return new ApiError(response.status, fallback, "");
  }
}

/** Every item of a list, page after page. */
async function all<T>(path: string): Promise<readonly T[]> {
  const items: T[] = [];
  let cursor: string | null = "";
  while (cursor !== null) {
    const page: Page<T> = await get(`${path}&cursor=${encodeURIComponent(cursor)}`);
    items.push(...page.items);
    cursor = page.next;
  }
  return items;
}

export const fetchSummary = (): Promise<Summary> => get("/summary");
export const fetchNodes = (): Promise<readonly Node[]> => all("/nodes?limit=500");
export const fetchJobs = (): Promise<readonly Job[]> => all("/jobs?limit=500");
export const fetchOpenIncidents = (): Promise<readonly Incident[]> =>
  all("/incidents?state=open&limit=500");

export const fetchIncidents = (cursor: string): Promise<Page<Incident>> =>
  get(`/incidents?limit=100&cursor=${encodeURIComponent(cursor)}`);

export const fetchIncident = (id: string, signal: AbortSignal): Promise<IncidentView> =>
  get(`/incidents/${encodeURIComponent(id)}`, signal);

const ofJob = (name: string): string => `/jobs/${encodeURIComponent(name)}`;

export const fetchHistory = (job: string, signal: AbortSignal): Promise<History> =>
  get(`${ofJob(job)}/history`, signal);

export const fetchCheckpoints = (job: string, signal: AbortSignal): Promise<CheckpointPage> =>
  get(`${ofJob(job)}/checkpoints`, signal);

/** What is asked of a job, beside whose it is and why. */
export interface Asked {
  readonly verb: JobVerb;
  readonly node?: string;
  readonly at_once?: boolean;
}

export function fetchPlan(job: string, asked: Asked, signal: AbortSignal): Promise<JobPlan> {
  const words = new URLSearchParams({ verb: asked.verb });
  if (asked.node) words.set("node", asked.node);
  if (asked.at_once) words.set("at_once", "true");
  return get(`${ofJob(job)}/plan?${words}`, signal);
}

/** Change something, once however often it is sent with this key. */
function post<T>(path: string, body: unknown, token: string, key: string): Promise<T> {
  return ask(path, {
    method: "POST",
    headers: {
      accept: "application/json",
      "content-type": "application/json",
      "idempotency-key": key,
      ...(token && { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify(body),
  });
}

export function askOfJob(
  job: string,
  { verb, ...asked }: Asked,
  reason: string,
  token: string,
  key: string,
): Promise<Job> {
  return post(`${ofJob(job)}:${verb}`, { ...asked, reason }, token, key);
}

export const verifyCheckpoints = (
  job: string,
  token: string,
  key: string,
): Promise<CheckpointPage> => post(`${ofJob(job)}/checkpoints:verify`, {}, token, key);

/** Drawn anew for each request; works without HTTPS, too. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}
