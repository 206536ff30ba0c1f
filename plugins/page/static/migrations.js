// Migrations: the waves, the runs, and one run step by step with what its gates saw.

import { foretold, page, runPage } from "./airflow.js";
import { h } from "./dom.js";
import { explained, term } from "./help.js";
import { downloads, said, verdictLevel, verdictMark } from "./proofs.js";
import { question } from "./questions.js";
import { coded, duration, icon, moment, number, plural, words } from "./words.js";

const LEVEL = {
  done: "ok", under_way: "busy", planned: "idle", not_begun: "idle", refused: "bad", taken_back: "warn", rolled_back: "warn",
  paused: "busy", blocked: "idle", awaited: "warn",
};
const level = (state) => LEVEL[state] || "bad";
const mark = (state) => ({ not_begun: "planned", blocked: "paused", awaited: "paused" })[state] || state;
const STATES = { awaited: "a person is awaited" };
const stateWords = (state) => STATES[state] || words(state);

const KINDS = { migrate: "Migration", rollback: "Rollback", failover: "Failover", failback: "Failback", drill: "Rehearsal" };
const titled = (each) => `${KINDS[each.kind] || words(each.kind)} of ${each.wave}`;
const rehearsal = (each) => each.kind === "drill";
const begins = (each) => KINDS[each.dag.split("__")[0]] && !each.dry_run && ["queued", "running"].includes(each.state);

export function migrationsView(told, state, questions) {
  if (!told.declared) return h("p", {}, "The file of this topology declares no migration (", h("code", {}, "migration:"), ").");
  return [
    told.cluster.state === "silent"
      ? h("p.problem", {}, `${told.cluster.alias}, where the journal is kept, does not answer`,
          told.cluster.age_ms === null ? ". " : ` since ${duration(told.cluster.age_ms)}; what is shown is that old. `, told.cluster.problem || "") : null,
    told.cluster.state === "reading" ? h("p.note", {}, `The journal on ${told.cluster.alias} is being read …`) : null,
    told.journal.foreign.length ? h("p.problem", {}, icon("broken"), " Journal lines that are not ours, and do not count: ", told.journal.foreign.map(line => `offset ${line.offset} (${line.why})`).join("; "), ".") : null,
    told.journal.unverified ? h("p", {}, `${told.journal.unverified} journal entries are signed; not verified here: no key.`) : null,
    told.journal.broken ? h("p.problem", {}, icon("broken"), " The journal is not whole: ", told.journal.broken, ". What stands before is shown.") : null,
    told.run ? run(told, state, questions) : told.wanted ? h("p.note", {}, `The journal of ${told.topology} has no run ${told.wanted} (yet).`) : null,
    told.runs.length ? runs(told) : h("p.empty", {}, told.airflow.some(begins) ? "A run begins. Its first step is not in the journal yet."
      : ["No run has begun. ", told.actions.some((each) => each.what === "migrate") ? "Start one with “Migrate”: the form says what every step will do." : ""]),
    dryRuns(told, state),
    h("section", { "aria-label": "Waves" }, h("h2", {}, `Waves along ${told.flow}`), h("ol.waves", {}, told.waves.map(wave))),
  ];
}

const saidBy = new Map(); // dry runs: what each step would do
const UNREAD = "What it said cannot be read: ";

// Reads what a dry run said, until it could be read; true when there is something new to show.
export async function learnDryRun(dag, run) {
  const key = `${dag} ${run}`;
  const known = saidBy.get(key);
  if (known !== undefined && !known.startsWith(UNREAD)) return false;
  if (saidBy.size > 20) saidBy.delete(saidBy.keys().next().value);
  try {
    saidBy.set(key, (await foretold(dag, run)) || "It has said nothing: its task has failed, or was skipped.");
  } catch (problem) {
    saidBy.set(key, UNREAD + problem.message);
  }
  return true;
}

