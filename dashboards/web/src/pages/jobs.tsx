// The jobs, and one job: where it is, how its loss runs, what ended each of its generations.

import { useNow } from "../clock";
import { count, loss } from "../format";
import { JobRows, JobStateBadge, lasted } from "../parts/jobs";
import { LossChart } from "../parts/loss";
import { Age, Empty, IncidentLink, NodeLink, Section, Time } from "../parts/small";
import { usePreferences } from "../preferences";
import { lossesOf, type State } from "../store";
import type { Attempt, Job } from "../types";
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
        {job.reason && <p class="page-note">{sentence(job.reason)}</p>}
      </div>
      <JobFigures job={job} />
      <Section
        title="Loss"
        id="loss"
        aside={<span class="faint">since this page was opened · shaded: steps done again</span>}
      >
        {points.length > 1 ? (
          <LossChart points={points} attempts={job.attempts} theme={theme} />
        ) : (
          <Empty>
            The controller keeps only the newest loss, so the curve begins when this page is opened.
            It grows with every step that the ranks report.
          </Empty>
        )}
      </Section>
      <Section title="Attempts" id="attempts" aside={<span class="faint">newest first</span>}>
        <Attempts job={job} />
      </Section>
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
        </dd>
      </div>
      <div>
        <dt>Loss</dt>
        <dd>{job.loss === null ? "—" : loss(job.loss)}</dd>
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
          {job.restarts} {job.restarts === 1 ? "restart" : "restarts"}
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

function Attempts({ job }: { job: Job }) {
  const now = useNow();
  if (!job.attempts.length) {
    return <Empty>It has not started yet: {job.reason || "it waits for its nodes"}.</Empty>;
  }
  return (
    <table class="rows attempts-table">
      <caption class="visually-hidden">Generations of this job, newest first</caption>
      <thead>
        <tr>
          <th scope="col" class="number">
            Generation
          </th>
          <th scope="col">Started after</th>
          <th scope="col">Started</th>
          <th scope="col">Nodes</th>
          <th scope="col" class="number">
            Resumed at
          </th>
          <th scope="col" class="number">
            Last step
          </th>
          <th scope="col" class="number">
            Lasted
          </th>
          <th scope="col">Ended by</th>
        </tr>
      </thead>
      <tbody>
        {[...job.attempts].reverse().map((attempt) => (
          <AttemptRow key={attempt.generation} attempt={attempt} job={job} now={now} />
        ))}
      </tbody>
    </table>
  );
}

function AttemptRow({ attempt, job, now }: { attempt: Attempt; job: Job; now: number }) {
  const current = attempt.ended_at === null;
  return (
    <tr>
      <td class="number" data-label="generation">
        {attempt.generation}
      </td>
      <td data-label="after">
        {attempt.incident ? (
          <IncidentLink id={attempt.incident} />
        ) : (
          <span class="faint">{attempt.generation === 1 ? "submission" : "—"}</span>
        )}
      </td>
      <td data-label="started">
        <Time at={attempt.started_at} />
      </td>
      <td class="col-nodes">
        {attempt.nodes.map((name) => (
          <NodeLink key={name} name={name} />
        ))}
      </td>
      <td class="number" data-label="resumed at">
        {attempt.resumed_step === null ? "—" : count(attempt.resumed_step)}
      </td>
      <td class="number" data-label="last step">
        {count(current ? job.step : attempt.last_step)}
      </td>
      <td class="number" data-label="lasted">
        {lasted(attempt.started_at, attempt.ended_at ?? now)}
      </td>
      <td class="col-reason">
        {current ? <span class="faint">still runs</span> : sentence(attempt.reason)}
      </td>
    </tr>
  );
}
