// Workers: for each target cluster how many are wanted, who reports, and what can be done about it.

import { h } from "./dom.js";
import { duration, icon, moment, number, plural, words } from "./words.js";

const MARK = { ok: "running", warn: "silent", bad: "refused", idle: "stopped" };
// What the DAG of fleets takes as `action`, each with its own words: what is asked before it is done.
const FLEET = {
  start: { words: "Start", danger: false, does: "The fleet runs again, with as many workers as the file or the form says." },
  scale: { words: "Scale", danger: false, does: "The number of workers changes to what the form says. Copying goes on; partitions move to other workers." },
  restart: { words: "Restart one by one", danger: false, does: "Every worker is replaced, one after the other. Copying goes on; each partition stands still while it moves." },
  heal: { words: "Heal", danger: false, does: "A supervisor is started where one is missing, and it starts the workers that died. What runs is left alone." },
  stop: { words: "Stop", danger: true, does: "The workers hand their partitions over and end. Nothing is copied until the fleet is started again, and lag grows." },
};
const RUNNING = ["scale", "restart", "heal", "stop"];
const STOPPED = ["start", "scale"];

// What the form says of one of these, for the workers of one cluster.
export const fleetAction = (action, target) => {
  const known = FLEET[action];
  return known ? { ...known, words: `${known.words}: workers for ${target}` } : {};
};

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
    each.note ? h("p.soft", {}, `The supervisor says: ${each.note}`) : null,
    each.cluster.state === "silent" ? h("p.problem", {}, `${each.target} does not answer. `, each.cluster.problem || "") : null,
    h("dl.facts", {},
      fact("present", `${each.present === null ? "not known," : `${number(each.present)} of`} ${each.wanted === null ? "?" : number(each.wanted)} wanted`),
      fact("shall be", words(each.desired)),
      fact("engine", each.engine),
      each.placement ? fact("placement", each.placement) : null,
      each.supervisor ? fact("supervisor", `${each.supervisor}: ${each.ready ? "its workers are there" : "its workers are not all there"}${each.since_ms ? `, since ${moment(each.since_ms)}` : ""}`)
        : each.placement === "external" || each.desired === "stopped" ? null : fact("supervisor", "none has reported; Heal starts one"),
      fact("without a worker", plural(each.unserved, "partition"))),
    each.workers.length
      ? h("details", {}, h("summary", {}, plural(each.workers.length + each.more_workers, "worker")),
          h("ul.plain", {}, each.workers.map((worker) => h("li", {}, h("code", {}, worker.name), ` ${plural(worker.partitions, "partition")}, reported ${duration(worker.age_ms)} ago`))),
          each.more_workers ? h("p.soft", {}, `and ${plural(each.more_workers, "worker")} more`) : null)
      : null,
    dag && dag.allowed
      ? h("p.buttons", {}, (each.desired === "stopped" ? STOPPED : RUNNING).map((action) => h("button", {
          class: FLEET[action].danger ? "danger" : null, "data-act": "start", "data-dag": dag.dag,
          "data-given": JSON.stringify({ preset: { action, target: each.target } }), "aria-label": fleetAction(action, each.target).words,
        }, `${FLEET[action].words} …`)))
      : h("p.soft", {}, dag ? dag.why_not : "Workers are started by “Start replication”."),
  );
}

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