function dryRun(each, state) {
  const key = `${each.dag} ${each.run}`;
  const opened = state.dry === key;
  return h("li", { "data-key": `dry ${key}` }, icon("planned"), ` ${moment(each.queued_ms)} · dry run of `,
    h("a", { href: runPage(each.dag, each.run), "data-act": "airflow" }, each.dag), `, ${words(each.state)}${each.by ? `, started by ${each.by}` : ""} `,
    each.ended_ms === null ? null : h("button", { "data-act": "dry", "data-run": key, "aria-expanded": String(opened) }, opened ? "Close" : "What it said"),
    opened ? h("pre.dry", { "data-key": "said", tabindex: 0, role: "region", "aria-label": "What the dry run said" }, saidBy.get(key) || "Reading …") : null);
}

function dryRuns(told, state) {
  const found = told.airflow.filter((each) => each.dry_run);
  if (!found.length) return null;
  return h("section", { "aria-label": "Dry runs" }, h("h2", {}, term("dry run", "Dry runs")), h("p.soft", {}, "They said what every step would do, and touched nothing. They are in no journal."),
    h("ul.dry-runs", {}, found.map((each) => dryRun(each, state))));
}

function wave(each) {
  return h(
    "li",
    { class: `wave ${level(each.state)}`, "data-key": `wave ${each.name}` },
    h("h3", {}, icon(mark(each.state)), ` ${each.name}`, h("span.state", {}, ` ${words(each.state)}`)),
    h(
      "dl.facts",
      {},
      fact("written at", each.truth),
      fact("strategy", `${words(each.strategy)}, fence ${each.fence}`),
      each.at_source.length ? fact("still at the source", `${each.at_source.join(", ")}, since ${moment(each.since_ms)}`) : null,
      each.waits_for.length ? fact("waits for", each.waits_for.join(", ")) : null,
      each.after.length && !each.waits_for.length ? fact("after", each.after.join(", ")) : null,
      fact("topics", each.topics.join(", ")),
      each.consumers.length ? fact("consumers", each.consumers.join(", ")) : null,
      each.producers.length ? fact("producers", each.producers.join(", ")) : null,
      each.gates_before.length ? fact("gates before", each.gates_before.join("; ")) : null,
      each.gates_after.length ? fact("gates after", each.gates_after.join("; ")) : null,
      each.window ? fact("window", `${each.window.opens} for ${duration(each.window.length_ms)}`) : null,
      each.rehearsed ? fact("rehearsed", h("button.link", { "data-act": "run", "data-run": each.rehearsed.run },
        `${moment(each.rehearsed.began_ms)}: ${words(each.rehearsed.state)}`)) : null,
    ),
    each.run ? h("button.link", { "data-act": "run", "data-run": each.run }, "Show its newest run") : null,
  );
}

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

function runs(told) {
  if (told.runs.length < 2 && !told.wanted) return null;
  const shown = told.run && told.run.run;
  return h(
    "section",
    { "aria-label": "Runs" },
    h("h2", {}, "Runs"),
    h(
      "ul.runs",
      {},
      told.runs.map((each) =>
        h("li", { "data-key": `run ${each.run}`, class: level(each.state) }, icon(mark(each.state)), " ",
          h("button.link", { "data-act": "run", "data-run": each.run, "aria-current": each.run === shown ? "true" : null },
            `${moment(each.began_ms)} · ${titled(each)}: ${words(each.state)}`))),
    ),
    told.more_runs ? h("p.soft", {}, coded(`${plural(told.more_runs, "older run")}: \`topology journal\` lists them.`)) : null,
  );
}

// The person who started the DAG run, as Airflow knows it; else whoever the journal names.
function starter(each, told) {
  const found = told.airflow.find((run) => run.dag === each.dag && run.run === each.dag_run);
  return found?.by ? `${found.by} (Airflow)` : each.by;
}

