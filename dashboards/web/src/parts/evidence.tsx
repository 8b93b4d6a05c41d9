// How we know: each reading with its source, before and after, and the raw record behind it.

import { elapsed } from "../format";
import type { Evidence, Fault, Incident } from "../types";

interface Row {
  readonly fault: Fault;
  readonly evidence: Evidence;
  readonly times: number; // how often the same reading came
  readonly key: string;
}

/** One row for each reading; the same one again only counts. */
function rowsOf(faults: readonly Fault[]): readonly Row[] {
  const rows = new Map<string, Row>();
  for (const fault of faults) {
    for (const evidence of fault.evidence) {
      const key = JSON.stringify([fault.fault_class, fault.node, fault.device, evidence]);
      const known = rows.get(key);
      rows.set(
        key,
        known ? { ...known, times: known.times + 1 } : { fault, evidence, times: 1, key },
      );
    }
  }
  return [...rows.values()];
}

export function EvidenceTable({ incident }: { incident: Incident }) {
  const rows = rowsOf(incident.faults);
  if (!rows.length) {
    return <p class="quiet-text">The fault came without a reading; only its class is known.</p>;
  }
  const start = incident.phases.observed_at;
  const mixed = new Set(rows.map((row) => row.fault.fault_class)).size > 1;
  return (
    <>
      <table class="evidence">
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Reading</th>
            <th scope="col">Before → after</th>
            <th scope="col">Source</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <EvidenceRow key={row.key} row={row} start={start} mixed={mixed} />
          ))}
        </tbody>
      </table>
      {incident.suppressed > 0 && (
        <p class="folded">
          {incident.suppressed} more {incident.suppressed === 1 ? "signal" : "signals"} of the same
          cause folded into this incident.
        </p>
      )}
      <details class="raw">
        <summary>Raw signals ({incident.faults.length})</summary>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, also by keyboard */}
        <pre tabIndex={0}>{JSON.stringify(incident.faults, null, 2)}</pre>
      </details>
    </>
  );
}

function EvidenceRow({ row, start, mixed }: { row: Row; start: number; mixed: boolean }) {
  const { fault, evidence, times } = row;
  return (
    <tr>
      <td class="evidence-when">{elapsed(fault.observed_at - start)}</td>
      <td class="evidence-text">
        {mixed && <code class="evidence-class">{fault.fault_class}</code>}
        <span class="reading">{evidence.text}</span>
        {times > 1 && <span class="times"> ×{times}</span>}
      </td>
      <td class="evidence-change">
        <Change before={evidence.before} after={evidence.after} />
      </td>
      <td class="evidence-source">
        <code>{evidence.source}</code>
      </td>
    </tr>
  );
}

function Change({ before, after }: { before: string | null; after: string | null }) {
  if (before === null && after === null) return <span class="faint">—</span>;
  return (
    <>
      <span class="before">{before ?? "—"}</span>
      <span class="to"> → </span>
      <span class="after">{after ?? "—"}</span>
    </>
  );
}
