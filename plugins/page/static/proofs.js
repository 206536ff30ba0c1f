// Proofs: verdicts of all runs, and the report of one of them in the page.

import { page, runPage } from "./airflow.js";
import { h } from "./dom.js";
import { term } from "./help.js";
import { icon, moment, number, words } from "./words.js";

const LEVEL = { proven: "ok", repeated: "ok", running: "busy", incomplete: "warn", none: "warn" };
const level = (verdict) => LEVEL[verdict] || "bad";
const WORDS = { none: "ended without a verdict", running: "runs" };
export const verdictLevel = level;
export const said = (each) => (each.verdict === "repeated" ? `proven, ${number(each.counts.repeated || 0)} repeated` : WORDS[each.verdict] || each.verdict);
export const verdictMark = (verdict) => (verdict === "running" ? "under_way" : verdict);

export function proofsView(told, state) {
  if (!told.proofs.length)
    return h("p", {}, state.runFixed ? "This run holds no proof, or none yet." : "Nothing was proven yet. Start a proof with “Prove”; a migration proves by itself before and after its fence.");
  const open = told.proofs.find((each) => key(each) === state.report);
  return [
    h("h2", {}, "Proofs"),
    h(
      "div.scroll",
      { tabindex: 0, role: "region", "aria-label": "Proofs" },
      h(
        "table",
        {},
        h("caption", {}, "Proofs, the newest first"),
        h("thead", {}, h("tr", {}, ["Verdict", "When", "Run", "Level"].map((each) => h("th", { scope: "col" }, each)),
          ["Unproven", "Records"].map((each) => h("th.n", { scope: "col" }, each)), h("th", { scope: "col" }, "Report"))),
        h("tbody", {}, told.proofs.map((each) =>
          h(
            "tr",
            { "data-key": `proof ${key(each)}`, "aria-selected": String(each === open) },
            h("th", { scope: "row", class: `state ${level(each.verdict)}` }, icon(verdictMark(each.verdict)), ` ${said(each)}`),
            h("td", {}, moment(each.at_ms)),
            h("td", {}, each.run_id ? h("a", { href: runPage(each.dag, each.run_id), "data-act": "airflow" }, each.dag) : each.dag, h("small", {}, `${each.run_id || each.run}, ${each.task}`)),
            h("td", {}, each.level ? term(each.level) : null, each.mode ? `, ${each.mode}` : null),
            h("td.n", {}, number(each.unproven), each.unproven ? h("small", {}, ` ${kinds(each)}`) : null),
            h("td.n", {}, number(each.records)),
            h("td", {}, each.report ? [h("button", { "data-act": "report", "data-report": key(each), "aria-expanded": String(each === open),
              "aria-label": `${each === open ? "Close" : "Open"} the report of ${each.run}, ${each.task}` },
              each === open ? "Close" : "Open"), " ", each.verdict === "running" ? null : downloads(each)] : h("span.soft", {}, "none")),
          ))),
      ),
    ),
    open ? report(open) : null,
  ];
}

// Links to what a proof wrote, as files.
export function downloads(each) {
  const at = (file) => page(`watershed/proof?${new URLSearchParams({ dag_id: each.dag, run_id: each.run, task_id: each.task, download: file })}`);
  return [h("a", { href: at("report.html"), download: "", "aria-label": `Download the report of ${each.run}, ${each.task}` }, "Download"), " ",
    h("a", { href: at("summary.json"), download: "", "aria-label": `Download the summary of ${each.run}, ${each.task} as JSON` }, "JSON")];
}

const key = (each) => `${each.dag} ${each.run} ${each.task}`;
const kinds = (each) =>
  Object.entries(each.counts).filter(([name]) => !["proven"].includes(name)).map(([name, count]) => `${number(count)} ${words(name)}`).join(", ");

function report(each) {
  const query = new URLSearchParams({ dag_id: each.dag, run_id: each.run, task_id: each.task });
  return h(
    "section",
    { "aria-label": "Report", "data-key": `report ${key(each)}` },
    h("h2", {}, `Report: ${said(each)}`, h("button", { "data-act": "report", "data-report": key(each) }, "Close")),
    h("iframe.report", { src: page(`watershed/proof?${query}`), title: `Report of the proof of ${each.run}`, sandbox: true }),
  );
}
