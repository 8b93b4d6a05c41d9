// Keys: `/` search, `g` then a letter to go somewhere, `j` and `k` through rows, `?` for help.
// None of them changes anything.

import { go } from "./router";

export const GOES: Readonly<Record<string, [string, string]>> = {
  o: ["/", "Overview"],
  i: ["/incidents", "Incidents"],
  n: ["/nodes", "Nodes"],
  j: ["/jobs", "Jobs"],
};

const CHORD_MILLISECONDS = 1500;

export function listenToKeys(showHelp: () => void): () => void {
  const acts: Readonly<Record<string, () => void>> = {
    "?": showHelp,
    "/": search,
    j: () => moveThroughRows(1),
    k: () => moveThroughRows(-1),
  };
  let goAt = 0;
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    const target = Date.now() - goAt < CHORD_MILLISECONDS ? GOES[event.key] : undefined;
    const act = target ? () => go(target[0]) : acts[event.key];
    goAt = event.key === "g" ? Date.now() : 0;
    if (!act) return;
    act();
    event.preventDefault();
  };
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

/** In a field keys are text; Escape leaves it. */
function isTyping(event: KeyboardEvent): boolean {
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  const typing = target.matches("input, textarea, select");
  if (typing && event.key === "Escape") target.blur();
  return typing;
}

function search(): void {
  if (!document.getElementById("search")) go("/incidents");
  setTimeout(() => document.getElementById("search")?.focus(), 0);
}

function moveThroughRows(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  next?.focus();
}