function run(told, state, questions) {
  const each = { ...told.run };
  if (told.awaiting.some((one) => one.dag === each.dag && one.run === each.dag_run)) each.state = "awaited";
  const over = each.ended_ms !== null || each.undone.length > 0;
  const shown = each.steps.filter((step) => !over || step.state !== "planned");
  return h(
    "section",
    { "aria-label": "Timeline", "data-key": `timeline ${each.run}` },
    h("h2", {}, titled(each), h("span", { class: `badge ${level(each.state)}` }, icon(mark(each.state)), ` ${stateWords(each.state)}`)),
    h(
      "p.soft",
      {},
      `Begun ${moment(each.began_ms)} by ${starter(each, told)}`,
      each.ended_ms ? `, ended ${moment(each.ended_ms)} (${duration(each.ended_ms - each.began_ms)})` : `, ${duration(told.at - each.began_ms)} ago`,
      each.strategy ? `; strategy ${words(each.strategy)}` : "",
      each.taken_over ? `; went on in another process ${each.taken_over === 1 ? "once" : `${each.taken_over} times`}` : "",
      ". ",
      each.dag ? h("a", { href: runPage(each.dag, each.dag_run), "data-act": "airflow" }, `${each.dag}, run ${each.dag_run}`) : h("code", {}, each.run),
    ),
    rehearsal(each) ? h("p.note", {}, "A rehearsal: it works on copies of the topics, with producers and consumers of its own. No application moves.") : null,
    each.loss ? lost(each.loss) : null,
    each.reason ? h("p.problem", {}, each.reason) : null,
    each.overdue
      ? h("p.problem", {}, `Nothing was written for ${duration(told.at - each.last_ms)}, for longer than this step may take: its process is dead or hangs. End it if it still runs, then clear its task in Airflow, or go on with --resume.`) : null,
    each.another_plan
      ? h("p.note", {}, each.plan_known ? "The file has changed since this run began; the run keeps its plan."
          : "This run began with another plan than the file gives now, which is not kept here: only its own steps are shown.") : null,
    stands(each, told),
    writes(each, told),
    questions.map((asked) => question(asked, told)),
    files(each, state),
    h("ol.timeline", {}, shown.map((step) => [step.point_of_no_return ? edge(each) : null, row(step, each)])),
    shown.length < each.steps.length
      ? h("p.soft", {}, `Not reached: ${each.steps.filter((step) => !shown.includes(step)).map((step) => words(step.name)).join(", ")}.`) : null,
    each.undone.length ? [h("h3", {}, "Taken back"), h("ol.timeline", {}, each.undone.map((step) => row(step, each)))] : null,
    decisions(each.decisions),
  );
}

// Where the run is, before anybody scrolls: how far, what comes next, whether it can still be taken back by itself.
function stands(each, told) {
  if (each.ended_ms !== null || !each.steps.length) return null;
  const done = each.steps.filter((step) => step.state === "done").length;
  const now = each.steps.find((step) => step.state === "under_way");
  const next = each.steps.find((step) => step.name === each.next);
  const undoing = each.undone.length > 0;
  return h(
    "div.stands",
    { "data-key": "stands" },
    h("p.strip", { role: "img", "aria-label": `${done} of ${plural(each.steps.length, "step")} done` }, each.steps.map((step) =>
      h("span", { class: `part ${level(step.state)} is-${step.state}${step.point_of_no_return ? " is-edge" : ""}`, title: `${words(step.name)}: ${words(step.state)}` }))),
    h("dl.facts", {},
      fact("so far", `${done} of ${plural(each.steps.length, "step")}; the last entry of the journal is ${duration(told.at - each.last_ms)} old`),
      undoing ? fact("now", "what was begun is being taken back") : now ? fact("now", doing(now)) : null,
      each.progress ? fact("sees now", [h("b.live", {}, each.progress.text), each.progress.at_ms === null ? null : h("span.soft", {}, ` (${duration(Math.max(0, told.at - each.progress.at_ms))} ago)`)]) : null,
      next && !undoing ? fact("next step", doing(next)) : null,
      undoing ? null : fact("way back", rehearsal(each) ? "none is needed: only copies are touched" : each.crossed
        ? "behind the point of no return: nothing is taken back by itself any more; “Roll back” carries everything home"
        : "before the point of no return: whatever fails is taken back by itself, and exactly")),
  );
}

