// Nodes as boxes with a cell for each device. Four facts, four visuals: health is the cell's fill
// and mark, taken out of service is a hatched box, holding ranks is a dot, silence is a fade. A GPU's
// cell is square, a network port's round; what is neither, the host or a check, stands on its corner.

import { age, plural } from "../format";
import type { Device, Health, Job, Node } from "../types";
import { NODE_STATES } from "../words";

export const QUIET_SECONDS = 15; // a node that was not heard for so long fades

const CELL = 15;
const GAP = 3;
const GROUP_GAP = 5; // on top, between GPUs, ports and the rest

export const gpusOf = (node: Node): readonly Device[] =>
  node.devices.filter((one) => one.kind === "gpu");

const KINDS = ["gpu", "nic"]; // the first cells; what else there is comes last

/** The devices in groups of one shape each, GPUs first. */
const groupsOf = (node: Node): readonly (readonly Device[])[] =>
  [
    ...KINDS.map((kind) => node.devices.filter((one) => one.kind === kind)),
    node.devices.filter((one) => !KINDS.includes(one.kind)),
  ].filter((group) => group.length);

export type Role = { readonly job: Job; readonly rank: number } | null;

/** Whose ranks the node holds, and its place among them. */
export function roleOf(node: Node, jobs: Iterable<Job>): Role {
  for (const job of jobs) {
    if (job.state !== "starting" && job.state !== "running" && job.state !== "stopping") continue;
    const rank = job.members.findIndex((one) => one.node === node.name);
    if (rank >= 0) return { job, rank };
  }
  return null;
}

const isSpare = (node: Node): boolean =>
  (node.state === "ready" || node.state === "probation") && node.launchers.length > 0;

export function roleText(node: Node, role: Role): string {
  if (role) {
    const per = role.job.spec.ranks_per_node;
    const first = role.rank * per;
    return per > 1 ? `ranks ${first}–${first + per - 1}` : `rank ${first}`;
  }
  return isSpare(node) ? "spare" : "no ranks";
}

export function healthText(node: Node): string {
  if (!node.devices.length) return "no device is reported";
  const parts = (["unhealthy", "unknown", "healthy"] as const).flatMap((health) => {
    const names = node.devices.filter((one) => one.health === health).map((one) => one.name);
    if (!names.length) return [];
    return [health === "healthy" ? `${names.length} healthy` : `${names.join(", ")} ${health}`];
  });
  return parts.join("; ");
}

export function NodeBox({ node, role, now }: { node: Node; role: Role; now: number }) {
  const quiet = now - node.seen_at > QUIET_SECONDS;
  const { means } = NODE_STATES[node.state];
  const title = `${node.name}: ${node.state} (${means}); ${healthText(node)}; heard ${age(now - node.seen_at)} ago${node.reason ? `; ${node.reason}` : ""}`;
  return (
    <a
      class={`node state-${node.state}${quiet ? " quiet" : ""}`}
      href={`/nodes/${encodeURIComponent(node.name)}`}
      title={title}
    >
      <span class="node-head">
        <span class="node-name">{node.name}</span>
        {role && <span class="node-dot" />}
      </span>
      <DeviceCells node={node} />
      <span class="node-foot">
        <span class={`node-state tone-text-${NODE_STATES[node.state].tone}`}>{node.state}</span>
        <span class="node-role">
          {quiet ? `${age(now - node.seen_at)} silent` : roleText(node, role)}
        </span>
      </span>
    </a>
  );
}

/** Whether there is nothing to say of the node. */
export const isWell = (node: Node, now: number): boolean =>
  node.state === "ready" &&
  now - node.seen_at <= QUIET_SECONDS &&
  node.devices.every((one) => one.health === "healthy");

const CHIP_CELL = 6;
const CHIP_STEP = 8;
const CHIP_ROW = 4;

