// Workers: for each target cluster how many are wanted, who reports, and what can be done about it.

import { h } from "./dom.js";
import { duration, icon, number, plural, words } from "./words.js";

const MARK = { ok: "running", warn: "silent", bad: "refused", idle: "stopped" };
// What the DAG of fleets takes as `action`; the form is the DAG's own, with these filled in.
const ACTIONS = [
  ["scale", "Scale …", false],
  ["restart", "Restart one by one …", false],
  ["heal", "Heal …", false],
  ["stop", "Stop …", true],
];
const STOPPED = [["start", "Start …", false], ["scale", "Scale …", false]];

export function fleetsView(told) {
  const dag = told.actions.find((each) => each.what === "fleet");
  return [
    h("h2", {}, "Workers"),
    told.fleets.length ? null : h("p.empty", {}, "This topology has no flow, so it has no workers."),
    h("div.fleets", {}, told.fleets.map((each) => fleet(each, dag))),
  ];
}

function fleet(each, dag) {
  const name = `fleet-${each.target}`.replaceAll(/[^\w]/g, "-");
  return h(
    "section",
    { class: `fleet ${each.level}`, "data-key": `fleet ${each.target}`, "aria-labelledby": name },
    h("h3", { id: name }, icon(MARK[each.level]), ` ${each.target}`),
    h("p", {}, each.says),
    each.cluster.state === "silent" ? h("p.problem", {}, `${each.target} does not answer. `, each.cluster.problem || "") : null,
    h("dl.facts", {},
      fact("present", `${number(each.present)} of ${each.wanted === null ? "?" : number(each.wanted)} wanted`),
      fact("shall be", words(each.desired)),
      fact("engine", each.engine),
      each.placement ? fact("placement", each.placement) : null,
      each.supervisor ? fact("supervisor", each.supervisor) : null,
      fact("without a worker", plural(each.unserved, "partition"))),
    each.workers.length
      ? h("details", {}, h("summary", {}, plural(each.present, "worker")),
          h("ul.plain", {}, each.workers.map((worker) => h("li", {}, h("code", {}, worker.name), ` ${plural(worker.partitions, "partition")}, reported ${duration(worker.age_ms)} ago`))),
          each.more_workers ? h("p.soft", {}, `and ${plural(each.more_workers, "worker")} more`) : null)
      : null,
    dag && dag.allowed
      ? h("p.buttons", {}, (each.desired === "stopped" ? STOPPED : ACTIONS).map(([action, label, danger]) => h("button", {
          class: danger ? "danger" : null, "data-act": "start", "data-dag": dag.dag,
          "data-preset": JSON.stringify({ action, target: each.target }), "aria-label": `${label.replace(" …", "")}: workers for ${each.target}`,
        }, label)))
      : h("p.soft", {}, dag ? dag.why_not : "Workers are started by “Start replication”."),
  );
}

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
