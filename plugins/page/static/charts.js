// Small charts of the last hours. A gap is time in which the cluster was not read; nothing is made up.

import { h, s } from "./dom.js";
import { about, clock, duration, latency, rate } from "./words.js";

const [WIDTH, HEIGHT, PAD] = [240, 44, 3];
const FEWEST = 15; // points of the axis (half an hour), so that the first of them do not look like a long time

const SERIES = ["records", "delay_ms", "rate_bytes", "p50_ms", "p99_ms"];

// The axis begins with the first value, and not three hours ago when nobody had looked yet.
function begun(told) {
  const first = told.records.findIndex((_, at) => SERIES.some((name) => told[name][at] !== null));
  const at = Math.min(first, told.records.length - FEWEST);
  const cut = Object.fromEntries(SERIES.map((name) => [name, told[name].slice(at)]));
  return { ...told, since_ms: told.from_ms + first * told.step_ms, ...cut };
}

export function charts(whole) {
  if (!SERIES.some((name) => whole[name].some((value) => value !== null))) return h("p.soft", {}, "Charts of lag, delay, latency and rate begin when the page is open; they reach three hours back.");
  const told = begun(whole);
  return h(
    "div.charts",
    { "data-key": "charts" },
    chart("Lag", "records", told.records, told, about),
    chart("Delay", "of the oldest record that waits", told.delay_ms, told, duration),
    latencyChart(told),
    chart("Rate", "copied", told.rate_bytes, told, (value) => (value === null || value === undefined ? "–" : rate(value))),
  );
}

const seen = (values) => values.filter((value) => value !== null);
const newest = (values) => seen(values).pop() ?? null;

function chart(name, what, values, told, shown) {
  const highest = Math.max(0, ...seen(values));
  return figure(name, what, [["line", values]], highest, `now ${shown(newest(values))}`, `highest ${shown(highest)} since ${clock(told.since_ms).slice(0, 5)}`);
}

// What the workers add: from the arrival of records to their acknowledgement. No record, no latency: a gap.
function latencyChart({ p50_ms, p99_ms }) {
  const highest = Math.max(0, ...seen(p99_ms));
  const last = newest(p99_ms) === null ? "no record yet" : `p50 ${latency(newest(p50_ms))}, p99 ${latency(newest(p99_ms))}`;
  return figure("Latency", "that copying adds; p99 dashed", [["line", p50_ms], ["line.dashed", p99_ms]], highest, last, highest ? `highest ${latency(highest)}` : "");
}

// lines: class and values of each.
function figure(name, what, lines, highest, last, most) {
  const says = [`${name}, ${what}`, last, most].filter(Boolean).join("; ");
  return h(
    "figure.chart",
    {},
    h("figcaption", {}, h("b", {}, name), h("span.soft", {}, ` ${what}`)),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": says },
      s("title", {}, says),
      s("path.base", { d: `M0,${HEIGHT - 0.5} H${WIDTH}` }),
      lines.map(([kind, values]) => s(`path.${kind}`, { d: path(values, highest) }))),
    h("p.chart-numbers", {}, last, most ? h("span.soft", {}, ` · ${most}`) : null),
  );
}

function path(values, highest) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const y = (value) => (HEIGHT - PAD - (highest ? (value / highest) * (HEIGHT - 2 * PAD) : 0)).toFixed(1);
  let drawn = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const x = (at * step).toFixed(1);
    const begins = at === 0 || values[at - 1] === null;
    drawn += begins ? `M${x},${y(value)} h1 ` : `L${x},${y(value)} `;
  });
  return drawn || "M0,0";
}
