// The jobs, and one job: where it is, how its loss runs, what ended each of its generations.

import { count, duration, loss, plural } from "../format";
import { Attempts } from "../parts/attempts";
import { Checkpoints } from "../parts/checkpoints";
import { JobRows, JobStateBadge } from "../parts/jobs";
import { LossChart } from "../parts/loss";
import { AsStarted, Members } from "../parts/members";
import { Age, Empty, IncidentLink, Section } from "../parts/small";
import { JobVerbs } from "../parts/verbs";
import { usePreferences } from "../preferences";
import { lossesOf, type State } from "../store";
import type { Job } from "../types";
import { sentence } from "../words";

export function JobsPage({ store }: { store: State }) {
  return (
    <>
      <div class="page-head">
        <h1>Jobs</h1>
      </div>
      {store.jobs.size ? (
        <JobRows jobs={[...store.jobs.values()]} />
      ) : (
        <Empty command="aegis run --nnodes 2 --nproc-per-node 8 --spares 1 --job NAME train.py">
          No job has registered yet. Start one on each of its nodes:
        </Empty>
      )}
    </>
  );
}

export function JobPage({ name, store }: { name: string; store: State }) {
  const { theme } = usePreferences();
  const job = store.jobs.get(name);
  if (!job) {
    return (
      <>
        <h1>{name}</h1>
        <Empty command="aegis jobs">This controller knows no job of that name. See all:</Empty>
      </>
    );
  }
  const points = lossesOf(job);
  return (
    <>
      <div class="page-head">
        <h1>{job.spec.name}</h1>
        <JobStateBadge job={job} />
        <p class="page-note">
          {job.reason && sentence(job.reason)} {job.incident && <IncidentLink id={job.incident} />}
        </p>
        <JobVerbs job={job} />
      </div>
      <JobFigures job={job} />
      <div class="story">
        <div class="story-main">
          <Attempts job={job} />
          <Section
            title="Loss"
            id="loss"
            aside={<span class="faint">since this page was opened · shaded: steps done again</span>}
          >
            {points.length > 1 ? (
              <LossChart points={points} attempts={job.attempts} theme={theme} />
            ) : (
              <Empty>
                The controller keeps only the newest loss, so the curve begins when this page is
                opened. It grows with every step that the ranks report.
              </Empty>
            )}
          </Section>
          <Checkpoints job={job} />
        </div>
        <div class="story-side">
          <Members job={job} store={store} />
          <AsStarted job={job} />
        </div>
      </div>
    </>
  );
}

function JobFigures({ job }: { job: Job }) {
  const { spec } = job;
  return (
    <dl class="tiles">
      <div>
        <dt>Step</dt>
        <dd>{count(job.step)}</dd>
        <dd class="tile-note">
          <Age at={job.progress_at} />
          {job.step_seconds > 0 && ` · ${duration(job.step_seconds)} each`}
        </dd>
      </div>
      <div>
        <dt>Loss</dt>
        <dd>{job.loss_not_finite || (job.loss === null ? "—" : loss(job.loss))}</dd>
        <dd class="tile-note">
          <Age at={job.progress_at} />
        </dd>
      </div>
      <div>
        <dt>Last checkpoint</dt>
        <dd>{job.checkpoint_at ? count(job.checkpoint_step) : "—"}</dd>
        <dd class="tile-note">
          <Age at={job.checkpoint_at} />
        </dd>
      </div>
      <div>
        <dt>Generation</dt>
        <dd>{job.generation}</dd>
        <dd class="tile-note">
          {plural(job.restarts, "restart")}, {job.restarts_without_progress} of {spec.restarts_max}{" "}
          without progress
        </dd>
      </div>
      <div>
        <dt>World</dt>
        <dd>
          {spec.nodes} × {spec.ranks_per_node}
        </dd>
        <dd class="tile-note">nodes × ranks</dd>
      </div>
    </dl>
  );
}
