// Starting a run of a DAG: what will happen, then the form, made from the DAG's own params. Airflow checks them and the
// right to start. Only buttons that this user may press are shown; those that move applications back stand apart.

import { details, read as ask, runPage, trigger, unpause } from "./airflow.js";
import { draw, h } from "./dom.js";
import { explained } from "./help.js";
import { isMove } from "./questions.js";
import { coded, duration, plural, words } from "./words.js";

const ABOUT_A_FLOW = ["operate", "decide"]; // what they do, and to which flow, is chosen by a person and never by a default

export function buttons(actions) {
  const may = actions.filter((each) => each.allowed);
  const not = actions.filter((each) => !each.allowed);
  const shown = (danger) => may.filter((each) => each.danger === danger && each.what !== "fleet").map(button);
  const dangerous = shown(true);
  return [
    h("span.group", { "data-key": "usual" }, shown(false)),
    dangerous.length ? h("span.group.apart", { "data-key": "apart", role: "group", "aria-label": "Dangerous: these move applications back or without their source" }, dangerous) : null,
    not.length ? h("details.may-not", { "data-key": "may-not" },
      h("summary", {}, may.length ? "What you may not start" : "You may look, and not act"),
      h("ul.plain", {}, not.map((each) => h("li", {}, h("b", {}, each.words), `: ${each.why_not}`)))) : null,
  ];
}

const button = (each) =>
  h("button", { "data-act": "start", "data-dag": each.dag, "data-key": `start ${each.dag}`, class: each.danger ? "danger" : null, title: `Asks first: ${each.does}` }, `${each.words} …`);

// What can be started for one flow: its panel covers the buttons of the page's head, which begin with any flow.
export function flowButtons(actions, flow) {
  const found = actions.filter((each) => ABOUT_A_FLOW.includes(each.what) && each.allowed);
  return found.length ? h("p.group", { "data-key": "of the flow", role: "group", "aria-label": `Start a run about ${flow}` },
    found.map((each) => aboutButton(each, `${each.words} …`, `${each.words}: ${flow}`, { preset: { flow } }))) : null;
}

// What the page can do about a halted partition, beside the command that its remedy names. alike: so many partitions.
export function remedyButtons(operations, actions, { flow, topic, partition }, alike) {
  if (!operations.length) return null;
  const place = `${topic}-${partition}`;
  const about = alike > 1 ? `${plural(alike, "partition")} are halted alike. This run is about ${place}; each of the others needs a run of its own, unless the operation takes a whole topic or flow.` : null;
  const known = operations.map((one) => ({ ...one, action: actions.find((action) => action.what === one.what) })).filter((one) => one.action);
  const may = known.filter((one) => one.action.allowed);
  if (!may.length) return known.length ? h("p.soft", {}, known[0].action.why_not) : null;
  return h("p.group", { role: "group", "aria-label": `What to do about ${place}`, "data-key": `remedies ${flow} ${place}` }, h("span.soft", {}, "Here: "),
    may.map(({ action, operation, words: said }) => {
      const whole = action.what !== "decide"; // about the whole flow
      const text = whole ? said : `${said}: ${place}`;
      return aboutButton(action, `${text} …`, `${text}, flow ${flow}`, { preset: { operation, flow }, suggest: whole ? {} : { topic, partition }, about });
    }));
}

// Pauses one partition, or lets it go on. paused: as `rows` have it. Nothing where this user may not operate.
export function pauseButton(actions, flow, { topic, partition, paused }) {
  const action = actions.find((each) => each.what === "operate" && each.allowed);
  if (!action) return null;
  const whole = paused === "all"; // only the whole topic can be resumed then
  const operation = paused === null ? "pause" : "resume";
  const text = operation === "pause" ? "Pause" : whole ? "Resume the topic" : "Resume";
  return aboutButton(action, `${text} …`, `${text} ${whole ? topic : `${topic}-${partition}`}, flow ${flow}`,
    { preset: { operation, flow }, suggest: whole ? { topic } : { topic, partition } });
}

