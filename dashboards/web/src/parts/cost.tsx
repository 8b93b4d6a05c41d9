// What a recovery cost: a bar of its phases to scale, and the numbers beneath it.

import { useNow } from "../clock";
import { count, duration } from "../format";
import { type Cost, costOf, type Span } from "../phases";
import type { Incident } from "../types";
import { NodeLink } from "./small";

export function CostBar({ cost, slim = false }: { cost: Cost; slim?: boolean }) {
  const known = cost.spans.filter((span) => span.seconds !== null);
  const text = known.map((span) => `${span.phase.label} ${duration(span.seconds ?? 0)}`).join(", ");
  return (
    <div
      class={slim ? "cost-bar slim" : "cost-bar"}
      role="img"
      aria-label={`${text}; ${duration(cost.total)} in total`}
    >
      {known.map((span) => (
        <span
          key={span.phase.key}
          class={`cost-part phase-${span.phase.key}${span.running ? " running" : ""}`}
          style={{ flexGrow: Math.max(span.seconds ?? 0, cost.total * 0.004) || 1 }}
          title={`${span.phase.label}: ${duration(span.seconds ?? 0)}`}
        />
      ))}
    </div>
  );
}

export function CostTable({ cost }: { cost: Cost }) {
  return (
    <table class="cost-table">
      <caption class="visually-hidden">Seconds by phase</caption>
      <tbody>
        {cost.spans.map((span) => (
          <CostRow key={span.phase.key} span={span} total={cost.total} />
        ))}
        <tr class="cost-total">
          <th scope="row">{cost.over ? "Total" : "So far"}</th>
          <td class="cost-means">fault → training again</td>
          <td class="number">{duration(cost.total)}</td>
        </tr>
      </tbody>
    </table>
  );
}

function CostRow({ span, total }: { span: Span; total: number }) {
  const { phase, seconds, running } = span;
  const part = seconds !== null && total > 0 ? Math.round((seconds / total) * 100) : 0;
  return (
    <tr class={seconds === null ? "not-reached" : ""} title={`${part} %`}>
      <th scope="row">
        <span class={`swatch phase-${phase.key}`} />
        {phase.label}
      </th>
      <td class="cost-means">{running ? "under way" : phase.means}</td>
      <td class="number">{seconds === null ? "—" : duration(seconds)}</td>
    </tr>
  );
}

export function CostCard({ incident }: { incident: Incident }) {
  const now = useNow(incident.state === "recovering" ? 200 : 60_000);
  const cost = costOf(incident, now);
  const recovered = incident.phases.stopped_at !== null || incident.state === "recovering";
  if (!recovered && !incident.generation_after) {
    return <p class="quiet-text">{uncosted(incident)}</p>;
  }
  return (
    <>
      <CostBar cost={cost} />
      <CostTable cost={cost} />
      <Figures incident={incident} />
    </>
  );
}

function uncosted(incident: Incident): string {
  if (incident.state === "watching") return "Nothing so far: it is only being watched.";
  if (incident.job && incident.state === "open") {
    return `Nothing by Aegis: it has not touched job ${incident.job}.`;
  }
  return "Nothing: no training was stopped.";
}

function Figures({ incident }: { incident: Incident }) {
  const lost = incident.steps_lost;
  return (
    <dl class="figures">
      <div>
        <dt>Steps lost</dt>
        <dd>
          <strong>{lost === null ? "—" : count(lost)}</strong>
          <span class="figure-note">
            {incident.resumed_step === null
              ? `was at step ${count(incident.last_step_before)}`
              : `step ${count(incident.last_step_before)} → ${count(incident.resumed_step)}`}
          </span>
        </dd>
      </div>
      <div>
        <dt>Generation</dt>
        <dd>
          <strong>
            {incident.generation_before} → {incident.generation_after || "…"}
          </strong>
        </dd>
      </div>
      <div class="figure-wide">
        <dt>Nodes</dt>
        <dd>
          <NodeSwap incident={incident} />
        </dd>
      </div>
    </dl>
  );
}

function NodeSwap({ incident }: { incident: Incident }) {
  const { nodes_before: before, nodes_after: after } = incident;
  if (!before.length) return <span class="faint">—</span>;
  return (
    <span class="swap">
      <span class="swap-side">
        {before.map((name) => (
          <span key={name} class={after.length && !after.includes(name) ? "swap-out" : "swap-kept"}>
            <NodeLink name={name} />
          </span>
        ))}
      </span>
      <span class="swap-side">
        <span class="swap-arrow" role="img" aria-label="then">
          →
        </span>
        {after.length ? (
          after.map((name) => (
            <span key={name} class={before.includes(name) ? "swap-kept" : "swap-in"}>
              <NodeLink name={name} />
            </span>
          ))
        ) : (
          <span class="faint">not yet</span>
        )}
      </span>
    </span>
  );
}
