// What people may ask of a job, each behind a dialog that says what it would hit.

import { useEffect, useState } from "preact/hooks";
import { type Asked, askOfJob, fetchPlan, problemIn } from "../api";
import type { Job, JobPlan, JobVerb } from "../types";
import { AskDialog, type Asking } from "./ask";

const ENDED = new Set(["done", "failed"]);

export const isOver = (job: Job): boolean => ENDED.has(job.state);

/** The verbs of the job as a whole. */
export function JobVerbs({ job }: { job: Job }) {
  if (isOver(job)) return null;
  return (
    <div class="verbs">
      <VerbButton job={job} verb="restart" label="Restart…" />
      <VerbButton job={job} verb="stop" label="Stop for good…" />
    </div>
  );
}

export function VerbButton(props: { job: Job; verb: JobVerb; label: string; node?: string }) {
  const [open, setOpen] = useState(false);
  const { job, verb, node, label } = props;
  return (
    <>
      <button
        type="button"
        class="button small"
        onClick={() => setOpen(true)}
        aria-label={node ? `${label.replace("…", "")}: ${node}` : undefined}
      >
        {label}
      </button>
      {open && (
        <VerbDialog
          job={job.spec.name}
          verb={verb}
          {...(node && { node })}
          onClose={() => setOpen(false)}
        />
      )}
    </>
  );
}

function VerbDialog(props: { job: string; verb: JobVerb; node?: string; onClose: () => void }) {
  const { job, verb, node } = props;
  const [atOnce, setAtOnce] = useState(false);
  const asked: Asked = {
    verb,
    ...(node && { node }),
    ...(verb === "restart" && { at_once: atOnce }),
  };
  const plan = usePlan(job, asked);
  const asking: Asking = {
    ...wordsOf(job, verb, node ?? ""),
    hits: plan?.hits ?? null,
    refused: plan?.refused ?? "",
    command: (reason) => commandOf(job, asked, reason),
    act: (reason, token, key) => askOfJob(job, asked, reason, token, key),
    children: verb === "restart" && (
      <label class="check">
        <input
          type="checkbox"
          checked={atOnce}
          onChange={(event) => setAtOnce(event.currentTarget.checked)}
        />
        At once, without a save: it hangs, say
      </label>
    ),
  };
  return <AskDialog asking={asking} onClose={props.onClose} />;
}

/** What it would do now; asked anew with every choice. */
function usePlan(job: string, asked: Asked): JobPlan | null {
  const [plan, setPlan] = useState<JobPlan | null>(null);
  const { verb, node = "", at_once = false } = asked;
  useEffect(() => {
    const abort = new AbortController();
    fetchPlan(job, { verb, node, at_once }, abort.signal).then(setPlan, (error: unknown) => {
      const problem = problemIn(error, abort.signal);
      if (problem) setPlan({ refused: problem.message, hits: [] });
    });
    return () => abort.abort();
  }, [job, verb, node, at_once]);
  return plan;
}

function wordsOf(job: string, verb: JobVerb, node: string) {
  switch (verb) {
    case "stop":
      return {
        title: `Stop ${job} for good`,
        button: "Stop it",
        severe: job,
        said: `${job} is being stopped`,
      };
    case "restart":
      return { title: `Restart ${job}`, button: "Restart it", said: `${job} is being restarted` };
    case "exclude-node":
      return {
        title: `Keep ${job} off ${node}`,
        button: "Keep it off",
        said: `${job} is kept off ${node}`,
      };
    case "include-node":
      return {
        title: `Let ${job} go to ${node} again`,
        button: "Let it",
        said: `${job} may go to ${node} again`,
      };
  }
}

function commandOf(job: string, { verb, node, at_once }: Asked, reason: string): string {
  const words = ["aegis jobs", verb, job, node, at_once && "--now", `--reason "${reason}"`];
  return words.filter(Boolean).join(" ");
}
