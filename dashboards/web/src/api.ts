// What the controller answers under /api/v1: the model's objects, and what it adds to them.

import type { Incident, IncidentView, Job, Node, Summary } from "./types";

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

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(ROOT + path, {
      headers: { accept: "application/json" },
      ...(signal && { signal }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
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
