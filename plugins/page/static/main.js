// The page: where a person is stands in the address (#…), what is shown is read again every two seconds.

import { buttons, start } from "./actions.js";
import * as airflow from "./airflow.js";
import { flowDetail } from "./detail.js";
import { draw, h } from "./dom.js";
import { fleetAction, fleetsView } from "./fleets.js";
import { clusterDetail, flowsView } from "./flows.js";
import { openHelp } from "./help.js";
import { groupsView, topicsView } from "./lists.js";
import { learnDryRun, migrationsView } from "./migrations.js";
import { hush, learn, notices } from "./notices.js";
import { proofsView } from "./proofs.js";
import { confirmAnswer, identity, isMove } from "./questions.js";
import { follow } from "./theme.js";
import { clock, coded, duration, words } from "./words.js";

const EVERY_MS = 2000;
const VIEWS = ["flows", "topics", "groups", "fleets", "migrations", "proofs"];
const LISTS = ["flows", "topics", "groups"]; // those with a filter and pages
const TOAST_MS = 10000;
// What stands in the address: with it a view opens again as it was. first, part: numbers of the first row of a page.
const PLACES = ["topology", "view", "flow", "cluster", "pair", "run", "report", "dry", "asking", "only", "first", "part", "partOnly"];
const KINDS = { replicate: "flows", verify: "proofs", migrate: "migrations", rollback: "migrations", failover: "migrations", failback: "migrations", after_cutover: "proofs", fleet: "fleets", supervise: "fleets", operate: "flows", decide: "flows", inspect: "flows", drill: "migrations", abandon: "migrations" };
const $ = (id) => document.getElementById(id);

const query = new URLSearchParams(location.search);
const tab = ofDag(query.get("dag"), query.get("run"));
const state = { topology: "", view: "flows", flow: "", cluster: "", pair: "", run: "", report: "", dry: "", asking: "", only: "", first: 0, part: 0, partOnly: "", chosen: "", runFixed: false };
let names = null; // topologies that this user may see
let told = null; // what was read last, of the view
let detail = null;
let asked = []; // questions of the run that is shown
let besides = []; // questions of the run `state.asking`, which stand under their notice
let readAt = 0;
let problem = null;
let round = 0;
let opener = "";

function ofDag(dag, run) {
  if (!dag) return null;
  const [kind, ...rest] = dag.split("__");
  return { dag, kind, topology: rest.join("__"), run: run || "", view: KINDS[kind.replace(/_\d+$/, "")] }; // supervise_2 is as supervise
}

function fromAddress() {
  const at = new URLSearchParams(location.hash.slice(1));
  for (const key of PLACES) state[key] = at.get(key) || "";
  for (const key of ["first", "part"]) state[key] = Math.max(0, Number.parseInt(state[key], 10) || 0);
  if (tab) {
    state.topology = tab.topology;
    state.runFixed = Boolean(tab.run);
    state.view ||= tab.view;
    if (tab.run && tab.view === state.view && !at.has("run")) state.run = tab.run;
  }
  if (!VIEWS.includes(state.view)) state.view = "flows";
  state.topology ||= names?.[0]?.name || "";
}

// Goes to another place, and remembers it in the address: of this frame, and of the page around it, which survives a
// reload. A list begins at its start again unless it says where. how: `replaceState` while somebody types.
function go(change, how = "pushState") {
  const other = ["view", "only", "pair", "topology"].some((key) => key in change);
  Object.assign(state, other ? { first: 0 } : {}, "flow" in change ? { part: 0, partOnly: "" } : {}, change);
  const at = new URLSearchParams();
  for (const key of PLACES) if (state[key] && !(tab && key === "topology")) at.set(key, state[key]);
  history[how](null, "", `#${at}`);
  airflow.outerHash(`#${at}`);
  return tick();
}

async function tick() {
  const mine = (round += 1);
  try {
    if (!names) {
      names = (await airflow.read("topologies")).topologies;
      fromAddress();
    }
    if (!state.topology || (tab && !tab.view)) {
      problem = null;
      return paint();
    }
    const topology = state.topology;
    const [view, part, questions, others] = await Promise.all([
      LISTS.includes(state.view) ? airflow.read(state.view, { topology, only: state.only, first: state.first, ...(state.view === "flows" ? { pair: state.pair, cluster: state.cluster } : {}) })
        : airflow.read(state.view, { topology, run: state.view === "migrations" || state.runFixed ? state.run : "" }),
      state.flow ? airflow.read("flow", { topology, flow: state.flow, first: state.part, only: state.partOnly }) : null,
      open(told),
      state.asking ? listQuestions(...splitKey(state.asking)) : [],
    ]);
    if (mine !== round) return;
    [told, detail, asked, besides] = [{ ...view, view: state.view, topology }, part, questions, others];
    [readAt, problem] = [Date.now(), null];
    learn(told).then((news) => news && paint());
    if (state.dry && state.view === "migrations") learnDryRun(...splitKey(state.dry)).then((news) => news && paint());
  } catch (failure) {
    if (mine !== round) return;
    problem = failure;
  }
  paint();
}

