// What this page asks: its own routes for what is shown, Airflow's public REST interface for everything that acts.

const own = (path) => new URL(path, document.baseURI);
const rest = (path) => new URL(`../api/v2/${path}`, document.baseURI);
const PATIENCE_MS = 15000;

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(url, options) {
  const answer = await fetch(url, { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE_MS), ...options });
  const text = await answer.text();
  let told = null;
  try {
    told = text ? JSON.parse(text) : null;
  } catch {
    told = null;
  }
  if (!answer.ok) {
    const detail = told && told.detail !== undefined ? told.detail : text.slice(0, 300);
    throw new Refused(answer.status, typeof detail === "string" ? detail : JSON.stringify(detail));
  }
  return told;
}

const send = (path, method, body) =>
  ask(rest(path), { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export function read(name, query) {
  const url = own(`api/${name}`);
  for (const [key, value] of Object.entries(query || {})) if (value) url.searchParams.set(key, value);
  return ask(url);
}

const name = encodeURIComponent;
export const details = (dag) => ask(rest(`dags/${name(dag)}/details`));
export const unpause = (dag) => send(`dags/${name(dag)}`, "PATCH", { is_paused: false });
export const trigger = (dag, conf) => send(`dags/${name(dag)}/dagRuns`, "POST", { logical_date: null, conf });
export const questions = async (dag, run) => {
  const told = await ask(rest(`dags/${name(dag)}/dagRuns/${name(run)}/hitlDetails?response_received=false`));
  return told.hitl_details.filter((each) => ["awaiting_input", "deferred"].includes(each.task_instance.state));
};
// Why a task failed, as its log says: the error's own text without the traceback around it.
export async function failure(dag, run, task, number, index) {
  const at = `dags/${name(dag)}/dagRuns/${name(run)}/taskInstances/${name(task)}/logs/${number}?full_content=false&map_index=${index}`;
  const told = await ask(rest(at), { headers: { Accept: "application/json" } });
  const lines = (Array.isArray(told?.content) ? told.content : []).filter((line) => line && typeof line === "object");
  const errors = lines.flatMap((line) => (Array.isArray(line.error_detail) ? line.error_detail : []));
  const said = errors.map((error) => error?.exc_value).filter(Boolean).pop();
  const last = lines.filter((line) => ["error", "critical"].includes(line.level)).pop() || lines[lines.length - 1];
  return String(said || last?.event || "").slice(0, 1000);
}
// What a dry run said, wave by wave: the result of its task in each.
export async function foretold(dag, run) {
  const at = `dags/${name(dag)}/dagRuns/${name(run)}/taskInstances`;
  const told = await ask(rest(`${at}/~/xcomEntries?xcom_key_pattern=return_value&limit=100`));
  const tasks = told.xcom_entries.map((each) => each.task_id).filter((task) => task.endsWith(".dry_run"));
  const results = await Promise.all(tasks.map((task) => ask(rest(`${at}/${name(task)}/xcomEntries/return_value`))));
  return results.map((each) => String(each.value)).join("\n\n");
}
export const answer = (dag, run, task, index, option) =>
  send(`dags/${name(dag)}/dagRuns/${name(run)}/taskInstances/${name(task)}/${index}/hitlDetails`, "PATCH", {
    chosen_options: [option],
    params_input: {},
  });

// The address around this frame: what is after its # survives a reload, which the frame's own does not.
export function outerHash(hash) {
  try {
    if (window.parent === window || window.parent.location.origin !== location.origin) return "";
    const { location: outer, history } = window.parent;
    // Not the # alone: Airflow's page has a base of its own, and it would lead there.
    if (hash !== undefined) history.replaceState(history.state, "", `${outer.pathname}${outer.search}${hash}`);
    return outer.hash;
  } catch {
    return ""; // inside a page of another origin
  }
}

// Pages of Airflow open in its own interface around this page, not inside this frame.
export const page = (path) => new URL(`../${path}`, document.baseURI).href;
export const runPage = (dag, run) => page(`dags/${name(dag)}/runs/${name(run)}`);
export function open(href) {
  try {
    if (window.parent !== window && window.parent.location.origin === location.origin) {
      window.parent.history.pushState({}, "", href);
      window.parent.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
      return true;
    }
  } catch {
    return false; // inside a page of another origin
  }
  return false;
}
