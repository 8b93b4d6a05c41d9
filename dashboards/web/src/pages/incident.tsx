// One incident: the whole story on one page, from the first reading to what to type next.

import { useEffect, useState } from "preact/hooks";
import { ApiError, fetchIncident as askIncident, ROOT } from "../api";
import { duration, plural } from "../format";
import { CostCard } from "../parts/cost";
import { DecisionView } from "../parts/decision";
import { EvidenceTable } from "../parts/evidence";
import { Icon } from "../parts/icon";
import {
  Badge,
  Command,
  CopyButton,
  Empty,
  JobLink,
  NodeLink,
  Prose,
  Section,
  SeverityBadge,
  SimulatedBadge,
  StateBadge,
  Time,
} from "../parts/small";
import { Timeline } from "../parts/timeline";
import { fetchIncident, type State } from "../store";
import { identityOf, impactOf, latest, nextOf, splitHeadline } from "../story";
import type { Incident, IncidentView } from "../types";
import { sentence } from "../words";

export function IncidentPage({ id, store }: { id: string; store: State }) {
  const incident = store.incidents.get(id);
  const error = useMissing(id, incident !== undefined, store.loaded);
  if (incident) return <Story incident={incident} store={store} />;
  if (error) {
    return (
      <>
        <h1>{id}</h1>
        <Empty command={error.status === 404 ? "aegis incidents" : ""}>
          {sentence(error.message)} {sentence(error.hint)}
        </Empty>
      </>
    );
  }
  return <p class="loading">Loading {id}…</p>;
}

/** An incident that is in no list that was fetched: ask for it alone. */
function useMissing(id: string, known: boolean, loaded: boolean): ApiError | null {
  const [error, setError] = useState<ApiError | null>(null);
  useEffect(() => {
    setError(null);
    if (known || !loaded) return;
    const abort = new AbortController();
    fetchIncident(id, abort.signal).catch((reason: unknown) => {
      if (reason instanceof ApiError) setError(reason);
      else if (!abort.signal.aborted) throw reason;
    });
    return () => abort.abort();
  }, [id, known, loaded]);
  return error;
}

function Story({ incident, store }: { incident: Incident; store: State }) {
  return (
    <article class="incident">
      <Headline incident={incident} />
      <div class="story">
        <div class="story-main">
          <WhatBroke incident={incident} />
          <Section title="How we know" id="know">
            <EvidenceTable incident={incident} />
          </Section>
          <Decided incident={incident} />
          <Section
            title="What was done"
            id="done"
            aside={<span class="faint">oldest first · ranks’ times by their nodes’ clocks</span>}
          >
            <Timeline incident={incident} />
          </Section>
        </div>
        <div class="story-side">
          <Section title="What it cost" id="cost">
            <CostCard incident={incident} />
          </Section>
          <WhatNext incident={incident} store={store} />
          <Rejected incident={incident} />
          <Elsewhere incident={incident} />
        </div>
      </div>
    </article>
  );
}

function Headline({ incident }: { incident: Incident }) {
  const [what, then] = splitHeadline(incident.headline);
  const impact = impactOf(incident);
  return (
    <header class="incident-head">
      <p class="badges">
        <span class="incident-id">{incident.id}</span>
        <StateBadge state={incident.state} />
        <SeverityBadge severity={incident.severity} />
        <Badge tone={impact.tone} title="impact on training">
          {impact.text}
        </Badge>
        <SimulatedBadge simulated={incident.simulated} />
      </p>
      <h1 class="headline">
        <span class="headline-what">
          <Prose text={then ? `${what}:` : what} />
        </span>{" "}
        <span class="headline-then">
          <Prose text={then && `${then}.`} />
        </span>
      </h1>
      <p class="incident-meta">
        <span>
          Observed <Time at={incident.phases.observed_at} />
        </span>
        {incident.node && (
          <span>
            Node <NodeLink name={incident.node} />
          </span>
        )}
        {incident.job && (
          <span>
            Job <JobLink name={incident.job} />
          </span>
        )}
        {incident.closed_at !== null && (
          <span>
            Closed <Time at={incident.closed_at} />
          </span>
        )}
        {incident.acknowledged_by && <span>Acknowledged by {incident.acknowledged_by}</span>}
      </p>
    </header>
  );
}

/** What the catalogue says of this class of fault. The story stands without it. */
function useMeaning(id: string): IncidentView | null {
  const [view, setView] = useState<IncidentView | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    setView(null);
    askIncident(id, abort.signal).then(setView, () => undefined);
    return () => abort.abort();
  }, [id]);
  return view;
}