const aboutButton = (action, text, label, given) =>
  h("button", { "data-act": "start", "data-dag": action.dag, "data-given": JSON.stringify(given), "data-key": `start ${action.dag} ${label}`, "aria-label": label, class: action.danger ? "danger" : null, title: `Asks first: ${action.does}` }, text);

// dialog: where the form is drawn. context: what the page knows (`topology`, `done`: waves that a rollback may take back,
// `preset`: values of params that stay; `suggest`: values that the form begins with; `about`: a note about them).
// told(text, href): what became of it.
export async function start(dialog, action, context, told) {
  let dag;
  let params;
  try {
    dag = await details(action.dag);
    params = Object.entries(dag.params || {}).map(([name, param]) => [name, chosen(name, param, action, context)]);
    for (const name of Object.keys(context.preset)) if (!(name in (dag.params || {}))) throw new Error(`it has no parameter ${name}`);
  } catch (problem) {
    told(`${action.dag} cannot be started: ${problem.message}`);
    return;
  }
  draw(
    dialog,
    h(
      "form",
      { method: "dialog", "data-key": `form ${action.dag} ${Date.now()}` },
      h("h2", { id: "form-title", tabindex: -1 }, `${action.words}: ${action.dag}`),
      h("p", {}, h("b", {}, "What will happen: "), action.does),
      context.about ? h("p.note", {}, context.about) : null,
      params.map(([name, param]) => field(name, param)),
      h("div", { id: "preview", "aria-live": "polite" }),
      dag.is_paused
        ? h("p.note", {}, h("label", {}, h("input", { type: "checkbox", name: "unpause", checked: action.unpauses, disabled: !action.unpauses }),
            " Unpause this DAG, too: while it is paused, a run only waits.")) : null,
      action.danger ? h("p.field", {}, h("label", {}, h("input", { type: "checkbox", name: "understood", id: "understood" }), " I have read what will happen.")) : null,
      h("p.problem", { id: "form-problem", role: "alert", hidden: true }),
      h("p.buttons", {}, h("button", { type: "submit", value: "start", id: "form-start", class: action.danger ? "danger" : "primary" }, action.words), " ",
        h("button", { type: "button", "data-act": "cancel" }, "Cancel (Esc)")),
    ),
  );
  const form = dialog.querySelector("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(dialog, form, action, params, told);
  });
  form.addEventListener("change", () => foresee(form, action, params, context));
  foresee(form, action, params, context);
  dialog.showModal();
  (dialog.querySelector("input:not([type=hidden]), select") || dialog.querySelector("#form-start")).focus();
}

// A param with the value that its form begins with: what the button says, else a choice that is the only one there is.
// What the button says stays so (`fixed`). Raises an error for what the DAG does not know: a list would silently choose its
// first entry, which may be "all".
function chosen(name, param, action, context) {
  if (name in context.preset) {
    const known = param.schema?.enum;
    const value = context.preset[name];
    if (known && !known.includes(value)) throw new Error(`its ${name} can be ${known.join(", ")}, and not ${value}. The file may have changed; open Airflow's own form`);
    return { ...param, value, fixed: true };
  }
  if (name in (context.suggest || {})) return { ...param, value: context.suggest[name] };
  if (ABOUT_A_FLOW.includes(action.what) && ["flow", "operation"].includes(name) && param.schema?.enum?.length > 1) return { ...param, value: undefined, asked: true };
  const options = param.schema?.items?.enum;
  if (name !== "waves" || !options || (param.value || []).length) return param;
  const done = action.what === "rollback" ? options.filter((each) => (context.done || []).includes(each)) : [];
  const one = options.length === 1 ? options : done.length === 1 ? done : [];
  return { ...param, value: one };
}

let foreseen = 0;

