// The token of whoever acts from this page. It is kept in this tab, until the tab is closed, and
// sent only with what changes something.

import { Listeners } from "./heard";

const KEY = "aegis.token";
const listeners = new Listeners();
let current = recall();

function recall(): string {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // storage is blocked
  }
}

/** Keep it; an empty one forgets. */
export function setToken(token: string): void {
  current = token;
  try {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    // it holds until the page is loaded anew
  }
  listeners.tell();
}

export function useToken(): string {
  return listeners.use(() => current);
}
