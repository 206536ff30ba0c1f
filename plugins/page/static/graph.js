// Clusters and flows as a picture. The server says where everything stands, this file how it looks.

import { s } from "./dom.js";
import { brief, cut, duration, icon, lag, plural, rate, words } from "./words.js";

const LABEL = 44; // letters

// chosen: the key of the element that the Tab key comes to; arrow keys go on from there.
export function graph(told, chosen) {
  const { width, height, boxes, arrows } = told.graph;
  const clusters = new Map(told.clusters.map((each) => [each.alias, each]));
  const keys = [...told.arrows.map((each) => `arrow ${each.key}`), ...Object.keys(boxes).map((alias) => `cluster ${alias}`)];
  const stop = keys.includes(chosen) ? chosen : keys[0];
  return s(
    "svg.graph",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Clusters and flows; arrow keys go from one to the next" },
    told.arrows.map((each) => arrow(each, arrows[each.key], `arrow ${each.key}` === stop)),
    Object.entries(boxes).map(([alias, box]) => cluster(clusters.get(alias), box, `cluster ${alias}` === stop)),
    told.arrows.map((each) => label(each, arrows[each.key])),
  );
}

function cluster(told, box, stop) {
  const said = clusterSaid(told);
  const times = Math.max(1, Math.round(box.h / 400)); // a tall box tells its name wherever one looks
  const middles = Array.from({ length: times }, (_, at) => box.y + (box.h * (at + 0.5)) / times);
  return s(
    "g",
    {
      class: `cluster ${told.state}`, tabindex: stop ? 0 : -1, role: "button", "data-key": `cluster ${told.alias}`,
      "data-act": "cluster", "data-cluster": told.alias,
    },
    s("title", {}, `cluster ${told.alias}: ${said}${told.problem ? `\n${told.problem}` : ""}`),
    s("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: 8 }),
    middles.map((middle) => [
      s("text.name", { "aria-hidden": "true", x: box.x + box.w / 2, y: middle - 3, "text-anchor": "middle" }, cut(told.alias, 20)),
      s("text.said", { "aria-hidden": "true", x: box.x + box.w / 2, y: middle + 14, "text-anchor": "middle" }, said),
    ]),
  );
}

export function clusterSaid(told) {
  if (told.state === "answers") return "answers";
  if (told.state === "reading") return "being read …";
  return told.age_ms === null ? "does not answer" : `silent for ${duration(told.age_ms)}`;
}

function arrow(told, place, stop) {
  const [x, y, side] = place.head;
  const base = x + side * 5;
  return s(
    "g",
    {
      class: `arrow ${told.level} state-${told.state}`, tabindex: stop ? 0 : -1, role: "button", "data-key": `arrow ${told.key}`,
      "data-act": "arrow", "data-flow": told.flow,
      "data-pair": told.flow ? null : `${told.source} → ${told.target}`, "aria-label": arrowSaid(told),
    },
    s("title", {}, arrowSaid(told)),
    s("path.hit", { d: place.d }),
    s("path", { d: place.d, class: told.flow ? "way" : "way bundle" }),
    s("path.head", { d: `M${x - side * 7},${y} L${base},${y - 5.5} L${base},${y + 5.5} z` }),
  );
}

const name = (told) => told.flow || plural(told.count, "flow");

const counts = (told) =>
  told.flow
    ? words(told.state)
    : Object.entries(told.states).map(([state, count]) => `${count} ${words(state)}`).join(", ");

const numbers = (told) => {
  const parts = [];
  if (told.lag_records !== null) parts.push(`lag ${lag(told, brief)}`);
  if (told.lag_ms !== null) parts.push(duration(told.lag_ms));
  if (told.rate_bytes || ["ok", "busy"].includes(told.level)) parts.push(rate(told.rate_bytes));
  return parts;
};

function arrowSaid(told) {
  const behind = told.lag_records === null ? "lag not known" : `lag ${lag(told)} records, ${duration(told.lag_ms)} behind`;
  return `${name(told)} from ${told.source} to ${told.target}: ${counts(told)}; ${behind}; ${rate(told.rate_bytes)}`;
}

const LETTER = 6; // pixels, about

function label(told, place) {
  const [x, y] = place.at;
  const above = cut(name(told), LABEL);
  const line = cut([counts(told), ...numbers(told)].join(" · "), 52);
  const wide = above.length * (LETTER + 1.2) + 8;
  const left = x - (line.length * LETTER + 18) / 2;
  return s(
    "g",
    { class: `label ${told.level}`, "aria-hidden": "true", "data-key": `label ${told.key}` },
    s("rect", { x: x - wide / 2, y: y - 18, width: wide, height: 15 }),
    s("rect", { x: left - 2, y: y + 3, width: line.length * LETTER + 20, height: 14 }),
    s("text.flow", { x, y: y - 6, "text-anchor": "middle" }, above),
    icon(told.state, { x: left, y: y + 4, width: 12, height: 12 }),
    s("text.numbers", { x: left + 17, y: y + 14 }, line),
  );
}
