// Starting a run of a DAG: the form is made from the DAG's own params, Airflow checks them and the right to do it.

import { details, runPage, trigger, unpause } from "./airflow.js";
import { draw, h } from "./dom.js";
import { coded } from "./words.js";

export const buttons = (actions) =>
  actions.map((each) =>
    h(
      "button",
      {
        "data-act": "start", "data-dag": each.dag, "data-key": `start ${each.dag}`, "aria-disabled": each.allowed ? null : "true",
        title: each.allowed ? `Starts a run of ${each.dag}` : each.why_not,
      },
      each.words,
      each.allowed ? null : h("span.hidden", {}, `. ${each.why_not}`),
    ));

// dialog: where the form is drawn. told(text, href): what became of it.
export async function start(dialog, action, told) {
  let dag;
  try {
    dag = await details(action.dag);
  } catch (problem) {
    told(`${action.dag} cannot be started: ${problem.message}`);
    return;
  }
  const params = Object.entries(dag.params || {});
  draw(
    dialog,
    h(
      "form",
      { method: "dialog", "data-key": `form ${action.dag} ${Date.now()}` },
      h("h2", { id: "form-title", tabindex: -1 }, `${action.words}: ${action.dag}`),
      params.map(([name, param]) => field(name, param)),
      dag.is_paused
        ? h("p.note", {}, h("label", {}, h("input", { type: "checkbox", name: "unpause", checked: action.unpauses, disabled: !action.unpauses }),
            " Unpause this DAG, too: while it is paused, a run only waits.")) : null,
      h("p.problem", { id: "form-problem", role: "alert", hidden: true }),
      h("p.buttons", {}, h("button.primary", { type: "submit", value: "start" }, "Start"), " ", h("button", { type: "button", "data-act": "cancel" }, "Cancel (Esc)")),
    ),
  );
  const form = dialog.querySelector("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(dialog, form, action, params, told);
  });
  dialog.showModal();
  dialog.querySelector("input, select, button")?.focus();
}

async function submit(dialog, form, action, params, told) {
  const problem = form.querySelector("#form-problem");
  const conf = {};
  try {
    for (const [name, param] of params) {
      const value = read(form.elements[`param ${name}`], param);
      if (value !== undefined) conf[name] = value;
    }
    if (form.elements.unpause?.checked) await unpause(action.dag);
    const run = await trigger(action.dag, conf);
    dialog.close();
    told(`Run ${run.dag_run_id} of ${action.dag} has begun.`, runPage(action.dag, run.dag_run_id));
  } catch (refused) {
    problem.hidden = false;
    problem.textContent = refused.message;
  }
}

function field(name, param) {
  const schema = param.schema || {};
  const value = param.value;
  const input = `param ${name}`;
  const id = `param-${name}`;
  const about = param.description ? h("small", { id: `${id}-about` }, coded(param.description)) : null;
  const described = { id, name: input, "aria-describedby": about ? `${id}-about` : null };
  const title = schema.title || name.replaceAll("_", " ");
  let control;
  if (schema.type === "boolean") {
    return h("p.field", {}, h("label", {}, h("input", { type: "checkbox", ...described, checked: value === true }), ` ${title}`), about);
  }
  if (schema.enum) {
    control = h("select", described, schema.enum.map((each) => h("option", { value: String(each), selected: each === value }, String(each))));
  } else if (["number", "integer"].includes(kindOf(schema))) {
    control = h("input", { type: "number", ...described, value: value ?? "", min: schema.minimum, max: schema.maximum, step: kindOf(schema) === "integer" ? 1 : "any" });
  } else if (["array", "object"].includes(kindOf(schema))) {
    const options = schema.items?.enum || schema.examples;
    control = options
      ? h("select", { ...described, multiple: true, size: Math.min(8, Math.max(2, options.length)) }, options.map((each) => h("option", { value: String(each), selected: (value || []).includes(each) }, String(each))))
      : h("textarea", described, JSON.stringify(value ?? null));
  } else {
    control = h("input", { type: "text", ...described, value: value ?? "" });
  }
  return h("p.field", {}, h("label", { for: id }, title), control, about);
}

const kindOf = (schema) => (Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type);

function read(control, param) {
  const schema = param.schema || {};
  if (control.type === "checkbox") return control.checked;
  if (control.multiple) return [...control.selectedOptions].map((each) => each.value);
  if (schema.enum) return schema.enum.find((each) => String(each) === control.value);
  if (control.type === "number") return control.value === "" ? undefined : Number(control.value);
  if (control.tagName === "TEXTAREA") return JSON.parse(control.value);
  if (control.value === "" && Array.isArray(schema.type) && schema.type.includes("null")) return null;
  return control.value;
}
