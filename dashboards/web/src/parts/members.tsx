// The nodes of a job: those that hold its ranks, its spares, and those that people keep it off.

import type { ComponentChildren } from "preact";
import type { State } from "../store";
import type { Job, Node } from "../types";
import { NODE_STATES } from "../words";
import { Badge, Empty, NodeLink, Section, Time } from "./small";
import { isOver, VerbButton } from "./verbs";

export function Members({ job, store }: { job: Job; store: State }) {
  const name = job.spec.name;
  const members = job.members.map((one) => one.node);
  const here = [...store.nodes.values()].filter((node) =>
    node.launchers.some((one) => one.spec.name === name),
  );
  const free = here
    .map((node) => node.name)
    .filter((one) => !members.includes(one) && !job.excluded.includes(one))
    .sort();
  const per = job.spec.ranks_per_node;
  const over = isOver(job);
  const holds = !over && job.state !== "waiting";
  const row = (node: string, what: ComponentChildren) => (
    <Row key={node} name={node} node={store.nodes.get(node)} what={what}>
      {!over && <VerbButton job={job} verb="exclude-node" label="Keep off…" node={node} />}
    </Row>
  );
  return (
    <Section title="Nodes" id="nodes">
      {members.length + free.length + job.excluded.length === 0 && (
        <Empty>No node has a launcher of this job.</Empty>
      )}
      <ul class="members">
        {members.map((node, place) => row(node, (holds ? "" : "had ") + ranksOf(place, per)))}
        {free.map((node) => row(node, serves(store.nodes.get(node)) ? "spare" : "no ranks"))}
        {job.excluded.map((node) => (
          <Row key={node} name={node} node={store.nodes.get(node)} what="kept off by people">
            {!over && <VerbButton job={job} verb="include-node" label="Let back…" node={node} />}
          </Row>
        ))}
      </ul>
    </Section>
  );
}

const serves = (node: Node | undefined): boolean =>
  node?.state === "ready" || node?.state === "probation";

function ranksOf(place: number, per: number): string {
  return per === 1 ? `rank ${place}` : `ranks ${place * per}–${place * per + per - 1}`;
}

function Row(props: {
  name: string;
  node: Node | undefined;
  what: ComponentChildren;
  children: ComponentChildren;
}) {
  const state = props.node?.state;
  return (
    <li class="member">
      <NodeLink name={props.name} />
      {state && state !== "ready" && (
        <Badge tone={NODE_STATES[state].tone} title={NODE_STATES[state].means}>
          {state}
        </Badge>
      )}
      <span class="faint">{props.what}</span>
      <span class="member-verb">{props.children}</span>
    </li>
  );
}

/** What its user asked for. */
export function AsStarted({ job }: { job: Job }) {
  const { spec } = job;
  const facts: readonly [string, ComponentChildren][] = [
    ["By", spec.owner],
    ["Command", spec.command && <code>{spec.command}</code>],
    ["Folder", spec.checkpoint_folder && <code>{spec.checkpoint_folder}</code>],
    ["Spares", spec.spares],
    ["Since", <Time key="since" at={job.submitted_at} />],
  ];
  return (
    <Section title="As it was started" id="started">
      <dl class="facts">
        {facts
          .filter(([, value]) => value !== "")
          .map(([label, value]) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </Section>
  );
}
