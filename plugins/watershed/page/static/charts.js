// Small charts of the last hours. A gap is time in which the cluster was not read; nothing is made up.

import { h, s } from "./dom.js";
import { about, clock, duration, rate } from "./words.js";

const [WIDTH, HEIGHT, PAD] = [240, 44, 3];
const FEWEST = 15; // points of the axis (half an hour), so that the first of them do not look like a long time

// The axis begins with the first value, and not three hours ago when nobody had looked yet.
function begun(told) {
  const lists = [told.records, told.delay_ms, told.rate_bytes];
  const first = told.records.findIndex((_, at) => lists.some((values) => values[at] !== null));
  const at = Math.min(first, told.records.length - FEWEST);
  const [records, delay_ms, rate_bytes] = lists.map((values) => values.slice(at));
  return { ...told, since_ms: told.from_ms + first * told.step_ms, records, delay_ms, rate_bytes };
}

export function charts(whole) {
  if (!whole.records.concat(whole.delay_ms, whole.rate_bytes).some((value) => value !== null)) return h("p.soft", {}, "Charts of lag, delay and rate begin when the page is open; they reach three hours back.");
  const told = begun(whole);
  return h(
    "div.charts",
    { "data-key": "charts" },
    chart("Lag", "records", told.records, told, about),
    chart("Delay", "of the oldest record that waits", told.delay_ms, told, duration),
    chart("Rate", "copied", told.rate_bytes, told, (value) => (value === null || value === undefined ? "–" : rate(value))),
  );
}

function chart(name, what, values, told, shown) {
  const seen = values.filter((value) => value !== null);
  const highest = Math.max(0, ...seen);
  const last = seen.length ? seen[seen.length - 1] : null;
  const says = `${name}, ${what}, since ${clock(told.since_ms)}: now ${shown(last)}, highest ${shown(highest)}`;
  return h(
    "figure.chart",
    {},
    h("figcaption", {}, h("b", {}, name), h("span.soft", {}, ` ${what}`)),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": says },
      s("title", {}, says),
      s("path.base", { d: `M0,${HEIGHT - 0.5} H${WIDTH}` }),
      s("path.line", { d: path(values, highest) })),
    h("p.chart-numbers", {}, `now ${shown(last)}`, h("span.soft", {}, ` · highest ${shown(highest)} since ${clock(told.since_ms)}`)),
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