function Meaning({ id }: { id: string }) {
  const view = useMeaning(id);
  if (!view) return null;
  return (
    <details class="meaning">
      <summary>What this is, and what to look at</summary>
      <p>{view.means}</p>
      <ul>
        {view.check.map((step) => (
          <li key={step}>
            <Prose text={step} />
          </li>
        ))}
      </ul>
    </details>
  );
}

function WhatBroke({ incident }: { incident: Incident }) {
  const fault = incident.faults[0];
  const { observed_at, opened_at } = incident.phases;
  const signals = incident.suppressed + 1;
  return (
    <Section title="What broke" id="broke">
      <dl class="facts">
        <div>
          <dt>Device</dt>
          <dd>
            <strong class="device">{incident.device || "host"}</strong>
            {incident.node && (
              <>
                {" "}
                of <NodeLink name={incident.node} />
              </>
            )}
          </dd>
        </div>
        <div>
          <dt>Fault</dt>
          <dd>
            <code>{incident.fault_class}</code>
          </dd>
        </div>
        {identityOf(fault?.identity ?? "").map(([label, value]) => (
          <div key={label + value}>
            <dt>{label}</dt>
            <dd>
              <code class="identity">{value}</code>
            </dd>
          </div>
        ))}
        <div>
          <dt>First seen</dt>
          <dd>
            <Time at={observed_at} />
            <span class="faint">
              {" "}
              · known {duration(Math.max(0, opened_at - observed_at))} later
            </span>
          </dd>
        </div>
        <div>
          <dt>Signals</dt>
          <dd>
            {signals === 1 ? "one" : plural(signals, "signal")}
            {incident.simulated && <span class="faint"> · simulated hardware</span>}
          </dd>
        </div>
      </dl>
      <Meaning id={incident.id} />
    </Section>
  );
}

function Decided({ incident }: { incident: Incident }) {
  const decision = latest(incident);
  const earlier = incident.decisions.slice(0, -1).reverse();
  return (
    <Section title="What was decided, and why" id="decided">
      {decision ? (
        <DecisionView decision={decision} />
      ) : (
        <p class="quiet-text">{undecided(incident)}</p>
      )}
      {earlier.length > 0 && (
        <details class="raw">
          <summary>{plural(earlier.length, "earlier decision")}</summary>
          {earlier.map((one) => (
            <DecisionView key={one.at} decision={one} />
          ))}
        </details>
      )}
    </Section>
  );
}

function undecided(incident: Incident): string {
  const waits = incident.entries.find((one) => one.kind === "decision")?.text ?? "";
  if (incident.state === "closed") {
    return `${sentence(waits)} It did not, so nothing had to be decided.`;
  }
  return `Nothing yet. ${sentence(waits || "the rule waits to see whether it lasts")}`;
}

function Rejected({ incident }: { incident: Incident }) {
  if (!incident.rejected_checkpoints.length) return null;
  return (
    <Section title="Rejected checkpoints" id="rejected">
      <ul class="rejected">
        {incident.rejected_checkpoints.map((text) => (
          <li key={text}>
            <Icon name="no" size={14} />
            <span>{sentence(text)}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function WhatNext({ incident, store }: { incident: Incident; store: State }) {
  const next = nextOf(incident, incident.node ? store.nodes.get(incident.node) : undefined);
  return (
    <Section title="What happens next" id="next">
      {next.length === 0 && <p class="quiet-text">Nothing is left to do.</p>}
      {next.map((one) => (
        <div key={one.text} class="next">
          <p>
            <Prose text={one.text} />
          </p>
          {one.command && <Command text={one.command} label={`command: ${one.commandFor ?? ""}`} />}
          {one.caution && (
            <p class="caution">
              <Icon name="warning" size={14} />
              <span>{one.caution}</span>
            </p>
          )}
        </div>
      ))}
    </Section>
  );
}

function Elsewhere({ incident }: { incident: Incident }) {
  return (
    <nav class="elsewhere" aria-label="The same incident elsewhere">
      <a href={`${ROOT}/incidents/${incident.id}`} target="_blank" rel="noreferrer">
        <Icon name="json" size={14} /> Raw JSON
      </a>
      <span class="elsewhere-command">
        <code>aegis incidents show {incident.id}</code>
        <CopyButton text={`aegis incidents show ${incident.id}`} label="command" />
      </span>
    </nav>
  );
}
