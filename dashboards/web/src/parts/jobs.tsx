// Jobs as rows.

import { count, duration, loss } from "../format";
import { type LossPoint, lossesOf } from "../store";
import type { Job } from "../types";
import { JOB_STATES } from "../words";
import { Age, Badge, JobLink } from "./small";

export function JobRows({ jobs }: { jobs: readonly Job[] }) {
  const sorted = [...jobs].sort((a, b) => (a.spec.name < b.spec.name ? -1 : 1));
  return (
    <table class="rows jobs-table">
      <caption class="visually-hidden">Jobs</caption>
      <thead>
        <tr>
          <th scope="col">Job</th>
          <th scope="col">State</th>
          <th scope="col" class="number">
            Step
          </th>
          <th scope="col" class="number">
            Loss
          </th>
          <th scope="col">
            <span class="visually-hidden">Loss since this page was opened</span>
          </th>
          <th scope="col">Last checkpoint</th>
          <th scope="col" class="number">
            Generation
          </th>
          <th scope="col">Nodes</th>
        </tr>
      </thead>
      <tbody>
        {sorted.map((job) => (
          <tr key={job.spec.name}>
            <td class="col-name">
              <JobLink name={job.spec.name} />
            </td>
            <td>
              <JobStateBadge job={job} />
            </td>
            <td class="number" data-label="step">
              {count(job.step)}
              {job.progress_at > 0 && (
                <span class="cell-note">
                  <Age at={job.progress_at} />
                </span>
              )}
            </td>
            <td class="number" data-label="loss">
              {job.loss === null ? <span class="faint">—</span> : loss(job.loss)}
            </td>
            <td class="col-spark">
              <Spark points={lossesOf(job)} />
            </td>
            <td data-label="checkpoint">
              <Checkpoint job={job} />
            </td>
            <td class="number" data-label="generation">
              {job.generation}
            </td>
            <td class="col-nodes" data-label="nodes">
              {job.members.map((one) => one.node).join(", ") || <span class="faint">none</span>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const SPARK = { width: 84, height: 20, points: 120 };

/** The losses since this page was opened, as a line the size of a word. */
function Spark({ points }: { points: readonly LossPoint[] }) {
  const shown = points.slice(-SPARK.points);
  const losses = shown.map((point) => point.loss);
  if (losses.length < 3) return null;
  const [low, high] = [Math.min(...losses), Math.max(...losses)];
  const x = (index: number) => (index / (losses.length - 1)) * SPARK.width;
  const y = (value: number) => SPARK.height - ((value - low) / (high - low || 1)) * SPARK.height;
  const path = losses.map(
    (value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`,
  );
  const last = losses.at(-1) ?? low;
  return (
    <svg class="spark" width={SPARK.width} height={SPARK.height} aria-hidden="true">
      <path d={path.join("")} />
      <circle cx={SPARK.width} cy={y(last)} r={2} />
    </svg>
  );
}

export function JobStateBadge({ job }: { job: Job }) {
  const { tone, means } = JOB_STATES[job.state];
  return (
    <Badge tone={tone} title={job.reason || means}>
      {job.state}
    </Badge>
  );
}

export function Checkpoint({ job }: { job: Job }) {
  if (!job.checkpoint_at) return <span class="faint">none yet</span>;
  return (
    <>
      step {count(job.checkpoint_step)}
      <span class="cell-note">
        <Age at={job.checkpoint_at} />
      </span>
    </>
  );
}

export const lasted = (from: number, to: number): string => duration(Math.max(0, to - from));
