// The Markdown that questions are written in, as elements. Text stays text: there is no way to an element of one's own,
// a link, a picture or an attribute. What is not known here is shown as it was written.

import { h } from "./dom.js";

const MOST_LINES = 2000;

export function markdown(text) {
  const lines = String(text).split(/\r?\n/).slice(0, MOST_LINES);
  const found = [];
  for (let at = 0; at < lines.length; ) {
    const [element, next] = block(lines, at);
    if (element) found.push(element);
    at = next;
  }
  return h("div.markdown", {}, found);
}

// The element that begins at a line, and the line behind it.
function block(lines, at) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  if (line.startsWith("```")) return fenced(lines, at);
  const heading = /^(#{1,6}) +(.+)$/.exec(line);
  if (heading) return [h(`h${Math.min(6, heading[1].length + 1)}`, {}, inline(heading[2])), at + 1];
  if (isRow(line) && isRuler(lines[at + 1])) return table(lines, at);
  if (/^[-*] /.test(line)) return list(lines, at);
  return paragraph(lines, at);
}

function fenced(lines, at) {
  let end = at + 1;
  while (end < lines.length && !lines[end].startsWith("```")) end += 1;
  return [h("pre", { tabindex: 0 }, lines.slice(at + 1, end).join("\n")), end + 1];
}

const isRow = (line) => line !== undefined && line.trim().startsWith("|");
const isRuler = (line) => line !== undefined && /^\s*\|?(\s*:?-+:?\s*\|)+\s*(:?-+:?\s*)?$/.test(line);

function table(lines, at) {
  let end = at + 2;
  while (isRow(lines[end])) end += 1;
  const head = cells(lines[at]);
  return [
    h("div.scroll", { tabindex: 0 }, h("table.evidence", {},
      h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, inline(cell))))),
      h("tbody", {}, lines.slice(at + 2, end).map((line) => h("tr", {}, cells(line).map((cell) => h("td", {}, inline(cell)))))))),
    end,
  ];
}

// A row's cells; a bar behind a backslash is text.
function cells(line) {
  const found = [""];
  const text = line.trim().replace(/^\|/, "").replace(/\|$/, (bar, place, whole) => (whole[place - 1] === "\\" ? bar : ""));
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && at + 1 < text.length) found[found.length - 1] += text[at] + text[(at += 1)];
    else if (text[at] === "|") found.push("");
    else found[found.length - 1] += text[at];
  }
  return found.map((cell) => cell.trim());
}

function list(lines, at) {
  let end = at;
  while (end < lines.length && /^[-*] /.test(lines[end])) end += 1;
  return [h("ul", {}, lines.slice(at, end).map((line) => h("li", {}, inline(line.slice(2))))), end];
}

function paragraph(lines, at) {
  let end = at;
  while (end < lines.length && lines[end].trim() && !(end > at && (isRow(lines[end]) || /^(#{1,6} |```|[-*] )/.test(lines[end])))) end += 1;
  return [h("p", {}, inline(lines.slice(at, end).join(" "))), end];
}

// **bold**, `code`, and backslashes that make the next character text.
function inline(text) {
  const found = [];
  let plain = "";
  const flush = () => {
    if (plain) found.push(plain);
    plain = "";
  };
  for (let at = 0; at < text.length; ) {
    const marks = [["**", "b"], ["`", "code"]].find(([mark]) => text.startsWith(mark, at));
    const end = marks ? text.indexOf(marks[0], at + marks[0].length) : -1;
    if (text[at] === "\\" && at + 1 < text.length) {
      plain += text[at + 1];
      at += 2;
    } else if (marks && end > at + marks[0].length) {
      flush();
      const inner = text.slice(at + marks[0].length, end);
      found.push(h(marks[1], {}, marks[1] === "b" ? inline(inner) : inner));
      at = end + marks[0].length;
    } else {
      plain += text[at];
      at += 1;
    }
  }
  flush();
  return found;
}
