// What a job can go on from: the newest save, what lies in its checkpoint folder, how often to save.

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, fetchCheckpoints, problemIn, verifyCheckpoints } from "../api";
import { count, duration, plural, size } from "../format";
import type { Checkpoint, CheckpointPage, Interval, Job } from "../types";
import { CHECKPOINT_STATES, sentence } from "../words";
import { AskDialog } from "./ask";
import { Icon } from "./icon";
import { Age, Badge, Command, Empty, Section } from "./small";

const REFETCH_MILLISECONDS = 15_000; // at most: each look starts a process on the controller

export function Checkpoints({ job }: { job: Job }) {
  const { page, error, put } = useCheckpoints(job);
  const [asking, setAsking] = useState(false);
  const name = job.spec.name;
  return (
    <Section
      title="Checkpoints"
      id="checkpoints"
      aside={
        page &&
        page.items.length > 0 && (
          <button type="button" class="button small" onClick={() => setAsking(true)}>
            Verify…
          </button>
        )
      }
    >
      <Newest job={job} page={page} />
      {page && <Advice advice={page.interval} />}
      {error && (
        <div class="empty">
          <p>
            {sentence(error.message)} {sentence(error.hint)}
          </p>
          <Command text={`aegis checkpoints ${name}`} label="command" />
        </div>
      )}
      {!error && !page && <p class="quiet-text">Looking into the folder…</p>}
      {page && <Folder page={page} />}
      {asking && page && (
        <VerifyDialog name={name} page={page} onFound={put} onClose={() => setAsking(false)} />
      )}
    </Section>
  );
}

/** Looked at when the page is opened, and seldom more than that once a newer one is known. */
function useCheckpoints(job: Job) {
  const [page, put] = useState<CheckpointPage | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const { name } = job.spec;
  const newest = useRef("");
  newest.current = `${job.checkpoint_step} ${job.checkpoint_at}`;
  useEffect(() => {
    const abort = new AbortController();
    let [lookedFor, lookedAt] = ["", 0];
    const isDue = () =>
      !document.hidden &&
      lookedFor !== newest.current &&
      Date.now() >= lookedAt + REFETCH_MILLISECONDS;
    const look = async () => {
      if (!isDue()) return;
      [lookedFor, lookedAt] = [newest.current, Date.now()];
      try {
        put(await fetchCheckpoints(name, abort.signal));
        setError(null);
      } catch (reason) {
        setError(problemIn(reason, abort.signal));
      }
    };
    void look();
    const timer = setInterval(look, 1000);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [name]);
  return { page, error, put };
}

function Newest({ job, page }: { job: Job; page: CheckpointPage | null }) {
  if (!job.checkpoint_at) {
    return <p class="quiet-text">Its ranks have spoken of no complete save yet.</p>;
  }
  const inFolder = page?.items.some((one) => one.step === job.checkpoint_step);
  return (
    <p>
      Newest complete save: <strong class="number">step {count(job.checkpoint_step)}</strong>,{" "}
      <Age at={job.checkpoint_at} />
      {page && !inFolder && <span class="faint"> · in memory or on local disks only</span>}
      {page?.items.some((one) => one.state === "suspect") && (
        <span class="caution">
          <Icon name="warning" size={14} />
          <span>
            What is suspect may hold memory that a device had corrupted, with perfect hashes: it is
            passed over.
          </span>
        </span>
      )}
    </p>
  );
}

function Advice({ advice }: { advice: Interval }) {
  if (advice.advised_seconds === null) {
    return <p class="quiet-text">How often to save is not known yet: {advice.reason}.</p>;
  }
  const steps = advice.advised_steps ? ` (${plural(advice.advised_steps, "step")})` : "";
  return (
    <p>
      {advice.now_seconds && <>Saves every {duration(advice.now_seconds)} now. </>}
      Advised: every{" "}
      <strong>
        {duration(advice.advised_seconds)}
        {steps}
      </strong>
      <span class="faint">
        , by Young and Daly: a save keeps the loop waiting{" "}
        {Math.round(1000 * (advice.stall_seconds ?? 0))} ms, is complete after{" "}
        {duration(advice.durable_seconds ?? 0)}, and the job fails{" "}
        {advice.is_bound ? "at most " : ""}every {duration(advice.failure_seconds ?? 0)}
        {advice.reason && `; ${advice.reason}`}.
      </span>
    </p>
  );
}

function Folder({ page }: { page: CheckpointPage }) {
  if (!page.folder) {
    return (
      <Empty>It was started without --checkpoint-folder, so there is no folder to look into.</Empty>
    );
  }
  if (!page.items.length) return <Empty>There is no checkpoint in {page.folder}.</Empty>;
  return (
    <table class="rows checkpoints-table">
      <caption class="faint">In {page.folder}, newest first</caption>
      <thead>
        <tr>
          <th scope="col">Step</th>
          <th scope="col">State</th>
          <th scope="col">Taken</th>
          <th scope="col">Size</th>
          <th scope="col" class="number">
            Ranks
          </th>
          <th scope="col" class="number">
            Generation
          </th>
          <th scope="col">Why</th>
        </tr>
      </thead>
      <tbody>
        {page.items.map((one) => (
          <Row key={one.path} one={one} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ one }: { one: Checkpoint }) {
  const { tone, means } = CHECKPOINT_STATES[one.state] ?? { tone: "mute" as const, means: "" };
  const known = one.files > 0;
  return (
    <tr>
      <td class="col-name">{count(one.step)}</td>
      <td>
        <Badge tone={tone} title={means}>
          {one.state}
        </Badge>
      </td>
      <td data-label="taken">{known ? <Age at={one.taken_at || one.at} /> : "—"}</td>
      <td data-label="size">{known ? size(one.bytes) : "—"}</td>
      <td class="number" data-label="ranks">
        {known ? one.world_size : "—"}
      </td>
      <td class="number" data-label="generation">
        {known ? one.generation : "—"}
      </td>
      <td class="col-reason">{one.reason}</td>
    </tr>
  );
}

function VerifyDialog(props: {
  name: string;
  page: CheckpointPage;
  onFound: (page: CheckpointPage) => void;
  onClose: () => void;
}) {
  const { name, page } = props;
  const bytes = page.items.reduce((sum, one) => sum + one.bytes, 0);
  return (
    <AskDialog
      onClose={props.onClose}
      asking={{
        title: `Verify the checkpoints of ${name}`,
        button: "Verify",
        hits: [
          `reads ${size(bytes)} in ${plural(page.items.length, "checkpoint")} on the controller, and changes nothing`,
          "for what takes longer than 12 s, the command on a node that sees the folder is better",
        ],
        refused: "",
        needsReason: false,
        said: `The checkpoints of ${name} are verified`,
        command: () => `aegis checkpoints ${name} verify`,
        act: async (_reason, token, key) =>
          props.onFound(await verifyCheckpoints(name, token, key)),
      }}
    />
  );
}
