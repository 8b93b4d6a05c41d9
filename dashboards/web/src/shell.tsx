// The frame of every page: where one is, whether what one sees is live, how times are shown.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useNow } from "./clock";
import { age } from "./format";
import { GOES, listenToKeys } from "./keyboard";
import { Icon, type IconName, Logo } from "./parts/icon";
import { Segments, Time } from "./parts/small";
import { setPreferences, type Theme, type TimeMode, usePreferences } from "./preferences";
import { usePlace } from "./router";
import type { State } from "./store";
import type { Summary } from "./types";
import { MODES, sentence } from "./words";

const TIMES: readonly [TimeMode, string, string][] = [
  ["utc", "UTC", "Times in UTC"],
  ["local", "Local", "Times in this machine’s zone"],
  ["relative", "Ago", "Times as how long ago"],
];
const THEMES: readonly [Theme, IconName][] = [
  ["system", "system"],
  ["light", "sun"],
  ["dark", "moon"],
];

export function Shell({ store, children }: { store: State; children: ComponentChildren }) {
  const help = useRef<HTMLDialogElement>(null);
  useEffect(() => listenToKeys(() => help.current?.showModal()), []);
  const isStale = store.connection === "lost";
  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <TopBar store={store} onHelp={() => help.current?.showModal()} />
      <Banners store={store} />
      <main id="main" class={isStale ? "stale" : ""} tabIndex={-1}>
        {children}
      </main>
      <Footer store={store} />
      <p class="visually-hidden" aria-live="polite">
        {store.announcement}
      </p>
      <Help dialog={help} />
    </>
  );
}

function TopBar({ store, onHelp }: { store: State; onHelp: () => void }) {
  return (
    <header class="top">
      <div class="top-inner">
        <a class="brand" href="/" aria-label="Aegis, overview">
          <Logo />
          <span>Aegis</span>
        </a>
        <Navigation open={store.summary?.open_incidents ?? 0} />
        <div class="top-tools">
          <Live store={store} />
          <TimeSwitch />
          <ThemeSwitch />
          <button type="button" class="tool help-button" onClick={onHelp} aria-label="Keys">
            ?
          </button>
        </div>
      </div>
    </header>
  );
}

function Navigation({ open }: { open: number }) {
  const { path } = usePlace();
  return (
    <nav class="nav" aria-label="Pages">
      {Object.values(GOES).map(([address, label]) => {
        const current = address === "/" ? path === "/" : path.startsWith(address);
        return (
          <a key={address} href={address} aria-current={current ? "page" : undefined}>
            {label}
            {label === "Incidents" && open > 0 && (
              <span class="nav-count">
                {open}
                <span class="visually-hidden"> open</span>
              </span>
            )}
          </a>
        );
      })}
    </nav>
  );
}

function Live({ store }: { store: State }) {
  const words = { connecting: "connecting", live: "live", lost: "not live" };
  return (
    <span class={`live ${store.connection}`} title="whether changes arrive as they happen">
      <span class="live-dot" />
      {words[store.connection]}
    </span>
  );
}

function TimeSwitch() {
  const { time } = usePreferences();
  return (
    <Segments
      label="How times are shown"
      value={time}
      options={TIMES}
      onChange={(value) => setPreferences({ time: value })}
    />
  );
}

function ThemeSwitch() {
  const { theme } = usePreferences();
  const at = THEMES.findIndex(([value]) => value === theme);
  const [next] = THEMES[(at + 1) % THEMES.length] ?? ["system"];
  const icon = THEMES[at]?.[1] ?? "system";
  return (
    <button
      type="button"
      class="tool"
      title={`Theme: ${theme}`}
      aria-label={`Theme: ${theme}. Change to ${next}`}
      onClick={() => setPreferences({ theme: next })}
    >
      <Icon name={icon} />
    </button>
  );
}

function Banners({ store }: { store: State }) {
  return (
    <div class="banners" role="status">
      {store.connection === "lost" && <LostBanner store={store} />}
      {store.summary && <ModeBanner summary={store.summary} />}
      {store.summary && <ReloadBanner summary={store.summary} />}
    </div>
  );
}

function LostBanner({ store }: { store: State }) {
  const now = useNow();
  return (
    <p class="banner banner-lost">
      <Icon name="warning" />
      <span>
        <strong>Live updates lost; reconnecting.</strong>{" "}
        {store.asOf > 0 && (
          <>
            Shown as of <Time at={store.asOf} /> ({age(now - store.asOf)} old).
          </>
        )}{" "}
        {store.error ? store.error.message : "Refreshing every 10 s meanwhile."}
      </span>
    </p>
  );
}

function ReloadBanner({ summary }: { summary: Summary }) {
  if (!summary.reload_error) return null;
  return (
    <p class="banner banner-held">
      <Icon name="warning" />
      <span>
        <strong>The last reload was refused;</strong> the rules and the policy from before stay in
        force: <code>{summary.reload_error}</code>
      </span>
    </p>
  );
}

function ModeBanner({ summary }: { summary: Summary }) {
  if (summary.held) {
    return (
      <p class="banner banner-held">
        <Icon name="error" />
        <span>
          <strong>Aegis holds and acts on nothing:</strong> {sentence(summary.held)} Start it with{" "}
          <code>--release-hold</code> once the reason is understood.
        </span>
      </p>
    );
  }
  if (summary.paused) {
    return (
      <p class="banner banner-held">
        <Icon name="warning" />
        <span>
          <strong>{summary.paused.actor} paused all automation</strong>{" "}
          <Time at={summary.paused.at} />: {sentence(summary.paused.reason)} Aegis sees and tells,
          and does nothing until <code>aegis resume --reason "…"</code>.
        </span>
      </p>
    );
  }
  const { mode, job_mode } = summary.policy;
  if (mode === "enforce") return null;
  return (
    <p class="banner banner-mode">
      <Icon name="eye" />
      <span>
        <strong>Mode {mode}.</strong> {MODES[mode]}{" "}
        {job_mode === "enforce"
          ? "Jobs whose ranks die are still restarted in place."
          : "It restarts no job either."}
      </span>
    </p>
  );
}

function Footer({ store }: { store: State }) {
  if (!store.summary) return null;
  return (
    <footer class="foot">
      <span>Aegis {store.summary.version}</span>
      <span>controller epoch {store.summary.epoch}</span>
      <span>
        as of <Time at={store.asOf} />
      </span>
      <span class="foot-keys">
        <kbd>?</kbd> keys
      </span>
    </footer>
  );
}

function Help({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title">
      <form method="dialog">
        <h2 id="help-title">Keys</h2>
        <dl>
          {Object.entries(GOES).map(([key, [, label]]) => (
            <div key={key}>
              <dt>
                <kbd>g</kbd> <kbd>{key}</kbd>
              </dt>
              <dd>{label}</dd>
            </div>
          ))}
          <div>
            <dt>
              <kbd>/</kbd>
            </dt>
            <dd>Search incidents</dd>
          </div>
          <div>
            <dt>
              <kbd>j</kbd> <kbd>k</kbd>
            </dt>
            <dd>Down and up the incidents; Enter opens</dd>
          </div>
          <div>
            <dt>
              <kbd>?</kbd>
            </dt>
            <dd>These keys</dd>
          </div>
        </dl>
        <p class="faint">
          Jobs are stopped, restarted and moved on their pages, with an operator’s token. What else
          changes something is done with <code>aegis</code>.
        </p>
        <button type="submit" class="button">
          Close
        </button>
      </form>
    </dialog>
  );
}
