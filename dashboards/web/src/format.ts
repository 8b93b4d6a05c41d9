// Numbers and times as a person reads them. Pure.

import type { TimeMode } from "./preferences";

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

/** Seconds as the controller says them: "3.42 s", "2 min 5 s", "3 h 10 min", "2 d 4 h". */
export function duration(seconds: number): string {
  const value = Math.max(0, seconds);
  if (value < 10) return `${trim(value.toFixed(2))} s`;
  if (value < MINUTE) return `${trim(value.toFixed(1))} s`;
  const whole = Math.round(value);
  if (whole < HOUR) return pair(Math.floor(whole / MINUTE), "min", whole % MINUTE, "s");
  if (whole < DAY) {
    return pair(Math.floor(whole / HOUR), "h", Math.floor((whole % HOUR) / MINUTE), "min");
  }
  return pair(Math.floor(whole / DAY), "d", Math.floor((whole % DAY) / HOUR), "h");
}

/** The same without fractions, for ages that tick: "34 s", "2 min". */
export function age(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min`;
  if (whole < DAY)
    return pair(Math.floor(whole / HOUR), "h", Math.floor((whole % HOUR) / 60), "min");
  return pair(Math.floor(whole / DAY), "d", Math.floor((whole % DAY) / HOUR), "h");
}

function pair(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** "t+01:05.3": how far into the story; "t−" for what came before its first signal. */
export function elapsed(seconds: number): string {
  const tenths = Math.round(Math.abs(seconds) * 10);
  const minutes = Math.floor(tenths / 600);
  const rest = ((tenths % 600) / 10).toFixed(1).padStart(4, "0");
  const sign = seconds < 0 && tenths > 0 ? "−" : "+";
  return `t${sign}${String(minutes).padStart(2, "0")}:${rest}`;
}

const two = (value: number): string => String(value).padStart(2, "0");

function offset(date: Date): string {
  const minutes = -date.getTimezoneOffset();
  const sign = minutes < 0 ? "-" : "+";
  return `${sign}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

/** RFC 3339 in UTC, or with this machine's offset. */
export function rfc3339(at: number, zone: "utc" | "local"): string {
  const date = new Date(at * 1000);
  if (zone === "utc") return `${date.toISOString().slice(0, 19)}Z`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day}T${time}${offset(date)}`;
}

/** A moment in the reader's mode. The day is left out while it is today's. */
export function moment(at: number, mode: TimeMode, now: number): string {
  if (mode === "relative") {
    const past = now - at;
    return past < 0 && past > -5 ? "now" : past < 0 ? `in ${age(-past)}` : `${age(past)} ago`;
  }
  const text = rfc3339(at, mode);
  return text.slice(0, 10) === rfc3339(now, mode).slice(0, 10)
    ? text.slice(11)
    : text.replace("T", " ");
}

/** 18240 → "18 240", with a thin space that does not break. */
export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, " ");
}

export function loss(value: number): string {
  return value.toPrecision(4);
}

/** Bytes as the command says them: "1.5 GiB". */
export function size(bytes: number): string {
  let amount = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) return `${unit === "B" ? amount : amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

/** "a, b and c". */
export function listed(names: readonly string[]): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
