// The view of flows: what there is in all, the graph, and the same as a table.

import { remedyButtons } from "./actions.js";
import { charts } from "./charts.js";
import { h } from "./dom.js";
import { clusterSaid, graph } from "./graph.js";
import { term } from "./help.js";
import { RANK, filterBox, pager } from "./lists.js";
import { budgetLeft, coded, cut, duration, icon, lag, levelOf, number, plural, rate, words } from "./words.js";

const AT_ONCE = 50; // flows of one page, as the server cuts them

export function flowsView(told, state) {
  const filtered = Boolean(state.only || state.pair);
  return [
    h("section", { "aria-label": "All flows" }, totals(told), silent(told), alerts(told, true, told.actions || []), charts(told.charts)),
    filterBox("flow, cluster, topic or state", [
      h("button", { "data-act": "attention", "aria-pressed": String(state.only === "attention") }, "Needs attention"),
      filtered ? h("button", { "data-act": "unfilter" }, "Show all") : null,
      h("span.soft", {}, filtered ? `${plural(told.found, "flow")} of ${number(told.count)}` : ""),
    ]),
    picture(told, state, filtered),
    h(
      "section",
      { id: "table", "aria-label": "Flows as a table", tabindex: -1 },
      h("h2", {}, state.pair ? `Flows ${state.pair}` : "Flows"),
      told.flows.length ? [table(told.flows, state), pager(told, told.flows.length, AT_ONCE, "first")]
        : h("p.empty", {}, filtered ? "No flow is like that." : "This topology has no flow."),
    ),
    others(told.others),
  ];
}

// What other tools copy between these clusters, as the file declares it.
function others(copies) {
  if (!copies || !copies.length) return null;
  return h(
    "section",
    { "aria-label": "Copied by others", "data-key": "others" },
    h("h2", {}, "Copied by others, never by Watershed"),
    h("ul", {}, copies.map((each) => h("li", { "data-key": each }, each))),
  );
}

// Equal alerts are one line: 5,000 partitions that fail alike are one problem. several: of several flows, each named.
// actions: what this user may start about them.
export function alerts(told, several, actions) {
  if (!told.alerts.length) return null;
  return h(
    "section",
    { "aria-label": "What needs attention", "data-key": "alerts" },
    h("h2", {}, "What needs attention"),
    h("ul.problems", {}, told.alerts.map((each) => h(
      "li",
      { class: each.level, "data-key": `alert ${each.state} ${each.partitions[0]} ${each.flows[0]}` },
      icon(each.state), h("b", {}, `${plural(each.count, "partition")} ${words(each.state)}`),
      several ? [" in ", each.flows.map((flow, at) => [at ? ", " : "", h("button.link", { "data-act": "flow", "data-flow": flow, "data-key": `alert of ${flow} ${each.state}` }, flow)]), each.more_flows ? " and more flows" : ""] : null,
      each.text ? h("p.says", {}, each.count > 1 ? h("span.soft", {}, "For instance: ") : null, each.text) : null,
      each.remedy ? h("p.remedy", {}, h("b", {}, "What to do: "), coded(each.remedy)) : null,
      remedyButtons(each.operations, actions, each.example, each.count),
      each.note ? h("p.soft", {}, each.note) : null,
      h("small", {}, `${each.partitions.join(", ")}${each.count > each.partitions.length ? ` and ${number(each.count - each.partitions.length)} more` : ""}`),
    ))),
    told.more_alerts ? h("p.soft", {}, `and ${plural(told.more_alerts, "other kind")} of alert: filter by a flow or a state`) : null,
  );
}

function totals(told) {
  const { states, lag_ms, rate_bytes, partitions } = told.totals;
  const ordered = Object.entries(states).sort(([one], [other]) => RANK.indexOf(levelOf(other)) - RANK.indexOf(levelOf(one)));
  return h(
    "div.in-all",
    {},
    h("ul.totals", {}, ordered.map(([state, count]) =>
      h("li", { class: `chip ${levelOf(state)}` }, icon(state), h("b", {}, number(count)), ` ${words(state)}`))),
    h("ul.totals", {},
    h("li.figure", {}, h("b", {}, lag(told.totals)), " records behind"),
    h("li.figure", {}, h("b", {}, duration(lag_ms)), " longest delay"),
    h("li.figure", {}, h("b", {}, rate(rate_bytes)), " in total"),
    h("li.figure", {}, h("b", {}, number(partitions)), " partitions")),
  );
}

function silent(told) {
  const mute = told.clusters.filter((each) => each.state === "silent");
  if (!mute.length) return null;
  const list = h("ul.problems", {}, mute.map(mutely));
  if (mute.length <= MUTE) return list;
  return h(
    "details.many",
    { "data-key": "silent" },
    h("summary.warn", {}, icon("silent"), h("b", {}, plural(mute.length, "cluster")), ` of ${told.cluster_count} do not answer: ${mute.slice(0, MUTE).map((each) => each.alias).join(", ")} …`),
    list,
  );
}

