// A job's generations, newest first: how far each came, why it ended, what its end cost.

import { useEffect, useState } from "preact/hooks";
import { type ApiError, fetchHistory, problemIn } from "../api";
import { useNow } from "../clock";
import { count, duration, listed, plural } from "../format";
import { PHASES, type Span } from "../phases";
import type { History, Job, Lap } from "../types";
import { sentence, TIERS } from "../words";
import { CostBar } from "./cost";
import { Icon } from "./icon";
import { lasted } from "./jobs";
import { Badge, Empty, IncidentLink, NodeLink, Prose, Section, Time } from "./small";

const SHOWN = 4;

export function Attempts({ job }: { job: Job }) {
  const { history, error } = useHistory(job);
  const [all, setAll] = useState(false);
  const laps = [...(history?.laps ?? [])].reverse();
  const shown = all ? laps : laps.slice(0, SHOWN);
  return (
    <Section title="Attempts" id="attempts" aside={history && <Totals history={history} />}>
      {error && <Empty>{sentence(error.message)}</Empty>}
      {!error && !history && <p class="quiet-text">Loading…</p>}
      {history && !laps.length && (
        <Empty>It has not started yet: {job.reason || "it waits for its nodes"}.</Empty>
      )}
      {laps.length > 0 && (
        <ol class="attempts" aria-label="Generations of this job, newest first">
          {shown.map((lap) => (
            <Attempt key={lap.generation} lap={lap} job={job} />
          ))}
        </ol>
      )}
      {laps.length > shown.length && (
        <button type="button" class="button" onClick={() => setAll(true)}>
          {plural(laps.length - shown.length, "earlier one")}
        </button>
      )}
    </Section>
  );
}

function Totals({ history }: { history: History }) {
  return (
    <span>
      newest first · in all {plural(history.steps_lost, "step")} lost,{" "}
      {duration(history.downtime_seconds)} down
    </span>
  );
}

/** Asked anew whenever the job has come to another place in its history. */
function useHistory(job: Job): { history: History | null; error: ApiError | null } {
  const [history, setHistory] = useState<History | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const newest = job.attempts.at(-1);
  const place = [
    job.submitted_at,
    job.state,
    job.generation,
    job.incident,
    job.attempts.length,
    newest?.resumed_step,
    newest?.first_step_at,
    newest?.stop_at,
    newest?.ended_at,
  ].join();
  useEffect(() => {
    const abort = new AbortController();
    fetchHistory(job.spec.name, abort.signal).then(
      (found) => {
        setHistory(found);
        setError(null);
      },
      (reason: unknown) => setError(problemIn(reason, abort.signal)),
    );
    return () => abort.abort();
  }, [job.spec.name, place]);
  return { history, error };
}

function Attempt({ lap, job }: { lap: Lap; job: Job }) {
  const now = useNow();
  const current = lap.generation === job.generation && lap.ended_at === null;
  return (
    <li class="attempt" data-generation={lap.generation}>
      <p class="attempt-head">
        <strong>Generation {lap.generation}</strong>
        {current && <Badge tone={job.state === "running" ? "ok" : "info"}>{job.state}</Badge>}
        <span class="faint">
          <Time at={lap.started_at} /> · {current ? "for" : "lasted"}{" "}
          {lasted(lap.started_at, lap.ended_at ?? now)} · on{" "}
          {lap.nodes.map((name, index) => (
            <>
              {index > 0 && ", "}
              <NodeLink key={name} name={name} />
            </>
          ))}
        </span>
      </p>
      <p class="attempt-steps">
        <Resumed lap={lap} />
        <span>
          {current ? "is at step " : "reached step "}
          <strong class="number">{count(current ? job.step : lap.last_step)}</strong>
        </span>
      </p>
      {(!current || lap.cause) && <Ended lap={lap} />}
    </li>
  );
}

function Resumed({ lap }: { lap: Lap }) {
  if (lap.resumed_step === null) return <span class="faint">has not loaded its state</span>;
  if (lap.resumed_step === 0) return <span>began at step 0</span>;
  const from = listed(lap.resumed_from.map((tier) => TIERS[tier]));
  return (
    <span>
      resumed at step <strong class="number">{count(lap.resumed_step)}</strong>
      {from && ` from ${from}`}
    </span>
  );
}

function Ended({ lap }: { lap: Lap }) {
  return (
    <div class="attempt-end">
      <p class={lap.cause ? "attempt-cause" : ""}>
        {lap.cause && <Icon name="signal" size={14} />}
        <span>
          <Prose text={sentence(lap.cause || lap.reason)} />{" "}
          {lap.incident && <IncidentLink id={lap.incident} />}
        </span>
      </p>
      {lap.victims.length > 0 && (
        <p class="attempt-victims">
          {lap.victims.length === 1 ? "Its victim: " : "Its victims: "}
          {listed(lap.victims)}
        </p>
      )}
      <LapCost lap={lap} />
    </div>
  );
}

/** What its end cost: steps that were done again, and the time until the next one trained. */
function LapCost({ lap }: { lap: Lap }) {
  const spans = PHASES.flatMap((phase): Span[] => {
    const seconds = lap.downtime[phase.key] ?? null;
    return seconds === null ? [] : [{ phase, seconds, running: false }];
  });
  if (lap.steps_lost === null && !spans.length) return null;
  const total = lap.downtime_seconds ?? 0;
  return (
    <div class="attempt-cost">
      <p>
        {lap.steps_lost !== null && <strong>{plural(lap.steps_lost, "step")} lost</strong>}
        {lap.steps_lost !== null && spans.length > 0 && ", "}
        {spans.length > 0 && <strong>{duration(total)} down</strong>}
      </p>
      {spans.length > 0 && (
        <>
          <CostBar cost={{ spans, total, over: true }} slim />
          <ul class="phases">
            {spans.map(({ phase, seconds }) => (
              <li key={phase.key} title={phase.means}>
                <span class={`swatch phase-${phase.key}`} />
                {phase.label.toLowerCase()} {duration(seconds ?? 0)}
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}
