// What Airflow says of the topology's runs, under the buttons that started them: who is waited for, what runs, what failed
// and why. A run that failed before its first step is in no journal: here it is.

import { failure, runPage } from "./airflow.js";
import { h } from "./dom.js";
import { isMove, question } from "./questions.js";
import { duration, icon, moment, plural } from "./words.js";

const FRESH_MS = 3_600_000; // how long an ended run is told of
const [MOST_OPEN, MOST_ENDED] = [4, 3];
const KEPT = "watershed.hushed";
const reasons = new Map(); // of failed runs, as their logs say

const key = (run) => `${run.dag} ${run.run}`;
const OPEN = ["queued", "running"];

function hushed() {
  try {
    return new Set(JSON.parse(sessionStorage.getItem(KEPT) || "[]"));
  } catch {
    return new Set();
  }
}

export function hush(run) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify([...hushed(), run].slice(-200)));
  } catch {
    reasons.delete(run); // a browser that keeps nothing shows it again
  }
}

// Reads why a run failed, once; true when there is something new to show.
export async function learn(told) {
  const gone = hushed();
  const wanted = ended(told, gone).find((run) => run.failed.length && !reasons.has(key(run)));
  if (!wanted) return false;
  reasons.set(key(wanted), "");
  if (reasons.size > 100) reasons.delete(reasons.keys().next().value);
  const [task] = wanted.failed;
  try {
    reasons.set(key(wanted), await failure(wanted.dag, wanted.run, task.task, task.try, task.index));
  } catch {
    reasons.set(key(wanted), ""); // its log cannot be read; the link leads to it
  }
  return true;
}

const ended = (told, gone) => {
  const recent = told.airflow.filter((run) => run.ended_ms !== null && Date.now() - run.ended_ms < FRESH_MS && !gone.has(key(run)));
  const isOvertaken = (run) => told.airflow.some((each) => each.dag === run.dag && each.queued_ms > run.queued_ms);
  return recent.filter((run) => run.state === "failed" || (run.dry_run && !isOvertaken(run))).slice(0, MOST_ENDED);
};

// asking: the run whose questions are shown here; questions: these. Those of a move stand in its own view.
export function notices(told, asking, questions) {
  if (!told?.airflow) return [];
  const asks = (run) => told.awaiting.some((each) => each.run === run.run && each.dag === run.dag);
  const goes = told.airflow.filter((run) => OPEN.includes(run.state) && run.how !== "scheduled" && !asks(run)).sort((one, other) => isMove(other.dag) - isMove(one.dag));
  return [
    ...told.awaiting.map((each) => [waiting(each, asking), isAsked(each, asking) ? questions.filter((one) => one.task_instance.task_id === each.task && one.task_instance.map_index === each.index).map((one) => question(one, told)) : null]),
    ...goes.slice(0, MOST_OPEN).map((run) => running(run, told)),
    goes.length > MOST_OPEN ? h("p.notice.busy", { "data-key": "more-open" }, `and ${plural(goes.length - MOST_OPEN, "run")} more that go on or wait`) : null,
    ...ended(told, hushed()).map(failed),
  ];
}

const isAsked = (each, asking) => !isMove(each.dag) && key(each) === asking;

function waiting(each, asking) {
  const opened = isAsked(each, asking);
  return h(
    "p.notice.warn",
    { "data-key": `awaits ${key(each)} ${each.task} ${each.index}` },
    icon("paused"), h("b", {}, " A person is awaited"), ` for ${duration(Date.now() - each.since_ms)}: ${each.subject} `,
    isMove(each.dag) ? h("button", { "data-act": "decide", "data-run": each.run }, "Decide")
      : h("button", { "data-act": "ask", "data-run": key(each), "aria-expanded": String(opened) }, opened ? "Close" : "Decide"),
    " ", open(each.dag, each.run, "or in Airflow"),
  );
}

const by = (run) => (run.by ? ` by ${run.by}` : run.how === "asset_triggered" ? " by the end of a wave" : "");
const named = (run) => `${run.dry_run ? "Dry run of " : ""}${run.dag}`;

function running(run, told) {
  const paused = told.actions.find((each) => each.dag === run.dag)?.paused;
  return h(
    "p.notice.busy",
    { "data-key": `runs ${key(run)}` },
    icon("under_way"), h("b", {}, ` ${named(run)}`), run.state === "queued" ? " waits to begin" : " runs",
    run.began_ms === null ? "" : `, since ${moment(run.began_ms)}`, `, started${by(run)}. `,
    run.state === "queued" && paused ? "The DAG is paused: unpause it in Airflow, or the run only waits. " : "", open(run.dag, run.run),
  );
}

function failed(run) {
  const reason = reasons.get(key(run));
  const [task] = run.failed;
  if (run.state !== "failed")
    return h("p.notice.ok", { "data-key": `ended ${key(run)}` }, icon("done"), h("b", {}, ` ${named(run)}`), ` ended ${moment(run.ended_ms)}, started${by(run)}. Nothing was touched. `,
      h("button", { "data-act": "dry", "data-run": key(run) }, "What it said"), " ", open(run.dag, run.run), " ", dismiss(run));
  return h(
    "p.notice.bad",
    { "data-key": `ended ${key(run)}` },
    icon("refused"), h("b", {}, ` ${named(run)} failed`), ` ${moment(run.ended_ms)}, started${by(run)}`,
    task ? `, at ${task.task}${run.failed.length > 1 ? ` and ${plural(run.failed.length - 1, "more task")}` : ""}` : "", ". ",
    reason ? h("span.reason", {}, reason) : null, " ", open(run.dag, run.run), " ", dismiss(run),
  );
}

const open = (dag, run, words) => h("a", { href: runPage(dag, run), "data-act": "airflow" }, words || "Open it in Airflow");
const dismiss = (run) => h("button", { "data-act": "dismiss", "data-run": key(run), "aria-label": `Dismiss: ${run.dag}, ${run.run}` }, "Dismiss");