// What a person has to decide in the run that was shown last.
async function open(last) {
  const run = last?.view === "migrations" && state.view === "migrations" ? last.run : null;
  return run?.state === "under_way" ? listQuestions(run.dag, run.dag_run) : [];
}

const splitKey = (key) => [key.slice(0, key.indexOf(" ")), key.slice(key.indexOf(" ") + 1)]; // DAG, run

async function listQuestions(dag, run) {
  if (!dag) return [];
  try {
    return await airflow.questions(dag, run);
  } catch {
    return []; // the run is not Airflow's, or this user may not see it
  }
}

function paint() {
  $("choice").hidden = Boolean(tab) || !names || names.length < 2;
  if (names && $("choice").hidden === false)
    draw($("topology"), names.map((each) => h("option", { value: each.name, selected: each.name === state.topology }, each.name)));
  $("topology").value = state.topology;
  for (const view of VIEWS) {
    $(`tab-${view}`).setAttribute("aria-selected", String(view === state.view));
    $(`tab-${view}`).tabIndex = view === state.view ? 0 : -1;
  }
  $("tabs").hidden = !state.topology || Boolean(tab && !tab.view);
  $("view").setAttribute("aria-labelledby", `tab-${state.view}`);
  draw($("banner"), problem ? h("div.problem", {}, banner()) : null, told?.problem && told.topology === state.topology ? h("div.problem", { "data-key": "file" }, brokenFile()) : null);
  fresh();
  if (!names) return;
  if (tab && !tab.view) return draw($("view"), h("p", {}, `${tab.dag} is not a DAG of a topology.`));
  if (!names.length) return draw($("view"), h("p.empty", {}, "There is no topology that you may see. Topologies are the files in WATERSHED_TOPOLOGIES; to see one you need to be allowed to read its DAG replicate__NAME."));
  if (!told || told.view !== state.view || told.topology !== state.topology) return draw($("view"), problem ? null : h("p.loading", { role: "status" }, "Reading …"));
  draw($("actions"), buttons(told.actions || []));
  const said = notices(told, state.asking, besides);
  draw($("notices"), said);
  $("notices").hidden = !said.length;
  awaited(told.awaiting || []);
  $("view").classList.toggle("is-stale", Boolean(problem));
  const views = { flows: flowsView, topics: topicsView, groups: groupsView, fleets: fleetsView, migrations: () => migrationsView(told, state, asked), proofs: proofsView };
  draw($("view"), views[state.view](told, state));
  fill("only", state.only === "attention" ? "" : state.only);
  panel();
  fill("part-only", state.partOnly);
}

// An input shows what is filtered by, unless somebody types in it.
function fill(id, text) {
  if ($(id) && $(id) !== document.activeElement) $(id).value = text;
}

// That a person is awaited is seen from every view, and in the browser's tab.
function awaited(found) {
  const count = found.length;
  document.title = count ? `(${count}) Replication` : "Replication";
  draw($("tab-migrations"), "Migrations", count ? h("span.awaits", {}, String(count), h("span.hidden", {}, count === 1 ? " question waits for a person" : " questions wait for a person")) : null);
}

function panel() {
  const content = state.flow && detail && detail.id === state.flow ? flowDetail(detail, told.actions || [])
    : state.cluster && told.view === "flows" ? clusterDetail(told, state.cluster) : null;
  const shown = Boolean(content);
  const opened = shown && $("detail").hidden;
  $("detail").hidden = !shown;
  document.body.classList.toggle("has-detail", shown);
  draw($("detail"), content && [content[0], message ? h("div.told", { "data-key": "told" }, messageLine()) : null, content.slice(1)]);
  if (opened) $("detail-title").focus({ preventScroll: true });
}

function banner() {
  const status = problem.status;
  if (status === 401 || status === 403) return "You are not logged in any more. Reload Airflow's page.";
  if (status === 404) return `${state.topology}: there is nothing of that name, or you may not see it.`;
  if (status === 422) return [`The file of ${state.topology} does not compile. `, h("pre", {}, problem.message), MEND];
  const old = readAt ? ` What is shown is from ${clock(readAt)}, ${duration(Date.now() - readAt)} ago.` : "";
  return `Airflow does not answer (${problem.message}).${old} It is asked again every two seconds; what is shown may have changed.`;
}

