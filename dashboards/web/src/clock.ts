// The controller's clock, not this machine's: ages are right even where the two disagree.

import { useEffect, useState } from "preact/hooks";

let ahead = 0; // seconds that the controller's clock is ahead of ours

/** Learn the difference from an answer that says when it was made. */
export function setServerTime(asOf: number): void {
  ahead = asOf - Date.now() / 1000;
}

export const now = (): number => Date.now() / 1000 + ahead;

/** The time, renewed as often as asked. */
export function useNow(everyMilliseconds = 1000): number {
  const [value, setValue] = useState(now);
  useEffect(() => {
    const timer = setInterval(() => setValue(now()), everyMilliseconds);
    return () => clearInterval(timer);
  }, [everyMilliseconds]);
  return value;
}
