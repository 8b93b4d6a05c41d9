// The story of an incident, oldest first: t+ since the first signal, and the time itself.

import { elapsed } from "../format";
import type { Entry, Incident } from "../types";
import { ENTRY_KINDS } from "../words";
import { Icon } from "./icon";
import { Prose, Time } from "./small";

interface Line {
  readonly entry: Entry;
  readonly times: number; // how often it was said in a row
}

/** Oldest first; what is said again and again only counts. */
function linesOf(entries: readonly Entry[]): readonly Line[] {
  const lines: Line[] = [];
  for (const entry of [...entries].sort((a, b) => a.at - b.at)) {
    const last = lines.at(-1);
    if (last && last.entry.kind === entry.kind && last.entry.text === entry.text) {
      lines[lines.length - 1] = { ...last, times: last.times + 1 };
    } else {
      lines.push({ entry, times: 1 });
    }
  }
  return lines;
}

export function Timeline({ incident }: { incident: Incident }) {
  const start = incident.phases.observed_at;
  return (
    <ol class="timeline">
      {linesOf(incident.entries).map(({ entry, times }) => (
        <li key={`${entry.at} ${entry.text}`} class={`entry entry-${entry.kind}`}>
          <span class="entry-elapsed">{elapsed(entry.at - start)}</span>
          <span class="entry-icon">
            <Icon name={entry.kind} size={12} />
          </span>
          <span class="entry-body">
            <span class="entry-kind">{ENTRY_KINDS[entry.kind]}</span>
            <span class="entry-text">
              <Prose text={entry.text} />
              {times > 1 && <span class="times"> ×{times}</span>}
            </span>
          </span>
          <span class="entry-time">
            <Time at={entry.at} />
          </span>
        </li>
      ))}
      {incident.state !== "closed" && (
        <li class="entry entry-pending" aria-hidden="true">
          <span class="entry-elapsed" />
          <span class="entry-icon pulse" />
          <span class="entry-body faint">…</span>
        </li>
      )}
    </ol>
  );
}
