// Small pieces that every page uses: badges, times, commands, links, empty states.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useNow } from "../clock";
import { age, moment, rfc3339 } from "../format";
import { usePreferences } from "../preferences";
import type { Incident, IncidentState, Severity } from "../types";
import { INCIDENT_STATES, SEVERITIES, type Tone } from "../words";
import { Icon, type IconName } from "./icon";

export function Badge(props: {
  tone: Tone;
  icon?: IconName;
  title?: string;
  children: ComponentChildren;
}) {
  return (
    <span class={`badge tone-${props.tone}`} title={props.title}>
      {props.icon && <Icon name={props.icon} size={12} />}
      {props.children}
    </span>
  );
}

const SEVERITY_ICONS: Record<Severity, IconName> = {
  info: "info",
  warning: "warning",
  error: "error",
  fatal: "fatal",
};

export function SeverityBadge({ severity }: { severity: Severity }) {
  const { tone, means } = SEVERITIES[severity];
  return (
    <Badge tone={tone} icon={SEVERITY_ICONS[severity]} title={means}>
      {severity}
    </Badge>
  );
}

const STATE_ICONS: Record<IncidentState, IconName> = {
  watching: "eye",
  open: "error",
  recovering: "action",
  closed: "ok",
};

export function StateBadge({ state }: { state: IncidentState }) {
  const { tone, means } = INCIDENT_STATES[state];
  return (
    <Badge tone={tone} icon={STATE_ICONS[state]} title={means}>
      {state}
    </Badge>
  );
}

export function SimulatedBadge({ simulated }: { simulated: boolean }) {
  if (!simulated) return null;
  return (
    <span class="badge simulated" title="the hardware that reported this is simulated">
      simulated
    </span>
  );
}

/** A moment in the reader's mode; pointing at it shows it in UTC and in local time. */
export function Time({ at, prefix = "" }: { at: number; prefix?: string }) {
  const { time } = usePreferences();
  const current = useNow();
  if (at <= 0) return <span class="faint">never</span>;
  const both = `${rfc3339(at, "utc")} · ${rfc3339(at, "local")} · ${age(current - at)} ago`;
  return (
    <time dateTime={rfc3339(at, "utc")} title={both}>
      {prefix}
      {moment(at, time, current)}
    </time>
  );
}

/** How long ago, whatever the mode. */
export function Age({ at, late }: { at: number; late?: number }) {
  const current = useNow();
  if (at <= 0) return <span class="faint">never</span>;
  const past = current - at;
  const isLate = late !== undefined && past > late;
  return (
    <time
      class={isLate ? "late" : ""}
      dateTime={rfc3339(at, "utc")}
      title={`${rfc3339(at, "utc")} · ${rfc3339(at, "local")}`}
    >
      {isLate && <Icon name="clock" size={12} />}
      {past < 2 ? "just now" : `${age(past)} ago`}
    </time>
  );
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = () => {
    // Not there without HTTPS or localhost: then the text can still be selected.
    void navigator.clipboard?.writeText(text).then(() => setCopied(true));
  };
  return (
    <button type="button" class="copy" onClick={copy} aria-label={`Copy ${label}`}>
      <Icon name={copied ? "ok" : "copy"} size={14} />
      <span class="copy-word" aria-live="polite">
        {copied ? "Copied" : "Copy"}
      </span>
    </button>
  );
}

export function Command({ text, label }: { text: string; label: string }) {
  return (
    <div class="command">
      <code>
        {text.split(/ (?=--)/).map((part, index) => (
          <span key={part} class="nowrap">
            {index > 0 && " "}
            {part}
          </span>
        ))}
      </code>
      <CopyButton text={text} label={label} />
    </div>
  );
}

export function NodeLink({ name }: { name: string }) {
  return <a href={`/nodes/${encodeURIComponent(name)}`}>{name}</a>;
}

export function JobLink({ name }: { name: string }) {
  return <a href={`/jobs/${encodeURIComponent(name)}`}>{name}</a>;
}

export function IncidentLink({ id }: { id: string }) {
  return (
    <a class="nowrap" href={`/incidents/${encodeURIComponent(id)}`}>
      {id}
    </a>
  );
}

export function Section(props: {
  title: string;
  id: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section class="card" aria-labelledby={props.id}>
      <header class="card-head">
        <h2 id={props.id}>{props.title}</h2>
        {props.aside && <div class="card-aside">{props.aside}</div>}
      </header>
      {props.children}
    </section>
  );
}

/** Why there is nothing here, and what to do next. */
export function Empty(props: { children: ComponentChildren; command?: string }) {
  return (
    <div class="empty">
      <p>{props.children}</p>
      {props.command && <Command text={props.command} label="command" />}
    </div>
  );
}

/** Text in which `code` is code, and names such as "llama-70b" are not broken at their hyphens. */
export function Prose({ text }: { text: string }) {
  return (
    <>
      {text.split(/(`[^`]+`|\S*\w-\w\S*)/).map((part, index) => {
        if (index % 2 === 0) return part;
        if (part.startsWith("`")) return <code key={part}>{part.slice(1, -1)}</code>;
        if (part.length > 24) return part;
        return (
          <span key={part} class="nowrap">
            {part}
          </span>
        );
      })}
    </>
  );
}

/** The device that broke, as one word of a table. */
export function placeOf(incident: Incident): string {
  const device = incident.device === "host" ? "" : incident.device;
  return [incident.node, device].filter(Boolean).join(" ") || incident.job || "—";
}

/** A choice among few, of which one holds. */
export function Segments<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [value: T, text: string, title?: string])[];
  onChange: (value: T) => void;
}) {
  return (
    <fieldset class="segments">
      <legend class="visually-hidden">{props.label}</legend>
      {props.options.map(([value, text, title]) => (
        <button
          key={value}
          type="button"
          title={title}
          aria-pressed={props.value === value}
          onClick={() => props.onChange(value)}
        >
          {text}
        </button>
      ))}
    </fieldset>
  );
}