// Seconds without writes: what counts for whoever waits for the applications.
function writes(each, told) {
  const { measured_ms, since_ms, usual_ms } = each.writes;
  if (measured_ms === null && since_ms === null && usual_ms === null) return null;
  const expected = usual_ms === null ? null : h("span.soft", {}, ` (expected about ${duration(usual_ms)} when everybody follows at once)`);
  const says = measured_ms !== null ? [h("b", {}, duration(measured_ms)), " without writes, measured from the first producer that was told to stop to the ", term("canary")]
    : since_ms !== null ? [h("b", {}, duration(Math.max(0, told.at - since_ms))), " without writes until now: producers stand still"]
    : each.ended_ms !== null ? "producers did not stand still" : "producers write; they have not been told to stop";
  return h("p.writes", { "data-key": "writes", class: since_ms !== null ? "is-still" : null }, says, measured_ms !== null && each.ended_ms !== null ? null : expected);
}

// Evidence and proofs of this run, with their verdicts beside the links.
function files(each, state) {
  if (!each.evidence.length && !each.proofs.length) return null;
  const at = (one, file, download) =>
    page(`watershed/evidence?${new URLSearchParams({ dag_id: one.dag, run_id: one.run, wave: one.wave, file, ...(download ? { download: "true" } : {}) })}`);
  const opened = [...each.evidence.map((one) => ({ id: `evidence ${one.wave}`, title: `Evidence of wave ${one.wave}`, src: at(one, "evidence.html") })),
    ...each.proofs.map((one) => ({ id: `proof ${one.task}`, title: `Report of the proof ${one.task}`, src: page(`watershed/proof?${new URLSearchParams({ dag_id: one.dag, run_id: one.run, task_id: one.task })}`) }))]
    .find((one) => one.id === state.report);
  const button = (id, about) => h("button", { "data-act": "report", "data-report": id, "aria-expanded": String(opened?.id === id), "aria-label": `${opened?.id === id ? "Close" : "Open"} ${about}` }, opened?.id === id ? "Close" : "Open");
  return h("section.files", { "aria-label": "Evidence and proofs", "data-key": "files" },
    h("h3", {}, "Evidence and proofs"),
    h("ul.plain", {},
      each.proofs.map((one) => h("li", { "data-key": `file ${one.task}` }, h("span", { class: `state ${verdictLevel(one.verdict)}` }, icon(verdictMark(one.verdict)), ` ${said(one)}`),
        `, ${words(one.task)}, level `, one.level ? term(one.level) : "–", " ", one.report ? [button(`proof ${one.task}`, `the report of ${one.task}`), " ", one.verdict === "running" ? null : downloads(one)] : h("span.soft", {}, "no report"))),
      each.evidence.map((one) => h("li", { "data-key": `evidence ${one.wave}` }, sealed(one), " ",
        one.files.includes("evidence.html") ? button(`evidence ${one.wave}`, `the evidence of wave ${one.wave}`) : null, " ",
        one.files.map((file) => [h("a", { href: at(one, file, true), download: "" }, `Download ${file}`), " "])))),
    opened ? h("iframe.report", { "data-key": `frame ${opened.id}`, src: opened.src, title: opened.title, sandbox: true }) : null);
}

// A pack is written for every run that ends, also for one that was refused or taken back; only of one that was done it is
// sealed, and then the journal has its root.
function sealed(one) {
  const of = ` evidence of ${one.wave === "everything" ? "all waves" : `wave ${one.wave}`}, `;
  if (one.sealed) return [h("span.state.ok", {}, icon("done")), of, term("seal", "sealed")];
  const state = one.state || "unknown";
  return [h("span", { class: `state ${one.state ? level(state) : "warn"}` }, icon(one.state ? mark(state) : "silent")), of, one.state === "done"
    ? h("b", {}, "not as it was sealed: its root is not the one in the journal") : ["not sealed; the run ", one.state ? `is ${words(state)}` : "is not among those of the journal that are shown"]];
}

