// Topics and groups: lists that the server filters, sorts and cuts into pages; and what all lists share.

import { h } from "./dom.js";
import { about, cut, duration, icon, number, plural, rate, words } from "./words.js";

export const RANK = ["idle", "ok", "busy", "warn", "bad"];

export function filterBox(placeholder, more) {
  return h("div.tools", { "data-key": "tools" },
    h("label", {}, "Filter ", h("input", { type: "search", id: "only", placeholder, autocomplete: "off" })), more);
}

// at: which of the page's two counters the buttons move, `first` or `part`.
export function pager(told, shown, size, at) {
  if (told.found <= shown && !told.first) return null;
  const to = told.first + shown;
  return h("p.pager", { role: "group", "aria-label": "Pages" }, `${number(shown ? told.first + 1 : 0)} to ${number(to)} of ${number(told.found)} `,
    h("button", { "data-act": "more", "data-at": at, "data-first": Math.max(0, told.first - size), disabled: told.first === 0 }, "Back"), " ",
    h("button", { "data-act": "more", "data-at": at, "data-first": told.first + size, disabled: to >= told.found }, "Further"));
}

export const headings = (names, numbers) =>
  h("thead", {}, h("tr", {}, names.map((each) => h("th", { scope: "col" }, each)), numbers.map((each) => h("th.n", { scope: "col" }, each))));

const flowLink = (id) => h("button.link", { "data-act": "flow", "data-flow": id, "data-key": `open ${id}` }, id);

export function topicsView(told, state) {
  return list(told, state, {
    title: "Topics", noun: "topic", hint: "topic, flow, cluster or state",
    nothing: "No worker has reported a topic. A flow's panel says why.",
    table: () => h("table", {}, h("caption", {}, "Topics, those that need attention first"),
      headings(["Topic", "State", "Flow", "From", "To"], ["Lag", "Behind", "Rate", "Partitions"]),
      h("tbody", {}, told.rows.map((each) => h("tr", { "data-key": `topic ${each.flow} ${each.topic}` },
        h("th", { scope: "row", title: each.topic }, cut(each.topic, 60), each.target_topic === each.topic ? null : h("small", { title: each.target_topic }, `at ${each.target}: ${cut(each.target_topic, 60)}`)),
        h("td", { class: `state ${each.level}` }, icon(each.state), ` ${words(each.state)}`),
        h("td", {}, flowLink(each.flow)), h("td", {}, each.source), h("td", {}, each.target),
        h("td.n", {}, about(each.lag_records)), h("td.n", {}, duration(each.lag_ms)), h("td.n", {}, rate(each.rate_bytes)),
        h("td.n", {}, number(each.partitions)))))),
  });
}

const MARKS = { equal: "running", carried: "running", waiting: "starting", different: "retrying" };

export function groupsView(told, state) {
  return list(told, state, {
    title: "Consumer groups", noun: "group", hint: "group, flow, cluster or state",
    nothing: "No flow carries positions of groups, or no group was reported yet (sync.groups in the file).",
    table: () => h("table", {}, h("caption", {}, "Consumer groups, those that need attention first"),
      headings(["Group", "Positions", "Flow", "At the source", "At the target", "Why"], ["Lag at the source", "Partitions"]),
      h("tbody", {}, told.rows.map((each) => h("tr", { "data-key": `group ${each.flow} ${each.group}` },
        h("th", { scope: "row", title: each.group }, cut(each.group, 60), each.target_group === each.group ? null : h("small", {}, `at ${each.target}: ${cut(each.target_group, 60)}`)),
        h("td", { class: `state ${each.level}` }, icon(MARKS[each.state] || each.state), ` ${words(each.state)}`),
        h("td", {}, flowLink(each.flow)), h("td", {}, `${each.source}: ${each.source_state || "–"}`), h("td", {}, `${each.target}: ${each.target_state || "not there"}`),
        h("td", {}, cut(each.why || "", 160)), h("td.n", {}, number(each.lag_records)), h("td.n", {}, number(each.partitions)))))),
  });
}

function list(told, state, about_it) {
  return [
    h("h2", {}, about_it.title),
    filterBox(about_it.hint, [
      state.only ? h("button", { "data-act": "unfilter" }, "Show all") : null,
      h("span.soft", {}, state.only ? `${plural(told.found, about_it.noun)} of ${number(told.count)}` : plural(told.count, about_it.noun)),
    ]),
    told.rows.length ? h("div.scroll", { tabindex: 0, role: "region", "aria-label": about_it.title }, about_it.table()) : h("p.empty", {}, state.only ? "Nothing is like that." : about_it.nothing),
    pager(told, told.rows.length, told.at_once, "first"),
  ];
}