const MUTE = 3; // clusters that are told of one by one

const mutely = (each) =>
  h(
    "li.warn",
    { "data-key": `silent ${each.alias}` },
    icon("silent"),
    h("b", {}, each.alias),
    each.age_ms === null ? " does not answer." : ` has not answered for ${duration(each.age_ms)}; what is shown of it is that old.`,
    each.problem ? h("small", {}, each.problem) : null,
  );

function picture(told, state, filtered) {
  if (told.too_many) return h("p.note", {}, "Too many arrows or clusters to draw them legibly: filter, or use the table.");
  if (!told.graph || (filtered && !told.arrows.length)) return null;
  return h(
    "section",
    { "aria-label": "Graph", "data-key": "graph" },
    h("a.skip", { href: "#table" }, "Skip the graph"),
    h("div.graph-frame", { tabindex: 0, role: "region", "aria-label": "Graph, scrolls" }, graph(told, state.chosen)),
    h(
      "p.legend",
      {},
      [...new Set(["running", "catching_up", "paused", "silent", ...told.flows.map((each) => each.state)])]
        .map((each) => h("span", { class: levelOf(each) }, icon(each), ` ${words(each)} `)),
      h("span.soft.says", {}, " ", term("lag", "Lag"), " is in records and in time. Long dashes catch up, short ones stand still, dots are not heard of."),
    ),
  );
}

// Of a flow's budgets the one of which the smallest share is left.
const tightest = (budgets) =>
  budgets.reduce((one, other) => (one && one.left_ms / one.limit_ms <= other.left_ms / other.limit_ms ? one : other), null);

const budgetCell = (budget) =>
  budget ? h("td.n", { class: budget.exceeded ? "state bad" : null, title: `${budget.path} ${duration(budget.limit_ms)}` }, budgetLeft(budget)) : h("td.n", {}, "–");

function table(flows, state) {
  const attention = (each) => ["bad", "warn"].includes(each.level);
  const promised = flows.some((each) => each.budgets.length);
  return h(
    "div.scroll",
    { tabindex: 0, role: "region", "aria-label": "Flows" },
    h(
      "table",
      {},
      h("caption", {}, "Flows, those that need attention first"),
      h(
        "thead",
        {},
        h("tr", {}, ["Flow", "State", "From", "To", "Topics"].map((each) => h("th", { scope: "col" }, each)),
          ["Lag", "Behind", ...(promised ? ["Tightest budget"] : []), "Rate", "Partitions"].map((each) => h("th.n", { scope: "col" }, each))),
      ),
      h("tbody", {}, flows.map((each) => [
        h(
          "tr",
          { "data-key": `row ${each.id}`, "aria-selected": String(state.flow === each.id) },
          h("th", { scope: "row" }, h("button.link", { "data-act": "flow", "data-flow": each.id, "data-key": `open ${each.id}` }, each.id)),
          h("td", { class: `state ${each.level}` }, icon(each.state), ` ${words(each.state)}`),
          h("td", {}, each.source),
          h("td", {}, each.target),
          h("td.topics", { title: each.topics }, cut(each.topics, 60)),
          h("td.n", {}, lag(each)),
          h("td.n", {}, duration(each.lag_ms)),
          promised ? budgetCell(tightest(each.budgets)) : null,
          h("td.n", {}, rate(each.rate_bytes)),
          h("td.n", {}, number(each.partitions)),
        ),
        each.error && attention(each)
          ? h("tr", { class: `why ${each.level}`, "data-key": `why ${each.id}` }, h("td", { colspan: promised ? 10 : 9 }, each.error))
          : null,
      ])),
    ),
  );
}

export function clusterDetail(told, alias) {
  const cluster = told.cluster;
  if (cluster?.alias !== alias) return null;
  return panel(
    `Cluster ${alias}`,
    h("p", { class: `state ${cluster.state === "answers" ? "ok" : "warn"}` }, icon(cluster.state === "answers" ? "running" : "silent"), ` ${clusterSaid(cluster)}`),
    cluster.problem ? h("p.problem", {}, cluster.problem) : null,
    h("h3", {}, `Its ${plural(cluster.found, "flow")}`),
    h("ul.plain", {}, cluster.flows.map((each) =>
      h("li", {}, h("span", { class: `state ${each.level}` }, icon(each.state)), " ",
        h("button.link", { "data-act": "flow", "data-flow": each.id }, each.id),
        h("span.soft", {}, each.source === alias ? ` to ${each.target}` : ` from ${each.source}`)))),
    cluster.found > cluster.flows.length
      ? h("p", {}, `and ${number(cluster.found - cluster.flows.length)} more: `, h("button.link", { "data-act": "filter", "data-only": alias }, `list the flows of ${alias}`)) : null,
  );
}

export const panel = (title, ...content) => [
  h("div.bar", {}, h("h2", { id: "detail-title", tabindex: -1 }, title),
    h("button", { "data-act": "close", "aria-label": "Close (Esc)", title: "Esc" }, "Close")),
  content,
];
