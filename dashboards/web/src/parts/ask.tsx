// Asking the controller to change something: what it would hit, why, and with whose token.
//
// The dialog stays open until the controller has agreed; what it refuses is said in its own words.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, newKey } from "../api";
import { announce } from "../store";
import { setToken, useToken } from "../token";
import { sentence } from "../words";
import { Icon } from "./icon";
import { Command, Prose } from "./small";

export interface Asking {
  readonly title: string;
  readonly button: string;
  readonly severe?: string; // what must be typed first: it cannot be undone
  readonly hits: readonly string[] | null; // what it would do; null: not yet known
  readonly refused: string; // why it would not be done
  readonly command?: (reason: string) => string; // the same, typed
  readonly children?: ComponentChildren; // choices
  readonly needsReason?: boolean;
  readonly said: string; // once it is agreed
  readonly act: (reason: string, token: string, key: string) => Promise<unknown>;
}

export function AskDialog({ asking, onClose }: { asking: Asking; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const { send, busy, problem, token } = useSending(asking, () => dialog.current?.close());
  useEffect(() => dialog.current?.showModal(), []);
  const { needsReason = true, severe } = asking;
  const ready =
    !busy && !asking.refused && (!needsReason || reason.trim()) && (!severe || typed === severe);
  return (
    <dialog ref={dialog} class="ask" aria-labelledby="ask-title" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) void send(reason.trim());
        }}
      >
        <h2 id="ask-title">{asking.title}</h2>
        {asking.children}
        <Hits asking={asking} />
        {!asking.refused && (
          <>
            {needsReason && (
              <Field label="Why" note="kept in the record">
                <input
                  name="reason"
                  value={reason}
                  onInput={(event) => setReason(event.currentTarget.value)}
                  autocomplete="off"
                />
              </Field>
            )}
            {severe && (
              <Field label={`Type ${severe} to confirm`}>
                <input
                  name="typed"
                  value={typed}
                  onInput={(event) => setTyped(event.currentTarget.value)}
                  autocomplete="off"
                />
              </Field>
            )}
            <TokenField token={token} />
          </>
        )}
        {problem && <Refusal problem={problem} />}
        <div class="ask-buttons">
          <button type="submit" class="button primary" disabled={!ready}>
            {busy ? "Asking…" : asking.button}
          </button>
          <button type="button" class="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
        </div>
        {asking.command && !asking.refused && (
          <details class="raw">
            <summary>The same as a command</summary>
            <Command text={asking.command(reason.trim() || "…")} label="command" />
          </details>
        )}
      </form>
    </dialog>
  );
}

function Hits({ asking }: { asking: Asking }) {
  if (asking.refused) {
    return (
      <p class="caution" role="alert">
        <Icon name="no" size={14} />
        <span>{sentence(`refused: ${asking.refused}`)}</span>
      </p>
    );
  }
  if (!asking.hits) return <p class="quiet-text">Asking what it would do…</p>;
  return (
    <ul class="hits" aria-label="What it would do">
      {asking.hits.map((text) => (
        <li key={text}>
          <Prose text={sentence(text)} />
        </li>
      ))}
    </ul>
  );
}

function Field(props: { label: string; note?: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the field is among its children
    <label class="field">
      <span class="field-label">
        {props.label}
        {props.note && <span class="faint"> · {props.note}</span>}
      </span>
      {props.children}
    </label>
  );
}

function TokenField({ token }: { token: Token }) {
  if (token.kept) {
    return (
      <p class="token-kept">
        <Icon name="human" size={14} />
        With the token that this tab keeps.
        <button type="button" class="link" onClick={() => setToken("")}>
          Forget it
        </button>
      </p>
    );
  }
  return (
    <Field label="Token" note="an operator’s; this tab keeps it until it is closed">
      <input
        name="token"
        type="password"
        value={token.typed}
        onInput={(event) => token.type(event.currentTarget.value)}
        autocomplete="off"
        spellcheck={false}
      />
    </Field>
  );
}

function Refusal({ problem }: { problem: ApiError }) {
  return (
    <div class="refusal" role="alert">
      <p>
        <strong>{refusalOf(problem)}</strong> {sentence(problem.message)}
      </p>
      {problem.status === 401 ? (
        <>
          <p>Enter one above. An admin mints it with:</p>
          <Command text="aegis tokens add NAME" label="command" />
        </>
      ) : (
        problem.hint && <p>{sentence(problem.hint)}</p>
      )}
    </div>
  );
}

function refusalOf({ status }: ApiError): string {
  if (status === 0) return "Nobody answered; it may or may not have been done.";
  if (status === 401) return "Nothing was done.";
  if (status === 403) return "Nothing was done: this token may not.";
  if (status === 409) return "Refused.";
  return "Nothing was done.";
}

interface Token {
  readonly kept: string;
  readonly typed: string;
  readonly type: (text: string) => void;
}

/** Sending it, and the token it is sent with: kept once the controller has taken it. */
function useSending(asking: Asking, close: () => void) {
  const kept = useToken();
  const [typed, type] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const key = useRef(newKey());
  const send = async (reason: string) => {
    const token = kept || typed.trim();
    setBusy(true);
    setProblem(null);
    try {
      await asking.act(reason, token, key.current);
      setToken(token);
      announce(asking.said);
      close();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401 || error.status === 403) setToken("");
      // Where nobody answered it may have been done: sent again, it is done once.
      if (error.status !== 0) key.current = newKey();
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return { send, busy, problem, token: { kept, typed, type } };
}
