// What the words of the page mean. The same words stand in docs/glossary.md, with where they live in the code.

import { draw, h } from "./dom.js";

export const GLOSSARY = {
  flow: "What is copied from one cluster to another: topics, their names there, limits.",
  lag: "Records at the source that are not copied yet, and for how long the oldest of them has waited.",
  sequence: "How a flow writes exactly once: the producer's sequence numbers let the broker refuse a batch that it has already. The other way is transactions.",
  mapped: "Records get new offsets at the target. Watershed keeps an exact map, and translates positions of groups with it.",
  aligned: "A record has the same offset on both sides.",
  halted: "A partition stands still until a person decides. Nothing was lost; the page says what is wrong and what to do.",
  silent: "No worker has reported for 15 seconds, or the cluster does not answer. The last values stay and say how old they are.",
  wave: "Applications, topics and groups that a migration moves together.",
  gate: "A condition that must hold before a run goes on: little lag, a proof, a person's approval.",
  fence: "What keeps applications from writing to the source: they are stopped, ACLs deny them, or a quota slows them.",
  straggler: "A producer that still writes to the source behind the fence.",
  barrier: "The ends of the source's logs after producers have stopped. Everything up to there must be copied and proven before the switch.",
  "point of no return": "Up to here, whatever fails is taken back by itself. Behind it the way back is a run of its own: Roll back.",
  canary: "The first write of an application at the target, read back. With it the time without writes ends.",
  soak: "The time in which moved consumers are watched on the target before the run goes on.",
  seal: "The last step of a run: the evidence is written, and its hash stands in the journal. Later changes are noticed.",
  journal: "Every decision of every run, chained by hashes, in a topic on the target cluster.",
  proof: "Both sides are read again and compared record by record. The verdict is proven, different, incomplete or error.",
  L0: "Level of a proof: what both clusters say about the topics. It proves nothing about records.",
  L1: "Level of a proof: every batch or record, once. It says which ranges differ, and how many records of each kind.",
  L2: "Level of a proof: as L1, and the ranges that differ are read once more: every difference with its offset.",
  L3: "Level of a proof: as L2, and two records for each position of a group: would it go on with the same record at the target?",
  "dry run": "A run that says what every step would do, and touches nothing.",
  rehearsal: "A migration of copies of the topics, there and back, with producers and consumers of its own.",
};

const KEYS = [
  ["Tab", "goes through everything; in an open panel it goes round"],
  ["Arrow keys", "go from one cluster or flow to the next in the graph, and from tab to tab"],
  ["Enter", "opens what has the focus"],
  ["Esc", "closes a panel or a form and goes back"],
  ["?", "opens this help"],
];

// A word with its meaning as a tooltip; the whole list is behind the button Help.
export const term = (name, shown) => (GLOSSARY[name] ? h("abbr.term", { title: GLOSSARY[name] }, shown || name) : shown || name);

// A term inside a text that comes from the server, where it stands as a whole word.
const WORDS = new RegExp(`\\b(${Object.keys(GLOSSARY).filter((name) => name.length > 2).sort((one, other) => other.length - one.length).join("|")})\\b`, "i");
export function explained(text) {
  const found = WORDS.exec(text);
  if (!found) return text;
  return [text.slice(0, found.index), term(found[0].toLowerCase(), found[0]), text.slice(found.index + found[0].length)];
}

export function openHelp(dialog) {
  draw(
    dialog,
    h("div.bar", {}, h("h2", { id: "help-title", tabindex: -1 }, "Help"), h("button", { "data-act": "close-help" }, "Close (Esc)")),
    h("h3", {}, "Words"),
    h("dl.glossary", {}, Object.entries(GLOSSARY).map(([name, meaning]) => h("div", {}, h("dt", {}, name), h("dd", {}, meaning)))),
    h("h3", {}, "Keys"),
    h("dl.glossary", {}, KEYS.map(([name, meaning]) => h("div", {}, h("dt", {}, h("kbd", {}, name)), h("dd", {}, meaning)))),
    h("p.soft", {}, "More: docs/replication-page.md, docs/glossary.md and docs/runbooks.md of Watershed."),
  );
  dialog.showModal();
  dialog.querySelector("#help-title").focus();
}
