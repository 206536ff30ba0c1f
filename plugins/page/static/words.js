// Numbers, times and states as people read them.

import { h, s } from "./dom.js";

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const about = (value) =>
  value === null || value === undefined ? "–" : value < 100000 ? whole.format(value) : short.format(value);

// The lag of a flow, or of several: more may wait where one stands still or was not looked at.
export const lag = (told, format = about) =>
  (told.lag_is_lower_bound && told.lag_records !== null ? "≥ " : "") + format(told.lag_records);

export const brief = (value) => (value < 10000 ? whole : short).format(value);

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}

// A latency: short ones with two digits.
export const latency = (ms) => (ms === null || ms === undefined ? "–" : ms < 1000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : duration(ms));

// What is left of a budget of time: a share, or by how much it is exceeded.
export function budgetLeft(budget) {
  if (budget.left_ms === null) return "not known: nobody reports";
  return budget.exceeded ? `exceeded by ${duration(-budget.left_ms)}` : `${Math.floor((100 * budget.left_ms) / budget.limit_ms)}% left`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (value >= size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)} ${unit}`;
  return `${Math.round(value)} B`;
}

export const rate = (value) => `${bytes(value)}/s`;
// `text in backquotes` as code; everything stays text.
export const coded = (text) => String(text).split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));

// The zone that was chosen in Airflow's interface, which keeps it in the browser; without one the browser's own.
function zone() {
  try {
    const timeZone = JSON.parse(localStorage.getItem("timezone")) || undefined;
    return new Intl.DateTimeFormat("en", { timeZone }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB", { timeZone: zone() });
export const moment = (ms) => (ms === null || ms === undefined ? "–" : new Date(ms).toLocaleString("sv-SE", { timeZone: zone() }));
export const words = (name) => String(name).replaceAll("_", " ");
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
export const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`);

const LEVELS = {
  complete: "ok", running: "ok", catching_up: "busy", aligning: "busy", starting: "busy", retrying: "warn", silent: "warn", unknown: "warn",
  paused: "idle", stopped: "idle", not_applied: "idle", reading: "idle",
};
export const levelOf = (state) => LEVELS[state] || "bad";

// A shape of its own for every state, so that nobody needs to see colours. 14 by 14, in the colour of its text.
const ring = { cx: 7, cy: 7, r: 5, class: "stroke" };
const SHAPES = {
  running: () => [s("circle", { cx: 7, cy: 7, r: 5.5, class: "fill" })],
  catching_up: () => [s("circle", ring), s("path", { d: "M7 2a5 5 0 0 1 0 10z", class: "fill" })],
  aligning: () => [s("circle", ring), s("path", { d: "M7 7V2a5 5 0 0 1 5 5z", class: "fill" })],
  starting: () => [s("circle", ring)],
  retrying: () => [s("path", { d: "M11.500 8.500A5 5 0 1 1 11 4M11.500 1.500V4.500H8.500", class: "stroke" })],
  silent: () => [s("circle", { ...ring, "stroke-dasharray": "2 2.200" }), s("path", { d: "M4.500 7h5", class: "stroke" })],
  unknown: () => [s("circle", { ...ring, "stroke-dasharray": "2 2.200" })],
  paused: () => [s("path", { d: "M4.500 2.500v9M9.500 2.500v9", class: "stroke thick" })],
  stopped: () => [s("rect", { x: 2.5, y: 2.5, width: 9, height: 9, class: "fill" })],
  not_applied: () => [s("rect", { x: 2.5, y: 2.5, width: 9, height: 9, class: "stroke" })],
  done: () => [s("path", { d: "M2 7.500l3.500 3.500L12 3.500", class: "stroke thick" })],
  refused: () => [s("path", { d: "M3 3l8 8M11 3l-8 8", class: "stroke thick" })],
  taken_back: () => [s("path", { d: "M5 3L2 6l3 3M2 6h6a3.500 3.500 0 0 1 0 6H6", class: "stroke" })],
  planned: () => [s("circle", { ...ring, r: 4 })],
  next: () => [s("path", { d: "M2 7h9M7.500 3L11.500 7l-4 4", class: "stroke" })],
  under_way: () => [s("circle", ring), s("circle", { cx: 7, cy: 7, r: 2.5, class: "fill" })],
};
const warning = () => [s("path", { d: "M7 1l6.500 12h-13z", class: "fill" }), s("path", { d: "M7 5v4M7 10.500v1", class: "cut" })];
const SAME = { complete: "done", proven: "done", repeated: "done", different: "refused", incomplete: "catching_up", rolled_back: "taken_back", answers: "running", reading: "starting", none: "unknown" };

export function icon(state, attributes) {
  const shape = SHAPES[state] || SHAPES[SAME[state]] || warning;
  return s("svg.icon", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true", ...attributes }, shape());
}
