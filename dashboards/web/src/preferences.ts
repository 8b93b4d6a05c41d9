// What the reader chose: kept in this browser, where it lets us.

import { useEffect, useState } from "preact/hooks";

export type TimeMode = "utc" | "local" | "relative";
export type Theme = "system" | "light" | "dark";

export interface Preferences {
  readonly time: TimeMode;
  readonly theme: Theme;
}

const KEY = "aegis.preferences";
const DEFAULTS: Preferences = { time: "utc", theme: "system" };
const listeners = new Set<() => void>();
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
  for (const listener of listeners) listener();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = current.theme;
}

export function usePreferences(): Preferences {
  const [value, setValue] = useState(current);
  useEffect(() => {
    const listener = () => setValue(current);
    listeners.add(listener);
    listener();
    return () => void listeners.delete(listener);
  }, []);
  return value;
}
