// Incidents as rows, and open ones as cards.

import { useNow } from "../clock";
import { duration } from "../format";
import { costOf } from "../phases";
import { splitHeadline } from "../story";
import type { Incident } from "../types";
import { sentence } from "../words";
import { CostBar } from "./cost";
import { placeOf, SeverityBadge, SimulatedBadge, StateBadge, Time } from "./small";

const address = (incident: Incident): string => `/incidents/${incident.id}`;

export function IncidentRows(props: { incidents: readonly Incident[]; keys?: boolean }) {
  return (
    <table class="rows incidents-table">
      <caption class="visually-hidden">Incidents, the last active first</caption>
      <thead>
        <tr>
          <th scope="col">Incident</th>
          <th scope="col">What happened</th>
          <th scope="col">Where</th>
          <th scope="col">Cost</th>
          <th scope="col">Last activity</th>
        </tr>
      </thead>
      <tbody>
        {props.incidents.map((incident) => (
          <IncidentRow key={incident.id} incident={incident} marked={props.keys === true} />
        ))}
      </tbody>
    </table>
  );
}

function IncidentRow({ incident, marked }: { incident: Incident; marked: boolean }) {
  const [what, then] = splitHeadline(incident.headline);
  return (
    <tr>
      <td class="col-badges">
        <span class="incident-id">{incident.id}</span>
        <StateBadge state={incident.state} />
        <SeverityBadge severity={incident.severity} />
      </td>
      <td class="col-headline">
        <a href={address(incident)} {...(marked && { "data-row": "" })}>
          <span class="row-what">{what}</span>
        </a>
        <span class="row-then">{sentence(then)}</span>
      </td>
      <td class="col-where">
        {placeOf(incident)} <SimulatedBadge simulated={incident.simulated} />
      </td>
      <td class="col-cost">
        <RowCost incident={incident} />
      </td>
      <td class="col-time">
        <Time at={incident.active_at} />
      </td>
    </tr>
  );
}

function RowCost({ incident }: { incident: Incident }) {
  if (!incident.generation_after) return <span class="faint no-cost">—</span>;
  const cost = costOf(incident, incident.closed_at ?? 0);
  return (
    <span class="row-cost">
      <span class="number">{duration(cost.total)}</span>
      <CostBar cost={cost} slim />
    </span>
  );
}

export function OpenIncident({ incident }: { incident: Incident }) {
  const now = useNow(incident.state === "recovering" ? 200 : 1000);
  const [what, then] = splitHeadline(incident.headline);
  const cost = costOf(incident, now);
  const running = cost.spans.find((span) => span.running);
  return (
    <a class={`open-incident state-${incident.state}`} href={address(incident)}>
      <span class="badges">
        <StateBadge state={incident.state} />
        <SeverityBadge severity={incident.severity} />
        <SimulatedBadge simulated={incident.simulated} />
        <span class="open-since">
          {incident.id} · for {duration(Math.floor(now - incident.phases.observed_at))}
        </span>
      </span>
      <span class="open-headline">
        <strong>{what}</strong>
        {then && ": "}
        {then}
      </span>
      {running && (
        <span class="open-cost">
          <CostBar cost={cost} slim />
          <span class="open-phase">
            {running.phase.label.toLowerCase()} · {duration(cost.total)}
          </span>
        </span>
      )}
    </a>
  );
}