/** A node of a big fleet: only its cells; its name and state at pointing and focus. */
export function NodeChip({ node, now }: { node: Node; now: number }) {
  const quiet = now - node.seen_at > QUIET_SECONDS;
  const gpus = gpusOf(node);
  const rows = Math.max(1, Math.ceil(gpus.length / CHIP_ROW));
  const label = `${node.name}: ${node.state}; ${healthText(node)}`;
  return (
    <a
      class={`chip state-${node.state}${quiet ? " quiet" : ""}`}
      href={`/nodes/${encodeURIComponent(node.name)}`}
      title={label}
    >
      <span class="visually-hidden">{label}</span>
      <svg
        width={CHIP_ROW * CHIP_STEP - 2}
        height={rows * CHIP_STEP - 2}
        class="cells"
        aria-hidden="true"
      >
        {gpus.map((device, index) => (
          <g
            key={device.name}
            class={`cell ${device.health}`}
            transform={`translate(${(index % CHIP_ROW) * CHIP_STEP} ${Math.floor(index / CHIP_ROW) * CHIP_STEP})`}
          >
            <rect width={CHIP_CELL} height={CHIP_CELL} rx={1.5} />
            {device.health === "unhealthy" && <path d="M1 1l4 4M5 1l-4 4" />}
          </g>
        ))}
      </svg>
    </a>
  );
}

export function DeviceCells({ node }: { node: Node }) {
  if (!node.devices.length) {
    return <span class="cells-none">no device data</span>;
  }
  const groups = groupsOf(node);
  const places = groups.flatMap((group, number) =>
    group.map((device) => ({ device, gaps: number })),
  );
  const at = (index: number, gaps: number) => index * (CELL + GAP) + gaps * GROUP_GAP;
  const width = at(places.length, groups.length - 1) - GAP;
  return (
    <svg
      class="cells"
      viewBox={`0 0 ${width} ${CELL}`}
      width={width}
      height={CELL}
      role="img"
      aria-label={healthText(node)}
    >
      {places.map(({ device, gaps }, index) => (
        <Cell key={device.name} device={device} x={at(index, gaps)} />
      ))}
    </svg>
  );
}

/** Healthy is filled and plain, unhealthy is filled and crossed, unknown is an outline with "?". */
function Cell({ device, x }: { device: Device; x: number }) {
  const corner = !KINDS.includes(device.kind);
  const inset = (device.health === "unknown" ? 0.75 : 0) + (corner ? 1.75 : 0);
  const size = CELL - 2 * inset;
  const round = device.kind === "nic" ? CELL / 2 : 2.5;
  const turn = corner ? `rotate(45 ${CELL / 2} ${CELL / 2})` : undefined;
  return (
    <g class={`cell ${device.health}`} transform={`translate(${x} 0)`}>
      <title>{`${device.name}: ${device.health}${device.detail ? `, ${device.detail}` : ""}`}</title>
      <rect x={inset} y={inset} width={size} height={size} rx={round} transform={turn} />
      {device.health === "unhealthy" && <path d="M4.5 4.5l6 6M10.5 4.5l-6 6" />}
      {device.health === "unknown" && (
        <text x={CELL / 2} y={11.2} text-anchor="middle">
          ?
        </text>
      )}
    </g>
  );
}

function Sample({ health, kind = "gpu" }: { health: Health; kind?: string }) {
  const device: Device = {
    name: "cell",
    kind,
    health,
    detail: "",
    identity: "",
    read_at: 0,
    counters: [],
    facts: [],
    used: true,
  };
  return (
    <svg width={CELL} height={CELL} viewBox={`0 0 ${CELL} ${CELL}`} aria-hidden="true">
      <Cell device={device} x={0} />
    </svg>
  );
}

export function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      <li>
        <Sample health="healthy" /> healthy
      </li>
      <li>
        <Sample health="unhealthy" /> unhealthy
      </li>
      <li>
        <Sample health="unknown" /> no data
      </li>
      <li>
        <Sample health="healthy" kind="nic" /> network port
      </li>
      <li>
        <Sample health="healthy" kind="host" /> host or site check
      </li>
      <li>
        <span class="node-dot" /> holds ranks
      </li>
      <li>
        <span class="hatch-sample" /> out of service
      </li>
    </ul>
  );
}

/** "5 ready · 1 quarantined", ready first. */
export function stateCounts(nodes: Iterable<Node>): string {
  const counts = new Map<string, number>();
  for (const node of nodes) counts.set(node.state, (counts.get(node.state) ?? 0) + 1);
  const order = Object.keys(NODE_STATES);
  return [...counts]
    .sort(([a], [b]) => order.indexOf(a) - order.indexOf(b))
    .map(([state, value]) => `${value} ${state}`)
    .join(" · ");
}

export const nodeCount = (value: number): string => plural(value, "node");
