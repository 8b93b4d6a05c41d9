// Every incident, the last active first, with filters that live in the address.

import { useState } from "preact/hooks";
import { Icon } from "../parts/icon";
import { IncidentRows } from "../parts/incidents";
import { Empty, Segments } from "../parts/small";
import { setQuery, usePlace } from "../router";
import { fetchOlderIncidents, type State } from "../store";
import { isOpen, lastActiveFirst } from "../story";
import type { Incident } from "../types";

const FILTERS = [
  ["", "All"],
  ["open", "Open"],
  ["closed", "Closed"],
] as const;

type Which = (typeof FILTERS)[number][0];

const asWhich = (text: string | null): Which => (text === "open" || text === "closed" ? text : "");

export function IncidentsPage({ store }: { store: State }) {
  const { query } = usePlace();
  const which = asWhich(query.get("state"));
  const words = query.get("q") ?? "";
  const all = [...store.incidents.values()].sort(lastActiveFirst);
  const shown = all.filter((one) => isWanted(one, which) && hasWords(one, words));
  return (
    <>
      <div class="page-head">
        <h1>Incidents</h1>
        <p class="page-note">
          {all.filter(isOpen).length} open of {all.length}
          {store.olderIncidents !== null && "+"}
        </p>
        <Filters which={which} words={words} />
      </div>
      {shown.length ? <IncidentRows incidents={shown} keys /> : <Nothing some={all.length > 0} />}
      {store.olderIncidents !== null && <Older />}
    </>
  );
}

function Filters({ which, words }: { which: Which; words: string }) {
  return (
    <div class="filters">
      <Segments
        label="Which incidents"
        value={which}
        options={FILTERS}
        onChange={(value) => setQuery({ state: value })}
      />
      <label class="search">
        <Icon name="search" size={14} />
        <span class="visually-hidden">Search incidents</span>
        <input
          type="search"
          id="search"
          placeholder="Node, job, fault…   /"
          value={words}
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
      </label>
    </div>
  );
}

function Nothing({ some }: { some: boolean }) {
  if (some) return <Empty>No incident matches. Clear the search, or choose All.</Empty>;
  return (
    <Empty command="aegis demo --keep">
      No incident yet: nothing has broken since this controller’s log began. To see one, run the
      demo beside it:
    </Empty>
  );
}

function Older() {
  const [busy, setBusy] = useState(false);
  const more = () => {
    setBusy(true);
    void fetchOlderIncidents().finally(() => setBusy(false));
  };
  return (
    <button type="button" class="button" disabled={busy} onClick={more}>
      {busy ? "Loading…" : "Load older incidents"}
    </button>
  );
}

const isWanted = (one: Incident, which: Which): boolean =>
  which === "open" ? isOpen(one) : which === "closed" ? !isOpen(one) : true;

function hasWords(one: Incident, words: string): boolean {
  const text = [one.id, one.headline, one.fault_class, one.node, one.job, one.severity, one.state];
  const haystack = text.join(" ").toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => haystack.includes(word));
}
