// Questions that a run asks a person: what they are decided on, and the answer.

import { answer, questions } from "./airflow.js";
import { draw, h } from "./dom.js";
import { markdown } from "./markdown.js";
import { icon, words } from "./words.js";

const MOVES = ["migrate", "rollback", "failover", "failback"];
export const isMove = (dag) => MOVES.includes(dag.split("__")[0]);

// Which question this is: of one try of one task, with these words. A task that was cleared asks anew, on other evidence.
export const identity = ({ task_instance: ti, created_at, subject, body, options }) =>
  JSON.stringify([ti.id, ti.dag_id, ti.dag_run_id, ti.task_id, ti.map_index, ti.try_number, created_at, subject, body, options]);

// An answer to a question of a run, with what follows from it. It is given only while the run still asks the same.
export function confirmAnswer(dialog, question, option, next, told) {
  const { task_instance: ti, subject } = question;
  const yes = option === "Approve";
  draw(
    dialog,
    h("form", { method: "dialog", "data-key": `answer ${ti.task_id} ${Date.now()}` },
      h("h2", { id: "form-title", tabindex: -1 }, `${option}?`),
      h("p", {}, subject),
      h("p", {}, h("b", {}, "What will happen: "), isMove(ti.dag_id) ? afterMove(option, next) : afterOperation(option)),
      h("p.problem", { id: "form-problem", role: "alert", hidden: true }),
      h("p.buttons", {}, h("button", { type: "submit", class: yes ? "primary" : "danger", id: "form-start" }, option), " ", h("button", { type: "button", "data-act": "cancel" }, "Cancel (Esc)"))),
  );
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    dialog.querySelector("#form-start").disabled = true;
    try {
      const now = await questions(ti.dag_id, ti.dag_run_id);
      if (!now.some((each) => identity(each) === identity(question))) {
        dialog.close();
        return told("Nothing was answered: the question has changed, or somebody has answered it. Read what is asked now.", true);
      }
      await answer(ti.dag_id, ti.dag_run_id, ti.task_id, ti.map_index, option);
      told(`${option}: answered.`, true);
    } catch (refused) {
      told(refused.status === 409 ? "Somebody was faster: it is answered." : `Not answered: ${refused.message}`, false);
    }
    return dialog.close();
  });
  dialog.showModal();
  dialog.querySelector("#form-start").focus();
}

const afterMove = (option, next) => [
  option === "Approve" ? `the run goes on${next ? `. Its next step: ${words(next.name)}, ${next.does}` : ""}.`
    : option === "Reject" ? "the run is refused here. What it has done so far is taken back, as far as it can be." : `the run goes on with “${option}”.`,
  " Your name and the time are written into the journal.",
];

// Of a run that shows, asks, and only then acts.
const afterOperation = (option) =>
  option === "Approve" ? "the run does what the question says, if it is still so. Your name is written down with it."
    : option === "Reject" ? "nothing is done. The run ends." : `the run goes on with “${option}”.`;

export function question(asked, told) {
  const ti = asked.task_instance;
  const own = identity(asked);
  const why = `why ${ti.task_id} ${ti.map_index}`.replaceAll(/[^\w]/g, "-");
  const may = told.actions.find((each) => each.dag === ti.dag_id) || { answers: false, why_no_answer: "You may look, and not answer." };
  return h(
    "section.question",
    { "data-key": `question ${own}`, "aria-label": "A person has to decide" },
    h("h3", {}, icon("paused"), ` ${asked.subject}`),
    asked.body ? h("details", { open: true, "data-key": "body" }, h("summary", {}, "What it is decided on"), markdown(asked.body)) : null,
    h("p", {}, asked.options.map((option) => [
      h("button", {
        "data-act": "answer", "data-question": own, "data-option": option, class: option === "Approve" ? "primary" : null, disabled: !may.answers,
        "aria-describedby": may.answers ? null : why,
      }, option), " "])),
    may.answers ? null : h("p.soft", { id: why }, may.why_no_answer),
  );
}
