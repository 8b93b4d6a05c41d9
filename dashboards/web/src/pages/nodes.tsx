// The nodes, and one node: its devices as they were last read, what it reports, who holds it.

import type { ComponentChildren } from "preact";
import { useNow } from "../clock";
import { age, count } from "../format";
import type { IconName } from "../parts/icon";
import { IncidentRows } from "../parts/incidents";
import {
  DeviceCells,
  healthText,
  Legend,
  QUIET_SECONDS,
  roleOf,
  roleText,
  stateCounts,
} from "../parts/nodes";
import {
  Age,
  Badge,
  Command,
  Empty,
  IncidentLink,
  JobLink,
  NodeLink,
  Section,
  SimulatedBadge,
  Time,
} from "../parts/small";
import { LastValidation } from "../parts/validation";
import type { State } from "../store";
import { lastActiveFirst } from "../story";
import type { Device, Health, Job, Node } from "../types";
import { NODE_STATES, sentence, type Tone } from "../words";

export function NodesPage({ store }: { store: State }) {
  const nodes = [...store.nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  const jobs = [...store.jobs.values()];
  const now = useNow(2000);
  return (
    <>
      <div class="page-head">
        <h1>Nodes</h1>
        <p class="page-note">{stateCounts(nodes)}</p>
      </div>
      {nodes.length ? (
        <>
          <table class="rows nodes-table">
            <caption class="visually-hidden">Nodes by name</caption>
            <thead>
              <tr>
                <th scope="col">Node</th>
                <th scope="col">State</th>
                <th scope="col">Devices</th>
                <th scope="col">Ranks</th>
                <th scope="col">Heard</th>
                <th scope="col">Why</th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((node) => (
                <NodeRow key={node.name} node={node} jobs={jobs} now={now} />
              ))}
            </tbody>
          </table>
          <Legend />
        </>
      ) : (
        <Empty command="aegis nodes token NODE">
          No node has reported. Mint a token for one, then start its agent with it:
        </Empty>
      )}
    </>
  );
}

function NodeRow({ node, jobs, now }: { node: Node; jobs: readonly Job[]; now: number }) {
  const role = roleOf(node, jobs);
  return (
    <tr class={now - node.seen_at > QUIET_SECONDS ? "quiet" : ""}>
      <td class="col-name">
        <NodeLink name={node.name} />
      </td>
      <td>
        <NodeStateBadge node={node} />
      </td>
      <td>
        <DeviceCells node={node} />
      </td>
      <td>
        {roleText(node, role)}
        {role && (
          <span class="cell-note">
            <JobLink name={role.job.spec.name} />
          </span>
        )}
      </td>
      <td data-label="heard">
        <Age at={node.seen_at} late={QUIET_SECONDS} />
      </td>
      <td class="col-reason">{node.reason}</td>
    </tr>
  );
}

function NodeStateBadge({ node }: { node: Node }) {
  const { tone, means } = NODE_STATES[node.state];
  return (
    <Badge tone={tone} title={means}>
      {node.state}
    </Badge>
  );
}

export function NodePage({ name, store }: { name: string; store: State }) {
  const node = store.nodes.get(name);
  if (!node) {
    return (
      <>
        <h1>{name}</h1>
        <Empty command="aegis nodes">This controller knows no node of that name. See all:</Empty>
      </>
    );
  }
  const role = roleOf(node, store.jobs.values());
  const incidents = [...store.incidents.values()].filter((one) => one.node === name);
  const validation = node.validations.at(-1);
  return (
    <>
      <div class="page-head">
        <h1>{node.name}</h1>
        <NodeStateBadge node={node} />
        <SimulatedBadge simulated={node.simulated} />
        <p class="page-note">{sentence(NODE_STATES[node.state].means)}</p>
      </div>
      <Section title="Now" id="now">
        <dl class="facts">
          <Fact label="State">
            {node.state} since <Time at={node.since} />
          </Fact>
          {node.reason && <Fact label="Why">{sentence(node.reason)}</Fact>}
          {node.held_by && <Fact label="Held by">{node.held_by}</Fact>}
          {node.incident && (
            <Fact label="Incident">
              <IncidentLink id={node.incident} />
            </Fact>
          )}
          <Fact label="Ranks">
            {roleText(node, role)}
            {role && (
              <>
                {" "}
                of <JobLink name={role.job.spec.name} />
              </>
            )}
          </Fact>
          <Fact label="Heard">
            <Age at={node.seen_at} late={QUIET_SECONDS} />
          </Fact>
          {node.version && <Fact label="Agent">{node.version}</Fact>}
          {node.labels.map(([key, value]) => (
            <Fact key={key} label={key}>
              {value}
            </Fact>
          ))}
          {node.events_dropped > 0 && (
            <Fact label="Dropped">{count(node.events_dropped)} events by its full spool</Fact>
          )}
          {node.suppressed.some((one) => one.merged > 0) && (
            <Fact label="Merged">
              {node.suppressed
                .filter((one) => one.merged > 0)
                .map((one) => `${count(one.merged)} ${one.fault_class}`)
                .join(", ")}
            </Fact>
          )}
          {node.sources.map(([kind, text]) => (
            <Fact key={`reads ${kind}`} label={`Reads ${kind}`}>
              {text}
            </Fact>
          ))}
        </dl>
        {node.state === "quarantined" && (
          <Command text={`aegis nodes return ${node.name} --reason "…"`} label="return command" />
        )}
      </Section>
      {validation && (
        <Section title="Last validation" id="validation">
          <LastValidation validation={validation} />
        </Section>
      )}
      <Section title="Devices" id="devices" aside={<span>{healthText(node)}</span>}>
        <Devices devices={node.devices} />
      </Section>
      <Section title="Incidents here" id="incidents">
        {incidents.length ? (
          <IncidentRows incidents={incidents.sort(lastActiveFirst)} />
        ) : (
          <Empty>None among those that are loaded.</Empty>
        )}
      </Section>
    </>
  );
}

function Fact({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const HEALTH: Record<Health, { tone: Tone; icon: IconName }> = {
  healthy: { tone: "ok", icon: "ok" },
  unhealthy: { tone: "error", icon: "no" },
  unknown: { tone: "mute", icon: "info" },
};

function Devices({ devices }: { devices: readonly Device[] }) {
  const now = useNow(2000);
  if (!devices.length) {
    return (
      <Empty>Its agent has reported no device: it is silent, or has no source for them.</Empty>
    );
  }
  return (
    <table class="rows devices-table">
      <caption class="visually-hidden">Devices of this node</caption>
      <thead>
        <tr>
          <th scope="col">Device</th>
          <th scope="col">Health</th>
          <th scope="col">Identity</th>
          <th scope="col">Counters above zero</th>
          <th scope="col">Read</th>
        </tr>
      </thead>
      <tbody>
        {devices.map((device) => (
          <tr key={device.name}>
            <td class="col-name">{device.name}</td>
            <td>
              <Badge tone={HEALTH[device.health].tone} icon={HEALTH[device.health].icon}>
                {device.health}
              </Badge>
              {device.detail && <span class="cell-note">{device.detail}</span>}
            </td>
            <td class="col-identity">
              <code>{device.identity || "—"}</code>
            </td>
            <td>
              {device.counters
                .filter(([, value]) => value > 0)
                .map(([counter, value]) => `${counter} ${count(value)}`)
                .join(" · ") || <span class="faint">none</span>}
            </td>
            <td class="faint">{device.read_at ? `${age(now - device.read_at)} ago` : "never"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
