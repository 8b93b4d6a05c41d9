// A small set of 16 px icons, drawn here so that nothing is loaded from elsewhere.

const PATHS = {
  ok: "M3.5 8.5l3 3 6-7",
  no: "M4 4l8 8M12 4l-8 8",
  info: "M8 7v4.5M8 4.4v.2",
  warning: "M8 6v3.5M8 11.8v.2M8 1.8L14.6 13.5H1.4z",
  error: "M8 4.5v4M8 11v.2M5 1.5h6L14.5 5v6L11 14.5H5L1.5 11V5z",
  fatal: "M5 1.5h6L14.5 5v6L11 14.5H5L1.5 11V5zM5.5 5.5l5 5M10.5 5.5l-5 5",
  eye: "M1.2 8S3.7 3.5 8 3.5 14.8 8 14.8 8 12.3 12.5 8 12.5 1.2 8 1.2 8zM8 10a2 2 0 100-4 2 2 0 000 4z",
  clock: "M8 14.2A6.2 6.2 0 108 1.8a6.2 6.2 0 000 12.4zM8 4.6V8l2.4 1.6",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  link: "M6.5 9.5l3-3M7 4.8l1.6-1.6a3 3 0 014.2 4.2L11.2 9M9 11.2l-1.6 1.6a3 3 0 01-4.2-4.2L4.8 7",
  sun: "M8 10.8a2.8 2.8 0 100-5.6 2.8 2.8 0 000 5.6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8L13 13M13 3l-1.2 1.2M4.2 11.8L3 13",
  moon: "M13.5 9.6A5.8 5.8 0 016.4 2.5a5.8 5.8 0 107.1 7.1z",
  system: "M2 3h12v8H2zM6 13.5h4M8 11v2.5",
  search: "M7 11.5a4.5 4.5 0 100-9 4.5 4.5 0 000 9zM10.3 10.3L14 14",
  arrow: "M3 8h10M9.5 4.5L13 8l-3.5 3.5",
  signal: "M1.5 8.5h3L6.5 3l3 10 2-4.5h3",
  decision: "M8 14V8M8 8L3 3M8 8l5-5M3 6V3h3M13 6V3h-3",
  action: "M5 2.8v10.4L13 8z",
  progress: "M8 2.5v11M4.5 10L8 13.5 11.5 10",
  outcome: "M3.5 14.5v-12h9l-2 3 2 3h-9",
  human: "M8 7.5A2.7 2.7 0 108 2a2.7 2.7 0 000 5.5zM2.8 14c.4-3 2.3-4.6 5.2-4.6s4.8 1.6 5.2 4.6",
  json: "M6 2.5c-1.8 0-2 .8-2 2v1.7C4 7.4 3.4 8 2.5 8c.9 0 1.5.6 1.5 1.8v1.7c0 1.2.2 2 2 2M10 2.5c1.8 0 2 .8 2 2v1.7c0 1.2.6 1.8 1.5 1.8-.9 0-1.5.6-1.5 1.8v1.7c0 1.2-.2 2-2 2",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo() {
  return (
    <svg class="logo" width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
      <path class="logo-shield" d="M16 2 4 6v9c0 8 5 12.6 12 15 7-2.4 12-7 12-15V6z" />
      <path class="logo-pulse" d="M8 17h4l3-6 3.5 10 2.5-4h3" />
    </svg>
  );
}