const doing = (step) => [h("b", {}, words(step.name)), ": ", coded(step.does), step.undo ? h("span.soft", {}, ` Undo: ${step.undo}.`) : null];

function lost(loss) {
  return h(
    "section.trouble.bad",
    { "aria-label": "Declared loss", "data-key": "loss" },
    h("h4", {}, icon("broken"), ` Declared as missing: ${loss.offsets ? `at most ${plural(loss.offsets, "record")}` : "no record that was seen at the source"}`,
      loss.rpo_ms ? `, of the last ${duration(loss.rpo_ms)} before it was last seen` : ""),
    h("p", {}, loss.told),
    h("p.soft", {}, loss.accepted ? `Decided: ${loss.accepted}.` : "Nobody has accepted this yet."),
  );
}

function decisions(found) {
  if (!found.length) return null;
  return [h("h3", {}, "Who decided"), h("ul.plain", {}, found.map((seen) =>
    h("li", {}, icon(seen.granted ? "done" : "refused"), ` ${seen.by} ${seen.granted ? "approved" : "refused"} for ${seen.asked} (${words(seen.step)}), ${moment(seen.at_ms)}`,
      seen.note ? h("span.soft", {}, `, ${seen.note}`) : null)))];
}

function edge(each) {
  const says = rehearsal(each) ? ": a migration would not be taken back by itself behind it"
    : each.crossed ? " (crossed): nothing is taken back by itself any more" : ": up to here a rollback is automatic and exact";
  return h("li.edge", { "data-key": "edge" }, h("b", {}, term("point of no return", "Point of no return")), says);
}

function row(step, each) {
  const next = step.name === each.next && ["under_way", "awaited"].includes(each.state);
  const state = next ? "next" : step.state;
  const took = step.ended_ms && step.began_ms !== null ? duration(step.ended_ms - step.began_ms) : "";
  const told = step.point_of_no_return || !step.told ? step.does : step.told;
  return h(
    "li",
    { class: `step ${level(step.state)} is-${step.state}${next ? " is-next" : ""}`, "data-key": `step ${step.name}` },
    h("span.sign", {}, icon(state)),
    h(
      "div",
      {},
      h("h4", {}, explained(words(step.name)), " ", h("span.state", {}, next ? "next" : step.state === "planned" ? "" : words(step.state)),
        " ", h("span.soft.time", {}, took)),
      h("p", {}, coded(told), step.brief ? [" ", h("span.saw", {}, step.brief)] : null),
      step.refused ? h("p.problem", {}, step.refused) : null,
      h("details", {},
        h("summary", {}, step.evidence.length ? `What it saw (${number(step.evidence.length + step.more_evidence)})` : "More", h("span.hidden", {}, ` of ${words(step.name)}`)),
        told === step.does ? null : h("p.soft", {}, coded(`${step.does}.`)),
        step.evidence.length ? evidence(step) : null,
        step.deeds.length ? h("ul.plain.deeds", {}, step.deeds.filter((deed) => deed.kind === "outcome").map((deed) =>
          h("li", {}, h("code", {}, deed.deed), ` ${deed.about} ${moment(deed.at_ms)}`, deed.failed ? h("span.problem", {}, ` failed: ${deed.failed}`) : null))) : null,
        h("p.soft", {}, step.undo ? `Undo: ${step.undo}.` : "Changes nothing, so nothing is undone.",
          step.bound_ms && step.state === "planned" ? ` It waits ${duration(step.bound_ms)} at most.` : null)),
    ),
  );
}

const evidence = (step) =>
  h("div.scroll", { tabindex: 0, role: "region", "aria-label": `What ${words(step.name)} saw` }, h("table.evidence", {}, h("caption", {}, `What ${words(step.name)} saw`),
    h("tbody", {}, step.evidence.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, words(name)), h("td", {}, value))))),
    step.more_evidence ? h("p.soft", {}, coded(`${plural(step.more_evidence, "value")} more: \`topology journal\` has them.`)) : null);