const MEND = h("p", {}, coded("Mend the file: `topology lint FILE` shows each place, `topology explain CODE` the rule with an example. Airflow reads it again by itself."));

const brokenFile = () => [h("b", {}, `The file of ${state.topology} does not compile any more.`), " Flows and workers that run go on with the plan that was applied last. What is shown is the last plan that compiled; a new run fails at its first task.",
  h("pre", {}, told.problem), MEND.cloneNode(true)];

function fresh() {
  const late = readAt && Date.now() - readAt > 3 * EVERY_MS;
  $("fresh").textContent = readAt ? `Read at ${clock(readAt)}${late ? `, ${duration(Date.now() - readAt)} ago` : ""}` : "";
  $("fresh").classList.toggle("late", Boolean(late));
}

// A message leaves by itself, but not while somebody reads it: with the focus or the pointer on it, it stays. It stands
// in the head of the page and never lies on a button.
// An open panel covers it, and shows it, too.
let leaving = 0;
let message = null;
function say(text, href) {
  clearTimeout(leaving);
  leaving = setTimeout(function leave() {
    if (document.querySelector(".told:hover, .told:focus-within")) leaving = setTimeout(leave, 1000);
    else showMessage(null);
  }, TOAST_MS);
  showMessage({ text, href });
}

function showMessage(shown) {
  message = shown;
  draw($("told"), messageLine());
  if (told) panel();
}

const messageLine = () => message && h("p", {}, message.text, " ", message.href ? h("a", { href: message.href, "data-act": "airflow" }, "Open it in Airflow") : null, " ", h("button", { "data-act": "hush", "aria-label": "Close the message" }, "Close"));

function close() {
  const back = opener;
  [opener, detail] = ["", null];
  go({ flow: "", cluster: "" });
  $("detail").hidden = true;
  document.body.classList.remove("has-detail");
  (back && document.querySelector(`[data-key="${CSS.escape(back)}"]`) || $("view")).focus();
}

function show(element, change) {
  opener = element.closest("#detail") ? opener : element.dataset.key || opener;
  detail = null;
  go(change);
}

// What a button of the page's head begins with: the first alert that it is a remedy for.
function firstRemedy(what) {
  const alert = (told.alerts || []).find((each) => each.operations.some((one) => one.what === what));
  if (!alert) return {};
  const { operation } = alert.operations.find((one) => one.what === what);
  const { flow, topic, partition } = alert.example;
  return {
    suggest: { operation, flow, ...(what === "decide" ? { topic, partition } : {}) },
    about: `Filled in for ${flow}, ${topic}-${partition}: ${words(alert.state)}. Change it if you mean another.`,
  };
}

const ACTS = {
  view: (element) => go({ view: element.dataset.view, flow: "", cluster: "", report: "", dry: "", only: "", pair: "", run: tab?.view === element.dataset.view ? tab.run : "" }),
  flow: (element) => show(element, { flow: element.dataset.flow, cluster: "" }),
  cluster: (element) => show(element, { cluster: element.dataset.cluster, flow: "" }),
  arrow: (element) => element.dataset.flow ? show(element, { flow: element.dataset.flow, cluster: "" })
    : go({ pair: element.dataset.pair }).then(() => $("table")?.focus()),
  attention: () => go({ only: state.only === "attention" ? "" : "attention", pair: "" }),
  filter: (element) => go({ only: element.dataset.only, pair: "", flow: "", cluster: "" }),
  unfilter: () => { $("only").value = ""; go({ only: "", pair: "" }); },
  more: (element) => go({ [element.dataset.at]: Number(element.dataset.first) }),
  close,
  run: (element) => go({ run: element.dataset.run }),
  report: (element) => go({ report: state.report === element.dataset.report ? "" : element.dataset.report })
    .then(() => document.querySelector("iframe.report")?.scrollIntoView({ block: "start" })),
  dry: (element) => {
    const dry = state.dry === element.dataset.run && state.view === "migrations" ? "" : element.dataset.run;
    go({ view: "migrations", flow: "", cluster: "", dry }).then(() => document.querySelector("pre.dry")?.scrollIntoView({ block: "center" }));
  },
  start: (element) => {
    const found = told.actions.find((each) => each.dag === element.dataset.dag);
    const given = element.dataset.given ? JSON.parse(element.dataset.given) : firstRemedy(found.what);
    const preset = given.preset || {};
    const action = found.what === "fleet" ? { ...found, ...fleetAction(preset.action, preset.target) } : found;
    const done = (told.waves || []).filter((each) => each.state === "done").map((each) => each.name);
    start($("form"), action, { topology: state.topology, done, ...given, preset }, (text, href) => { say(text, href); tick(); });
  },
  cancel: () => $("form").close(),
  hush: () => showMessage(null),
  dismiss: (element) => { hush(element.dataset.run); paint(); },
  ask: (element) => go({ asking: state.asking === element.dataset.run ? "" : element.dataset.run }).then(() => document.querySelector("#notices .question")?.scrollIntoView({ block: "nearest" })),
  decide: (element) => go({ view: "migrations", run: element.dataset.run, flow: "", cluster: "" }).then(() => document.querySelector(".question")?.scrollIntoView({ block: "start" })),
  help: () => openHelp($("help")),
  "close-help": () => $("help").close(),
  answer: (element) => {
    const next = told.run?.steps?.find((step) => step.name === told.run.next);
    const question = [...asked, ...besides].find((each) => identity(each) === element.dataset.question);
    if (!question) return tick();
    confirmAnswer($("form"), question, element.dataset.option, next, (text, done) => {
      if (done) [asked, besides] = [[], []];
      say(text);
      paint(); // until it is read again nothing can be answered: a button that stayed would do nothing
      tick().then(() => done && isMove(question.task_instance.dag_id) && document.querySelector("[data-key=stands]")?.scrollIntoView({ block: "center" }));
    });
  },
};

