// One flow: how far each partition is, what is wrong and what to do about it.

import { flowButtons, pauseButton, remedyButtons } from "./actions.js";
import { charts } from "./charts.js";
import { h } from "./dom.js";
import { alerts, panel } from "./flows.js";
import { term } from "./help.js";
import { pager } from "./lists.js";
import { budgetLeft, bytes, duration, icon, lag, latency, number, rate, words } from "./words.js";

// actions: what this user may start; the panel covers the buttons of the page's head.
export function flowDetail(told, actions) {
  return panel(
    told.id,
    flowButtons(actions, told.id),
    h("p", { class: `state ${told.level}` }, icon(told.state), ` ${words(told.state)}`,
      told.desired !== told.state ? h("span.soft", {}, ` (wanted: ${words(told.desired)})`) : null),
    told.desired === "not_applied"
      ? h("p.note", {}, "The file has this flow, the target cluster does not know it yet: start replication.") : null,
    told.changed ? h("p.note", {}, "The file has changed since this flow was applied: start replication to apply it.") : null,
    told.breach ? h("p.problem", {}, `The flow was ${told.breach}. It stands still until somebody resumes it.`) : null,
    told.cluster.state === "silent"
      ? h("p.problem", {}, `${told.target} does not answer. `, told.cluster.problem || "",
          told.cluster.age_ms === null ? "" : ` What stands here is ${duration(told.cluster.age_ms)} old.`) : null,
    h(
      "dl.facts.wide",
      {},
      fact("from", told.source), fact("to", told.target), fact("topics", told.topics), fact("naming", told.naming),
      fact("offsets", [term(told.offsets), told.offsets_reason ? ` (${told.offsets_reason})` : ""]), fact("delivery", term(told.delivery)), fact("guarantee", told.guarantee || "not written down yet"),
      fact("quota", told.quota === null ? "none" : rate(told.quota)), fact("lag", `${lag(told, number)} records, ${duration(told.lag_ms)}`),
      fact("latency", told.latency ? `p50 ${latency(told.latency.p50_ms)}, p99 ${latency(told.latency.p99_ms)}` : "no record of late"), fact("rate", rate(told.rate_bytes)), told.budgets.length ? fact("budgets", budgets(told)) : null, told.compression ? fact("compression", told.compression) : null, told.transform ? fact("changes records", told.transform) : null, fact("workers", told.workers.length ? told.workers.join(", ") : "none has reported"),
    ),
    told.paused.length || told.moved.length
      ? h("section", {}, h("h3", {}, "Ordered for single partitions"), h("ul.plain", {}, [...told.paused, ...told.moved].map((each) => h("li", {}, each.text)))) : null,
    alerts(told, false, actions),
    h("section", {}, h("h3", {}, "The last hours"), charts(told.charts)),
    h("section", {}, h("h3", {}, "Partitions"),
      told.partitions > 10 ? h("p", {}, h("label", {}, "Filter ", h("input", { type: "search", id: "part-only", placeholder: "topic or state", autocomplete: "off" }))) : null,
      told.ends ? h("p.note", {}, told.ends) : null,
      told.rows.length ? partitions(told, actions) : h("p.empty", {}, told.partitions ? "No partition is like that." : nothing(told))),
    told.beside.length ? h("section", {}, h("h3", {}, "Beside the records"), beside(told)) : null,
  );
}

const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

// While the target does not answer, the budgets are counted up to its last answer.
const budgets = (told) => [
  h("ul.plain", {}, told.budgets.map((each) => h("li", { class: each.exceeded ? "state bad" : null }, h("code", {}, each.path), ` ${duration(each.limit_ms)}: ${budgetLeft(each)}`))),
  told.cluster.state === "silent" ? h("span.soft", {}, "as of the cluster's last answer") : null,
];

const nothing = (told) =>
  told.desired === "running"
    ? "No worker has reported a partition: no topic matches, no worker runs, or its log says what fails."
    : "No partition is copied.";

const place = (row) => `${row.topic}-${row.partition}`;

function partitions(told, actions) {
  const renamed = told.rows.some((row) => row.topic !== row.target_topic);
  return [
    h(
      "div.scroll",
      { tabindex: 0, role: "region", "aria-label": "Partitions" },
      h(
        "table",
        {},
        h("caption", {}, "Partitions, those that need attention first"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Partition"), renamed ? h("th", { scope: "col" }, "Target topic") : null,
          h("th", { scope: "col" }, "State"),
          h("th", { scope: "col" }, "Worker"),
          ["Next offset", "Source end", "Target end", "Lag", "Behind", "Rate", "Copied", "Reported"].map((each) => h("th.n", { scope: "col" }, each)))),
        h("tbody", {}, told.rows.map((row) =>
          h("tr", { "data-key": `partition ${place(row)}` },
            h("th", { scope: "row" }, place(row)), renamed ? h("td", {}, row.target_topic) : null,
            h("td", { class: `state ${row.level}`, title: row.error }, icon(row.state), ` ${words(row.state)}`, filling(row),
              told.alerts.some((each) => each.count > 1) ? remedyButtons(row.operations, actions, { flow: told.id, ...row }, 1) : null,
              told.desired === "running" ? pauseButton(actions, told.id, row) : null),
            h("td", {}, row.worker || "–"),
            [row.position, row.source_end, row.target_end].map((each) => h("td.n", {}, each < 0 ? "–" : number(each))),
            h("td.n", {}, number(row.lag_records)), h("td.n", {}, duration(row.lag_ms)), h("td.n", {}, rate(row.rate_bytes)),
            h("td.n", {}, bytes(row.copied_bytes)), h("td.n", {}, `${duration(row.age_ms)} ago`)))),
      ),
    ),
    pager(told, told.rows.length, 100, "part"),
  ];
}

const filling = (row) =>
  row.aligning ? h("small", {}, ` ${number(row.aligning.done)} of ${number(row.aligning.of)}`) : null;

function beside(told) {
  return [
    h("ul.totals", {}, told.beside.map((each) => h("li.chip", {}, h("b", {}, number(each.count)), ` ${words(each.kind)} ${words(each.state)}`))),
    told.amiss.length
      ? h("ul.plain", {}, told.amiss.map((each) => h("li", {}, h("b", {}, `${words(each.kind)} ${each.name}`), `: ${each.state}`, each.why ? `, ${each.why}` : "")),
          told.more_amiss ? h("li.soft", {}, `and ${number(told.more_amiss)} more`) : null)
      : null,
  ];
}
