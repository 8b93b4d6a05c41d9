// Addresses: the path says which page, the query holds its filters.

import { useEffect, useState } from "preact/hooks";

export interface Place {
  readonly path: string;
  readonly query: URLSearchParams;
}

const listeners = new Set<() => void>();

const here = (): Place => ({
  path: location.pathname.replace(/\/+$/, "") || "/",
  query: new URLSearchParams(location.search),
});

function tell(): void {
  for (const listener of listeners) listener();
}

export function go(address: string): void {
  if (address === location.pathname + location.search) return;
  history.pushState(null, "", address);
  scrollTo(0, 0);
  tell();
}

/** Change a filter in place: it is part of the address, but no step of the history. */
export function setQuery(changes: Readonly<Record<string, string>>): void {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  tell();
}

/** Let plain clicks on our own links change the page without loading it anew. */
export function interceptLinks(): void {
  addEventListener("popstate", tell);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.origin !== location.origin) return;
    if (link.pathname.startsWith("/api/") || link.hash) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

export function usePlace(): Place {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const listener = () => setPlace(here());
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return place;
}
