// What the reader chose: kept in this browser, where it lets us.

import { Listeners } from "./heard";

export type TimeMode = "utc" | "local" | "relative";
export type Theme = "system" | "light" | "dark";

export interface Preferences {
  readonly time: TimeMode;
  readonly theme: Theme;
}

const KEY = "aegis.preferences";
const DEFAULTS: Preferences = { time: "utc", theme: "system" };
const listeners = new Listeners();
let current = load();

function load(): Preferences {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return { ...DEFAULTS, ...(stored as Partial<Preferences>) };
  } catch {
    return DEFAULTS; // storage is blocked, or holds something else
  }
}

export function getPreferences(): Preferences {
  return current;
}

export function setPreferences(changes: Partial<Preferences>): void {
  current = { ...current, ...changes };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // it holds until the page is closed
  }
  applyTheme();
  listeners.tell();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = current.theme;
}

export function usePreferences(): Preferences {
  return listeners.use(() => current);
}