document.addEventListener("click", (event) => {
  const element = event.target.closest("[data-act]");
  if (!element) return;
  if (element.dataset.act === "airflow") {
    if (!event.ctrlKey && !event.metaKey && airflow.open(element.href)) event.preventDefault();
    return;
  }
  ACTS[element.dataset.act]?.(element);
});

document.addEventListener("keydown", (event) => {
  const element = event.target.closest?.("[data-act]");
  if (event.key === "Escape" && !$("detail").hidden && !$("form").open && !$("help").open) return close();
  if (event.key === "?" && !event.target.closest?.("input, textarea, select") && !$("form").open && !$("help").open) return openHelp($("help"));
  if (event.key === "Tab" && event.target.closest?.("#detail")) stayInside(event);
  if (element?.matches("svg g") && (event.key === "Enter" || event.key === " ")) {
    event.preventDefault();
    ACTS[element.dataset.act](element);
  } else if (element?.matches("svg g") || element?.matches("[role=tab]")) step(event, element);
});

// The panel lies over the page: Tab goes round in it, Esc leads out, so that the focus is never behind it.
function stayInside(event) {
  const all = [...$("detail").querySelectorAll("button:not([disabled]), a[href], summary")];
  const edge = event.shiftKey ? [all[0], $("detail-title")] : [all.at(-1)];
  if (!edge.includes(document.activeElement)) return;
  event.preventDefault();
  (event.shiftKey ? all.at(-1) : all[0]).focus();
}

// Arrow keys inside the graph, and from tab to tab.
function step(event, element) {
  const all = [...(element.matches("[role=tab]") ? document.querySelectorAll("[role=tab]") : element.closest("svg").querySelectorAll("g[tabindex]"))];
  const at = all.indexOf(element);
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined || !all[to]) return;
  event.preventDefault();
  if (!element.matches("[role=tab]")) {
    state.chosen = all[to].dataset.key;
    element.setAttribute("tabindex", -1);
    all[to].setAttribute("tabindex", 0);
  }
  all[to].focus();
}

let typed = 0;
document.addEventListener("input", (event) => {
  const text = event.target.value?.trim();
  if (event.target.id !== "only" && event.target.id !== "part-only") return;
  clearTimeout(typed);
  typed = setTimeout(() => go(event.target.id === "only" ? { only: text, pair: "" } : { partOnly: text, part: 0 }, "replaceState"), 250);
});
document.addEventListener("change", (event) => {
  if (event.target.id === "topology") {
    [told, detail] = [null, null];
    go({ topology: event.target.value, flow: "", cluster: "", pair: "", run: "", report: "", dry: "", asking: "", only: "" });
  }
});
window.addEventListener("popstate", () => {
  fromAddress();
  airflow.outerHash(location.hash || "#");
  tick();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });

async function forever() {
  for (;;) {
    if (!document.hidden || !told) await tick();
    await new Promise((done) => { setTimeout(done, EVERY_MS); });
  }
}

follow();
if (!location.hash && airflow.outerHash()) history.replaceState(null, "", airflow.outerHash()); // the page around was reloaded
fromAddress();
setInterval(fresh, 1000);
forever();
