// Is it on fire, is Aegis acting, is it allowed to?

import { useNow } from "../clock";
import { Icon, type IconName } from "../parts/icon";
import { IncidentRows, OpenIncident } from "../parts/incidents";
import { JobRows } from "../parts/jobs";
import { isWell, Legend, NodeBox, NodeChip, roleOf, stateCounts } from "../parts/nodes";
import { Empty, Section, Time } from "../parts/small";
import type { State } from "../store";
import { byUrgency, isOpen, lastActiveFirst } from "../story";
import type { Job, Level, Node, Summary } from "../types";
import { sentence } from "../words";

const LEVELS: Record<Level, IconName> = { ok: "ok", degraded: "warning", critical: "error" };
const LAST_SHOWN = 8;
const BOXES_MAX = 48; // nodes; with more each is a chip
const TROUBLED_SHOWN = 24;

export function OverviewPage({ store }: { store: State }) {
  const incidents = [...store.incidents.values()];
  const open = incidents.filter(isOpen).sort(byUrgency);
  const closed = incidents.filter((one) => !isOpen(one)).sort(lastActiveFirst);
  const isBig = store.nodes.size > BOXES_MAX; // then what people work on comes first
  return (
    <>
      {store.summary && <VerdictHead summary={store.summary} />}
      {open.length > 0 && (
        <Section title="Open incidents" id="open" aside={`${open.length}`}>
          <div class="open-list">
            {open.map((one) => (
              <OpenIncident key={one.id} incident={one} />
            ))}
          </div>
        </Section>
      )}
      {!isBig && <Nodes store={store} />}
      <Section title="Jobs" id="jobs" aside={<a href="/jobs">All jobs</a>}>
        {store.jobs.size ? (
          <JobRows jobs={[...store.jobs.values()]} />
        ) : (
          <Empty command="aegis run --nnodes 2 --nproc-per-node 8 --spares 1 --job NAME train.py">
            No job has registered yet. Start one on each of its nodes:
          </Empty>
        )}
      </Section>
      <Section title="Last incidents" id="last" aside={<a href="/incidents">All incidents</a>}>
        {closed.length ? (
          <IncidentRows incidents={closed.slice(0, LAST_SHOWN)} />
        ) : (
          <Empty>Nothing has broken and been mended since this controller’s log began.</Empty>
        )}
      </Section>
      {isBig && <Nodes store={store} />}
    </>
  );
}

function VerdictHead({ summary }: { summary: Summary }) {
  return (
    <header class={`verdict level-${summary.level}`}>
      <span class="verdict-mark">
        <Icon name={LEVELS[summary.level]} size={20} />
      </span>
      <div>
        <h1>{sentence(summary.verdict)}</h1>
        <p class="verdict-facts">
          <span>{plainLevel(summary.level)}</span>
          <span>
            as of <Time at={summary.as_of} />
          </span>
          <span>
            mode <strong>{summary.policy.mode}</strong>
          </span>
          <span>
            {summary.spares} {summary.spares === 1 ? "spare" : "spares"}
          </span>
          <span>
            rules <code title={summary.rules_digest}>{summary.rules_digest.slice(0, 8)}</code>
          </span>
          {summary.simulated && <span class="badge simulated">simulated hardware</span>}
        </p>
      </div>
    </header>
  );
}

const plainLevel = (level: Level): string =>
  ({ ok: "All well", degraded: "Degraded", critical: "Needs a person" })[level];

function Nodes({ store }: { store: State }) {
  const now = useNow(2000);
  const jobs = [...store.jobs.values()];
  const nodes = [...store.nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  if (!nodes.length) {
    return (
      <Section title="Nodes" id="nodes">
        <Empty command="aegis nodes token NODE">
          No node has reported. Mint a token for one, then start its agent with it:
        </Empty>
      </Section>
    );
  }
  const isBig = nodes.length > BOXES_MAX;
  return (
    <Section title="Nodes" id="nodes" aside={<span>{stateCounts(nodes)}</span>}>
      {isBig && <Troubled nodes={nodes} jobs={jobs} now={now} />}
      <div class="racks">
        {groups(nodes).map(([rack, members]) => (
          <div key={rack} class="rack" style={{ "--nodes": String(members.length) }}>
            {rack && <h3 class="rack-name">{rack}</h3>}
            <div class={isBig ? "chip-grid" : "node-grid"}>
              {members.map((node) =>
                isBig ? (
                  <NodeChip key={node.name} node={node} now={now} />
                ) : (
                  <NodeBox key={node.name} node={node} role={roleOf(node, jobs)} now={now} />
                ),
              )}
            </div>
          </div>
        ))}
      </div>
      <Legend />
    </Section>
  );
}

/** Of a big fleet only those that are not plainly well have a box; the others are chips. */
function Troubled(props: { nodes: readonly Node[]; jobs: readonly Job[]; now: number }) {
  const troubled = props.nodes.filter((node) => !isWell(node, props.now));
  if (!troubled.length) return null;
  return (
    <div class="troubled">
      <h3 class="rack-name">Not in service, or not healthy ({troubled.length})</h3>
      <div class="node-grid">
        {troubled.slice(0, TROUBLED_SHOWN).map((node) => (
          <NodeBox key={node.name} node={node} role={roleOf(node, props.jobs)} now={props.now} />
        ))}
      </div>
      {troubled.length > TROUBLED_SHOWN && (
        <p class="faint">
          and {troubled.length - TROUBLED_SHOWN} more: <a href="/nodes">all nodes</a>
        </p>
      )}
    </div>
  );
}

/** Nodes by their rack, where any has one: what breaks together stands together. */
function groups(nodes: readonly Node[]): readonly [string, readonly Node[]][] {
  const found = new Map<string, Node[]>();
  for (const node of nodes) {
    const rack = node.labels.find(([key]) => key === "rack")?.[1] ?? "";
    found.set(rack, [...(found.get(rack) ?? []), node]);
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
}