// What the run would do with what is chosen now, from the server; and what the button says.
// Only the newest answer counts, and until it is there nothing can be started: what is read is what is done.
async function foresee(form, action, params, context) {
  const mine = (foreseen += 1);
  const values = {};
  showWanted(form, params);
  for (const [name, param] of params) {
    try {
      values[name] = value(form, name, param);
    } catch {
      values[name] = undefined; // half-written JSON; sending it says what is wrong
    }
  }
  const dry = values.dry_run === true;
  form.querySelector("#form-start").textContent = dry ? "Start the dry run" : action.words;
  if (form.elements.understood) form.elements.understood.closest("p").hidden = dry;
  const place = form.querySelector("#preview");
  if (!isMove(action.dag)) return draw(place);
  form.querySelector("#form-start").disabled = true;
  form.dataset.plan = "";
  draw(place, h("p.soft", {}, "Reading what it would do …"));
  const query = { topology: context.topology, what: action.what, waves: (values.waves || []).join(","), strategy: values.strategy };
  let told;
  try {
    told = await ask("preview", query);
  } catch (problem) {
    if (mine !== foreseen) return undefined;
    form.querySelector("#form-start").disabled = false;
    return draw(place, h("p.problem", {}, `What it would do is not known: ${problem.message}`));
  }
  if (mine !== foreseen) return undefined;
  form.querySelector("#form-start").disabled = false;
  form.dataset.plan = told.plan;
  const unchosen = Array.isArray(values.waves) && !values.waves.length && ["migrate", "rollback"].includes(action.what);
  return draw(place, dry ? h("p.note", {}, h("b", {}, "A dry run: "), "nothing is touched. The run is marked as a dry run, and only says what every step would do.") : null,
    unchosen ? h("p.note", {}, "No wave is chosen: choose at least one.") : told.waves.map(previewed), told.more ? h("p.soft", {}, `and ${told.more} more waves`) : null);
}

// Only the params that the chosen operation reads are shown, and sent.
function showWanted(form, params) {
  for (const [name, param] of params) {
    const place = form.querySelector(`[data-param="${CSS.escape(name)}"]`);
    if (place) place.hidden = !isWanted(form, param);
  }
}

function isWanted(form, param) {
  const wanted = param.schema?.operations;
  return !wanted || wanted.includes(form.elements["param operation"]?.value);
}

function previewed(each) {
  if (each.problem) return h("p.problem", { "data-key": `preview ${each.wave}` }, `${each.wave}: ${each.problem}`);
  const names = (what, list) => (list.length ? [h("dt", {}, what), h("dd", {}, list.join(", "))] : null);
  return h("section.preview", { "data-key": `preview ${each.wave}` },
    h("h3", {}, `Wave ${each.wave}: ${each.source} to ${each.target}`),
    h("dl.facts", {},
      each.strategy ? [h("dt", {}, "strategy"), h("dd", {}, words(each.strategy))] : null,
      names("topics", each.topics), names("consumers", each.consumers), names("producers", each.producers),
      each.without_writes_ms === null ? null : [h("dt", {}, "without writes"), h("dd", {}, `about ${duration(each.without_writes_ms)}, between fence and switch, when everybody follows at once`)],
      each.way_back ? [h("dt", {}, "way back"), h("dd", {}, coded(each.way_back))] : null),
    h("details", {}, h("summary", {}, `Its ${each.steps.length} steps`),
      h("ol.foreseen", {}, each.steps.map((step) => [
        step.point_of_no_return ? h("li.edge", {}, h("b", {}, "Point of no return"), ": behind it nothing is taken back by itself") : null,
        h("li", {}, h("b", {}, explained(words(step.name))), h("span.soft", {}, ` by ${step.actor}${step.bound_ms ? `, at most ${duration(step.bound_ms)}` : ""}`),
          h("br"), coded(step.does), h("br"), h("span.soft", {}, `Undo: ${step.undo || "nothing is changed"}`)),
      ]))));
}

async function submit(dialog, form, action, params, told) {
  const problem = form.querySelector("#form-problem");
  const conf = {};
  const refuse = (text) => {
    problem.hidden = false;
    problem.textContent = text;
  };
  try {
    for (const [name, param] of params) {
      if (!isWanted(form, param)) continue;
      const found = value(form, name, param);
      if (found !== undefined) conf[name] = found;
      else if (param.asked) return refuse(`Choose the ${titleOf(name, param)}.`);
    }
    if (params.some(([name]) => name === "plan_hash") && form.dataset.plan) conf.plan_hash = form.dataset.plan; // what was read
    if (Array.isArray(conf.waves) && !conf.waves.length && ["migrate", "rollback"].includes(action.what)) return refuse("Choose at least one wave.");
    if (form.elements.understood && !conf.dry_run && !form.elements.understood.checked) return refuse("Read what will happen, and tick the box.");
    if (form.elements.unpause?.checked) await unpause(action.dag);
    const run = await trigger(action.dag, conf);
    dialog.close();
    told(`${conf.dry_run ? "Dry run" : "Run"} ${run.dag_run_id} of ${action.dag} has begun.`, runPage(action.dag, run.dag_run_id));
  } catch (refused) {
    refuse(refused.message);
  }
}

function field(name, param) {
  const schema = param.schema || {};
  const value = param.value;
  const input = `param ${name}`;
  const id = `param-${name}`;
  const about = param.description ? h("small", { id: `${id}-about` }, coded(param.description)) : null;
  const described = { id, name: input, "aria-describedby": about ? `${id}-about` : null };
  const title = titleOf(name, param);
  if (name === "plan_hash") return null; // the plan that was previewed
  const own = { "data-param": name };
  if (param.fixed) return h("p.field", own, `${title}: `, h("b", {}, String(value)), h("input", { type: "hidden", name: input, value: String(value) }), schema.meanings?.[value] ? h("small", {}, schema.meanings[value]) : null);
  let control;
  if (schema.type === "boolean") {
    return h("p.field", own, h("label", {}, h("input", { type: "checkbox", ...described, checked: value === true }), ` ${title}`), about);
  }
  const options = ["array", "object"].includes(kindOf(schema)) ? schema.items?.enum || schema.examples : null;
  if (options) {
    return h("fieldset.field", { ...own, "aria-describedby": described["aria-describedby"] }, h("legend", {}, title), about,
      options.map((each) => h("label", {}, h("input", { type: "checkbox", name: input, value: String(each), checked: (value || []).includes(each) }), ` ${each}`)));
  }
  if (schema.enum) {
    control = h("select", described, param.asked ? h("option", { value: "", selected: true }, "choose …") : null, schema.enum.map((each) => h("option", { value: String(each), selected: each === value }, String(each))));
  } else if (["number", "integer"].includes(kindOf(schema))) {
    control = h("input", { type: "number", ...described, value: value ?? "", min: schema.minimum, max: schema.maximum, step: kindOf(schema) === "integer" ? 1 : "any" });
  } else if (["array", "object"].includes(kindOf(schema))) {
    control = h("textarea", described, JSON.stringify(value ?? null));
  } else {
    control = h("input", { type: "text", ...described, value: value ?? "" });
  }
  return h("p.field", own, h("label", { for: id }, title), control, about);
}

const titleOf = (name, param) => param.schema?.title || name.replaceAll("_", " ");

const kindOf = (schema) => (Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type);

// What a form says of one param; undefined: nothing, and the DAG's own default counts.
function value(form, name, param) {
  const schema = param.schema || {};
  const control = form.elements[`param ${name}`];
  if (name === "plan_hash") return undefined;
  if (!control) return [];
  if (["array", "object"].includes(kindOf(schema)) && (schema.items?.enum || schema.examples))
    return [...form.querySelectorAll(`input[name="param ${CSS.escape(name)}"]`)].filter((each) => each.checked).map((each) => each.value);
  if (control.type === "checkbox") return control.checked;
  if (schema.enum) return schema.enum.find((each) => String(each) === control.value);
  if (control.type === "number") return control.value === "" ? undefined : Number(control.value);
  if (control.tagName === "TEXTAREA") return JSON.parse(control.value);
  if (control.value === "" && Array.isArray(schema.type) && schema.type.includes("null")) return null;
  return control.value;
}
